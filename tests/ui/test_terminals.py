"""The real app on a real pseudo-terminal, in each kind of terminal: what is sent, what is refused, what survives."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparktui.ui.terminal import Colour, Terminal, cannot_draw
from tests.ui.pty_app import PtyApp

ROOT = Path(__file__).resolve().parents[2]
BASE = {
    "PATH": os.environ["PATH"],
    "HOME": tempfile.gettempdir(),
    "PYTHONPATH": str(ROOT),
    "TEXTUAL_ANIMATIONS": "none",
}
UTF8 = {"LANG": "C.UTF-8"}
_SGR = re.compile(rb"\x1b\[([0-9;:]*)m")
_COLOUR_CODES = {*range(30, 50), *range(90, 108)}


@contextmanager
def opened(
    folder: Path, environment: dict[str, str], *options: str, columns: int = 80, rows: int = 24
) -> Iterator[PtyApp]:
    argv = [sys.executable, "-m", "tests.ui.app_on_pty", str(folder), *options]
    with PtyApp(argv, BASE | environment, columns=columns, rows=rows) as app:
        yield app


def every_screen(app: PtyApp) -> bytes:
    """Walk through wizard, monitor, logs, help, talk, settings and the palette; all that was sent."""

    def back() -> None:
        app.drain(0.3)
        since = len(app.output)
        app.send(b"\x1b")  # alone for a moment: with another key after it, it would be alt
        app.drain(0.4)
        app.until(b"FOLLOWING", since=since)

    app.until(b"quit")
    app.press(b"m", b"monitor")
    app.drain(0.3)
    app.press(b"l", b"FOLLOWING")
    app.until(b"step 39")
    app.press(b"?", b"The newest line")
    back()
    app.press(b"t", b"curl")
    back()
    app.press(b"e", b"settings")
    app.drain(0.5)
    back()
    app.press(b"\x10", b"earch")  # the command palette
    back()
    app.send(b"q")
    assert app.wait(20) == 0
    return bytes(app.output)


def colour_codes(sent: bytes) -> set[str]:
    """Every colour that was set, as it was written: `31`, `38;5;9`, `48;2;1;2;3`."""
    found: set[str] = set()
    for match in _SGR.finditer(sent):
        numbers = [int(each or 0) for each in match[1].replace(b":", b";").split(b";")]
        while numbers:
            code = numbers.pop(0)
            if code in (38, 48):
                count = 2 if numbers[:1] == [5] else 4
                found.add(";".join(map(str, [code, *numbers[:count]])))
                del numbers[:count]
            elif code in _COLOUR_CODES:
                found.add(str(code))
    return found


@pytest.mark.parametrize("state", ["working", "failing"])
@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({"TERM": "xterm-256color", "LANG": "C"}, ()),
        ({"TERM": "xterm-256color", **UTF8}, ("--ascii",)),
    ],
    ids=["LANG=C", "--ascii"],
)
def test_in_ascii_no_screen_sends_another_byte(
    tmp_path: Path, environment: dict[str, str], options: tuple[str, ...], state: str
) -> None:
    with opened(tmp_path, environment, *options, "--state", state) as app:
        sent = every_screen(app)
    others = sorted({sent[max(0, at - 30) : at + 4] for at, byte in enumerate(sent) if byte > 127})
    assert not others, others[:3]


def test_no_color_sends_no_colour_code_and_still_shows_what_is_chosen(tmp_path: Path) -> None:
    with opened(tmp_path, {"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": "1", **UTF8}) as app:
        sent = every_screen(app)
    assert colour_codes(sent) == set()
    assert b"\x1b[7m" in sent or b";7m" in sent or b"[7;" in sent, "nothing is reversed: a choice is not seen"


def test_sixteen_colours_are_the_terminal_s_own(tmp_path: Path) -> None:
    with opened(tmp_path, {"TERM": "xterm", **UTF8}) as app:
        codes = colour_codes(every_screen(app))
    allowed = {*range(30, 38), 39, *range(40, 48), 49, *range(90, 98), *range(100, 108)}
    assert codes and all(each.isdigit() and int(each) in allowed for each in codes), codes
    assert codes - {"39", "49"}, "only default colours"


@pytest.mark.parametrize(
    "environment",
    [
        {"TERM": "xterm-256color"},  # ssh: only TERM arrives
        {"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal", "COLORTERM": "truecolor"},
        {"TERM": "screen-256color", "STY": "1.pts", "COLORTERM": "truecolor"},
    ],
    ids=["ssh", "Apple_Terminal", "GNU screen"],
)
def test_256_colours_where_more_is_not_certain(tmp_path: Path, environment: dict[str, str]) -> None:
    with opened(tmp_path, environment | UTF8) as app:
        codes = colour_codes(every_screen(app))
    assert any(each.startswith("38;5;") for each in codes)
    assert not any(each[3:5] == "2;" for each in codes if ";" in each), codes


def test_truecolor_where_the_terminal_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, {"TERM": "xterm-256color", "COLORTERM": "truecolor", **UTF8}) as app:
        app.until(b"quit")
        assert any(each.startswith("38;2;") for each in colour_codes(bytes(app.output)))


@pytest.mark.parametrize(
    ("environment", "colour", "ascii_only"),
    [
        ({"TERM": "tmux-256color", "TMUX": "x", "COLORTERM": "truecolor", "LANG": "de_DE.UTF-8"}, Colour.TRUE, False),
        ({"TERM": "screen-256color", "TMUX": "x", "LANG": "de_DE.utf8"}, Colour.INDEXED, False),
        ({"TERM": "screen", "TMUX": "x", "LANG": "C.UTF-8"}, Colour.BASIC, False),
        ({"TERM": "screen", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}, Colour.BASIC, False),
        # macOS Terminal behind tmux: its name is gone, tmux translates; behind ssh only TERM is known
        ({"TERM": "tmux-256color", "TMUX": "x", "TERM_PROGRAM": "tmux", "LANG": "C.UTF-8"}, Colour.INDEXED, False),
        ({"TERM": "xterm-256color", "LC_ALL": "en_US.UTF-8", "LANG": "C"}, Colour.INDEXED, False),
        ({"TERM": "xterm-256color", "LC_ALL": "C", "LANG": "en_US.UTF-8"}, Colour.INDEXED, True),
        ({"TERM": "xterm-256color"}, Colour.INDEXED, True),
        ({"TERM": "xterm-256color", "LC_CTYPE": "C.UTF-8"}, Colour.INDEXED, True),  # as Python makes it of nothing
        ({"TERM": "xterm-256color", "LC_CTYPE": "C.UTF-8", "LANG": "C"}, Colour.INDEXED, True),
        ({"TERM": "xterm-256color", "LC_CTYPE": "en_US.UTF-8", "LANG": "C"}, Colour.INDEXED, False),
        ({"TERM": "xterm-kitty", "LANG": "C.UTF-8"}, Colour.TRUE, False),
        ({"TERM": "xterm-direct", "LANG": "C.UTF-8"}, Colour.TRUE, False),
        ({"TERM": "linux", "LANG": "C.UTF-8"}, Colour.BASIC, True),
        ({"TERM": "vt100", "LANG": "C.UTF-8"}, Colour.NONE, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "", "LANG": "C.UTF-8"}, Colour.INDEXED, False),
        ({"TERM": "xterm-256color", "NO_COLOR": "0", "LANG": "C.UTF-8"}, Colour.NONE, False),
    ],
)
def test_what_a_terminal_can_show(environment: dict[str, str], colour: Colour, ascii_only: bool) -> None:
    assert Terminal.of(environment) == Terminal(colour, ascii_only)
    assert Terminal.of(environment, ascii_only=True).ascii_only
    assert not cannot_draw(environment)


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_place_a_cursor_is_told_in_a_sentence(tmp_path: Path, term: str) -> None:
    with opened(tmp_path, {"TERM": term, **UTF8}) as app:
        assert app.wait(20) == 2
        said = bytes(app.output).decode()
    assert f"TERM={term or '(not set)'} cannot show the full-screen app" in said and "next: set TERM" in said
    assert "Traceback" not in said and "\x1b" not in said


def test_without_a_terminal_one_sentence_and_status_2(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text('HEAD_IP="10.0.0.1"\n')
    environment = BASE | {"TERM": "xterm-256color"}
    done = subprocess.run(
        [sys.executable, "-m", "sparktui"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stdout == ""
    assert "the full-screen app needs a terminal" in done.stderr and len(done.stderr.splitlines()) == 2


def test_too_small_is_said_and_a_larger_window_brings_everything_back(tmp_path: Path) -> None:
    with opened(tmp_path, {"TERM": "xterm-256color", **UTF8}, "--mode", "logs") as app:
        app.until(b"step 39")
        app.press(b"/", b"words")
        app.press(b"0\r", b"matches")
        since = len(app.output)
        app.resize(50, 12)
        app.until(b"this is 50", since=since)
        since = len(app.output)
        app.resize(100, 30)
        app.until(b"matches", since=since)
        app.send(b"q")
        assert app.wait(20) == 0


def test_no_mouse_leaves_the_mouse_to_the_terminal(tmp_path: Path) -> None:
    reporting = b"\x1b[?1000h"
    with opened(tmp_path, {"TERM": "xterm-256color", **UTF8}) as app:
        app.until(b"quit")
        assert reporting in app.output
    with opened(tmp_path, {"TERM": "xterm-256color", **UTF8}, "--no-mouse") as app:
        app.until(b"quit")
        assert reporting not in app.output


@pytest.mark.parametrize("mode", ["wizard", "monitor", "logs"])
def test_q_ends_the_process_although_no_node_and_no_docker_ever_answers(tmp_path: Path, mode: str) -> None:
    with opened(tmp_path, {"TERM": "xterm-256color", **UTF8}, "--hang", "--mode", mode) as app:
        app.until(b"quit" if mode == "wizard" else b"sparktui")
        app.drain(1.0)
        app.send(b"q")
        assert app.wait(5) == 0
        assert b"\x1b[?1049l" in app.output, "the terminal was not given back"
