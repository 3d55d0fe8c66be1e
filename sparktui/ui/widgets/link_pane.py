"""The RoCE links as the cables they are: a triangle, a ring, a star; a list of cables where room is short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparktui.ui.widgets.cable_readings import CableReading, EndReading, Link, cable_readings
from sparktui.ui.widgets.cable_words import STYLES, link_word, traffic
from sparktui.ui.widgets.drawing import Drawing, Piece, Row, filled, fitted, row_width
from sparktui.ui.widgets.figures import number
from sparktui.ui.widgets.link_drawing import draw_links

if TYPE_CHECKING:
    from sparktui.cluster.fabric import FabricPlan
    from sparktui.telemetry.sample import NodeSample
    from sparktui.ui.glyphs import Glyphs


class LinkPane(Drawing):
    """`show(plan, nodes)`. Arrows: what a node sends (up) and receives (down) at that end."""

    BORDER_TITLE = "RoCE links"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        self.plan: FabricPlan | None = None
        self.cables: tuple[CableReading, ...] = ()
        super().__init__(id=id, classes=classes)

    def show(self, plan: FabricPlan | None, nodes: tuple[NodeSample, ...]) -> None:
        cables = cable_readings(plan, nodes) if plan is not None else ()
        if (plan, cables) != (self.plan, self.cables):
            self.plan, self.cables = plan, cables
            self.redraw()

    def rows(self, width: int, height: int, glyphs: Glyphs) -> Sequence[Row]:
        if self.plan is None:
            return [(("the settings do not say yet how the Sparks are cabled", "$quiet"),)]
        return link_rows(self.plan, self.cables, width, height, glyphs)

    def height_wanted(self, width: int) -> int:
        return 2 * max(1, len(self.cables))


def link_rows(
    plan: FabricPlan, cables: Sequence[CableReading], width: int, height: int, glyphs: Glyphs
) -> Sequence[Row]:
    """A drawing where it fits, else a list: two lines a cable, or one."""
    if not cables:
        return [(("one Spark: no cables", "$quiet"),)]
    return draw_links(plan, cables, width, height, glyphs) or _listed(cables, width, height, glyphs)


def _end_short(end: EndReading, plain: bool) -> str:
    return end.text if not plain else end.text.replace(" port ", ":")


def _listed(cables: Sequence[CableReading], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    two = height >= 2 * len(cables)
    names = [_name(cable, glyphs, short=False) for cable in cables]
    if max(map(len, names)) + 22 > width:
        names = [_name(cable, glyphs, short=True) for cable in cables]
    column = max(map(len, names))
    rows: list[Row] = []
    if not two and len(cables) > height:
        order = sorted(range(len(cables)), key=lambda at: cables[at].link is Link.UP)
        shown = sorted(order[: max(1, height - 1)])
    else:
        shown = list(range(len(cables)))
    for at in shown:
        cable = cables[at]
        left: list[Piece] = [(names[at].ljust(column), "bold"), ("  ", ""), link_word(cable, glyphs)]
        if cable.link in (Link.UP, Link.HALF, Link.SLOW):
            left.append((f" {number(cable.rate_gbit)}", ""))
        if two:
            rows += [filled(left, _carried(cable, glyphs), width, glyphs.ellipsis), _second(cable, width, glyphs)]
        elif cable.why:
            rows.append(_one_bad(cable, left, width, glyphs))
        else:
            rows.append(filled(left, _carried(cable, glyphs), width, glyphs.ellipsis))
    if len(shown) < len(cables):
        rows.append(((f"and {len(cables) - len(shown)} more", "$quiet"),))
    elif len(rows) < height and rows:
        unit = f"Gb/s; {glyphs.up} the first named sends, {glyphs.down} it receives"
        if len(unit) > width:
            unit = f"Gb/s; {glyphs.up} sent, {glyphs.down} received"
        rows.append(((unit, "$quiet"),))
    return rows


def _one_bad(cable: CableReading, left: list[Piece], width: int, glyphs: Glyphs) -> Row:
    """One line: the sentence names the end; where it does not fit beside the cable's name, it stands alone."""
    whole = (*left, ("  ", ""), (cable.why, STYLES[cable.link]))
    if row_width(whole) <= width:
        return whole
    word, style = link_word(cable, glyphs)
    return fitted(((f"{word}: {cable.why}", style),), width, glyphs.ellipsis)


def _carried(cable: CableReading, glyphs: Glyphs) -> list[Piece]:
    return [] if cable.link is Link.DOWN else [traffic(cable.a, glyphs)]


def _second(cable: CableReading, width: int, glyphs: Glyphs) -> Row:
    if cable.why:
        return fitted((("  ", ""), (cable.why, STYLES[cable.link])), width, glyphs.ellipsis)
    if cable.bad_counters:
        text = f"  {glyphs.warn} errors grow at {'; '.join(cable.bad_counters)}"
        return fitted(((text, "$warning"),), width, glyphs.ellipsis)
    return ()


def _name(cable: CableReading, glyphs: Glyphs, *, short: bool) -> str:
    other = "switch" if cable.b is None else _end_short(cable.b, short)
    return f"{_end_short(cable.a, short)} {glyphs.cable * 2} {other}"
