"""Opens the app on a terminal; the one door that the command line uses."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from sparktui.errors import UsageError
from sparktui.ui.terminal import Colour, Terminal, cannot_draw

if TYPE_CHECKING:
    from codecs import IncrementalDecoder

    from sparktui.ui.app import SparkApp
    from sparktui.ui.session import Start

SIGNAL_SECONDS = 3.0
LEAVE_SECONDS = 0.4
"""From the restored terminal to the end of the process, at the latest."""


def open_app(start: Start, *, ascii_only: bool = False, mouse: bool = True) -> NoReturn:
    """Run the app until it is left; the process ends with it, and with its exit status.

    Raises:
        UsageError: standard input, output or error is no terminal.
    """
    if not (all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))):
        raise UsageError(
            "the full-screen app needs a terminal",
            fix="without one, use a verb: sparktui up --json (AGENTS.md), sparktui status",
        )
    if cannot_draw(os.environ):
        raise UsageError(
            f"a terminal of the kind TERM={os.environ.get('TERM', '') or '(not set)'} cannot show the full-screen app",
            fix="set TERM to what it is (often xterm-256color), or use a verb: sparktui status, sparktui up",
        )
    # Read by Textual at its import: how long a key's effect waits for the next picture. In between nothing is painted.
    os.environ.setdefault("TEXTUAL_FPS", "120")
    terminal = Terminal.of(os.environ, ascii_only=ascii_only)
    if terminal.colour is Colour.NONE:
        os.environ["NO_COLOR"] = "1"
    else:
        os.environ.pop("NO_COLOR", None)  # empty means nothing, but Textual asks only whether it is there
        os.environ.setdefault("TEXTUAL_COLOR_SYSTEM", terminal.colour.value)  # read by Textual at its import
    import asyncio
    import gc

    # What is imported stays: to look through it for garbage again and again only delays the first picture.
    gc.disable()
    from sparktui.ui.app import SparkApp

    _read_any_byte()
    asyncio.run(_until_left(SparkApp(start, terminal), mouse=mouse))


def _read_any_byte() -> None:
    """A byte that is not UTF-8 (a Latin-1 terminal, a paste) is a key that nobody bound; Textual would end at it."""
    from codecs import getincrementaldecoder

    from textual.drivers import linux_driver

    def lenient(encoding: str) -> Callable[[], IncrementalDecoder]:
        return partial(getincrementaldecoder(encoding), errors="replace")

    linux_driver.getincrementaldecoder = lenient  # type: ignore[attr-defined, assignment]


def _leave_on_signals(app: SparkApp, saved: list[Any]) -> list[int]:
    """SIGTERM and its like leave as `q` does, and give the terminal back; the signals that came."""
    import asyncio

    came: list[int] = []

    def leave(number: int) -> None:
        came.append(number)
        app.exit(return_code=128 + number)
        # An app that does not get to its end must not keep the terminal.
        late = threading.Timer(SIGNAL_SECONDS, _force, (128 + number, saved))
        late.daemon = True
        late.start()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        asyncio.get_running_loop().add_signal_handler(number, leave, number)
    return came


def _force(status: int, saved: list[Any]) -> NoReturn:
    with contextlib.suppress(OSError, termios.error):
        os.write(1, b"\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[0m\r\n")
        termios.tcsetattr(0, termios.TCSANOW, saved)
    os._exit(status)


async def _until_left(app: SparkApp, *, mouse: bool) -> NoReturn:
    came = _leave_on_signals(app, termios.tcgetattr(0))
    status = await app.run_async(mouse=mouse) or app.return_code or 0
    status = 128 + came[0] if came else status
    # The terminal is the user's again. What waits for a node that never answers (a connection to close, a thread in a
    # dead mount) must not keep it: what runs on the nodes ends when its connection does, a run lives on by itself.
    end = threading.Timer(LEAVE_SECONDS, _end_process, (status,))
    end.daemon = True
    end.start()
    await app.session.close()
    _end_process(status)


def _end_process(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
