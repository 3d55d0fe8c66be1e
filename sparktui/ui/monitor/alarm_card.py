"""All alarms, each with its whole cause and next step; scrolls, and lives on while it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from sparktui.telemetry.sample import Alarm
from sparktui.ui.messages import Copied
from sparktui.ui.wrapping import hanging

if TYPE_CHECKING:
    from sparktui.ui.app import SparkApp

CARD_COLUMNS = 71
"""Inside the card, where the terminal has them: one is the scroll bar's."""


class AlarmCard(ModalScreen[None]):
    """`show(alarms)` when they changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,a,q", "dismiss", "close"),
        Binding("c", "copy", "copy", tooltip="All alarms with their next steps, to the clipboard"),
        Binding("up,k", "scroll(-1)", "up", show=False),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("pageup", "scroll(-10)", "page up", show=False),
        Binding("pagedown,space", "scroll(10)", "page down", show=False),
    ]

    app: SparkApp

    def __init__(self, alarms: tuple[Alarm, ...]) -> None:
        self.alarms = alarms
        super().__init__()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="card", id="alarm-card", can_focus=False):
            yield Static(self._content(), id="alarm-text", markup=False)

    def show(self, alarms: tuple[Alarm, ...]) -> None:
        if alarms != self.alarms and self.is_mounted:
            self.alarms = alarms
            self.query_one("#alarm-text", Static).update(self._content())

    def _content(self) -> Content:
        glyphs, room = self.app.glyphs, min(CARD_COLUMNS, self.app.size.width - 8)
        lines: list[Content] = []
        for alarm in self.alarms:
            glyph, style = (glyphs.failed, "$error") if alarm.severe else (glyphs.warn, "$warning")
            mark = Content.styled(f"{glyph} ", f"{style} bold")
            lines += hanging(f"{alarm.node}: {alarm.what}", room, first=mark, indent=2, style=style)
            if alarm.fix:
                lines += hanging(alarm.fix, room, first=Content.styled("  next: ", "$quiet"), indent=8)
            lines.append(Content(""))
        if not self.alarms:
            lines += [Content("nothing needs a look now"), Content("")]
        lines.append(Content.styled("up down: scroll   c: copy   esc: close", "$quiet"))
        return Content("\n").join(lines)

    def action_scroll(self, rows: int) -> None:
        self.query_one("#alarm-card").scroll_relative(y=rows, animate=False, immediate=True)

    def action_copy(self) -> None:
        told = [f"{alarm.node}: {alarm.what}" + (f"\nnext: {alarm.fix}" if alarm.fix else "") for alarm in self.alarms]
        if told:
            self.app.post_message(Copied("\n".join(told), "the alarms"))
