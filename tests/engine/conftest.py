"""The engine's cache for tests: what lacks is added, so that a changed smoke file gets its model."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import engine_env
from tests.engine.serving import Serving, serving


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The tiny checkpoint's folder; install_engine.sh has run."""
    script = engine_env.FOLDER / "install_engine.sh"
    done = subprocess.run([str(script)], stdout=subprocess.PIPE, text=True, timeout=1500, check=False)
    if done.returncode == 75:
        pytest.skip("disk too small for the engine")
    assert done.returncode == 0, f"{script} ended with {done.returncode}"
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def plain(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """SGLang as it comes, for all modules."""
    with serving("plain", tiny_model, tmp_path_factory.mktemp("plain")) as server:
        yield server
