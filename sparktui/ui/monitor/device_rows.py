"""The four devices of each Spark: a row for each cabled cage, with its two halves by name, state and rate. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparktui.ui.widgets.cable_readings import CableReading, EndReading
from sparktui.ui.widgets.drawing import Piece, Row, fitted
from sparktui.ui.widgets.figures import UNKNOWN, number

if TYPE_CHECKING:
    from sparktui.telemetry.sample import PortReading
    from sparktui.ui.glyphs import Glyphs

SMALLEST_WIDTH = 60
"""A cage's two devices beside each other."""


def ends_of(cables: Sequence[CableReading]) -> list[EndReading]:
    """Every cabled end, node by node."""
    ends = [end for cable in cables for end in (cable.a, cable.b) if end is not None]
    return sorted(ends, key=lambda end: (end.end.rank, end.end.cage))


def device_rows(cables: Sequence[CableReading], width: int, glyphs: Glyphs) -> list[Row]:
    """`head port 0     ● rocep1s0f0 up 200    ● roceP2p1s0f0 up 200`."""
    ends = ends_of(cables)
    names = max((len(end.text) for end in ends), default=0)
    longest = max((len(port.device) for end in ends for port in end.devices), default=0)
    rows: list[Row] = []
    for end in ends:
        row: list[Piece] = [(f"{end.text:<{names}}  ", "bold")]
        for port in end.devices:
            row += [*_device(port, longest, glyphs, fresh=end.fresh), ("  ", "")]
        row.append((end.unread, "$quiet"))
        while row and not row[-1][0].strip():
            row.pop()
        rows.append(fitted(row, width, glyphs.ellipsis))
    return rows


def _device(port: PortReading, longest: int, glyphs: Glyphs, *, fresh: bool) -> list[Piece]:
    name = (f"{port.device:<{longest}} ", "" if fresh else "$quiet")
    if port.active is None:
        return [(f"{glyphs.unknown} ", "$quiet"), name, (f"{UNKNOWN:<6}", "$quiet")]
    if not port.active:
        return [(f"{glyphs.failed} ", "$error bold"), name, (f"{'down':<6}", "$error")]
    return [(f"{glyphs.done} ", "$success"), name, (f"{f'up {number(port.rate_gbit)}':<6}", "")]
