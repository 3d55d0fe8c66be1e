"""Lines of a panel: wrapped to its width, with the things among them that a key copies. Pure."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content

from sparktui.printing import plain

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs

BESIDE_COLUMNS = 76
"""From this width on a finding stands in columns, and a node's progress on one line."""


@dataclass(frozen=True, slots=True)
class Copyable:
    """Something that a key copies. `what` names it in a few words; `line` is where it stands."""

    what: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Panel:
    lines: tuple[Content, ...] = ()
    copyables: tuple[Copyable, ...] = ()

    @property
    def content(self) -> Content:
        return Content("\n").join(self.lines)


@dataclass(frozen=True, slots=True)
class Shown:
    """How the panel is to be drawn.

    Attributes:
        focused: which copyable is pointed at; -1 for none.
        unfolded: findings that are OK are shown one by one.
        banner: such as SIMULATED.
        short: few rows: what the step does gives way to what goes on.
    """

    width: int
    now: float
    focused: int = 0
    unfolded: bool = False
    banner: str = ""
    short: bool = False


class Lines:
    """Collects lines, wrapped to the width, and what can be copied from them."""

    def __init__(self, width: int, glyphs: Glyphs, focused: int) -> None:
        self.width, self.glyphs, self._focused = max(20, width), glyphs, focused
        self.lines: list[Content] = []
        self.copyables: list[Copyable] = []

    def add(self, content: Content | str = "") -> None:
        self.lines.append(content if isinstance(content, Content) else Content(content))

    def text(self, text: str, style: str = "", *, indent: int = 0, first: str = "") -> None:
        """Wrapped text; `first` begins the first line, the others are indented as far."""
        begin = first or " " * indent
        for number, line in enumerate(self._wrapped(text, len(begin))):
            self.add(Content.assemble((begin, style) if number == 0 else " " * len(begin), (line, style)))

    def _wrapped(self, text: str, taken: int) -> list[str]:
        room = max(12, self.width - taken)
        lines: list[str] = []
        for part in text.split("\n"):
            lines += textwrap.wrap(plain(part), room, break_long_words=True, break_on_hyphens=False) or [""]
        return lines

    def space(self) -> None:
        if self.lines and self.lines[-1].plain:
            self.add()

    def point(self, what: str, text: str) -> str:
        """The next line can be copied; the mark that stands before it."""
        self.copyables.append(Copyable(what, text, len(self.lines)))
        return self.glyphs.pointer if len(self.copyables) - 1 == self._focused else " "
