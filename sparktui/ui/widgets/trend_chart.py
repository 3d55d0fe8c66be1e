"""Small trends on a fixed scale, drawn with braille dots (or plain characters); what was not measured is a gap."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktui.ui.widgets.drawing import Drawing, Piece, Row, filled
from sparktui.ui.widgets.figures import number

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""A braille character's bit by [row in the cell][column in the cell]."""


@dataclass(frozen=True, slots=True)
class Trend:
    """One line.

    Attributes:
        values: oldest first, equally spaced, in `unit`; None is a gap.
        low, high: the fixed scale; values outside stand at its edge.
        floor: a bound that is named beside the figures.
        lowest: where several values become one dot the lowest counts, not their mean.
    """

    name: str
    values: tuple[float | None, ...]
    high: float
    low: float = 0.0
    unit: str = ""
    digits: int = 0
    style: str = "$accent"
    floor: float | None = None
    lowest: bool = False

    @property
    def now(self) -> float | None:
        return self.values[-1] if self.values else None

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]


class TrendChart(Drawing):
    """`show(trends, span)`: the trends below each other; `span` says in words how long they reach back."""

    def __init__(self, title: str = "", *, id: str | None = None, classes: str | None = None) -> None:
        self.trends: tuple[Trend, ...] = ()
        self.span = ""
        super().__init__(id=id, classes=classes)
        self.border_title = self.title = title

    def show(self, trends: tuple[Trend, ...], span: str = "") -> None:
        if span != self.span:
            self.span = span
            self.border_title = f"{self.title}, last {span}" if span else self.title
        if trends != self.trends:
            self.trends = trends
            self.redraw()

    def rows(self, width: int, height: int, glyphs: Glyphs) -> Sequence[Row]:
        return trend_rows(self.trends, width, height, glyphs)


def trend_rows(trends: Sequence[Trend], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Equal parts: a line of figures, and the curve below; with one row each, the curve beside the name."""
    if not trends:
        return []
    each = height // len(trends)
    if each < 1:
        return [*trend_rows(trends[: max(1, height)], width, height, glyphs)]
    rows: list[Row] = []
    for trend in trends:
        if each == 1:
            rows.append(_one_line(trend, max(len(other.name) for other in trends), width, glyphs))
            continue
        rows.append(filled([(trend.name, "bold")], _figures(trend), width, glyphs.ellipsis))
        rows += [((line, trend.style),) for line in curve(trend, width, each - 1, glyphs)]
    return rows


def _figures(trend: Trend) -> list[Piece]:
    known = trend.known
    pieces: list[Piece] = [(f"{number(trend.now, trend.digits)} {trend.unit}".rstrip(), "")]
    if known:
        pieces.append((f"  {min(known):.{trend.digits}f} to {max(known):.{trend.digits}f}", "$quiet"))
    if trend.floor is not None:
        pieces.append((f"  floor {trend.floor:.{trend.digits}f}", "$quiet"))
    return pieces


def _one_line(trend: Trend, names: int, width: int, glyphs: Glyphs) -> Row:
    now: list[Piece] = [(f"{number(trend.now, trend.digits):>7} {trend.unit}".rstrip(), "")]
    room = width - names - 2 - sum(len(text) for text, _ in now) - 1
    left: list[Piece] = [(trend.name.ljust(names), "bold"), ("  ", "")]
    if room >= 4:
        left.append((curve(trend, room, 1, glyphs)[0], trend.style))
    return filled(left, now, width, glyphs.ellipsis)


def curve(trend: Trend, width: int, height: int, glyphs: Glyphs) -> list[str]:
    """The whole of the values in `width` columns."""
    draw = braille_lines if glyphs.braille else plain_lines
    return draw(spread(trend.values, 2 * width, lowest=trend.lowest), width, height, trend.low, trend.high)


def spread(values: Sequence[float | None], points: int, *, lowest: bool = False) -> list[float | None]:
    """The same stretch of time in exactly `points` values: neighbours drawn together, or one repeated."""
    count = len(values)
    if not count:
        return [None] * points
    drawn: list[float | None] = []
    for point in range(points):
        first = point * count // points
        part = [v for v in values[first : max(first + 1, (point + 1) * count // points)] if v is not None]
        drawn.append(None if not part else min(part) if lowest else sum(part) / len(part))
    return drawn


def ceiling_of(values: Sequence[float | None], least: float) -> float:
    """A round number (1, 2 or 5 and zeros) that none of the values passes: the scale stands still for long."""
    highest = max((value for value in values if value is not None), default=least)
    bound = least
    for factor in itertools.cycle((2.0, 2.5, 2.0)):
        if bound >= highest:
            return bound
        bound *= factor
    raise AssertionError


def _level(value: float, low: float, high: float, top: int) -> int:
    """The row from above, 0 to `top`."""
    span = (high - low) or 1.0
    return round((1 - min(1.0, max(0.0, (value - low) / span))) * top)


def braille_lines(values: Sequence[float | None], width: int, height: int, low: float, high: float) -> list[str]:
    """The newest `2 * width` values, newest on the right."""
    cells = [bytearray(width) for _ in range(height)]
    newest = values[-2 * width :]
    before: int | None = None
    for x, value in enumerate(newest, start=2 * width - len(newest)):
        if value is None:
            before = None
            continue
        y = _level(value, low, high, 4 * height - 1)
        for row in range(min(y, y if before is None else before), max(y, y if before is None else before) + 1):
            cells[row // 4][x // 2] |= DOTS[row % 4][x % 2]
        before = y
    return ["".join(chr(0x2800 + dots) if dots else " " for dots in line) for line in cells]


def plain_lines(values: Sequence[float | None], width: int, height: int, low: float, high: float) -> list[str]:
    """The same with one character a column: two values each, their mean; `_` low in a cell, `-` in its middle."""
    newest: list[float | None] = [None] * (2 * width)
    newest = [*newest, *values][-2 * width :]
    cells = [[" "] * width for _ in range(height)]
    for x in range(width):
        pair = [value for value in newest[2 * x : 2 * x + 2] if value is not None]
        if pair:
            level = _level(sum(pair) / len(pair), low, high, 3 * height - 1)
            cells[level // 3][x] = '"-_'[level % 3]
    return ["".join(line) for line in cells]
