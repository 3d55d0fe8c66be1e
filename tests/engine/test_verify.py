"""`python -m spark_overlay verify` on the real engine, and on one in which each hook point was changed in turn."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from spark_overlay.adapter import Kind
from spark_overlay.ledger import LEDGER

from tests.engine import engine_env
from tests.overlay.row_store_library import built

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]
ROOT = Path(__file__).parents[2]
CHANGES = [
    (adapter.name, hook.target, change)
    for adapter in LEDGER
    for hook in adapter.hooks
    for change in ("removed", "renamed", "re-signed", "not applied")
]
REPLACED = [(adapter.name, hook.target) for adapter in LEDGER for hook in adapter.hooks if hook.kind is Kind.REPLACE]
"""Of the hooks, those that another plugin's replacement takes the place of; the others wrap it."""
Answers = dict[str, tuple[int, str]]


def engine_python(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | engine_env.machine_environment(1, engine_env.engine_dir()) | more
    environment["PYTHONPATH"] = f"{ROOT / 'overlay'}:{ROOT}"
    environment["SPARK_ROW_STORE"] = str(built().library)  # in the image it lies beside the package
    return subprocess.run(
        [str(engine_env.engine_python()), *arguments], env=environment, capture_output=True, text=True, timeout=1200
    )


@pytest.fixture(scope="module")
def answers(tiny_model: Path) -> Answers:
    done = engine_python("-m", "tests.engine.changed_engine")
    assert done.returncode == 0, done.stderr[-3000:]
    found: Answers = json.loads(done.stdout.splitlines()[-1])
    return found


def error_of(answers: Answers, case: str) -> str:
    """The one error of a verify that failed, without its beginning."""
    status, printed = answers[case]
    errors = [line for line in printed.splitlines() if line.startswith("[spark] ERROR ")]
    assert status == 1, printed
    assert "all hold" not in printed
    assert errors, printed
    return errors[0].removeprefix("[spark] ERROR ")


def test_the_engine_as_it_is_has_every_hook_point(answers: Answers) -> None:
    status, printed = answers["nothing changed"]
    assert status == 0, printed
    assert printed.rstrip().endswith("[spark] verify: all hold")


@pytest.mark.parametrize(("adapter", "target", "change"), CHANGES)
def test_verify_fails_and_names_adapter_target_and_reason(
    answers: Answers, adapter: str, target: str, change: str
) -> None:
    said = error_of(answers, f"{adapter} {target} {change}")
    # Two adapters may share a hook point: the first of them is named.
    named = {each.name for each in LEDGER if any(hook.target == target for hook in each.hooks)}
    assert any(said.startswith(f"adapter {name}: {target}: ") for name in named), said
    if change == "re-signed":
        assert "has (self, something_new)" in said
    elif change == "not applied":
        assert said.endswith("the hook was registered and did not apply")
    else:
        # Without its own, a class has its base's, which looks otherwise.
        assert "missing in this engine" in said or ": has (" in said


@pytest.mark.parametrize(("adapter", "target"), REPLACED)
def test_verify_fails_where_another_replacement_wins(answers: Answers, adapter: str, target: str) -> None:
    said = error_of(answers, f"{adapter} {target} replaced by another")
    assert said == f"adapter {adapter}: {target}: the hook was registered and did not apply"


def test_verify_arms_every_adapter_and_says_so(tiny_model: Path) -> None:
    done = engine_python("-m", "spark_overlay", "verify")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    for adapter in LEDGER:
        assert f"[spark] adapter {adapter.name}: armed" in done.stdout
    assert done.stdout.rstrip().endswith("[spark] verify: all hold")


def test_verify_refuses_a_setting_that_cannot_be_meant(tiny_model: Path) -> None:
    done = engine_python("-m", "spark_overlay", "verify", DSV41_LOOP_NGRAM="many")
    assert done.returncode == 2
    assert "DSV41_LOOP_NGRAM=many is no whole number 0 or from 4 to 256" in done.stdout
