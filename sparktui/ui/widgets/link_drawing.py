"""Draws nodes as boxes and their cables as lines: three in a triangle, four in a ring, any number on a switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparktui.cluster.profile import FabricKind
from sparktui.ui.widgets.cable_readings import CableReading, EndReading, Link
from sparktui.ui.widgets.cable_words import STYLES, link_word, traffic
from sparktui.ui.widgets.canvas import Canvas
from sparktui.ui.widgets.drawing import Row, fitted
from sparktui.ui.widgets.figures import number

if TYPE_CHECKING:
    from sparktui.cluster.fabric import FabricPlan
    from sparktui.ui.glyphs import Glyphs

BOX_WIDTH = 24
NARROW_BOX_WIDTH = 18
BOX_HEIGHT = 4
SMALLEST_GAP = 10
"""Cells between two boxes: a cable's words fit."""
WIDEST = 110
GAP_ROWS = (3, 5)
SWITCH_ROWS = 3
SMALLEST_DRAWING = 2 * BOX_HEIGHT + GAP_ROWS[0]
"""Rows."""


def draw_links(
    plan: FabricPlan, cables: Sequence[CableReading], width: int, height: int, glyphs: Glyphs
) -> list[Row] | None:
    """None where the drawing does not fit, or where these cables have no drawing of their own."""
    notes = _notes(cables, width, glyphs)
    room = height - len(notes)
    count = len(plan.names)
    if plan.kind is FabricKind.SWITCH:
        drawn = _star(plan, cables, width, room, glyphs)
    elif count in (3, 4) and len(cables) == count:
        drawn = _circle(plan, cables, width, room, glyphs)
    else:
        drawn = None
    return None if drawn is None else [*drawn, *notes]


def rows_of_drawing(plan: FabricPlan, cables: Sequence[CableReading], width: int) -> int | None:
    """How many rows the smallest drawing takes in this width, its sentences included; None where there is none."""
    notes = sum(1 for cable in cables if cable.link is not Link.UP or cable.bad_counters)
    count = len(plan.names)
    if plan.kind is FabricKind.SWITCH:
        most = max((len(_ends_of(cables, rank)) for rank in range(count)), default=0)
        rows = SWITCH_ROWS + GAP_ROWS[0] + 2 + most
        return rows + notes if min(width // count, BOX_WIDTH + 10) > NARROW_BOX_WIDTH else None
    fits = count in (3, 4) and len(cables) == count and width >= 2 * BOX_WIDTH + SMALLEST_GAP
    return SMALLEST_DRAWING + notes if fits else None


def _notes(cables: Sequence[CableReading], width: int, glyphs: Glyphs) -> list[Row]:
    """A sentence for each cable that is not well, below the drawing."""
    notes: list[Row] = []
    for cable in cables:
        if cable.link is not Link.UP:
            word, style = link_word(cable, glyphs)
            other = "the switch" if cable.b is None else cable.b.text
            one_end = cable.b is not None and (cable.a.text in cable.why or cable.b.text in cable.why)
            text = f" {cable.why}" if one_end else f" {cable.a.text} to {other}: {cable.why}"
            notes.append(fitted(((word, style), (text, "")), width, glyphs.ellipsis))
        elif cable.bad_counters:
            text = f"{glyphs.warn} errors grow at {'; '.join(cable.bad_counters)}"
            notes.append(fitted(((text, "$warning"),), width, glyphs.ellipsis))
    return notes


def _label(cable: CableReading, glyphs: Glyphs) -> list[tuple[str, str]]:
    """State, then rate."""
    rate = "" if cable.link in (Link.DOWN, Link.UNKNOWN) else f"{number(cable.rate_gbit)} Gb/s"
    return [link_word(cable, glyphs), (rate, "$quiet")]


class _Sheet:
    """A canvas with this drawing's boxes and cables."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self.canvas = Canvas(width, height)
        self.glyphs = glyphs

    def node(self, name: str, ends: Sequence[EndReading], x: int, y: int, width: int) -> None:
        canvas, glyphs = self.canvas, self.glyphs
        canvas.box(x, y, width, 2 + len(ends), glyphs)
        canvas.put(x + 2, y, f" {name[: width - 6]} ", "bold")
        for line, end in enumerate(sorted(ends, key=lambda each: each.end.cage)):
            port = end.end.port_text if width >= BOX_WIDTH else end.end.cage
            text, style = traffic(end, glyphs, 5 if width >= BOX_WIDTH else 4)
            canvas.pieces(x + 2, y + 1 + line, ((f"{port} ", "$quiet"), (text, style)))

    def stroke(self, cable: CableReading) -> tuple[str, str, str]:
        """Horizontal, vertical, style."""
        if cable.link in (Link.DOWN, Link.UNKNOWN):
            return self.glyphs.no_link[0], self.glyphs.no_link[1], STYLES[cable.link]
        return self.glyphs.wire[4], self.glyphs.wire[5], STYLES[cable.link]

    def horizontal(self, cable: CableReading, left: int, right: int, y: int, first: str, last: str) -> None:
        """From box edge to box edge; `first` and `last` are the ports' numbers."""
        line, _, style = self.stroke(cable)
        self.canvas.across(left, right, y, line, style)
        self.canvas.put(left, y, first, "$quiet")
        self.canvas.put(right, y, last, "$quiet")
        (word, word_style), (rate, rate_style) = _label(cable, self.glyphs)
        text = f"{word}  {rate}".rstrip()
        room = right - left + 1
        if len(text) <= room:
            self.canvas.pieces(
                left + (room - len(text)) // 2, y - 1, ((word, word_style), ("  ", ""), (rate, rate_style))
            )
            return
        self.canvas.put(left + max(0, (room - len(word)) // 2), y - 1, word, word_style)
        self.canvas.put(left + max(0, (room - len(rate)) // 2), y + 1, rate, rate_style)

    def vertical(
        self, cable: CableReading, x: int, top: int, bottom: int, first: str, last: str, *, left: bool
    ) -> None:
        _, line, style = self.stroke(cable)
        self.canvas.down(x, top, bottom, line, style)
        if first:
            self.canvas.put(x, top, first, "$quiet")
        self.canvas.put(x, bottom, last, "$quiet")
        middle = top + (bottom - top) // 2
        for line_at, (text, text_style) in enumerate(_label(cable, self.glyphs)):
            self.canvas.put(x - 2 - len(text) if left else x + 2, middle + line_at, text, text_style)


def _digit(end: EndReading | None) -> str:
    return "" if end is None else end.end.cage.removeprefix("p")[:1]


def _ends_of(cables: Sequence[CableReading], rank: int) -> list[EndReading]:
    ends = [end for cable in cables for end in (cable.a, cable.b) if end is not None]
    return [end for end in ends if end.end.rank == rank]


def _circle(
    plan: FabricPlan, cables: Sequence[CableReading], width: int, height: int, glyphs: Glyphs
) -> list[Row] | None:
    """Three: the head on top, its workers below, left and right. Four: head, worker1, worker2, worker3 clockwise."""
    least_width, least_height = 2 * BOX_WIDTH + SMALLEST_GAP, SMALLEST_DRAWING
    if width < least_width or height < least_height:
        return None
    wide = min(width, WIDEST)
    gap = min(GAP_ROWS[1], height - 2 * BOX_HEIGHT)
    sheet = _Sheet(width, 2 * BOX_HEIGHT + gap, glyphs)
    left, right = (width - wide) // 2, (width - wide) // 2 + wide - BOX_WIDTH
    low = BOX_HEIGHT + gap
    three = len(plan.names) == 3
    places = (
        [((width - BOX_WIDTH) // 2, 0), (left, low), (right, low)]
        if three
        else [(left, 0), (right, 0), (right, low), (left, low)]
    )
    for rank, (x, y) in enumerate(places):
        sheet.node(plan.names[rank], _ends_of(cables, rank), x, y, BOX_WIDTH)
    middle = BOX_WIDTH // 2
    if three:
        _elbow(sheet, cables[0], places[0][0] - 1, left + middle, low - 1, towards_left=True)
        _elbow(sheet, cables[2], places[0][0] + BOX_WIDTH, right + middle, low - 1, towards_left=False)
        across = cables[1]
        sheet.horizontal(across, left + BOX_WIDTH, right - 1, low + 2, _digit(across.a), _digit(across.b))
        return sheet.canvas.rows()
    top, down, bottom, up = cables
    sheet.horizontal(top, left + BOX_WIDTH, right - 1, 2, _digit(top.a), _digit(top.b))
    sheet.horizontal(bottom, left + BOX_WIDTH, right - 1, low + 2, _digit(bottom.b), _digit(bottom.a))
    sheet.vertical(down, right + middle, BOX_HEIGHT, low - 1, _digit(down.a), _digit(down.b), left=True)
    sheet.vertical(up, left + middle, BOX_HEIGHT, low - 1, _digit(up.b), _digit(up.a), left=False)
    return sheet.canvas.rows()


def _elbow(sheet: _Sheet, cable: CableReading, head_x: int, x: int, bottom: int, *, towards_left: bool) -> None:
    """From the head's side out to above a worker, then down to it."""
    y = 2
    canvas = sheet.canvas
    line, _, style = sheet.stroke(cable)
    corner = sheet.glyphs.wire[0 if towards_left else 1] if cable.link not in (Link.DOWN, Link.UNKNOWN) else line
    head, worker = (cable.a, cable.b) if cable.a.end.rank == 0 else (cable.b, cable.a)
    canvas.across(min(head_x, x), max(head_x, x), y, line, style)
    sheet.vertical(cable, x, y + 1, bottom, "", _digit(worker), left=not towards_left)
    canvas.put(x, y, corner, style)
    canvas.put(head_x, y, _digit(head), "$quiet")


def _star(
    plan: FabricPlan, cables: Sequence[CableReading], width: int, height: int, glyphs: Glyphs
) -> list[Row] | None:
    """The switch on top, the Sparks in a row below it."""
    count = len(plan.names)
    most = max((len(_ends_of(cables, rank)) for rank in range(count)), default=0)
    column = min(width // count, BOX_WIDTH + 10)
    box = BOX_WIDTH if column > BOX_WIDTH else NARROW_BOX_WIDTH
    least = SWITCH_ROWS + GAP_ROWS[0] + 2 + most
    if column <= NARROW_BOX_WIDTH or height < least:
        return None
    gap = min(GAP_ROWS[1], GAP_ROWS[0] + height - least)
    sheet = _Sheet(width, least - GAP_ROWS[0] + gap, glyphs)
    left = (width - column * count) // 2
    low = SWITCH_ROWS + gap
    sheet.canvas.box(left, 0, column * count - (column - box), SWITCH_ROWS, glyphs)
    sheet.canvas.put(left + 3, 1, "switch", "bold")
    for rank, name in enumerate(plan.names):
        x = left + rank * column
        mine = [cable for cable in cables if cable.a.end.rank == rank]
        sheet.node(name, [cable.a for cable in mine], x, low, box)
        for number_of, cable in enumerate(mine):
            at = x + 2 + number_of * (box // 2)
            sheet.vertical(cable, at, SWITCH_ROWS, low - 1, "", _digit(cable.a), left=False)
    return sheet.canvas.rows()
