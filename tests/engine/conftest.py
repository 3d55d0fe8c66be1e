"""The engine's cache for tests: what lacks is added, so that a changed smoke file gets its model."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.engine import engine_env


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The tiny checkpoint's folder; install_engine.sh has run."""
    script = engine_env.FOLDER / "install_engine.sh"
    done = subprocess.run([str(script)], stdout=subprocess.PIPE, text=True, timeout=1500, check=False)
    if done.returncode == 75:
        pytest.skip("disk too small for the engine")
    assert done.returncode == 0, f"{script} ended with {done.returncode}"
    return Path(done.stdout.strip())
