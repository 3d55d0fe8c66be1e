"""Runs the bench's two processes with the engine's Python, from a Python that has neither torch nor SGLang."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.engine import engine_env
from tests.overlay.row_store_library import built

ROOT = Path(__file__).parents[3]
MODELS = ("__init__", "registry", "deepseek_v4", "deepseek_v4_dspark")


def environment() -> dict[str, str]:
    """That of a machine without a GPU, and the settings that keep the model on its torch forms."""
    named = os.environ | engine_env.machine_environment(1, engine_env.engine_dir())
    folder = next((engine_env.engine_dir() / "lib").glob("python3.*/site-packages/sglang/srt/models"))
    others = sorted(path.stem for path in folder.glob("*.py") if path.stem not in MODELS)
    return named | {
        "SGLANG_DISABLED_MODEL_ARCHS": ",".join(others),
        "SGLANG_OPT_USE_TILELANG_MHC_PRE": "0",
        "SGLANG_OPT_USE_TILELANG_MHC_POST": "0",
        "SPARK_ROW_STORE": str(built().library),
        "DSV41_IO_THREADS": "4",
        "PYTHONPATH": f"{ROOT / 'overlay'}:{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def answer(words: list[str], seconds: int, **more: str) -> dict[str, Any]:
    """The last line that `python -m WORDS` prints, of the engine's Python."""
    done = subprocess.run(
        [str(engine_env.engine_python()), "-W", "ignore", "-m", *words],
        cwd=ROOT, env=environment() | more, capture_output=True, text=True, timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(scratch: Path) -> dict[str, Any]:
    """What `__main__.report` finds. Needs some 1.5 GB of memory a rank, and two minutes on two cores."""
    return answer(["tests.engine.v41", str(scratch)], 560)


def run_router() -> dict[str, Any]:
    """What `router.main` finds."""
    return answer(["tests.engine.v41.router"], 200, TRITON_INTERPRET="1")
