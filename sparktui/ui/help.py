"""The keys of a screen, in words."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static


class HelpScreen(ModalScreen[None]):
    """Lists what can be pressed on `about`, its own keys first."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss", "close")]

    def __init__(self, about: Screen[Any]) -> None:
        self.about = about
        super().__init__()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="card", id="help-card"):
            yield Static(self._rows(), markup=False)

    def _rows(self) -> Content:
        rows: dict[tuple[bool, str, str], list[str]] = {}
        for active in self.about.active_bindings.values():
            binding = active.binding
            if binding.system or not binding.description:
                continue
            words = binding.tooltip or binding.description
            rows.setdefault((active.node is self.app, binding.id or binding.description, words), []).append(
                self.app.get_key_display(binding)
            )
        lines = []
        for (_, _, words), keys in sorted(rows.items(), key=lambda each: each[0][0]):
            lines.append(Content.assemble((f"{' '.join(dict.fromkeys(keys)):>14}", "$accent bold"), "  ", words))
        return Content("\n").join(lines)
