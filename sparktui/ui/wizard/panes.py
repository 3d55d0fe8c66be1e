"""The live panes beside the step: all four where there is room, else the one that matters for the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Container

from sparktui.ui.widgets.boot_pane import BootPane
from sparktui.ui.widgets.decode_preview import DecodePreview
from sparktui.ui.widgets.link_pane import LinkPane
from sparktui.ui.widgets.memory_pane import MemoryPane

if TYPE_CHECKING:
    from sparktui.cluster.fabric import FabricPlan
    from sparktui.engine.ladder import RankBoot
    from sparktui.telemetry.sample import ClusterSnapshot

PANES = ("memory", "links", "boot", "decode")
ROWS_A_PANE = 8
"""With fewer a pane is not worth its place."""


class LivePanes(Container):
    """`show(...)` hands the values on; `pick(name)` says which pane matters; `fit(rows)` how many have room."""

    def __init__(self, *, id: str | None = None) -> None:
        self.picked = "memory"
        self.room = len(PANES)
        super().__init__(id=id)

    def compose(self) -> ComposeResult:
        yield MemoryPane(id="pane-memory", classes="live-pane")
        yield LinkPane(id="pane-links", classes="live-pane")
        yield BootPane(id="pane-boot", classes="live-pane")
        yield DecodePreview(playing=False, id="pane-decode", classes="live-pane")

    def on_mount(self) -> None:
        self._place()

    def show(
        self,
        snapshot: ClusterSnapshot,
        boots: tuple[RankBoot, ...],
        plan: FabricPlan | None,
        sparks: int,
        monotonic: float,
    ) -> None:
        serving = snapshot.serving
        self.query_one(MemoryPane).show(snapshot.nodes)
        self.query_one(LinkPane).show(plan, snapshot.nodes)
        self.query_one(BootPane).show(boots, monotonic)
        self.query_one(DecodePreview).show(serving.decode_tokens_per_second, sparks, serving.running_requests)

    def pick(self, name: str) -> None:
        if name != self.picked:
            self.picked = name
            self._place()

    def step(self, by: int) -> str:
        """The pane after (or before) the picked one; its name."""
        self.pick(PANES[(PANES.index(self.picked) + by) % len(PANES)])
        return self.picked

    def fit(self, room: int) -> None:
        """Show this many: the picked one, then the others in their order."""
        room = max(1, min(len(PANES), room))
        if room != self.room:
            self.room = room
            self._place()

    def _place(self) -> None:
        shown = [self.picked, *(name for name in PANES if name != self.picked)][: self.room]
        self.set_class(self.picked == "boot", "-boots")
        for pane in self.query(".live-pane"):
            pane.display = str(pane.id).removeprefix("pane-") in shown
