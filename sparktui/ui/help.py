"""The keys of a screen, in words."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

if TYPE_CHECKING:
    from sparktui.ui.app import SparkApp

KEY_WORDS = {
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "slash": "/",
    "full_stop": ".",
    "comma": ",",
    "plus": "+",
    "minus": "-",
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "upper_g": "G",
    "upper_n": "N",
}
"""Textual's names as a person says them; a name that is missing here is said as it is. ASCII only."""


CARD_COLUMNS = 78
"""Inside the card, where the terminal has them."""


def key_word(key: str) -> str:
    return KEY_WORDS.get(key, key)


class HelpScreen(ModalScreen[None]):
    """Lists what can be pressed on `about`, its own keys first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss", "close"),
        Binding("up,k", "scroll(-1)", "up", show=False),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("pageup", "scroll(-10)", "page up", show=False),
        Binding("pagedown,space", "scroll(10)", "page down", show=False),
    ]

    app: SparkApp

    def __init__(self, about: Screen[Any]) -> None:
        self.about = about
        super().__init__()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="card", id="help-card", can_focus=False):
            yield Static(self.content(), id="help-text", markup=False)

    def action_scroll(self, rows: int) -> None:
        self.query_one("#help-card").scroll_relative(y=rows, animate=False, immediate=True)

    def content(self) -> Content:
        own, everywhere = self._rows()
        name = str(getattr(self.about, "name_shown", "")) or "this screen"
        width = max((len(keys) for keys, _ in [*own, *everywhere]), default=0)
        room = min(CARD_COLUMNS, self.app.size.width - 8)
        lines = []
        if own:
            lines += [Content.styled(f"On {name if name == 'this screen' else 'the ' + name}", "bold")]
            lines += [_line(keys, words, width, room) for keys, words in own]
            lines += [Content("")]
        lines += [Content.styled("Everywhere", "bold")]
        lines += [_line(keys, words, width, room) for keys, words in everywhere]
        lines += [Content(""), Content.styled("Leaving stops nothing: runs and engines go on by themselves.", "$quiet")]
        lines += [Content.styled("up down: scroll   esc: close", "$quiet")]
        return Content("\n").join(lines)

    def _rows(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """(keys, words) of the screen, and of the app; in the order in which they were written down."""
        own: dict[str, list[str]] = {}
        everywhere: dict[str, list[str]] = {}
        for key, active in self.about.active_bindings.items():
            binding = active.binding
            if not active.enabled and not binding.show:
                continue
            if (
                binding.action in ("app.focus_next", "app.focus_previous", "screen.copy_text")
                or binding.system
                or key == "ctrl+p"
            ):
                continue
            words = binding.tooltip or binding.description
            if not words:
                continue
            rows = everywhere if active.node is self.app else own
            rows.setdefault(words, []).append(key_word(key))
        everywhere.setdefault("All actions by name (command palette)", ["ctrl+p"])
        everywhere.setdefault("Leave, also where letters are typed", ["ctrl+q"])
        return _joined(own), _joined(everywhere)


def _joined(rows: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(" ".join(dict.fromkeys(keys)), words) for words, keys in rows.items()]


def _line(keys: str, words: str, width: int, room: int) -> Content:
    first, *more = textwrap.wrap(words, max(20, room - width - 2))
    indent = " " * (width + 2)
    row = Content.assemble((f"{keys:>{width}}", "$accent bold"), "  ", first)
    return Content("\n").join([row, *(Content(f"{indent}{line}") for line in more)])
