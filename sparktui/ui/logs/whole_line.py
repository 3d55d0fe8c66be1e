"""One line of a log, whole, and what it means where that is known."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from sparktui.engine.signatures import explain, information
from sparktui.readings.sglang_log import split_prefix
from sparktui.ui.logs.lines import LogRow
from sparktui.ui.messages import Copied


class WholeLine(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss", "close"),
        Binding("c", "copy", "copy", tooltip="This line, to the clipboard"),
    ]

    def __init__(self, row: LogRow) -> None:
        self.row = row
        super().__init__()

    def compose(self) -> ComposeResult:
        row = self.row
        at = split_prefix(row.text).at
        who = row.node if row.rank is None else f"rank {row.rank} {row.node}"
        with VerticalScroll(classes="card", id="whole-line"):
            yield Static(Content.assemble((who, "bold"), (f"  {at}" if at else "", "$quiet")), markup=False)
            yield Static(row.text, markup=False, id="whole-line-text")
            yield Static(self._meaning(), markup=False)
            yield Static(Content.styled("c copies, escape closes", "$quiet"), markup=False)

    def _meaning(self) -> Content:
        harmless = information(self.row.text)
        if harmless is not None:
            return Content.assemble(("harmless: ", "$quiet"), harmless)
        known = explain([self.row.text], None, None)
        if known is None:
            return Content("")
        return Content.assemble((f"{known.cause}\n", "$error"), ("next: ", "$quiet"), known.fix)

    def action_copy(self) -> None:
        self.app.post_message(Copied(self.row.text, "the line"))
