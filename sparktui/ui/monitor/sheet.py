"""All pages of the monitor in one widget: blocks with a title each, below and beside each other.

One widget, because every widget that is seen costs the compositor at each repaint: with a widget a pane the same
picture took twice the processor time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from sparktui.telemetry.sample import NodeSample, Serving
from sparktui.ui.monitor.device_rows import SMALLEST_WIDTH, device_rows, ends_of
from sparktui.ui.monitor.engine_row import engine_rows
from sparktui.ui.monitor.node_details import node_rows
from sparktui.ui.widgets.axis_chart import SMALLEST_HEIGHT, axis_rows
from sparktui.ui.widgets.boot_ladder import boot_rows
from sparktui.ui.widgets.cable_readings import CableReading
from sparktui.ui.widgets.decode_preview import about_rows, heading_rows
from sparktui.ui.widgets.drawing import Drawing, Piece, Row, fitted, row_width
from sparktui.ui.widgets.link_drawing import rows_of_drawing
from sparktui.ui.widgets.link_pane import link_rows
from sparktui.ui.widgets.memory_pane import memory_rows
from sparktui.ui.widgets.published import PublishedSpeed
from sparktui.ui.widgets.trend_chart import Trend, trend_rows

if TYPE_CHECKING:
    from sparktui.cluster.fabric import FabricPlan
    from sparktui.engine.ladder import RankBoot
    from sparktui.ui.glyphs import Glyphs

PAGES = ("memory", "links", "boot", "speed", "node", "charts")
SMALLEST_TREND = 3
"""Rows with its title; with fewer a trend is left out."""
SMALLEST_TREND_BELOW_DEVICES = 5
"""Where the trends would have fewer rows, the devices are left to the page of the node."""

Draw = Callable[[int, int], Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn. `trends` are by page; `span` says how far back they reach, `span_seconds` in seconds."""

    pages: tuple[str, ...] = ()
    nodes: tuple[NodeSample, ...] = ()
    plan: FabricPlan | None = None
    cables: tuple[CableReading, ...] = ()
    boots: tuple[RankBoot, ...] = ()
    now: float = 0.0
    serving: Serving = field(default_factory=Serving)
    chosen: NodeSample | None = None
    published: PublishedSpeed | None = None
    trends: tuple[tuple[str, tuple[Trend, ...]], ...] = ()
    span: str = ""
    span_seconds: float = 0.0

    def trend(self, page: str) -> tuple[Trend, ...]:
        return next((trends for name, trends in self.trends if name == page), ())


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a page: drawn again only when `key` or its size changed."""

    title: str
    rows: int
    key: Hashable
    draw: Draw


class MonitorSheet(Drawing):
    """`show(picture)`."""

    FITS: ClassVar[bool] = True

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        self.picture = Picture()
        self._kept: dict[str, tuple[Hashable, list[Row]]] = {}
        super().__init__(id=id, classes=classes)

    def show(self, picture: Picture) -> None:
        if picture != self.picture:
            self.picture = picture
            self.redraw()

    def rows(self, width: int, height: int, glyphs: Glyphs) -> Sequence[Row]:
        pages = self.picture.pages
        if not pages:
            return []
        across = 1 if len(pages) == 1 else 2 if len(pages) <= 4 else 3
        down = -(-len(pages) // across)
        rows: list[Row] = []
        for line in range(down):
            tall = height // down + (1 if line < height % down else 0)
            widths = [(width - across + 1) // across] * across
            widths[-1] = width - across + 1 - sum(widths[:-1])
            shown = pages[line * across : (line + 1) * across]
            columns = [self._page(page, wide, tall, glyphs) for page, wide in zip(shown, widths, strict=False)]
            rows += [_beside([column[y] for column in columns], widths) for y in range(tall)]
        return rows

    def _page(self, page: str, width: int, height: int, glyphs: Glyphs) -> list[Row]:
        rows: list[Row] = []
        blank: Row = ((" " * width, ""),)
        alone = len(self.picture.pages) == 1
        for block in page_blocks(self.picture, page, width - 2, height, alone=alone, glyphs=glyphs):
            name, key = f"{page} {block.title}", (block.key, width, block.rows)
            kept = self._kept.get(name)
            if kept is None or kept[0] != key:
                drawn = block.draw(width - 2, block.rows - 1)[: block.rows - 1]
                inside = [_inset(fitted(row, width - 2, glyphs.ellipsis), width) for row in drawn]
                body = [*inside, *([blank] * (block.rows - 1 - len(inside)))]
                kept = self._kept[name] = (key, [_title(block.title, width, glyphs), *body])
            rows += kept[1]
        return [*rows, *([blank] * (height - len(rows)))][:height]


def page_blocks(
    picture: Picture, page: str, width: int, height: int, *, alone: bool, glyphs: Glyphs
) -> Sequence[Block]:
    """The blocks of a page, which share its `height` rows; titles count."""
    match page:
        case "memory":
            wanted = 1 + 4 * max(1, len(picture.nodes))
            first, rest = _shared(wanted, height, 2 / 3)
            nodes = picture.nodes
            return [
                Block("memory", first, nodes, lambda w, h: memory_rows(nodes, w, h, glyphs)),
                *_trend(picture, page, "available memory", rest, glyphs),
            ]
        case "links":
            return _links(picture, height, width, glyphs)
        case "boot":
            boots, now, serving = picture.boots, picture.now, picture.serving
            below = 1 + len(engine_rows(serving, width, 99, glyphs)) if alone else 0
            blocks = [
                Block(
                    "boot of each rank", height - below, (boots, now), lambda w, h: boot_rows(boots, now, w, h, glyphs)
                )
            ]
            return [*blocks, *([_engine(picture, below, glyphs)] if alone else [])]
        case "speed":
            first = 1 + len(engine_rows(picture.serving, width, 99, glyphs))
            published = _published_rows(picture, width, glyphs)
            last = 0 if alone else 1 + len(published)
            rest = max(0, height - first - last)
            return [
                _engine(picture, first, glyphs),
                *_trend(picture, page, "decode and prefill", rest, glyphs),
                *([Block("published decode speed", last, published, lambda w, h: published)] if last else []),
            ]
        case "node":
            chosen = picture.chosen
            if chosen is None:
                return [Block("node", height, None, lambda w, h: [(("no node was asked yet", "$quiet"),)])]
            first, rest = _shared(1 + len(node_rows(chosen, width, glyphs)), height, 0.85)
            return [
                Block(f"{chosen.node}, rank {chosen.rank}", first, chosen, lambda w, h: node_rows(chosen, w, glyphs)),
                *_trend(picture, page, "GPU and disk", rest, glyphs),
            ]
        case _:
            trends = picture.trend(page)
            each = height // max(1, len(trends))
            return [_chart(trend, picture.span_seconds, each, glyphs) for trend in trends]


def _shared(wanted: int, height: int, most: float) -> tuple[int, int]:
    """(rows of the first block, rows of the trend below it, which may be none)."""
    first = min(wanted, max(2, int(height * most)))
    rest = height - first
    return (first, rest) if rest >= SMALLEST_TREND else (height, 0)


def _links(picture: Picture, height: int, width: int, glyphs: Glyphs) -> Sequence[Block]:
    plan, cables = picture.plan, picture.cables
    if plan is None:
        text = "the settings do not say yet how the Sparks are cabled"
        return [Block("RoCE links", height, None, lambda w, h: [((text, "$quiet"),)])]
    wanted = 1 + (rows_of_drawing(plan, cables, width) or 2 * len(cables) + 1)
    first, rest = _shared(wanted, height, 0.85)
    devices = 1 + len(ends_of(cables))
    listed = cables and width >= SMALLEST_WIDTH and rest >= devices + SMALLEST_TREND_BELOW_DEVICES
    rest -= devices if listed else 0
    named = Block("devices, Gb/s", devices, cables, lambda w, h: device_rows(cables, w, glyphs))
    return [
        Block("RoCE links", first, (plan, cables), lambda w, h: link_rows(plan, cables, w, h, glyphs)),
        *([named] if listed else []),
        *_trend(picture, "links", "sent over RoCE", rest, glyphs),
    ]


def _trend(picture: Picture, page: str, title: str, rows: int, glyphs: Glyphs) -> Sequence[Block]:
    trends = picture.trend(page)
    if rows < 2:
        return []
    return [Block(f"{title}, last {picture.span}", rows, trends, lambda w, h: trend_rows(trends, w, h, glyphs))]


def _engine(picture: Picture, rows: int, glyphs: Glyphs) -> Block:
    serving = picture.serving
    return Block("engine", rows, serving, lambda w, h: engine_rows(serving, w, h, glyphs))


def _published_rows(picture: Picture, width: int, glyphs: Glyphs) -> tuple[Row, ...]:
    published, serving = picture.published, picture.serving
    if published is None:
        return ()
    heading = heading_rows(published, serving.decode_tokens_per_second, serving.running_requests, width, glyphs)
    about = about_rows(len(picture.nodes) or 3, width - 2)
    return (*heading, *about, (("p", "$accent bold"), (": watch a text that is typed at this speed", "$quiet")))


def _chart(trend: Trend, seconds: float, rows: int, glyphs: Glyphs) -> Block:
    def draw(width: int, height: int) -> Sequence[Row]:
        if height < SMALLEST_HEIGHT or not glyphs.braille:
            return trend_rows((trend,), width, height, glyphs)
        return axis_rows(trend, seconds, width, height)

    return Block(f"{trend.name}, {trend.unit}, by minutes before now", rows, (trend, seconds), draw)


def _title(title: str, width: int, glyphs: Glyphs) -> Row:
    line = glyphs.box[4]
    text = f" {title} "[: width - 1]
    return ((line, "$border"), (text, "bold"), (line * (width - 1 - len(text)), "$border"))


def _inset(row: Row, width: int) -> Row:
    return ((" ", ""), *row, (" " * (width - 1 - row_width(row)), ""))


def _beside(cells: Sequence[Row], widths: Sequence[int]) -> Row:
    if len(cells) == 1:
        return cells[0]
    row: list[Piece] = []
    for number, cell in enumerate(cells):
        row += [*((" ", "") for _ in range(number > 0)), *cell]
    return tuple(row)
