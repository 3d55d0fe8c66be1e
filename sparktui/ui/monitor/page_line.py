"""The line that says which page of the monitor this is, which node is chosen, how far back, and whether it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktui.ui.widgets.drawing import Drawing, Piece, Row, filled, row_width

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs


@dataclass(frozen=True, slots=True)
class Pages:
    """What the line shows; `chosen` is one of `names`, or empty for all, which `together` says there is room for."""

    names: tuple[str, ...] = ()
    chosen: str = ""
    together: bool = False
    node: str = ""
    span: str = ""
    paused: bool = False


class PageLine(Drawing):
    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        self.pages = Pages()
        super().__init__(id=id, classes=classes)

    def show(self, pages: Pages) -> None:
        if pages != self.pages:
            self.pages = pages
            self.redraw()

    def rows(self, width: int, height: int, glyphs: Glyphs) -> Sequence[Row]:
        return [page_row(self.pages, width, glyphs)]


def page_row(pages: Pages, width: int, glyphs: Glyphs) -> Row:
    left: list[Piece] = []
    named = list(enumerate(pages.names, start=1))
    for number, name in [*([(0, "all")] if pages.together else []), *named]:
        here = name == (pages.chosen or "all")
        text = f"[{number} {name}]" if here else f" {number} {name} "
        left.append((text, "$accent bold" if here else "$quiet"))
    rights: list[list[Piece]] = []
    paused: list[Piece] = [("PAUSED", "$warning bold"), ("  ", "")] if pages.paused else []
    rights.append([*paused, (f"node {pages.node}  " if pages.node else "", "$quiet"), (f"last {pages.span}", "$quiet")])
    rights.append([*paused, (pages.span, "$quiet")])
    rights.append(paused)
    for right in rights:
        if row_width(left) + row_width(right) + 1 <= width:
            return filled(left, right, width, glyphs.ellipsis)
    return filled(left, paused[:1], width, glyphs.ellipsis)
