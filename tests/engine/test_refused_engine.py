"""An engine in which an armed adapter does not hold: no process of it serves, and the container ends with a reason."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.engine import engine_env
from tests.engine.serving import MODULES, OVERLAY, arguments, environment, free_port

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
CHANGER = engine_env.FOLDER / "sitecustomize_of_a_changed_engine.py"
TARGET = "sglang.srt.managers.schedule_batch.Req.update_finish_state"
SENTENCE = f"[spark] ERROR scheduler: adapter loop_abort: {TARGET}: missing in this engine: "


def container(folder: Path, model: Path, **settings: str) -> dict[str, str]:
    """The environment of a container whose engine runs here, on a CPU."""
    return environment(
        PATH=f"{engine_env.engine_dir() / 'bin'}:{os.environ['PATH']}",
        MODEL_PATH=str(model), STATE_PATH=str(folder), SERVER_PORT=str(free_port()), HOST="127.0.0.1", TP_SIZE="1",
        CONTEXT_LENGTH="4096", MAX_TOTAL_TOKENS="16384", MEM_FRACTION_STATIC="0.1", SPEC_ALGO="off", WARMUP="0",
        EXTRA_SGLANG_ARGS=shlex.join(engine_env.sglang_arguments()), STOP_GRACE_S="10", **settings,
    )  # fmt: skip


def test_a_scheduler_without_its_hook_point_ends_with_70_and_the_container_ends(
    tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "changed").mkdir()
    (tmp_path / "changed" / "sitecustomize.py").write_text(CHANGER.read_text())
    python_path = f"{tmp_path / 'changed'}:{OVERLAY}"
    done = subprocess.run(
        [str(engine_env.engine_python()), "-u", "-S", "-m", "spark_overlay.entry", "run"],
        env=container(tmp_path, tiny_model, CHANGED_IN="scheduler", PYTHONPATH=python_path),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800,
    )  # fmt: skip
    assert SENTENCE in done.stdout, done.stdout[-3000:]
    assert done.returncode not in (0, 2), "the container ends, and not as one whose settings were refused"
    assert f"[spark] rank=0 engine ended, code={done.returncode}" in done.stdout
    assert "READY" not in done.stdout
    assert json.loads((tmp_path / "launch.json").read_text())["rank"] == 0


def child(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(engine_env.engine_python()), "-c", code], env=environment(**settings),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


WRONG_LEDGER = """
import dataclasses
from spark_overlay import ledger
first = ledger.LEDGER[0]
points = tuple(dataclasses.replace(hook, signature="(self, other)") for hook in first.hooks)
ledger.LEDGER = (dataclasses.replace(first, hooks=points), *ledger.LEDGER[1:])
"""
STARTED_BY_SGLANG = """
import multiprocessing, sys
def run_scheduler_process():
    {ledger}
    from sglang.srt.plugins import load_plugins
    load_plugins()
    print("served")
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=run_scheduler_process)
    process.start()
    process.join()
    print("status", process.exitcode)
"""


def test_a_wrong_ledger_ends_a_child_with_70_and_the_sentence(tiny_model: Path) -> None:
    wrong = STARTED_BY_SGLANG.format(ledger=WRONG_LEDGER.strip().replace("\n", "\n    "))
    done = child(wrong)
    assert "[spark] ERROR scheduler: adapter loop_abort: sglang.srt.managers.schedule_batch.Req" in done.stdout
    assert "expected (self, other); this engine process ends here" in done.stdout
    assert "status 70" in done.stdout
    assert "served" not in done.stdout


def test_the_main_process_looks_at_the_schedulers_points_too(tiny_model: Path) -> None:
    done = child(WRONG_LEDGER + "from sglang.srt.plugins import load_plugins\nload_plugins()\nprint('served')")
    assert done.returncode == 70
    assert "[spark] ERROR server: adapter loop_abort: " in done.stdout
    assert "served" not in done.stdout


def test_an_engine_that_was_told_to_leave_the_plugin_out_does_not_start(tiny_model: Path) -> None:
    argv = [str(engine_env.engine_python()), "-m", MODULES["plugin"], *arguments(tiny_model, free_port())]
    done = subprocess.run(argv, env=environment(SGLANG_PLUGINS="another"), capture_output=True, text=True, timeout=300)
    assert done.returncode == 70
    assert "did not load the plugin spark_overlay (SGLANG_PLUGINS=another)" in done.stdout
