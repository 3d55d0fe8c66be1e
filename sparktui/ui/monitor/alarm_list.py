"""What a person should look at now, cause and next step; takes no room while there is nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparktui.telemetry.sample import Alarm
from sparktui.ui.widgets.drawing import Drawing, Row, fitted, row_width

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs


class AlarmList(Drawing):
    """`show(alarms, most)`: as many rows as it needs, `most` at the outside; the last row says where the rest is."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        self.alarms: tuple[Alarm, ...] = ()
        self.most = 6
        super().__init__(id=id, classes=classes)

    def show(self, alarms: tuple[Alarm, ...], most: int) -> None:
        if (alarms, most) == (self.alarms, self.most):
            return
        self.alarms, self.most = alarms, most
        self.display = bool(alarms)
        self.refresh(layout=True)
        self.redraw()

    def on_mount(self) -> None:
        self.display = bool(self.alarms)

    def rows(self, width: int, height: int, glyphs: Glyphs) -> Sequence[Row]:
        return alarm_rows(self.alarms, width, self.most, glyphs)

    def height_wanted(self, width: int) -> int:
        return len(alarm_rows(self.alarms, width, self.most, self.app.glyphs))


def alarm_rows(alarms: Sequence[Alarm], width: int, most: int, glyphs: Glyphs) -> list[Row]:
    """Cause and next step of each; where they do not all fit, one line each, and the key that shows the rest."""
    whole: list[Row] = []
    for alarm in alarms:
        whole += _whole(alarm, width, glyphs)
    if len(whole) <= most:
        return whole
    first = _whole(alarms[0], width, glyphs)
    if len(first) + len(alarms) > most:
        first = [_line(alarms[0], width, glyphs)]
    short = [*first, *(_line(alarm, width, glyphs) for alarm in alarms[1:])]
    left = max(0, len(short) - most + 1)
    said = f": {left} more, and what to do about each" if left else ": what to do about each"
    return [*short[: most - 1], (("a", "$accent bold"), (said, "$warning" if left else "$quiet"))]


def _mark(alarm: Alarm, glyphs: Glyphs) -> tuple[str, str]:
    return (glyphs.failed, "$error bold") if alarm.severe else (glyphs.warn, "$warning bold")


def _line(alarm: Alarm, width: int, glyphs: Glyphs) -> Row:
    glyph, style = _mark(alarm, glyphs)
    return fitted(((f"{glyph} {alarm.node}: {alarm.what}", style),), width, glyphs.ellipsis)


def _whole(alarm: Alarm, width: int, glyphs: Glyphs) -> list[Row]:
    glyph, style = _mark(alarm, glyphs)
    what = (f"{glyph} {alarm.node}: {alarm.what}", style)
    fix = (f"  next: {alarm.fix}", "") if alarm.fix else ("", "")
    if row_width((what, fix)) <= width:
        return [(what, fix)]
    rows: list[Row] = []
    for text, text_style in (what, fix):
        lines = textwrap.wrap(text, width, subsequent_indent="  ") if text else []
        rows += [((line, text_style),) for line in lines]
    return rows
