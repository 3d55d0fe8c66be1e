"""The monitor: the live panes large, with trends; one page at a time where room is short, else all at once."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from sparktui.telemetry.sample import ClusterSnapshot, NodeSample
from sparktui.ui.frame import FrameScreen
from sparktui.ui.monitor.alarm_list import AlarmList
from sparktui.ui.monitor.engine_row import EngineRow
from sparktui.ui.monitor.node_details import NodeDetails
from sparktui.ui.monitor.page_line import PageLine, Pages
from sparktui.ui.monitor.trends import SPANS, link_trends, memory_trends, node_trends, speed_trends
from sparktui.ui.widgets.axis_chart import AxisChart
from sparktui.ui.widgets.boot_pane import BootPane
from sparktui.ui.widgets.decode_preview import DecodePreview
from sparktui.ui.widgets.link_pane import LinkPane
from sparktui.ui.widgets.memory_pane import MemoryPane
from sparktui.ui.widgets.trend_chart import TrendChart

if TYPE_CHECKING:
    from sparktui.cluster.fabric import FabricPlan
    from sparktui.engine.ladder import RankBoot
    from sparktui.telemetry.history import History

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
        Binding("enter", "page('node')", "details", id="monitor.details", tooltip="The chosen node in full"),
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
        self.all_alarms = False
        self.paused: Seen | None = None
        self._trends_at: tuple[object, ...] = ()
        self._trouble = ""
        self._keys: list[tuple[str, str]] = []
        super().__init__()

    def body(self) -> Iterable[Widget]:
        yield Static("", id="monitor-trouble", markup=False)
        yield AlarmList(id="monitor-alarms")
        yield PageLine(id="monitor-pages-line")
        with Container(id="monitor-pages"):
            with Vertical(id="page-memory", classes="page"):
                yield MemoryPane(classes="pane")
                yield TrendChart("available memory", id="trend-memory", classes="pane")
            with Vertical(id="page-links", classes="page"):
                yield LinkPane(classes="pane")
                yield TrendChart("sent over RoCE", id="trend-links", classes="pane")
            with Vertical(id="page-boot", classes="page"):
                yield BootPane(classes="pane")
                yield EngineRow(id="boot-engine", classes="pane")
            with Vertical(id="page-speed", classes="page"):
                yield EngineRow(id="speed-engine", classes="pane")
                yield TrendChart("decode and prefill", id="trend-speed", classes="pane")
                yield DecodePreview(playing=False, classes="pane")
            with Vertical(id="page-node", classes="page"):
                yield NodeDetails(classes="pane")
                yield TrendChart("GPU and disk", id="trend-node", classes="pane")
            with Vertical(id=f"page-{CHARTS}", classes="page"):
                yield AxisChart(id="axis-speed", classes="pane")
                yield AxisChart(id="axis-memory", classes="pane")

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
        if width >= WIDE_COLUMNS and height >= TALL_ROWS:
            return PAGES[:TOGETHER]
        return PAGES[:1]

    def keys_shown(self) -> list[tuple[str, str]]:
        """Always the same ones here, and asking costs more than drawing a pane."""
        if not self._keys:
            self._keys = super().keys_shown()
        return self._keys

    def refresh_data(self) -> None:
        seen, pages = self.seen, self.shown_pages
        self._place(pages)
        if self.app.trouble != self._trouble:
            self._trouble = self.app.trouble
            line = self.query_one("#monitor-trouble", Static)
            line.update(
                Content.assemble((f"{self._trouble}\n", "$error"), "nothing is watched; e: settings, w: wizard")
            )
            line.display = bool(self._trouble)
        snapshot = seen.snapshot
        most = self.app.size.height // 2 if self.all_alarms else 4 if self.app.size.height < 32 else 6
        self.query_one(AlarmList).show(snapshot.alarms, most)
        node = self._node(snapshot)
        alone = pages[0] if len(pages) == 1 else ""
        roomy = self.app.size.width >= WIDE_COLUMNS and self.app.size.height >= TALL_ROWS
        paused = None if self.paused is None else 0.0
        self.query_one(PageLine).show(
            Pages(PAGES, alone, roomy, node.node if node else "", SPANS[self.span].text, paused)
        )
        if "memory" in pages:
            self.query_one(MemoryPane).show(snapshot.nodes)
        if "links" in pages:
            self.query_one(LinkPane).show(self._plan(), snapshot.nodes)
        if "boot" in pages:
            self.query_one(BootPane).show(seen.boots, seen.now)
            self.query_one("#boot-engine", EngineRow).show(snapshot.serving)
        if "speed" in pages:
            serving = snapshot.serving
            self.query_one("#speed-engine", EngineRow).show(serving)
            sparks = len(snapshot.nodes) or 3
            self.query_one(DecodePreview).show(serving.decode_tokens_per_second, sparks, serving.running_requests)
        if "node" in pages:
            self.query_one(NodeDetails).show(node)
        self._show_trends(seen, pages, node)

    def _place(self, pages: tuple[str, ...]) -> None:
        for name in (*PAGES, CHARTS):
            self.query_one(f"#page-{name}").display = name in pages
        self.query_one("#boot-engine").display = len(pages) == 1
        container = self.query_one("#monitor-pages")
        container.set_class(len(pages) == 4, "-four")
        container.set_class(len(pages) == 6, "-six")

    def _show_trends(self, seen: Seen, pages: tuple[str, ...], node: NodeSample | None) -> None:
        """Only what is seen, and only when a curve has moved on."""
        at = (int(seen.snapshot.at // TREND_SECONDS), pages, self.chosen, self.span, len(seen.snapshot.nodes))
        if at == self._trends_at:
            return
        self._trends_at = at
        history, span, nodes = seen.history, SPANS[self.span], seen.snapshot.nodes
        if "memory" in pages:
            self.query_one("#trend-memory", TrendChart).show(memory_trends(history, nodes, span), span.text)
        if "links" in pages:
            self.query_one("#trend-links", TrendChart).show(link_trends(history, nodes, span), span.text)
        if "speed" in pages or CHARTS in pages:
            speeds = speed_trends(history, span)
            self.query_one("#trend-speed", TrendChart).show(speeds, span.text)
            if CHARTS in pages:
                self.query_one("#axis-speed", AxisChart).show(speeds[0], span.seconds)
        if "node" in pages and node is not None:
            self.query_one("#trend-node", TrendChart).show(node_trends(history, node, span), span.text)
        if CHARTS in pages and node is not None:
            (trend,) = memory_trends(history, [node], span)
            self.query_one("#axis-memory", AxisChart).show(trend, span.seconds)

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
        together = self.app.size.width >= WIDE_COLUMNS and self.app.size.height >= TALL_ROWS
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
        self.all_alarms = not self.all_alarms
        self.refresh_data()

    def action_preview(self) -> None:
        """The preview may be on a page that is not seen."""
        if "speed" not in self.shown_pages:
            self.action_page("speed")
        self.call_after_refresh(self.query_one(DecodePreview).switch)
