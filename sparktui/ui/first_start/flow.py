"""The first start: from no settings to a saved `.env`, one question group after the other."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Input, Static
from textual.worker import Worker, WorkerState

from sparktui.cluster.profile import PROFILES
from sparktui.envfile import Severity
from sparktui.errors import SparktuiError
from sparktui.events import State
from sparktui.steps.discovery import Found
from sparktui.ui.first_start.comparison import sheets
from sparktui.ui.first_start.draft import PAGES, Draft, KeyChoice, draft_path, drop_draft, keep_draft, read_draft
from sparktui.ui.first_start.env_text import Made, make, owner_of, save, target_path, values_of
from sparktui.ui.first_start.fields import ChoiceList, Field
from sparktui.ui.first_start.key_test import discover, link_settings
from sparktui.ui.first_start.node_logins import NodeLogins
from sparktui.ui.first_start.pages import PAGE_CLASSES, Page, SaveScroll, View
from sparktui.ui.first_start.secret_answers import given_secrets, gone_secrets, secret_values
from sparktui.ui.messages import Copied

CHECK_SECONDS = 0.25
"""After the last key until the answers are checked."""


class FirstStart(NodeLogins):
    """Dismissed with the saved env file, or None when the person leaves."""

    name_shown = "first start"
    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n", "next(True)", "on", id="first.next", tooltip="The next group, whatever is still open here"),
        Binding("ctrl+b,escape", "back", "back", key_display="esc", id="first.back", tooltip="The group before"),
        Binding("ctrl+t", "test", "try ssh", id="first.test", tooltip="Try all nodes again"),
        Binding(
            "ctrl+y",
            "copy",
            "copy",
            id="first.copy",
            tooltip="Copy the random key, or the first failed node's next step",
        ),
        Binding("pagedown", "page(1)", "more", show=False, id="first.down", tooltip="Scroll down"),
        Binding("pageup", "page(-1)", "back up", show=False, id="first.up", tooltip="Scroll up"),
        # Screens that need settings; there are none yet.
        Binding("w,m,l,s,t,e", "nothing", show=False, system=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.made: Made | None = None
        self.random_key = secrets.token_urlsafe(24)
        self.typed_secrets: dict[str, str] = {}
        self._sheets: dict[str, object] | None = None
        self._kept = Draft()
        self._key_shown = False
        self._check_timer: Timer | None = None

    def body(self) -> Iterable[Widget]:
        yield Static(markup=False, id="first-rail")
        with VerticalScroll(id="first-page", can_focus=False), ContentSwitcher(id="first-switch"):
            for each in PAGE_CLASSES:
                yield each()
        yield Static(markup=False, id="first-word")

    # what is true

    @property
    def target(self) -> Path:
        return target_path(self.env_file, self.app.session.start.profile, self.draft.profile)

    @property
    def page(self) -> Page:
        return self.query_one(f"#page-{self.draft.page}", Page)

    def on_mount(self) -> None:
        super().on_mount()
        self.env_file = self.app.session.start.env_file
        self._begin()

    @work(group="first.begin", exit_on_error=False)
    async def _begin(self) -> None:
        kept = await asyncio.to_thread(read_draft, draft_path(self.env_file))
        asked = self.app.session.start.profile
        if kept is not None:
            self._kept = kept
            # What was typed or shown at `keys` is gone with the last start, and nothing may be saved without it unseen.
            self.draft = replace(kept, page=min(kept.page, "keys", key=PAGES.index))
            self.say("Your answers of the last time are here again.")
        elif asked in PROFILES:
            self.draft = replace(self.draft, profile=asked)
        self.go(self.draft.page)
        # Once, before two threads need them: an import that meets itself half way fails.
        for name in ("sparktui.settings", "sparktui.engine.fitting", "sparktui.runs.execute"):
            await asyncio.to_thread(importlib.import_module, name)
        self._look()
        self._compare()

    @work(group="first.look", exclusive=True, exit_on_error=False)
    async def _look(self) -> None:
        """What can be known of this machine."""
        try:
            settings = await asyncio.to_thread(link_settings, {}, {}, self.env_file, 3)
            self.found = await discover(self.app.session.start.parts, settings)
        except (SparktuiError, OSError, RuntimeError) as error:
            self.found = Found(trouble=f"this machine could not be looked at: {error}")
        self.show()
        self.check_soon()

    @work(group="first.sheet", exit_on_error=False)
    async def _compare(self) -> None:
        with contextlib.suppress(SparktuiError):
            self._sheets = dict(await asyncio.to_thread(sheets, self.env_file))
            self.show()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A mistake of ours is said, and the answers stay."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            error = event.worker.error
            self.say(f"an error that sparktui does not know ({type(error).__name__}: {error}); your answers are kept")

    # showing

    def say(self, text: str) -> None:
        self.query_one("#first-word", Static).update(Content(text))

    def show(self) -> None:
        if not self.is_mounted:
            return
        view = View(
            draft=self.draft,
            proposed=self.proposed,
            found=self.found,
            rows=self.rows,
            made=self.made,
            sheets=self._sheets,  # type: ignore[arg-type]
            random_key=self.random_key,
            typed_secrets=dict(self.typed_secrets),
            gone=gone_secrets(self._kept, self.draft, self.typed_secrets),
            target=str(self.target),
            glyphs=self.app.glyphs,
            width=self.app.size.width,
        )
        self.page.show(view)
        self._show_rail()
        self.show_frame()

    def _show_rail(self) -> None:
        here = PAGES.index(self.draft.page)
        parts = []
        for number, each in enumerate(PAGE_CLASSES):
            glyph = self.app.glyphs.done if number < here else self.app.glyphs.pointer if number == here else " "
            style = "$accent bold" if number == here else "" if number < here else "$quiet"
            parts.append(Content.styled(f"{glyph} {each.title}", style))
        self.query_one("#first-rail", Static).update(Content("  ").join(parts))

    def go(self, page: str) -> None:
        """Show a group and put the keyboard into its first question."""
        if page != self.draft.page:
            self.say("")
        self.draft = replace(self.draft, page=page)
        self._key_shown |= page == "keys"
        self.insisted = False
        self.query_one(ContentSwitcher).current = f"page-{page}"
        self.query_one("#first-page").scroll_home(animate=False)
        self.query_one("#first-page").set_class(page == "save", "-whole")
        self.show()
        stops = self.page.stops()
        if stops:
            stops[0].focus()
        self.keep()
        if page == "ssh":
            self.test_if_new()
            self.ask_host_key()

    @work(group="first.keep", exclusive=True, exit_on_error=False)
    async def keep(self) -> None:
        """The draft goes to its file; where it cannot, that is said once and nothing stops."""
        given = given_secrets(self._kept, self.draft, self.typed_secrets, key_shown=self._key_shown)
        try:
            await asyncio.to_thread(keep_draft, draft_path(self.env_file), replace(self.draft, given=given))
        except OSError as error:
            self.say(f"these answers cannot be kept for later: {draft_path(self.env_file)}: {error.strerror}")

    def on_resize(self) -> None:
        super().on_resize()
        self.call_after_refresh(self.show)

    def on_descendant_focus(self) -> None:
        self.call_after_refresh(self.show_frame)  # the keys are those of the question that has the keyboard

    # answers

    @on(Field.Edited)
    def _edited(self, event: Field.Edited) -> None:
        self.insisted = False
        if event.name in ("API_KEY", "HF_TOKEN"):
            self.typed_secrets[event.name] = event.text
        else:
            proposal = self.proposed.get(event.name)
            same = proposal is not None and proposal.value == event.text
            self.draft = (
                self.draft.without_answer(event.name) if same else self.draft.with_answer(event.name, event.text)
            )
        self.show()
        self.check_soon()

    @on(ChoiceList.Marked)
    def _marked(self, event: ChoiceList.Marked) -> None:
        match event.sender.id:
            case "choose-profile":
                self.draft = replace(self.draft, profile=event.choice)
            case "choose-watch":
                self.draft = replace(self.draft, unattended=event.choice == "unattended")
            case "choose-key":
                self.draft = replace(self.draft, key=KeyChoice(event.choice))
        self.show()
        self.check_soon()

    @on(ChoiceList.Taken)
    def _taken(self, event: ChoiceList.Taken) -> None:
        self._marked(event)
        self._after(event.sender)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._after(next(each for each in event.input.ancestors if isinstance(each, Field)))

    def _after(self, widget: Widget) -> None:
        """Enter: the next question of the group, after the last the next group."""
        stops = self.page.stops()
        following = stops[stops.index(widget) + 1 :] if widget in stops else []
        if following:
            following[0].focus()
        else:
            self.action_next()

    def check_soon(self) -> None:
        if self._check_timer is not None:
            self._check_timer.stop()
        self._check_timer = self.set_timer(CHECK_SECONDS, self._checked)

    @work(group="first.check", exclusive=True, exit_on_error=False)
    async def _checked(self) -> None:
        await self.check()
        self.keep()

    async def check(self) -> Made:
        """The file that the answers make, by the real rules."""
        made = await asyncio.to_thread(
            make,
            self.draft,
            self.proposed,
            secret_values(self.draft, self.random_key, self.typed_secrets),
            self.target,
            dict(os.environ),
        )
        self.made = made
        self.show()
        return made

    # going on and back

    @work(group="first.next", exclusive=True, exit_on_error=False)
    async def action_next(self, anyway: bool = False) -> None:
        page = self.draft.page
        if page == "save":
            await self._save()
            return
        made = await self.check()
        if page != self.draft.page:
            return
        if not anyway and (why := self._why_not(made)):
            self.say(why)
            return
        self.go(PAGES[PAGES.index(page) + 1])

    def _why_not(self, made: Made) -> str:
        """What is still open in this group, in words; empty when enter may go on."""
        page = self.draft.page
        for each in made.problems:
            if each.severity is Severity.ERROR and owner_of(each, made.changes) == page:
                if page == "sparks" and self.found is None:
                    return "still looking at this machine"
                with contextlib.suppress(StopIteration):
                    next(one for one in self.page.query(Field) if one.setting == each.name).focus()
                return f"{each.reason}   (ctrl+n goes on all the same)"
        if page == "sparks" and not values_of(self.draft, self.proposed).get("WORKER_HOSTS"):
            return "still looking at this machine" if self.found is None else "no workers yet: name them"
        if page == "ssh" and self.test_if_new():
            return "trying the nodes with this"
        if page == "ssh" and self.ask_host_key():
            return "compare the fingerprint first"
        if page == "ssh" and not self.insisted:
            bad = [row for row in self.rows if row.state is not State.OK]
            if any(row.state is None for row in bad):
                return f"still trying {', '.join(row.name for row in bad if row.state is None)}"
            if bad:
                self.insisted = True
                return f"{bad[0].name}: {bad[0].word}. ctrl+t tries again; enter goes on without"
        return ""

    def action_back(self) -> None:
        here = PAGES.index(self.draft.page)
        if here:
            self.go(PAGES[here - 1])
        else:
            self.say("This is the first group. ctrl+q leaves; your answers are kept.")

    def action_page(self, step: int) -> None:
        box = self.query_one("#first-page")
        box.scroll_relative(y=step * max(1, box.size.height - 2), animate=False)

    def action_nothing(self) -> None: ...

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "test":
            return self.draft.page == "ssh"
        if action == "copy":
            return bool(self._to_copy()[0])
        return super().check_action(action, parameters)

    def _to_copy(self) -> tuple[str, str]:
        """What ctrl+y copies here, and what that is."""
        if self.draft.page == "keys" and self.draft.key is KeyChoice.RANDOM:
            return self.random_key, "the API key"
        if self.draft.page == "ssh":
            return next(((row.fix, f"{row.name}'s next step") for row in self.rows if row.fix), ("", ""))
        return "", ""

    def action_copy(self) -> None:
        text, what = self._to_copy()
        self.post_message(Copied(text, what))

    # saving

    @on(SaveScroll.Wanted)
    def _wanted(self) -> None:
        self.action_next()

    async def _save(self) -> None:
        made = await self.check()
        errors = [each for each in made.problems if each.severity is Severity.ERROR]
        if errors:
            page = next(filter(None, (owner_of(each, made.changes) for each in errors)), "")
            if page:
                self.go(page)
            self.say(errors[0].reason)
            return
        try:
            await asyncio.to_thread(save, self.target, made)
        except SparktuiError as error:
            self.say("; ".join(each.strip() for each in error.lines()))
            return
        await asyncio.to_thread(drop_draft, draft_path(self.env_file))
        self.dismiss(self.target)
