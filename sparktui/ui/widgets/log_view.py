"""All ranks' lines in one scrolling view: only what is seen is drawn; a line costs nothing until then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.filter import ANSIToTruecolor
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from sparktui.readings.sglang_log import split_prefix
from sparktui.ui.glyphs import UNICODE, Glyphs
from sparktui.ui.logs.book import LogBook
from sparktui.ui.logs.lines import LogRow, Severity

RANK_COLOURS = 4
WHEEL_ROWS = 3
CLOCK_COLUMNS = 9


@dataclass(frozen=True, slots=True)
class Place:
    """Where the view stands.

    Attributes:
        following: the newest line is the last that is seen.
        below: how many lines came after the last that is seen.
    """

    following: bool = True
    below: int = 0


class LogView(Widget, can_focus=True):
    """Shows a book; the owner appends to the book and calls `changed`. Posts `PlaceChanged` and `LineChosen`."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"log--rank-{rank}" for rank in range(RANK_COLOURS)),
        "log--clock",
        "log--error",
        "log--warn",
        "log--note",
        "log--match",
        "log--cursor",
        "log--marked",
        "log--track",
        "log--thumb",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False, id="log.up", tooltip="One line up; following ends"),
        Binding("down,j", "move(1)", "down", show=False, id="log.down", tooltip="One line down"),
        Binding("pageup", "page(-1)", "page up", show=False, id="log.page-up", tooltip="One page up"),
        Binding("pagedown", "page(1)", "page down", show=False, id="log.page-down", tooltip="One page down"),
        Binding("home,g", "home", "oldest", show=False, id="log.home", tooltip="The oldest line that is kept"),
        Binding("end,G", "follow", "newest", show=False, id="log.end", tooltip="The newest line, and follow again"),
        Binding("space", "mark", "mark", show=False, id="log.mark", tooltip="Mark lines from here on, to copy them"),
        Binding(
            "enter", "choose", "whole line", show=False, id="log.choose", tooltip="The whole line, and its meaning"
        ),
    ]

    class PlaceChanged(Message):
        """Following began or ended, or lines came below."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LogView.PlaceChanged)

    class LineChosen(Message):
        """Somebody wants to see all of this line."""

        def __init__(self, row: LogRow) -> None:
            self.row = row
            super().__init__()

    def __init__(self, book: LogBook, *, glyphs: Glyphs = UNICODE, id: str | None = None) -> None:
        super().__init__(id=id)
        self.book = book
        self.glyphs = glyphs
        self.following = True
        self.name_columns = 7
        self._top = 0
        self._cursor = 0
        self._mark: int | None = None
        self._window: list[tuple[int, LogRow]] = []
        self._thumb: tuple[int, int] | None = None
        self._base, self._width = Style(), 0
        self._painted: dict[int, Strip] = {}
        self._styles: dict[tuple[str, ...], Style] = {}

    # what the owner says

    def show_names(self, names: list[str]) -> None:
        """The nodes whose lines come, so that all texts begin in one column."""
        self.name_columns = max((len(name) for name in names), default=7)
        self._redraw()

    def changed(self) -> None:
        """The book has other lines than before; what is read keeps its place."""
        before = self._window
        self._settle()
        if self.following or before != self._window:
            self._repaint()
        self.post_message(self.PlaceChanged())

    def chosen_anew(self) -> None:
        """The book shows other rows of the same lines: the line under the cursor stays where it can."""
        self._mark = None
        if not self.following:
            offset = next((y for y, (number, _) in enumerate(self._window) if number == self._cursor), 0)
            index = self.book.index_of(self._cursor)
            if self.book.count:
                self._cursor = self.book.number_at(min(index, self.book.count - 1))
                self._top = self.book.number_at(max(0, min(index, self.book.count - 1) - offset))
        self._redraw()

    def go_to(self, number: int) -> None:
        """Put the cursor on a row, with what came before it in view; following ends."""
        if not self.book.count:
            return
        index = min(self.book.index_of(number), self.book.count - 1)
        self.following = False
        self._cursor = self.book.number_at(index)
        shown = {number for number, _ in self._window}
        if self._cursor not in shown:
            self._top = self.book.number_at(max(0, index - self.size.height // 3))
        self._redraw()

    # what is asked of it

    @property
    def place(self) -> Place:
        if self.following or not self._window:
            return Place(self.following, 0)
        return Place(False, max(0, self.book.count - 1 - self.book.index_of(self._window[-1][0])))

    @property
    def cursor(self) -> int:
        """The number of the row that the cursor is on."""
        return self._cursor

    def picked(self) -> list[LogRow]:
        """The marked rows, or those that are seen."""
        if self._mark is None:
            return [row for _, row in self._window]
        low, high = sorted((self._mark, self._cursor))
        start, stop = self.book.index_of(low), self.book.index_of(high + 1)
        return [row for _, row in self.book.shown_between(start, stop)]

    @property
    def marking(self) -> bool:
        return self._mark is not None

    def unmark(self) -> None:
        self._mark = None
        self._redraw()

    # keys

    def action_move(self, rows: int) -> None:
        count = self.book.count
        if not count:
            return
        index = min(max(self.book.index_of(self._cursor) + rows, 0), count - 1)
        top = self.book.index_of(self._top)
        if index < top:
            top = index
        elif index >= top + self.size.height:
            top = index - self.size.height + 1
        before = [number for number, _ in self._window], self._row_of_cursor()
        self._top, was_following = self.book.number_at(max(0, top)), self.following
        self.following = False
        self._cursor = self.book.number_at(index)
        self._settle()
        now = [number for number, _ in self._window], self._row_of_cursor()
        if was_following or self._mark is not None or before[0] != now[0] or before[1] is None or now[1] is None:
            self._repaint()
        else:  # two rows changed, not forty
            self._repaint(before[1], now[1])
        self.post_message(self.PlaceChanged())

    def _row_of_cursor(self) -> int | None:
        return next((y for y, (number, _) in enumerate(self._window) if number == self._cursor), None)

    def action_page(self, pages: int) -> None:
        count, height = self.book.count, self.size.height
        if not count or (pages > 0 and self.following):
            return
        self.following = False
        rows = max(1, height - 1) * pages
        cursor = min(max(self.book.index_of(self._cursor) + rows, 0), count - 1)
        top = min(max(self.book.index_of(self._top) + rows, 0), max(0, count - height))
        self._cursor, self._top = self.book.number_at(cursor), self.book.number_at(top)
        self._redraw()

    def scroll_rows(self, rows: int) -> None:
        """Move what is seen; the cursor stays on its line, or at the edge that it would leave by."""
        count, height = self.book.count, self.size.height
        if not count or (rows > 0 and self.following):
            return
        self.following = False
        top = min(max(self.book.index_of(self._top) + rows, 0), max(0, count - height))
        self._top = self.book.number_at(top)
        index = min(max(self.book.index_of(self._cursor), top), min(top + height, count) - 1)
        self._cursor = self.book.number_at(index)
        self._redraw()

    def action_home(self) -> None:
        if self.book.count:
            self.following = False
            self._top = self._cursor = self.book.number_at(0)
            self._redraw()

    def action_follow(self) -> None:
        self.following = True
        self._redraw()

    def hold(self) -> None:
        """Stay where it is."""
        self.following = False
        self._redraw()

    def action_mark(self) -> None:
        self._mark = None if self._mark is not None else self._cursor
        self.following = False
        self._redraw()

    def action_choose(self) -> None:
        row = self.book.row(self._cursor) or next((row for number, row in self._window if number == self._cursor), None)
        if row is not None:
            self.post_message(self.LineChosen(row))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(WHEEL_ROWS)

    def on_click(self, event: events.Click) -> None:
        if 0 <= event.y < len(self._window):
            self.following = False
            self._cursor = self._window[event.y][0]
            self._redraw()
            if event.chain == 2:
                self.action_choose()

    def on_resize(self) -> None:
        self._redraw()

    # drawing

    def _redraw(self) -> None:
        self._settle()
        self._repaint()
        self.post_message(self.PlaceChanged())

    def _repaint(self, *rows: int) -> None:
        """These rows, or all."""
        if not rows:
            self._painted.clear()
            self.refresh()
        for y in set(rows):
            self._painted.pop(y, None)
            self.refresh(Region(0, y, self.size.width, 1))

    def notify_style_update(self) -> None:
        self._painted.clear()
        super().notify_style_update()

    def _settle(self) -> None:
        """Find the rows that are seen."""
        book, height = self.book, self.size.height
        count = book.count
        if not count or height <= 0:
            self._window, self._thumb = [], None
            return
        last_top = max(0, count - height)
        top = last_top if self.following else min(book.index_of(self._top), last_top)
        self._window = book.shown_between(top, top + height)
        if self.following and self._window:
            self._cursor = self._window[-1][0]
        if self._window:
            self._top = self._window[0][0]
            if self._cursor < book.first:
                self._cursor = self._top
        if count <= height:
            self._thumb = None
        else:
            length = max(1, height * height // count)
            start = round((height - length) * top / last_top)
            self._thumb = (start, start + length)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Straight to strips: no border, padding or tint to care for, which would cost twice what the rows do."""
        self._styles.clear()
        self._base, self._width = self.rich_style, self.size.width  # once a paint: it walks through all ancestors
        filters = [each for each in self.get_line_filters() if not isinstance(each, ANSIToTruecolor)]
        strips = []
        for y in crop.line_range:
            strip = self._painted.get(y)
            if strip is None:
                strip = self.render_line(y)
                for each in filters:
                    strip = strip.apply_filter(each, self.background_colors[1])
                self._painted[y] = strip  # it is asked for again when a row far from it changes
            if crop.x or crop.width != self._width:
                strip = strip.crop_extend(crop.x, crop.right, self._base)
            strips.append(strip)
        return strips

    def render_line(self, y: int) -> Strip:
        width, base = self._width, self._base
        bar = self._bar(y)
        if y >= len(self._window):
            return Strip([Segment(" " * (width - 1), base), bar], width)
        number, row = self._window[y]
        state, pointed = "", not self.following and number == self._cursor
        if self._mark is not None and min(self._mark, self._cursor) <= number <= max(self._mark, self._cursor):
            state, pointed = "log--marked", True
        elif pointed:
            state = "log--cursor"
        segments = self._row(row, state, width - 1, pointed=pointed)
        return Strip([*segments, bar], width)

    def _row(self, row: LogRow, state: str, width: int, *, pointed: bool) -> list[Segment]:
        glyphs = self.glyphs
        pointer = glyphs.pointer if pointed else " "
        if row.severity is Severity.NOTE:
            note = f"{pointer}{glyphs.horizontal * 2} {row.node + ': ' if row.node else ''}{row.text}"
            return [Segment(fitted(note, width, glyphs.ellipsis), self._style(state, "log--note"))]
        who = f"rank {row.rank} {row.node:<{self.name_columns}} "
        mark = _MARKS[row.severity]
        said = split_prefix(row.text)
        clock = f"{said.at[11:19] if said.at else '':<{CLOCK_COLUMNS}}"
        left = max(0, width - 1 - len(who) - 2 - CLOCK_COLUMNS)
        return [
            Segment(pointer, self._style(state)),
            Segment(who, self._style(state, f"log--rank-{(row.rank or 0) % RANK_COLOURS}")),
            Segment(f"{getattr(glyphs, mark) if mark else ' '} ", self._style(state, _TEXT_STYLES[row.severity])),
            Segment(clock, self._style(state, "log--clock")),
            *self._marked(said.text, left, state, _TEXT_STYLES[row.severity]),
        ]

    def _marked(self, text: str, width: int, state: str, severity: str) -> list[Segment]:
        """The text in its width, what is searched for highlighted."""
        shown = fitted(text, width, self.glyphs.ellipsis)
        style = self._style(state, severity)
        pattern = self.book.pattern
        if pattern is None:
            return [Segment(shown, style)]
        parts, at = [], 0
        highlighted = self._style(state, severity, "log--match")
        for start, end in pattern.spans(shown):
            parts += [Segment(shown[at:start], style), Segment(shown[start:end], highlighted)]
            at = end
        return [part for part in (*parts, Segment(shown[at:], style)) if part.text]

    def _bar(self, y: int) -> Segment:
        if self._thumb is None:
            return Segment(" ", self._base)
        if self._thumb[0] <= y < self._thumb[1]:
            return Segment(self.glyphs.full, self._style("log--thumb"))
        return Segment(self.glyphs.light, self._style("log--track"))

    def _style(self, *names: str) -> Style:
        """The base with these parts of the sheet over it; an empty name is none."""
        known = self._styles.get(names)
        if known is None:
            known = self._base
            for name in names:
                if name:
                    known += self.get_component_rich_style(name, partial=True)
            self._styles[names] = known
        return known


_MARKS = {Severity.PLAIN: "", Severity.WARN: "warn", Severity.ERROR: "failed"}
_TEXT_STYLES = {Severity.PLAIN: "", Severity.WARN: "log--warn", Severity.ERROR: "log--error"}


def fitted(text: str, width: int, ellipsis: str) -> str:
    """Exactly this many columns; what does not fit ends in an ellipsis."""
    if text.isascii():
        return f"{text:<{width}}" if len(text) <= width else text[: max(0, width - 1)] + ellipsis[: min(1, width)]
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, max(0, width - 1)) + ellipsis[: min(1, width)]
