"""The monitor: the live panes large, with trends; one page at a time where room is short, else all at once."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from sparktui.engine.ladder import RankBoot
from sparktui.telemetry.history import History
from sparktui.telemetry.sample import ClusterSnapshot, NodeSample
from sparktui.ui.frame import FrameScreen
from sparktui.ui.monitor.alarm_card import AlarmCard
from sparktui.ui.monitor.alarm_list import AlarmList
from sparktui.ui.monitor.page_line import PageLine, Pages
from sparktui.ui.monitor.sheet import MonitorSheet, Picture
from sparktui.ui.monitor.trends import SPANS, link_trends, memory_trends, node_trends, speed_trends
from sparktui.ui.widgets.boot_ladder import moves
from sparktui.ui.widgets.cable_readings import cable_readings
from sparktui.ui.widgets.decode_preview import DecodePreview
from sparktui.ui.widgets.trend_chart import Trend

if TYPE_CHECKING:
    from sparktui.cluster.fabric import FabricPlan

PAGES = ("memory", "links", "boot", "speed", "node")
CHARTS = "charts"
TOGETHER = 4
"""Two by two; on a very wide screen the node and charts with axes stand beside them."""
WIDE_COLUMNS, TALL_ROWS = 100, 32
"""From here on the first four are seen at once."""
TREND_SECONDS = 5.0
"""Curves move on this often: a dot is no shorter."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is shown: of now, or of when it was paused."""

    snapshot: ClusterSnapshot
    boots: tuple[RankBoot, ...]
    now: float
    history: History


def _whole_seconds(seen: Seen) -> float:
    """The clock of the ladders; it stands while no rank is on its way, so that nothing is drawn for it."""
    waiting = any(moves(boot) for boot in seen.boots)
    return float(int(seen.now)) if waiting else 0.0


class MonitorScreen(FrameScreen):
    name_shown: ClassVar[str] = "monitor"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "turn(1)", "page", id="monitor.next", tooltip="The next page"),
        Binding("shift+tab", "turn(-1)", "page back", show=False, id="monitor.back", tooltip="The page before"),
        *(
            Binding(str(number), f"page('{name}')", name, show=False, id=f"monitor.{name}", tooltip=f"The page: {name}")
            for number, name in enumerate(PAGES, start=1)
        ),
        Binding("escape,0", "page('')", "all", show=False, id="monitor.all", tooltip="All pages, where they fit"),
        Binding("down,right", "node(1)", "node", key_display="arrows", id="monitor.node", tooltip="The next node"),
        Binding("up,left", "node(-1)", "node", show=False, id="monitor.node-back", tooltip="The node before"),
        Binding(
            "enter",
            "page('node')",
            "details",
            key_display="enter",
            id="monitor.details",
            tooltip="The chosen node in full",
        ),
        Binding("a", "alarms", "alarms", show=False, id="monitor.alarms", tooltip="All alarms and their next steps"),
        Binding("space", "pause", "pause", id="monitor.pause", tooltip="Hold what is shown; nothing stops"),
        Binding(
            "right_square_bracket", "span(1)", "longer", show=False, id="monitor.longer", tooltip="Trends over longer"
        ),
        Binding("left_square_bracket", "span(-1)", "shorter", show=False, id="monitor.shorter", tooltip="Over shorter"),
        Binding(
            "p", "preview", "preview", id="monitor.preview", tooltip="Play a published speed: one, then four at once"
        ),
    ]

    def __init__(self) -> None:
        self.page = ""
        """Chosen by key; empty for all, where there is room."""
        self.chosen = 0
        """Rank of the chosen node."""
        self.span = 0
        self.paused: Seen | None = None
        self._trends_at: tuple[object, ...] = ()
        self._trends_kept: tuple[tuple[str, tuple[Trend, ...]], ...] = ()
        self._trouble = ""
        self._keys: list[tuple[str, str]] = []
        super().__init__()

    def body(self) -> Iterable[Widget]:
        yield Static("", id="monitor-trouble", markup=False)
        yield AlarmList(id="monitor-alarms")
        yield PageLine(id="monitor-pages-line")
        yield MonitorSheet(id="monitor-sheet")
        yield DecodePreview(playing=False, id="monitor-preview", classes="pane")

    # what is seen

    @property
    def seen(self) -> Seen:
        app = self.app
        return self.paused or Seen(app.snapshot, app.boots, app.monotonic(), app.history)

    @property
    def shown_pages(self) -> tuple[str, ...]:
        width, height = self.app.size
        if self.page:
            return (self.page,)
        if width >= 160 and height >= 48:
            return (*PAGES[:TOGETHER], "node", CHARTS)
        if self._roomy:
            return PAGES[:TOGETHER]
        return PAGES[:1]

    def keys_shown(self) -> list[tuple[str, str]]:
        """Always the same ones here, and asking costs more than drawing a pane."""
        if not self._keys:
            self._keys = super().keys_shown()
        return self._keys

    def refresh_data(self) -> None:
        seen, pages = self.seen, self.shown_pages
        snapshot, size = seen.snapshot, self.app.size
        self._show_trouble()
        most = 4 if size.height < TALL_ROWS else 6
        self.query_one("#monitor-alarms", AlarmList).show(snapshot.alarms, most)
        if isinstance(self.app.screen, AlarmCard):
            self.app.screen.show(snapshot.alarms)
        node = self._node(snapshot)
        alone = pages[0] if len(pages) == 1 else ""
        name, span = node.node if node else "", SPANS[self.span]
        line = Pages(PAGES, alone, self._roomy, name, span.text, self.paused is not None)
        self.query_one("#monitor-pages-line", PageLine).show(line)
        preview = self.query_one("#monitor-preview", DecodePreview)
        preview.display = alone == "speed"
        serving = snapshot.serving
        preview.show(serving.decode_tokens_per_second, len(snapshot.nodes) or 3, serving.running_requests)
        plan = self._plan()
        picture = Picture(
            pages=pages,
            nodes=snapshot.nodes,
            plan=plan,
            cables=cable_readings(plan, snapshot.nodes) if plan is not None and "links" in pages else (),
            boots=seen.boots,
            now=_whole_seconds(seen),
            serving=serving,
            chosen=node,
            published=preview.preview.speeds[0] if "speed" in pages else None,
            trends=self._trends(seen, pages, node),
            span=span.text,
            span_seconds=span.seconds,
        )
        self.query_one("#monitor-sheet", MonitorSheet).show(picture)

    @property
    def _roomy(self) -> bool:
        return self.app.size.width >= WIDE_COLUMNS and self.app.size.height >= TALL_ROWS

    def _show_trouble(self) -> None:
        if self.app.trouble == self._trouble:
            return
        self._trouble = self.app.trouble
        line = self.query_one("#monitor-trouble", Static)
        hint = "nothing is watched; e: settings, w: wizard"
        line.update(Content.assemble(f"{hint}\n", (self._trouble, "$error")))
        line.display = bool(self._trouble)

    def _trends(
        self, seen: Seen, pages: tuple[str, ...], node: NodeSample | None
    ) -> tuple[tuple[str, tuple[Trend, ...]], ...]:
        """Only of what is seen, and only when the curves have moved on."""
        at = (int(seen.snapshot.at // TREND_SECONDS), pages, self.chosen, self.span, len(seen.snapshot.nodes))
        if at == self._trends_at:
            return self._trends_kept
        history, span, nodes = seen.history, SPANS[self.span], seen.snapshot.nodes
        trends: dict[str, tuple[Trend, ...]] = {}
        if "memory" in pages:
            trends["memory"] = memory_trends(history, nodes, span)
        if "links" in pages:
            trends["links"] = link_trends(history, nodes, span)
        if "speed" in pages:
            trends["speed"] = speed_trends(history, span)
        if "node" in pages and node is not None:
            trends["node"] = node_trends(history, node, span)
        if CHARTS in pages:
            head = memory_trends(history, [node], span) if node is not None else ()
            trends[CHARTS] = (speed_trends(history, span)[0], *head)
        self._trends_at, self._trends_kept = at, tuple(trends.items())
        return self._trends_kept

    def _node(self, snapshot: ClusterSnapshot) -> NodeSample | None:
        if not snapshot.nodes:
            return None
        return snapshot.nodes[self.chosen % len(snapshot.nodes)]

    def _plan(self) -> FabricPlan | None:
        from sparktui.cluster.fabric import fabric_plan

        settings = self.app.session.settings
        if settings is None:
            return None
        return fabric_plan(settings.profile.fabric, [node.name for node in settings.nodes], settings.rdma_devices)

    def on_resize(self) -> None:
        super().on_resize()
        self.call_after_refresh(self.refresh_data)

    # what is asked for

    def action_turn(self, by: int) -> None:
        """Round all pages; where several are seen at once, from them to each alone and back."""
        together = self._roomy
        round_trip = ("", *PAGES) if together else PAGES
        here = self.page if together else self.shown_pages[0]
        self.action_page(round_trip[(round_trip.index(here) + by) % len(round_trip)])

    def action_page(self, name: str) -> None:
        self.page = name
        self.refresh_data()

    def action_node(self, by: int) -> None:
        count = len(self.seen.snapshot.nodes)
        if count:
            self.chosen = (self.chosen + by) % count
            self.refresh_data()

    def action_span(self, by: int) -> None:
        self.span = min(len(SPANS) - 1, max(0, self.span + by))
        self.refresh_data()

    def action_pause(self) -> None:
        seen = self.seen
        self.paused = None if self.paused is not None else replace(seen, history=deepcopy(seen.history))
        self.refresh_data()

    def action_alarms(self) -> None:
        if self.seen.snapshot.alarms:
            self.app.push_screen(AlarmCard(self.seen.snapshot.alarms))
        else:
            self.notify("nothing needs a look now", markup=False)

    def action_preview(self) -> None:
        """On the page where it has room."""
        self.action_page("speed")
        self.call_after_refresh(self.query_one(DecodePreview).switch)
