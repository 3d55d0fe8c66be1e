"""The engine's cache for tests: what lacks is added, so that a changed smoke file gets its model."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.overlay.conftest  # noqa: F401 - makes the image's package importable
from tests.engine import engine_env
from tests.engine.serving import KEY, SMALL_CAP, Serving, serving


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


@pytest.fixture(scope="session")
def plugin(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """As the container starts it: with a key, and with a cap that a test reaches soon."""
    folder = tmp_path_factory.mktemp("plugin")
    with serving("plugin", tiny_model, folder, key=KEY, DSV41_MAX_NEW_TOKENS=str(SMALL_CAP)) as server:
        yield server


@pytest.fixture(scope="session")
def other(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The settings that turn behaviours round: a loop ends as a stop, the cap is hard, another default effort."""
    settings = {"DSV41_LOOP_NAMED_EXIT": "0", "DSV41_MAX_NEW_TOKENS": "200", "DSV41_MAX_NEW_TOKENS_HARD": "1"}
    settings |= {"SGLANG_DSV41_REASONING_EFFORT": "33", "SPARK_ENABLE_THINKING_ALIAS": "0", "SPARK_INTEGER_EFFORT": "0"}
    with serving("plugin", tiny_model, tmp_path_factory.mktemp("other"), **settings) as server:
        yield server
