"""The settings screen: every setting with its meaning, its value and where that comes from; edited one by one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import Worker, WorkerState

from sparktui.envfile import Problem, Severity
from sparktui.errors import SettingsError, SparktuiError
from sparktui.ui.frame import FrameScreen
from sparktui.ui.messages import Copied
from sparktui.ui.settings_screen.book import (
    Book,
    Line,
    diff,
    lines_of,
    matches,
    new_errors,
    problems_of,
    read_book,
    read_text,
)
from sparktui.ui.settings_screen.cards import DiffCard, EditCard, LeaveCard, NewValue

NAME_COLUMNS = 37


class SettingList(OptionList):
    """All settings below their groups."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "edit", key_display="enter", id="settings.edit", tooltip="Edit the marked setting"),
    ]


class SettingsScreen(FrameScreen):
    """Dismissed with True when settings were saved."""

    name_shown = "settings"
    AUTO_FOCUS = "#settings-list"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "edit", "edit", id="settings.edit", tooltip="Edit the marked setting"),
        Binding(
            "slash", "filter", "filter", key_display="/", id="settings.filter", tooltip="Only what has these words"
        ),
        Binding("a", "apply", "save", id="settings.save", tooltip="Show the difference, then save"),
        Binding("r", "revert", "revert", id="settings.revert", tooltip="Drop this setting's change"),
        Binding("n", "next_open", "next open", id="settings.next", tooltip="The next one that is wrong or not saved"),
        Binding("c", "copy", "copy", id="settings.copy", tooltip="Copy NAME=value"),
        Binding("escape", "leave_screen", "back", key_display="esc", id="settings.back", tooltip="Back"),
        # The app's ways to the other screens, but what is not saved is asked about first.
        Binding("w", "go_to('wizard')", "wizard", id="settings.wizard", tooltip="The steps, one after the other"),
        Binding("m", "go_to('monitor')", "monitor", id="settings.monitor", tooltip="Memory, links, boot and speed"),
        Binding("l", "go_to('logs')", "logs", id="settings.logs", tooltip="All ranks' logs"),
        Binding("e", "stay", show=False, system=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.book: Book | None = None
        self.lines: tuple[Line, ...] = ()
        self.problems: tuple[Problem, ...] = ()
        self._before: tuple[Problem, ...] = ()

    def body(self) -> Iterable[Widget]:
        yield Input(placeholder="filter", compact=True, id="settings-filter", select_on_focus=False)
        with Container(id="settings-body"):
            yield SettingList(id="settings-list", markup=False, compact=True)
            with VerticalScroll(id="settings-side", can_focus=False):
                yield Static(markup=False, id="settings-about")
        yield Static(markup=False, id="settings-state")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#settings-filter", Input).cursor_blink = False
        self._read()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A mistake of ours is said; the file stays as it is."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            error = event.worker.error
            text = f"an error that sparktui does not know ({type(error).__name__}: {error}); nothing was written"
            self.notify(text, severity="error", timeout=15, markup=False)

    # reading

    @work(group="settings.read", exclusive=True, exit_on_error=False)
    async def _read(self) -> None:
        session = self.app.session
        try:
            self.book = await asyncio.to_thread(
                read_book, session.start.env_file, session.start.profile, session.settings
            )
        except SparktuiError as error:
            self._about(Content("\n".join(error.lines())))
            return
        await self._judge()
        self._before = self.problems
        self._fill()

    async def _judge(self) -> None:
        """What the rules say of the changes, and the lines that follow from it."""
        assert self.book is not None
        self.problems, self.lines = await asyncio.to_thread(self._judged, self.book)

    def _judged(self, book: Book) -> tuple[tuple[Problem, ...], tuple[Line, ...]]:
        problems = problems_of(book, dict(os.environ), self.app.session.start.profile)
        return problems, lines_of(book, problems)

    # showing

    def on_resize(self) -> None:
        """Values are cut to the list's width, which is known once it has been laid out."""
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        if self.lines:
            self._fill()

    def _fill(self) -> None:
        """The list anew; the marked setting stays marked."""
        box = self.query_one("#settings-list", OptionList)
        marked = self.marked.name if self.marked else ""
        wanted = self.query_one("#settings-filter", Input).value
        shown = [line for line in self.lines if matches(line, wanted)]
        options: list[Option] = []
        group = ""
        for line in shown:
            if line.group != group:
                group = line.group
                options.append(Option(Content.styled(group, "$accent bold"), disabled=True))
            options.append(Option(self._prompt(line), id=line.name))
        box.clear_options()
        box.add_options(options)
        names = [each.id for each in options]
        box.highlighted = names.index(marked) if marked in names else (1 if options else None)
        self._show_state()
        if not options:
            self._about(Content(f"no setting has all of: {wanted}"))

    def _show_state(self) -> None:
        """What is not saved and what is wrong, in one line; empty when neither is."""
        glyphs = self.app.glyphs
        parts: list[Content] = []
        changes = len(self.book.changes) if self.book is not None else 0
        if changes:
            noun = "change is" if changes == 1 else "changes are"
            parts.append(Content.styled(f"{glyphs.pointer} {changes} {noun} not saved: a", "$accent"))
        errors = [each for each in self.problems if each.severity is Severity.ERROR]
        if errors:
            where = f"line {errors[0].line}: " if errors[0].line else ""
            more = f"   and {len(errors) - 1} more: n" if len(errors) > 1 else ""
            parts.append(Content.styled(f"{glyphs.failed} {where}{errors[0].reason}{more}", "$error"))
        line = Content("   ").join(parts)
        state = self.query_one("#settings-state", Static)
        state.update(line.truncate(max(20, self.app.size.width - 2), ellipsis=True))
        state.display = bool(parts)

    def _prompt(self, line: Line) -> Content:
        glyphs = self.app.glyphs
        mark, style = (" ", "")
        if line.changed:
            mark, style = glyphs.pointer, "$accent"
        if line.problem:
            mark, style = glyphs.failed, "$error"
        set_here = line.line or line.changed
        room = max(12, self.query_one("#settings-list").size.width - NAME_COLUMNS - 7)
        value = Content(line.value or "empty").truncate(room, ellipsis=True)
        return Content.assemble(
            (f"{mark} ", style),
            (f"{line.name:{NAME_COLUMNS}}", "bold" if set_here else "$quiet"),
            value.stylize(style or ("" if set_here else "$quiet")),
        )

    @property
    def marked(self) -> Line | None:
        box = self.query_one("#settings-list", OptionList)
        option = box.highlighted_option
        return next((line for line in self.lines if option is not None and line.name == option.id), None)

    def _about(self, content: Content) -> None:
        self.query_one("#settings-about", Static).update(content)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        line = self.marked
        if line is None or self.book is None:
            return
        glyphs = self.app.glyphs
        rows = [
            Content.assemble((line.name, "bold"), "  ", (line.value or "empty", "$accent")),
            Content(line.meaning),
            Content.assemble(("from ", "$quiet"), line.origin),
        ]
        if line.defaults:
            told = "   ".join(f"{name} {value or 'empty'}" for name, value in line.defaults)
            rows.append(Content.assemble(("defaults: ", "$quiet"), told))
        else:
            rows.append(Content.assemble(("default ", "$quiet"), line.default or "empty"))
        if line.facts:
            rows.append(Content.styled(line.facts, "$quiet"))
        if line.problem:
            rows.append(Content.styled(f"{glyphs.failed} {line.problem}", "$error"))
        self._about(Content("\n").join(rows))

    @on(Input.Changed, "#settings-filter")
    def _filtered(self) -> None:
        self._fill()

    @on(Input.Submitted, "#settings-filter")
    def _filter_done(self) -> None:
        self.query_one("#settings-list").focus()

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_edit()

    # keys

    def action_stay(self) -> None:
        self.notify("these are the settings; esc goes back", markup=False)

    def action_filter(self) -> None:
        box = self.query_one("#settings-filter", Input)
        box.focus()
        box.select_all()  # a word typed now is a new filter

    def action_next_open(self) -> None:
        """Mark the next setting that is wrong or changed, around the end."""
        box = self.query_one("#settings-list", OptionList)
        names = [box.get_option_at_index(number).id for number in range(box.option_count)]
        open_names = {line.name for line in self.lines if line.problem or line.changed}
        here = box.highlighted or 0
        order = [*range(here + 1, len(names)), *range(here + 1)]
        box.highlighted = next((number for number in order if names[number] in open_names), box.highlighted)

    def action_copy(self) -> None:
        line = self.marked
        if line is not None:
            self.post_message(Copied(f"{line.name}={line.value}", line.name))

    @work(group="settings.edit", exclusive=True, exit_on_error=False)
    async def action_edit(self) -> None:
        line, book = self.marked, self.book
        if line is None or book is None:
            return

        async def check(value: str) -> Sequence[Problem]:
            edited = book.with_change(line.name, value)
            problems = await asyncio.to_thread(problems_of, edited, dict(os.environ), self.app.session.start.profile)
            return new_errors(tuple(each for each in self._before if each.name != line.name), problems)

        shown = book.spelled(line.name, book.value_of(line.name))
        answer: NewValue | None = await self.app.push_screen_wait(EditCard(line, shown, check))
        if answer is None or answer.value == shown or self.book is not book:
            return
        self.book = book.with_change(line.name, answer.value)
        await self._judge()
        self._fill()

    @work(group="settings.edit", exclusive=True, exit_on_error=False)
    async def action_revert(self) -> None:
        line = self.marked
        if line is None or self.book is None or not line.changed:
            return
        self.book = self.book.without_change(line.name)
        await self._judge()
        self._fill()

    @work(group="settings.save", exclusive=True, exit_on_error=False)
    async def action_apply(self) -> None:
        """The difference against the file as it is now; saved when a person says so."""
        note = ""
        while self.book is not None and self.book.changes:
            book = self.book
            try:
                now = await asyncio.to_thread(read_text, book.path)
                if now != book.text:
                    note = "somebody else changed the file meanwhile; this is the difference to what it is now"
                    self.book = book = replace(book, text=now)
                    await self._judge()
                    self._fill()
                new = book.edited()
            except SettingsError as error:
                self.notify("\n".join(error.lines()), severity="error", markup=False)
                return
            problems = await asyncio.to_thread(problems_of, book, dict(os.environ), self.app.session.start.profile)
            changes = await asyncio.to_thread(diff, book.text, new)
            errors = new_errors(self._before, problems)
            if not await self.app.push_screen_wait(DiffCard(str(book.path), changes, errors, note)):
                return
            if await self._save(book):
                return
        if self.book is not None:
            self.notify("nothing is changed", markup=False)

    async def _save(self, book: Book) -> bool:
        """Write, unless the file changed while the card was open: then the card comes again."""
        from sparktui.envfile import save
        from sparktui.settings import SECRET_NAMES

        try:
            if await asyncio.to_thread(read_text, book.path) != book.text:
                return False
            backup = await asyncio.to_thread(lambda: save(book.path, book.changes, secret_names=SECRET_NAMES))
        except SettingsError as error:
            self.notify("\n".join(error.lines()), severity="error", markup=False)
            return True
        self.notify(f"saved; the old file is {backup}", markup=False)
        self.dismiss(True)
        return True

    @work(group="settings.leave", exclusive=True, exit_on_error=False)
    async def action_leave_screen(self) -> None:
        box = self.query_one("#settings-filter", Input)
        if box.value:
            box.value = ""
            self.query_one("#settings-list").focus()
            return
        if box.has_focus:
            self.query_one("#settings-list").focus()
            return
        if await self._may_leave():
            self.dismiss(False)

    @work(group="settings.leave", exclusive=True, exit_on_error=False)
    async def action_go_to(self, mode: str) -> None:
        if await self._may_leave():
            self.dismiss(False)
            self.app.call_later(self.app.action_go, mode)

    async def _may_leave(self) -> bool:
        """Nothing is unsaved, or a person says that it may go."""
        changes = self.book.changes if self.book is not None else {}
        if not changes:
            return True
        dropped: bool = await self.app.push_screen_wait(LeaveCard(list(changes)))
        return dropped
