"""A question over the screen: its whole text, its answers as buttons, the safe one focused.

For the questions of a run (host key, base digest, replacing an engine) and for what the app itself asks before it does
something that cannot be taken back. Escape decides nothing. A card that opens by itself takes no key for a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from sparktui.printing import plain

QUIET_SECONDS = 0.7
"""From the first picture of a card that opened by itself until it takes keys: one on its way was not meant for it."""
NOT_YET = "it has just opened: keys count in a moment"
SAFE_WORDS = ("no", "later", "keep going", "cancel", "leave it")


def safe_choice(choices: Sequence[str]) -> int:
    """The answer that changes least: the first of the known careful words, else the last one."""
    lowered = [each.lower() for each in choices]
    return next((lowered.index(word) for word in SAFE_WORDS if word in lowered), len(choices) - 1)


class QuestionCard(ModalScreen[str | None]):
    """Dismissed with the answer, or None when it is decided later.

    Args:
        title: who asks, such as `build asks`.
        text: the whole question; any length, it scrolls.
        choices: the answers, as they are given back.
        safe: index of the one that is focused; None to find it by its word.
        later: what escape means, shown beside the buttons.
        by_itself: nobody's key opened it, so it drops what is pressed in its first QUIET_SECONDS.

    Attributes:
        takes_keys: whether it can be answered yet; the last line of the card says so too.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "later", "later", id="question.later", tooltip="Decide nothing now"),
        Binding("left,shift+tab", "app.focus_previous", "previous", show=False, id="question.previous"),
        Binding("right,tab", "app.focus_next", "next", show=False, id="question.next"),
        Binding("up,pageup", "scroll(-1)", "up", show=False, id="question.up", tooltip="The text, upwards"),
        Binding("down,pagedown", "scroll(1)", "down", show=False, id="question.down", tooltip="The text, downwards"),
    ]

    def __init__(
        self,
        title: str,
        text: str,
        choices: Sequence[str],
        *,
        safe: int | None = None,
        later: str = "esc: decide later",
        by_itself: bool = False,
    ) -> None:
        self.question_title = title
        self.text = text
        self.choices = tuple(choices)
        self.safe = safe_choice(choices) if safe is None else safe
        self.later = later
        self.takes_keys = not by_itself
        super().__init__()

    def compose(self) -> ComposeResult:
        with Vertical(classes="card", id="question-card"):
            yield Static(Content.styled(self.question_title, "bold"), id="question-title", markup=False)
            with VerticalScroll(id="question-scroll", can_focus=False):
                yield Static(self.shown_text(), id="question-text", markup=False)
            with Horizontal(id="question-choices"):
                for number, choice in enumerate(self.choices):
                    yield Button(
                        Content(choice),
                        id=f"choice-{number}",
                        classes="choice",
                        compact=True,
                        disabled=not self.takes_keys,
                    )
            yield Static(self._keys_line(), id="question-keys", markup=False)

    def shown_text(self) -> Content:
        return Content("\n".join(plain(line) for line in self.text.split("\n")))

    def _keys_line(self) -> Content:
        keys = f"left right: choose   enter: answer   {self.later}" if self.takes_keys else NOT_YET
        return Content.styled(keys, "$quiet")

    def on_mount(self) -> None:
        if self.takes_keys:
            self._point_at_safe()
        else:
            # Counted from when it can be seen.
            self.call_after_refresh(self.set_timer, QUIET_SECONDS, self._take_keys)

    def _take_keys(self) -> None:
        self.takes_keys = True
        for button in self.query(Button):
            button.disabled = False
        self.query_one("#question-keys", Static).update(self._keys_line())
        self._point_at_safe()

    def _point_at_safe(self) -> None:
        self.query_one(f"#choice-{self.safe}", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(self.choices[int(str(event.button.id).removeprefix("choice-"))])

    def action_later(self) -> None:
        if self.takes_keys:
            self.dismiss(None)

    def action_scroll(self, direction: int) -> None:
        self.query_one("#question-scroll").scroll_relative(y=direction * 3, animate=False, immediate=True)
