"""A chart with axes for large pages. plotext draws it, here and nowhere else: finite runs only, no colour of its own.

One NaN ends plotext's process, and it has one global figure: clear, draw and build happen within one call.
Its import costs 20 MiB and a tenth of a second, so it waits until a chart is drawn.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sparktui.ui.widgets.drawing import Drawing, Row
from sparktui.ui.widgets.trend_chart import Trend, trend_rows

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs

SMALLEST_WIDTH, SMALLEST_HEIGHT = 30, 8
"""Cells; smaller, a trend without axes says more."""
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class AxisChart(Drawing):
    """`show(trend, seconds)`: one line over the last `seconds`."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        self.trend: Trend | None = None
        self.seconds = 0.0
        super().__init__(id=id, classes=classes)

    def show(self, trend: Trend, seconds: float) -> None:
        title = f"{trend.name}, {trend.unit}, by minutes before now"
        if title != self.border_title:
            self.border_title = title
        if (trend, seconds) != (self.trend, self.seconds):
            self.trend, self.seconds = trend, seconds
            self.redraw()

    def rows(self, width: int, height: int, glyphs: Glyphs) -> Sequence[Row]:
        if self.trend is None:
            return []
        if width < SMALLEST_WIDTH or height < SMALLEST_HEIGHT or not glyphs.braille:
            return trend_rows((self.trend,), width, height, glyphs)
        return axis_rows(self.trend, self.seconds, width, height)


def finite_runs(values: Sequence[float | None]) -> Iterator[tuple[list[int], list[float]]]:
    """(positions, values) of each unbroken run of finite numbers; what lies between is a gap."""
    numbered = enumerate(values)
    for known, run in itertools.groupby(numbered, key=lambda pair: pair[1] is not None and math.isfinite(pair[1])):
        if known:
            pairs = [(x, float(y)) for x, y in run if y is not None]
            yield [x for x, _ in pairs], [y for _, y in pairs]


def axis_rows(trend: Trend, seconds: float, width: int, height: int) -> list[Row]:
    """The chart, its newest value at the right; minutes before now below."""
    import plotext

    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    figure.theme("colorless")
    count = max(2, len(trend.values))
    minutes = seconds / 60 / (count - 1)
    drawn = False
    for xs, ys in finite_runs(trend.values):
        clipped = [min(trend.high, max(trend.low, y)) for y in ys]
        signal = figure.signal([(x - count + 1) * minutes for x in xs], clipped, marker=plotext.marker("braille"))
        signal.lines()
        figure.draw(signal)
        drawn = True
    if not drawn:
        return [(("nothing measured yet", "$quiet"),)]
    figure.ruler("y").lim(trend.low, trend.high)
    figure.ruler("x").lim(-seconds / 60, 0)
    text = _ESCAPES.sub("", figure.build().string())
    return [((line.rstrip(), trend.style),) for line in text.split("\n")[:height]]
