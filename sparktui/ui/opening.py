"""Opens the app on a terminal; the one door that the command line uses."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sparktui.errors import UsageError
from sparktui.ui.terminal import Colour, Terminal, cannot_draw

if TYPE_CHECKING:
    from sparktui.ui.session import Start


def open_app(start: Start, *, ascii_only: bool = False, mouse: bool = True) -> int:
    """Run the app until it is left; the exit status.

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
    terminal = Terminal.of(os.environ, ascii_only=ascii_only)
    if terminal.colour is Colour.NONE:
        os.environ["NO_COLOR"] = "1"
    else:
        os.environ.pop("NO_COLOR", None)  # empty means nothing, but Textual asks only whether it is there
        os.environ.setdefault("TEXTUAL_COLOR_SYSTEM", terminal.colour.value)  # read by Textual at its import
    from sparktui.ui.app import SparkApp

    return SparkApp(start, terminal).run(mouse=mouse) or 0
