"""`python -m spark_overlay verify` on the real engine, and on one in which each hook point was changed in turn."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from spark_overlay.ledger import LEDGER

from tests.engine import engine_env
from tests.overlay.row_store_library import built

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
CHANGES = [
    (adapter.name, hook.target, change)
    for adapter in LEDGER
    for hook in adapter.hooks
    for change in ("removed", "renamed", "re-signed")
]


def engine_python(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | engine_env.machine_environment(1, engine_env.engine_dir()) | more
    environment["PYTHONPATH"] = f"{ROOT / 'overlay'}:{ROOT}"
    environment["SPARK_ROW_STORE"] = str(built().library)  # in the image it lies beside the package
    return subprocess.run(
        [str(engine_env.engine_python()), *arguments], env=environment, capture_output=True, text=True, timeout=500
    )


@pytest.fixture(scope="module")
def answers(tiny_model: Path) -> dict[str, str]:
    done = engine_python("-m", "tests.engine.changed_engine")
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_engine_as_it_is_has_every_hook_point(answers: dict[str, str]) -> None:
    assert answers["nothing changed"] == ""
    assert answers["put back"] == ""


@pytest.mark.parametrize(("adapter", "target", "change"), CHANGES)
def test_a_changed_hook_point_is_named(answers: dict[str, str], adapter: str, target: str, change: str) -> None:
    said = answers[f"{adapter} {target} {change}"]
    # Two adapters may share a hook point: the first of them is named.
    named = {each.name for each in LEDGER if any(hook.target == target for hook in each.hooks)}
    assert target in said
    assert any(said.startswith(f"adapter {name}: ") for name in named)
    if change == "re-signed":
        assert "has (self, something_new)" in said
    else:
        # Without its own, a class has its base's, which looks otherwise.
        assert "missing in this engine" in said or ": has (" in said


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
