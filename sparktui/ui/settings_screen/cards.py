"""The cards over the settings: one value being edited, the diff before it is saved, leaving with changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, Static

from sparktui.envfile import Problem
from sparktui.ui.settings_screen.book import Change, Line
from sparktui.ui.wrapping import hanging

CHECK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class NewValue:
    """What the editor was left with; None: the line goes out and the default counts."""

    value: str | None


class EditCard(ModalScreen[NewValue | None]):
    """One setting: its meaning, and its value checked by the real rules while it is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", id="edit.back", tooltip="Leave this setting as it was"),
        Binding("up", "cycle(-1)", "other", show=False, id="edit.up", tooltip="The choice before"),
        Binding("down", "cycle(1)", "other", show=False, id="edit.down", tooltip="The next choice"),
        Binding("ctrl+r", "default", "default", id="edit.default", tooltip="Take the line out: the default counts"),
    ]

    def __init__(self, line: Line, value: str, check: Callable[[str], Awaitable[Sequence[Problem]]]) -> None:
        super().__init__()
        self._line = line
        self._value = value
        self._check = check
        self._timer: Timer | None = None
        self._wrong = ""
        self._insisted = False

    def compose(self) -> ComposeResult:
        line = self._line
        facts = f"default {line.default or 'empty'}" if not line.secret else "secret"
        with Vertical(classes="card", id="edit-card"):
            yield Static(Content.assemble((line.name, "$accent bold"), (f"   {line.group}", "$quiet")), markup=False)
            yield Static(Content(line.meaning), markup=False)
            yield Static(Content.styled("   ".join(filter(None, (line.facts, facts))), "$quiet"), markup=False)
            yield Input(
                "" if line.secret else self._value,
                password=line.secret,
                placeholder="type the new one" if line.secret else "empty",
                compact=True,
                select_on_focus=False,
                id="edit-value",
            )
            yield Static(markup=False, id="edit-said")
            yield Static(
                Content.assemble(
                    ("enter", "$accent bold"),
                    " keeps it   ",
                    ("ctrl+r", "$accent bold"),
                    " the default   ",
                    ("esc", "$accent bold"),
                    " back",
                    *((("   up/down", "$accent bold"), " choices") if line.choices else ()),
                ),
                markup=False,
                classes="quiet",
            )

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()
        self._say("", "")

    def action_cycle(self, step: int) -> None:
        choices = self._line.choices
        field = self.query_one(Input)
        if choices:
            now = choices.index(field.value) if field.value in choices else -1
            field.value = choices[(now + step) % len(choices)]
            field.cursor_position = len(field.value)

    @on(Input.Changed)
    def _typed(self) -> None:
        self._insisted = False
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(CHECK_SECONDS, self._look)

    @work(group="edit.check", exclusive=True, exit_on_error=False)
    async def _look(self) -> None:
        await self._judge()

    async def _judge(self) -> None:
        value = self.query_one(Input).value
        problems = await self._check(value)
        if value == self.query_one(Input).value:
            self._wrong = problems[0].reason if problems else ""
            more = f"   and {len(problems) - 1} more" if len(problems) > 1 else ""
            fixed = f"   write: {problems[0].fixed}" if problems and problems[0].fixed else ""
            self._say(self._wrong + fixed + more if self._wrong else "", "fits")

    def _say(self, wrong: str, right: str) -> None:
        glyphs = self.app.glyphs  # type: ignore[attr-defined]
        text = (
            Content.assemble((f"{glyphs.failed} {wrong}", "$error"))
            if wrong
            else Content.assemble((f"{glyphs.done} {right}" if right else " ", "$success"))
        )
        self.query_one("#edit-said", Static).update(text)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._keep(event.value)

    @work(group="edit.keep", exclusive=True, exit_on_error=False)
    async def _keep(self, value: str) -> None:
        if self._line.secret and not value:
            self.dismiss(None)
            return
        await self._judge()
        if self._wrong and not self._insisted:
            self._insisted = True
            self.query_one("#edit-said", Static).update(
                Content.assemble(
                    (self._wrong, "$error"), "   enter again keeps it; it cannot be saved before that is right"
                )
            )
            return
        self.dismiss(NewValue(value))

    def action_default(self) -> None:
        self.dismiss(NewValue(None))

    def action_leave(self) -> None:
        self.dismiss(None)


class DiffCard(ModalScreen[bool]):
    """What would be written. Dismissed with True to save."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "answer(True)", "save", id="diff.save", tooltip="Write the file; the old one stays as .bak"),
        Binding("escape,n", "answer(False)", "back", id="diff.back", tooltip="Write nothing"),
    ]

    def __init__(self, path: str, changes: Sequence[Change], errors: Sequence[Problem], note: str = "") -> None:
        super().__init__()
        self._path = path
        self._changes = changes
        self._errors = errors
        self._note = note

    def compose(self) -> ComposeResult:
        glyphs = self.app.glyphs  # type: ignore[attr-defined]
        lines: list[Content] = []
        for each in self._changes:
            if each.old is not None:
                lines.append(Content.assemble((f"{each.number:4} ", "$quiet"), (f"- {each.old}", "$error")))
            if each.new is not None:
                lines.append(Content.assemble((f"{each.number:4} ", "$quiet"), (f"+ {each.new}", "$success")))
        with VerticalScroll(classes="card", id="diff-card"):
            yield Static(Content.assemble((f"{self._path}", "bold")), markup=False)
            if self._note:
                yield Static(Content.styled(f"{glyphs.warn} {self._note}", "$warning"), markup=False)
            yield Static(Content("\n").join(lines), markup=False, id="diff-lines")
            if self._errors:
                room = min(76, int(self.app.size.width * 0.96)) - 5
                mark = Content.styled(f"{glyphs.failed} ", "$error")
                said = [line for each in self._errors for line in hanging(each.reason, room, first=mark, indent=2)]
                yield Static(
                    Content("\n").join([Content.styled("It cannot be saved like this:", "$error bold"), *said]),
                    markup=False,
                )
                yield Static(Content.assemble(("esc", "$accent bold"), " back"), markup=False)
            else:
                yield Static(
                    Content.assemble(
                        ("enter", "$accent bold"),
                        " saves; the old file stays as .bak   ",
                        ("esc", "$accent bold"),
                        " back",
                    ),
                    markup=False,
                )

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer and not self._errors)


class LeaveCard(ModalScreen[bool]):
    """Changes are not saved. Dismissed with True to drop them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "answer(True)", "drop", id="leave.drop", tooltip="Leave without them"),
        Binding("escape,enter", "answer(False)", "back", id="leave.back", tooltip="Go on editing"),
    ]

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = names

    def compose(self) -> ComposeResult:
        with Vertical(classes="card", id="leave-card"):
            yield Static(Content.assemble(("Not saved: ", "$warning bold"), ", ".join(self._names)), markup=False)
            yield Static(
                Content.assemble(
                    ("d", "$accent bold"), " drops that   ", ("esc", "$accent bold"), " back to the settings"
                ),
                markup=False,
            )

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)
