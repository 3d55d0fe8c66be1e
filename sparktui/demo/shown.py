"""Says SIMULATED on everything that is printed: a word before each line of text, a field in each JSON object."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

WORD = "SIMULATED "
FIELD = '"simulated": true'
BANNER = (
    "three DGX Sparks that exist only in this program: nothing outside its own folder is touched.",
    "where a line says `sparktui VERB`, type `sparktui demo VERB` here.",
)


class Marked:
    """A text stream that puts WORD before each line; with `as_json` it adds FIELD to each object instead."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out, self._as_json = out, as_json
        self._held = ""

    def write(self, text: str) -> int:
        if text.startswith("\r") and not text.strip("\r "):
            # It wipes what was drawn, which our word made longer.
            self._out.write("\r" + " " * (text.count(" ") + len(WORD)) + "\r")
            return len(text)
        *lines, self._held = (self._held + text).split("\n")
        for line in lines:
            self._out.write(self._marked(line) + "\n")
        return len(text)

    def _marked(self, line: str) -> str:
        if self._as_json:
            return f"{{{FIELD}, {line[1:]}" if line.startswith('{"') else line
        return f"{WORD}{line}"

    def flush(self) -> None:
        if self._held:
            # A line without an end will be drawn over: it must fit, or it could not be wiped.
            room = max(20, shutil.get_terminal_size().columns - 1)
            self._out.write(self._marked(self._held)[:room] if not self._as_json else self._held)
            self._held = ""
        self._out.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


def banner(out: Marked) -> None:
    for line in BANNER:
        out.write(line + "\n")
    out.flush()


@contextlib.contextmanager
def marked(*, as_json: bool) -> Iterator[None]:
    """Everything printed inside is marked, errors too; text begins with the banner."""
    out, err = Marked(sys.stdout, as_json=as_json), Marked(sys.stderr, as_json=False)
    if not as_json:
        banner(out)
    with contextlib.redirect_stdout(cast("TextIO", out)), contextlib.redirect_stderr(cast("TextIO", err)):
        try:
            yield
        finally:
            for stream in (out, err):
                with contextlib.suppress(BrokenPipeError):
                    stream.flush()
