"""With CI=true a skip is a failure unless its reason is on the named list (tests/conftest.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
A_FILE = """
import pytest
def test_lacks(): pytest.skip({reason!r})
@pytest.mark.skipif(True, reason={reason!r})
def test_marked(): pass
"""


def outcome(folder: Path, text: str, ci: str) -> tuple[int, str]:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  testbed: x\n  engine: x\n")
    (folder / "test_it.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-q", str(folder)],
        cwd=folder, env={**os.environ, "CI": ci, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize("reason", ["no dockerd", "the cached engine (make it with …)"])
def test_a_skip_fails_in_ci_and_only_there(tmp_path: Path, reason: str) -> None:
    status, said = outcome(tmp_path, A_FILE.format(reason=reason), "true")
    # A mark skips before the test is called, which pytest counts as an error.
    assert status == 1 and "1 failed, 1 error" in said and f"CI=true allows none: {reason}" in said
    status, said = outcome(tmp_path, A_FILE.format(reason=reason), "")
    assert status == 0 and "2 skipped" in said


@pytest.mark.parametrize("reason", ["disk too small for the engine: 3 GiB", "../shared is absent"])
def test_the_named_reasons_stay_skips_in_ci(tmp_path: Path, reason: str) -> None:
    status, said = outcome(tmp_path, A_FILE.format(reason=reason), "true")
    assert status == 0 and "2 skipped" in said


def test_a_whole_file_that_skips_fails_in_ci(tmp_path: Path) -> None:
    text = "import pytest\npytest.skip('no libnfs', allow_module_level=True)\n"
    assert outcome(tmp_path, text, "true")[0] != 0
