"""What the groups are made of: a labelled value with its source below, and a list of choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Input, Static

from sparktui.ui.first_start.proposals import Proposal, split_hosts
from sparktui.ui.glyphs import UNICODE, Glyphs


class ValueInput(Input):
    """One line. Pasting several lines into a list joins them; up and down go through what was found."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cycle(-1)", "other", show=False, id="field.up", tooltip="The choice before, of what was found"),
        Binding("down", "cycle(1)", "other", id="field.down", tooltip="The next choice of what was found"),
        Binding(
            "enter",
            "submit",
            "next",
            key_display="enter",
            id="field.next",
            tooltip="The next question; after the last, the next group",
        ),
    ]

    def __init__(self, *, is_list: bool = False, password: bool = False, placeholder: str = "") -> None:
        super().__init__(compact=True, password=password, placeholder=placeholder, select_on_focus=False)
        self.is_list = is_list
        self.choices: tuple[str, ...] = ()
        self.cursor_blink = False

    def on_paste(self, event: events.Paste) -> None:
        words = split_hosts(event.text) if self.is_list else event.text.split("\n")[:1]
        text = " ".join(words) if self.is_list else words[0].strip()
        before, after = self.value[: self.cursor_position], self.value[self.cursor_position :]
        if self.is_list and before and not before.endswith(" "):
            text = " " + text
        if self.is_list and after and not after.startswith(" "):
            text += " "
        self.insert_text_at_cursor(text)
        event.stop()
        event.prevent_default()

    def action_cycle(self, step: int) -> None:
        if self.choices:
            now = self.choices.index(self.value) if self.value in self.choices else (-1 if step > 0 else 0)
            self.value = self.choices[(now + step) % len(self.choices)]
            self.cursor_position = len(self.value)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "cycle":
            return len(self.choices) > 1 or bool(self.choices and self.value != self.choices[0])
        return super().check_action(action, parameters)


class Field(Widget):
    """A setting that is asked for."""

    class Edited(Message):
        """A person changed it; `text` is what stands there now."""

        def __init__(self, name: str, text: str) -> None:
            self.name = name
            self.text = text
            super().__init__()

    def __init__(self, setting: str, label: str, *, is_list: bool = False, password: bool = False) -> None:
        super().__init__(id=f"field-{setting.lower().replace('_', '-')}", classes="field")
        self.setting = setting
        self._label = label
        self._input = ValueInput(is_list=is_list, password=password)
        self._note = Static(markup=False, classes="field-note")
        self._given = ""

    def compose(self) -> ComposeResult:
        with Horizontal(classes="field-line"):
            yield Static(Content.assemble((self._label, "bold")), markup=False, classes="field-label")
            yield self._input
        yield self._note

    def show(self, proposal: Proposal, answer: str | None, problem: str = "", glyphs: Glyphs = UNICODE) -> None:
        """The value, and below it the problem or where the value comes from."""
        value = proposal.value if answer is None else answer
        self._input.choices = tuple(each for each, _ in proposal.choices)
        # What is being typed right now is never written over.
        if self._input.value != value and self._given == self._input.value:
            self._given = value
            self._input.value = value
            self._input.cursor_position = len(value)
        self.set_class(bool(problem), "-wrong")
        if problem:
            self._note.update(Content(f"{glyphs.failed} {problem}"))
            return
        values = [each for each, _ in proposal.choices]
        source = dict(proposal.choices).get(value, "yours" if answer else proposal.source)
        arrows = f"{glyphs.up}{glyphs.down}"
        if len(values) > 1:
            place = f"{values.index(value) + 1} of " if value in values else ""
            source = f"{place}{len(values)} {arrows}  {source}"
        elif values and value != values[0]:
            source = f"{arrows}  {source}"
        self._note.update(Content(source))

    @property
    def value(self) -> str:
        return self._input.value

    def focus(self, scroll_visible: bool = True) -> Field:
        self._input.focus(scroll_visible)
        return self

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value != self._given:
            self._given = event.value
            self.post_message(self.Edited(self.setting, event.value))


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of a list: its id, its name, and what it means in a few words."""

    id: str
    title: str
    detail: str = ""


class ChoiceList(Widget, can_focus=True):
    """Answers below each other; arrows move, enter takes the marked one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "up", show=False, id="choice.up", tooltip="The choice before"),
        Binding("down", "move(1)", "choose", id="choice.down", tooltip="The next choice"),
        Binding("enter", "take", "next", key_display="enter", id="choice.take", tooltip="Take it and go on"),
    ]
    index: reactive[int] = reactive(0)

    class Marked(Message):
        """Another choice is marked."""

        def __init__(self, sender: ChoiceList, choice: str) -> None:
            self.sender = sender
            self.choice = choice
            super().__init__()

    class Taken(Marked):
        """The marked choice was taken with enter."""

    def __init__(self, choices: Sequence[Choice], *, glyphs: Glyphs = UNICODE, id: str | None = None) -> None:
        super().__init__(id=id, classes="choices")
        self.choices = tuple(choices)
        self._glyphs = glyphs

    def render(self) -> VisualType:
        wide = max((len(each.title) for each in self.choices), default=0)
        lines = []
        for number, each in enumerate(self.choices):
            marked = number == self.index
            pointer = f"{self._glyphs.pointer} " if marked else "  "
            style = "$accent bold" if marked and self.has_focus else "bold" if marked else ""
            lines.append(
                Content.assemble(
                    (pointer, "$accent bold"), (f"{each.title:{wide}}", style), "  ", (each.detail, "$quiet")
                )
            )
        return Content("\n").join(lines)

    @property
    def chosen(self) -> str:
        return self.choices[self.index].id

    def choose(self, choice: str) -> None:
        """Mark one without saying so."""
        numbers = [number for number, each in enumerate(self.choices) if each.id == choice]
        if numbers:
            self.index = numbers[0]

    def action_move(self, step: int) -> None:
        wanted = min(max(self.index + step, 0), len(self.choices) - 1)
        if wanted != self.index:
            self.index = wanted
            self.post_message(self.Marked(self, self.chosen))

    def action_take(self) -> None:
        self.post_message(self.Taken(self, self.chosen))

    def on_click(self, event: events.Click) -> None:
        number = event.get_content_offset(self)
        if number is not None and 0 <= number.y < len(self.choices):
            self.index = number.y
            self.post_message(self.Marked(self, self.chosen))
