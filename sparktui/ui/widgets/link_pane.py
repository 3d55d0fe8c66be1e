"""The RoCE links as the cables they are: a triangle, a ring, a star; a list of cables where room is short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktui.ui.widgets.cable_readings import CableReading, Link, cable_readings
from sparktui.ui.widgets.cable_words import STYLES, link_word, traffic
from sparktui.ui.widgets.drawing import Drawing, Piece, Row, filled, fitted, row_width
from sparktui.ui.widgets.figures import number
from sparktui.ui.widgets.link_drawing import draw_links, rows_of_drawing

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
        """The smallest drawing with its sentences; without a drawing, the list."""
        if self.plan is None:
            return 1
        drawn = rows_of_drawing(self.plan, self.cables, width)
        return drawn if drawn is not None else 2 * max(1, len(self.cables)) + 1


def link_rows(
    plan: FabricPlan, cables: Sequence[CableReading], width: int, height: int, glyphs: Glyphs
) -> Sequence[Row]:
    """A drawing where it fits, else a list: two lines a cable, or one."""
    if not cables:
        return [(("one Spark: no cables", "$quiet"),)]
    return draw_links(plan, cables, width, height, glyphs) or _listed(cables, width, height, glyphs)


def _listed(cables: Sequence[CableReading], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """The widest wording that fits every cable, so that columns stand."""
    two = height >= 2 * len(cables)
    shown = list(cables)
    if not two and len(cables) > height:
        worst = sorted(cables, key=lambda cable: cable.link is Link.UP)[: max(1, height - 1)]
        shown = [cable for cable in cables if cable in worst]
    wording = next((each for each in _WORDINGS if _widest(cables, each, glyphs) <= width), _WORDINGS[-1])
    column = max(len(_name(cable, wording, glyphs)) for cable in cables)
    rows: list[Row] = []
    for cable in shown:
        left, right = _sides(cable, wording, column, glyphs)
        if two:
            rows += [filled(left, right, width, glyphs.ellipsis), _second(cable, wording, width, glyphs)]
        elif cable.why:
            rows.append(_one_bad(cable, left, width, glyphs))
        else:
            rows.append(filled(left, right, width, glyphs.ellipsis))
    if len(shown) < len(cables):
        rows.append(((f"and {len(cables) - len(shown)} more", "$quiet"),))
    elif len(rows) < height and wording.traffic:
        unit = f"Gb/s; {glyphs.up} what the first named sends, {glyphs.down} what it receives"
        if len(unit) > width:
            unit = f"Gb/s {glyphs.up} sent {glyphs.down} received"
        rows.append(((unit, "$quiet"),))
    return rows


@dataclass(frozen=True, slots=True)
class _Wording:
    tight: bool
    rate: bool
    traffic: bool


_CARRY = (Link.UP, Link.HALF, Link.SLOW)
"""A link in these words has a rate and traffic."""
_WORDINGS = (
    _Wording(tight=False, rate=True, traffic=True),
    _Wording(tight=True, rate=True, traffic=True),
    _Wording(tight=True, rate=False, traffic=True),
    _Wording(tight=True, rate=True, traffic=False),
    _Wording(tight=True, rate=False, traffic=False),
)


def _name(cable: CableReading, wording: _Wording, glyphs: Glyphs) -> str:
    """`worker1 port 0 ━━ worker2 port 1`, or `worker1:0━worker2:1`."""
    a, b = cable.a.text, "switch" if cable.b is None else cable.b.text
    if wording.tight:
        return f"{a}{glyphs.cable}{b}".replace(" port ", ":")
    return f"{a} {glyphs.cable * 2} {b}"


def _sides(cable: CableReading, wording: _Wording, column: int, glyphs: Glyphs) -> tuple[list[Piece], list[Piece]]:
    gap = " " if wording.tight else "  "
    left: list[Piece] = [(_name(cable, wording, glyphs).ljust(column), "bold"), (gap, ""), link_word(cable, glyphs)]
    if wording.rate and cable.link in _CARRY:
        left.append((f" {number(cable.rate_gbit)}", ""))
    carries = wording.traffic and cable.link in _CARRY
    return left, [traffic(cable.a, glyphs, 4 if wording.tight else 5)] if carries else []


def _widest(cables: Sequence[CableReading], wording: _Wording, glyphs: Glyphs) -> int:
    column = max(len(_name(cable, wording, glyphs)) for cable in cables)
    sides = [_sides(cable, wording, column, glyphs) for cable in cables]
    return max(row_width(left) + row_width(right) + (1 if right else 0) for left, right in sides)


def _one_bad(cable: CableReading, left: list[Piece], width: int, glyphs: Glyphs) -> Row:
    """One line: the sentence names the end; where it does not fit beside the cable's name, it stands alone."""
    whole = (*left, ("  ", ""), (cable.why, STYLES[cable.link]))
    if row_width(whole) <= width:
        return whole
    word, style = link_word(cable, glyphs)
    why = f"{cable.a.text}, {cable.why}" if cable.b is None else cable.why
    return fitted(((f"{word}: {why}", style),), width, glyphs.ellipsis)


def _second(cable: CableReading, wording: _Wording, width: int, glyphs: Glyphs) -> Row:
    """What is wrong; else the rate, where the first line has no room for it."""
    if cable.why:
        return fitted((("  ", ""), (cable.why, STYLES[cable.link])), width, glyphs.ellipsis)
    if cable.bad_counters:
        text = f"  {glyphs.warn} errors grow at {'; '.join(cable.bad_counters)}"
        return fitted(((text, "$warning"),), width, glyphs.ellipsis)
    return () if wording.rate else ((f"  {number(cable.rate_gbit)} Gb/s", "$quiet"),)
