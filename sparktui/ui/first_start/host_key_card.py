"""An unknown host key, with its fingerprint: trusted only by a key press that says so."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from sparktui.ui.first_start.key_test import KeyRow


class HostKeyCard(ModalScreen[bool]):
    """Dismissed with True when the key is to be trusted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "trust it", id="hostkey.yes", tooltip="Write it to known_hosts and try again"),
        Binding("n,escape", "answer(False)", "not now", id="hostkey.no", tooltip="Leave it; this node stays out"),
    ]

    def __init__(self, row: KeyRow) -> None:
        self.row = row
        super().__init__()

    def compose(self) -> ComposeResult:
        row = self.row
        lines = (
            Content.assemble((f"{row.name}, {row.target}: nobody has confirmed its host key", "bold")),
            Content(""),
            Content.assemble("  ", (row.fingerprint, "$accent bold")),
            Content(""),
            Content(row.fix),
            Content(""),
            Content.assemble(
                ("y", "$accent bold"), " it is the same there: trust it    ", ("n", "$accent bold"), " not now"
            ),
        )
        with Vertical(classes="card", id="host-key-card"):
            yield Static(Content("\n").join(lines), markup=False)

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)
