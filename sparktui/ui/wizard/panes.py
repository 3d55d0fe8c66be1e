"""The live panes beside the step: all four where there is room, else the one that matters for the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from textual.containers import Container
from textual.message import Message

if TYPE_CHECKING:
    from sparktui.cluster.fabric import FabricPlan
    from sparktui.engine.ladder import RankBoot
    from sparktui.telemetry.sample import ClusterSnapshot
    from sparktui.ui.widgets.boot_pane import BootPane
    from sparktui.ui.widgets.decode_preview import DecodePreview
    from sparktui.ui.widgets.link_pane import LinkPane
    from sparktui.ui.widgets.memory_pane import MemoryPane

PANES = ("memory", "links", "boot", "decode")
ROWS_A_PANE = 8
"""With fewer a pane is not worth its place."""


class Panes(NamedTuple):
    memory: MemoryPane
    links: LinkPane
    boot: BootPane
    decode: DecodePreview


class LivePanes(Container):
    """`show(...)` hands the values on; `pick(name)` says which pane matters; `fit(rows)` how many have room.

    The place is there at once; the panes come into it after the first frame, which has no values for them yet.
    """

    class Filled(Message):
        """The panes are there and want values."""

    def __init__(self, *, id: str | None = None) -> None:
        self.picked = "memory"
        self.room = len(PANES)
        self.panes: Panes | None = None
        super().__init__(id=id)

    def on_mount(self) -> None:
        # By way of the app: while it starts nothing is painted, and a refresh that is waited for here would be none.
        self.app.call_later(self.call_after_refresh, self._fill)

    async def _fill(self) -> None:
        from sparktui.ui.widgets.boot_pane import BootPane
        from sparktui.ui.widgets.decode_preview import DecodePreview
        from sparktui.ui.widgets.link_pane import LinkPane
        from sparktui.ui.widgets.memory_pane import MemoryPane

        self.panes = Panes(
            MemoryPane(id="pane-memory", classes="live-pane"),
            LinkPane(id="pane-links", classes="live-pane"),
            BootPane(id="pane-boot", classes="live-pane"),
            DecodePreview(playing=False, id="pane-decode", classes="live-pane"),
        )
        await self.mount(*self.panes)
        self._place()
        self.post_message(self.Filled())

    def show(
        self,
        snapshot: ClusterSnapshot,
        boots: tuple[RankBoot, ...],
        plan: FabricPlan | None,
        sparks: int,
        monotonic: float,
    ) -> None:
        if self.panes is None:
            return
        serving = snapshot.serving
        self.panes.memory.show(snapshot.nodes)
        self.panes.links.show(plan, snapshot.nodes)
        self.panes.boot.show(boots, monotonic)
        self.panes.decode.show(serving.decode_tokens_per_second, sparks, serving.running_requests)

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
        for pane in self.panes or ():
            pane.display = str(pane.id).removeprefix("pane-") in shown
