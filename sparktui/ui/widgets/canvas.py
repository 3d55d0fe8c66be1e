"""A sheet of terminal cells to draw boxes and cables on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparktui.ui.widgets.drawing import Piece, Row

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs


class Canvas:
    """`width` x `height` cells; what falls outside is left out. Every character must be one cell wide."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._cells: list[list[Piece]] = [[(" ", "")] * width for _ in range(height)]

    def put(self, x: int, y: int, text: str, style: str = "") -> None:
        if 0 <= y < self.height:
            for offset, character in enumerate(text):
                if 0 <= x + offset < self.width:
                    self._cells[y][x + offset] = (character, style)

    def across(self, left: int, right: int, y: int, character: str, style: str = "") -> None:
        """Both ends included."""
        self.put(left, y, character * (right - left + 1), style)

    def down(self, x: int, top: int, bottom: int, character: str, style: str = "") -> None:
        """Both ends included."""
        for y in range(top, bottom + 1):
            self.put(x, y, character, style)

    def box(self, x: int, y: int, width: int, height: int, glyphs: Glyphs, style: str = "$border") -> None:
        upper_left, upper_right, lower_left, lower_right, side, wall = tuple(glyphs.box)
        self.put(x, y, upper_left + side * (width - 2) + upper_right, style)
        self.put(x, y + height - 1, lower_left + side * (width - 2) + lower_right, style)
        self.down(x, y + 1, y + height - 2, wall, style)
        self.down(x + width - 1, y + 1, y + height - 2, wall, style)

    def pieces(self, x: int, y: int, row: Row) -> None:
        for text, style in row:
            self.put(x, y, text, style)
            x += len(text)

    def rows(self) -> list[Row]:
        drawn: list[Row] = []
        for cells in self._cells:
            joined: list[Piece] = []
            for character, style in cells:
                if joined and joined[-1][1] == style:
                    joined[-1] = (joined[-1][0] + character, style)
                else:
                    joined.append((character, style))
            drawn.append(tuple(joined))
        return drawn
