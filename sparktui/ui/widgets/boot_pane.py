"""How far each rank's boot is, as a widget. What a ladder is gets imported with the first one: a start needs none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparktui.ui.widgets.drawing import Drawing, Row

if TYPE_CHECKING:
    from sparktui.engine.ladder import RankBoot
    from sparktui.ui.glyphs import Glyphs


NOBODY = "nobody has asked the ranks yet"


class BootPane(Drawing):
    """`show(boots, now)`: `now` is of the clock that the ladder was fed with."""

    BORDER_TITLE = "boot of each rank"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        self.boots: tuple[RankBoot, ...] = ()
        self.now = 0.0
        super().__init__(id=id, classes=classes)

    def show(self, boots: tuple[RankBoot, ...], now: float) -> None:
        """A second that nobody is waiting for changes nothing."""
        now = float(int(now))
        from sparktui.ui.widgets.boot_ladder import moves

        waiting = any(moves(boot) for boot in boots)
        if boots != self.boots or (waiting and now != self.now):
            self.boots, self.now = boots, now
            self.redraw()

    def rows(self, width: int, height: int, glyphs: Glyphs) -> Sequence[Row]:
        if not self.boots:
            return [((NOBODY, "$quiet"),)]
        from sparktui.ui.widgets.boot_ladder import boot_rows

        return boot_rows(self.boots, self.now, width, height, glyphs)

    def height_wanted(self, width: int) -> int:
        return 15
