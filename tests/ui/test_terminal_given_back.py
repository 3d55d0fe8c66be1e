"""The terminal is the user's again however the app ends, and bytes and sizes of every kind are survived."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.ui.ended_terminal import resize, run


@pytest.mark.parametrize("seconds", [0.05, 0.5, 1.2, 3.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_app_and_gives_the_terminal_back(
    tmp_path: Path, number: signal.Signals, seconds: float
) -> None:
    ended = run(tmp_path, seconds, lambda pid, _: os.kill(pid, number))
    assert ended.status == 128 + number
    assert ended.left_on == []
    if seconds > 0.1 or "sparktui" in ended.output:  # before, Python itself starts, and nothing of ours runs
        assert "Traceback" not in ended.output


def test_bytes_that_are_no_utf_8_are_keys_that_nobody_bound(tmp_path: Path) -> None:
    def typed(pid: int, terminal: int) -> None:
        os.write(terminal, b"\xe4\xff\xfe\x80\xc3")
        os.write(terminal, b"\x1b")
        os.write(terminal, b"\x11")  # ctrl+q

    ended = run(tmp_path, 3.0, typed)
    assert ended.status == 0, ended.output[-2000:]
    assert ended.left_on == []


def test_tiny_windows_and_a_storm_of_sizes_are_survived(tmp_path: Path) -> None:
    def storm(pid: int, terminal: int) -> None:
        for columns in (1, 2, 3, 200, 1, 80, 3, 10, 2, 400, 60):
            for rows in (1, 2, 24, 3):
                resize(terminal, columns, rows)
        resize(terminal, 80, 24)
        os.write(terminal, b"\x11")

    ended = run(tmp_path, 3.0, storm)
    assert ended.status == 0, ended.output[-2000:]
    assert "Traceback" not in ended.output


def test_an_app_that_panics_ends_with_one_sentence_and_a_file_and_shows_no_values(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv[0] = 'sparktui'\n"
        "from sparktui.ui.app import SparkApp\n"
        "def broken(self):\n    secret = 'sk-never-shown'\n    raise ZeroDivisionError(secret[:3])\n"
        "SparkApp.on_mount = broken\nimport sparktui.__main__"
    )
    ended = run(tmp_path, 8.0, lambda pid, _: None, code=code)
    assert ended.status == 1
    assert ended.left_on == []
    assert "sparktui ended by an error that it does not know (ZeroDivisionError)" in ended.output
    assert "sk-never-shown" not in ended.output
    path = Path(ended.output.split("next: see ")[1].split()[0])
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
