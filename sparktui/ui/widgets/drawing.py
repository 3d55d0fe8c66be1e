"""What the live panes are made of: rows of styled pieces, painted row by row, and only the rows that changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.events import Resize
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

if TYPE_CHECKING:
    from sparktui.ui.app import SparkApp
    from sparktui.ui.glyphs import Glyphs

Piece = tuple[str, str]
"""Text and its style: `("down", "$error bold")`; an empty style is the widget's own."""
Row = tuple[Piece, ...]


def row_width(row: Iterable[Piece]) -> int:
    """Terminal cells."""
    width = 0
    for text, _ in row:
        width += len(text) if text.isascii() else cell_len(text)
    return width


def row_text(row: Iterable[Piece]) -> str:
    return "".join(text for text, _ in row)


def fitted(row: Sequence[Piece], width: int, ellipsis: str = "…") -> Row:
    """The row in `width` cells: what is too long ends at a word, with the ellipsis."""
    if row_width(row) <= width:
        return tuple(row)
    kept: list[Piece] = []
    room = width - cell_len(ellipsis)
    for text, style in row:
        if cell_len(text) <= room:
            kept.append((text, style))
            room -= cell_len(text)
            continue
        cut = text
        while cut and cell_len(cut) > room:
            cut = cut[:-1]
        whole_words = cut.rpartition(" ")[0]
        if cut != text and " " in cut and not text[len(cut)].isspace() and len(whole_words) > len(cut) // 2:
            cut = whole_words
        kept.append((cut.rstrip() + ellipsis, style))
        break
    return tuple(kept)


def filled(left: Sequence[Piece], right: Sequence[Piece], width: int, ellipsis: str = "…") -> Row:
    """`left`, blanks, `right`; where both do not fit, the left part gives way."""
    room = width - row_width(right)
    if not right or room < 1:
        return fitted(left or right, width, ellipsis)
    start = fitted(left, room - 1, ellipsis)
    return (*start, (" " * (room - row_width(start)), ""), *right)


class Drawing(Widget):
    """A widget that is one picture. A subclass gives `rows()` and calls `redraw()` when its value changed."""

    DEFAULT_CSS = "Drawing { text-wrap: nowrap; overflow: hidden; }"

    FITS: ClassVar[bool] = False
    """Whether `rows()` keeps to its width by itself."""

    app: SparkApp

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        self._rows: Sequence[Row] | None = None
        self._drawn_for = (0, 0)
        self._wanted = 0
        self._pens: dict[str, RichStyle] = {}
        super().__init__(id=id, classes=classes)

    def rows(self, width: int, height: int, glyphs: Glyphs) -> Sequence[Row]:
        """The picture in `width` x `height` cells; rows that are missing are blank."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw again, and repaint the rows that differ."""
        width, height = self.content_size
        if width and self.styles.is_auto_height and self.height_wanted(width) != self._wanted:
            self.refresh(layout=True)
        if self._rows is None or not self.is_mounted or (width, height) != self._drawn_for:
            self._rows = None
            self.refresh()
            return
        before, self._rows = self._rows, self._draw(width, height)
        changed = [y for y in range(max(len(before), len(self._rows))) if before[y : y + 1] != self._rows[y : y + 1]]
        # Rows near each other go as one region: each region costs the compositor more than a row does.
        while changed:
            first = last = changed.pop(0)
            while changed and changed[0] <= last + 3:
                last = changed.pop(0)
            self.refresh(Region(0, first, width, last - first + 1))

    def _draw(self, width: int, height: int) -> Sequence[Row]:
        if width < 1 or height < 1:
            return ()
        glyphs = self.app.glyphs
        if self.FITS:
            return self.rows(width, height, glyphs)[:height]
        return [fitted(row, width, glyphs.ellipsis) for row in self.rows(width, height, glyphs)[:height]]

    def render_line(self, y: int) -> Strip:
        width, height = self.content_size
        if self._rows is None or (width, height) != self._drawn_for:
            self._rows, self._drawn_for = self._draw(width, height), (width, height)
        blank = self._style("")
        if y >= len(self._rows):
            return Strip.blank(width, blank)
        segments = [Segment(text, self._style(style)) for text, style in self._rows[y] if text]
        return Strip(segments).adjust_cell_length(width, blank)

    def _style(self, style: str) -> RichStyle:
        found = self._pens.get(style)
        if found is None:
            parsed = self.visual_style + Style.parse(style) if style else self.visual_style
            found = self._pens[style] = parsed.rich_style
        return found

    def notify_style_update(self) -> None:
        self._pens = {}
        super().notify_style_update()

    def on_resize(self, event: Resize) -> None:
        self._rows = None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._wanted = self.height_wanted(width)
        return max(1, self._wanted)

    def height_wanted(self, width: int) -> int:
        """Rows for `height: auto`."""
        return 1
