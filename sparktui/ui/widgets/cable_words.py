"""A cable's state and traffic as pieces of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparktui.ui.widgets.cable_readings import CableReading, EndReading, Link
from sparktui.ui.widgets.drawing import Piece
from sparktui.ui.widgets.figures import gbit

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs

STYLES = {
    Link.UP: "$success",
    Link.HALF: "$warning bold",
    Link.SLOW: "$warning bold",
    Link.DOWN: "$error bold",
    Link.UNKNOWN: "$quiet",
}


def link_word(cable: CableReading, glyphs: Glyphs) -> Piece:
    glyph = {
        Link.UP: glyphs.done,
        Link.HALF: glyphs.warn,
        Link.SLOW: glyphs.warn,
        Link.DOWN: glyphs.failed,
        Link.UNKNOWN: glyphs.unknown,
    }[cable.link]
    return (f"{glyph} {cable.link.value}", STYLES[cable.link])


def traffic(end: EndReading, glyphs: Glyphs, column: int = 5) -> Piece:
    """What the node at this end sends and receives, in Gb/s; `column` cells a figure, so that columns stand."""
    sent, received = (
        text if len(text) <= column else text.partition(".")[0]
        for text in (gbit(end.sent_bytes_per_second), gbit(end.received_bytes_per_second))
    )
    return (f"{glyphs.up}{sent:>{column}} {glyphs.down}{received:>{column}}", "" if end.fresh else "$quiet")
