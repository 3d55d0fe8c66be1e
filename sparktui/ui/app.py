"""The app: holds what is true now, does what screens ask for, and lets each screen show its part."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.filter import LineFilter, Monochrome, NoColor
from textual.reactive import var
from textual.screen import ModalScreen
from textual.worker import Worker, WorkerState

from sparktui.errors import DeadlineExceeded, SparktuiError, StepFailed
from sparktui.local_fault import local_fault
from sparktui.runs.view import StepView
from sparktui.shipped import shipped
from sparktui.telemetry.history import History
from sparktui.telemetry.sample import EndpointState
from sparktui.ui.boot_watching import BootWatching
from sparktui.ui.endpoint_words import endpoint_words
from sparktui.ui.frame import FrameScreen
from sparktui.ui.glyphs import ASCII, UNICODE, Glyphs
from sparktui.ui.line_filters import AsciiOnly, NoColours
from sparktui.ui.messages import Copied, RunChanged, SnapshotArrived, StepRequested
from sparktui.ui.run_notice import RunNotice
from sparktui.ui.session import Session, Start
from sparktui.ui.style_sheet import ParsedOnce
from sparktui.ui.terminal import Colour, Terminal
from sparktui.ui.theme import NAMED, SPARK

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.screen import Screen

    from sparktui.steps.step import Inspection


NOTICE_SECONDS = 2.0
CLOSE_SECONDS = 0.5
"""A node that does not let go of its connection is left behind."""


def _commands() -> type[Provider]:
    from sparktui.ui.palette import SparkCommands

    return SparkCommands


# Each screen is imported when it is first seen: the first picture waits for one screen only.


def _wizard() -> Screen[None]:
    from sparktui.ui.wizard.screen import WizardScreen

    return WizardScreen()


def _monitor() -> Screen[None]:
    from sparktui.ui.monitor.screen import MonitorScreen

    return MonitorScreen()


def _logs() -> Screen[None]:
    from sparktui.ui.logs.screen import LogsScreen

    return LogsScreen()


class SparkApp(BootWatching):
    """Attributes:
    inspections: what the nodes last said about each step; an error where they could not be asked.
    inspected_at: when each of them came, by `clock`.
    remembered: how each verb ended the last time.
    trouble: why there are no settings, empty when there are.
    """

    CSS_PATH = shipped("assets") / "sparktui.tcss"
    TITLE = "sparktui"
    ENABLE_COMMAND_PALETTE = True
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        "wizard": _wizard,
        "monitor": _monitor,
        "logs": _logs,
    }
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_commands}
    # Textual declares these two as instance variables.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide"), (160, "-very-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "go('wizard')", "wizard", id="go.wizard", tooltip="The steps, one after the other"),
        Binding("m", "go('monitor')", "monitor", id="go.monitor", tooltip="Memory, links, boot and speed, large"),
        Binding("l", "go('logs')", "logs", id="go.logs", tooltip="All ranks' logs"),
        Binding("s", "smoke", "smoke", id="smoke", tooltip="Smoke test: 42, JSON, a tool call, a picture"),
        Binding("t", "talk", "talk", id="talk", tooltip="How to reach the endpoint"),
        Binding("e", "settings", "settings", id="settings", tooltip="The settings, with their meaning"),
        Binding("question_mark", "help", "help", key_display="?", id="help", tooltip="The keys of this screen"),
        Binding("q", "leave", "quit", id="leave", tooltip="Leave; nothing stops"),
        Binding("ctrl+q", "leave", "quit", show=False, priority=True, system=True),
    ]

    inspections: var[dict[str, Inspection | SparktuiError]] = var(dict, init=False)
    looking: var[frozenset[str]] = var(frozenset(), init=False)
    """The verbs that are being inspected."""
    remembered: var[dict[str, StepView]] = var(dict, init=False)
    trouble: var[str] = var("", init=False)
    starting: var[str] = var("", init=False)
    """The verb whose run is being started, until its journal begins."""
    refused: var[SparktuiError | None] = var(None, init=False)
    """Why the last run could not be started; None once one has started."""

    def __init__(self, start: Start, terminal: Terminal | None = None) -> None:
        self.terminal = terminal or Terminal()
        self.glyphs: Glyphs = ASCII if self.terminal.ascii_only else UNICODE
        self.session = Session(start)
        self.run_dir: Path | None = None
        self.history = History()
        self.inspected_at: dict[str, float] = {}
        self._looked = False
        self._run_notice = RunNotice(self)
        self.clock: Callable[[], float] = time.time
        """Seconds since the epoch, as the journals' `at`; a test gives its own."""
        self.monotonic: Callable[[], float] = time.monotonic
        """The clock of `snapshot` and `boots`."""
        # The mode it starts in: an empty screen that is left at once would be laid out and painted too.
        self.DEFAULT_MODE = start.mode  # type: ignore[misc]
        super().__init__()
        for theme in (SPARK, NAMED):
            self.register_theme(theme)
        self.theme = NAMED.name if self.terminal.named_colours else SPARK.name
        self.stylesheet = ParsedOnce(variables=self.get_css_variables())
        self._last_look: tuple[LineFilter, ...] = (
            *((AsciiOnly(),) if self.terminal.ascii_only else ()),
            *((NoColours(),) if self.terminal.colour is Colour.NONE else ()),
        )

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own for NO_COLOR sends greys; ours sends none."""
        kept = [each for each in super().get_line_filters() if not isinstance(each, Monochrome | NoColor)]
        return (*kept, *self._last_look)

    def on_mount(self) -> None:
        # Heavy imports wait for the first picture. Nothing is painted while the app still starts, hence later.
        self.call_later(self.call_after_refresh, self.painted)
        self.set_interval(NOTICE_SECONDS, self._run_notice.tick)

    def painted(self) -> None:
        """The first picture is there. What made it is kept out of all later searches for garbage."""
        if not gc.isenabled():  # by `open_app`
            gc.freeze()
            gc.enable()
        self.begin()

    # one place that shows

    def show_data(self) -> None:
        # Between two modes there is no screen for a moment; the next one reads everything when it is shown.
        # A card leaves the screen below in sight: that one goes on living.
        for screen in reversed(self.screen_stack):
            if isinstance(screen, FrameScreen):
                screen.show_frame()
                screen.refresh_data()
            if not isinstance(screen, ModalScreen):
                break

    watch_run_view = watch_snapshot = watch_boots = watch_inspections = show_data
    watch_looking = watch_trouble = watch_starting = watch_refused = show_data

    def top_line(self, screen: str, width: int) -> Content:
        """Where this is and what goes on, in one line."""
        start = self.session.start
        parts: list[Content] = [Content.styled(" sparktui", "$accent bold")]
        if start.banner:
            parts.append(Content.styled(start.banner, "$simulated bold"))
        if screen:
            parts.append(Content.styled(screen, "bold"))
        settings = self.session.settings
        if settings is not None:
            parts.append(Content.styled(f"{len(settings.nodes)} Sparks", "$quiet"))
        run = self.run_view
        if self.starting:
            parts.append(Content(f"{self.starting} is starting"))
        elif run.active:
            goes = "waits for an answer" if run.asked else "is running" if run.current else "begins"
            parts.append(Content(f"{run.current or next(iter(run.verbs), 'a run')} {goes}"))
        serving = self.snapshot.serving
        if serving.url or serving.state != "unknown":
            parts.append(endpoint_words(serving))
        severe = [alarm for alarm in self.snapshot.alarms if alarm.severe]
        if severe:
            parts.append(Content.styled(f"{self.glyphs.failed} {severe[0].node}: {severe[0].what}", "$error"))
        return Content("  ").join(parts).truncate(width, ellipsis=True)

    # what is true

    @work(group="begin", exclusive=True, exit_on_error=False)
    async def begin(self) -> None:
        """Settings, the run that goes on, then what the nodes say. Called again after the settings changed."""
        try:
            await self.session.look_for_env_file()
            if self.session.needs_first_start:
                self.first_start()
                return
            self.workers.cancel_group(self, "telemetry")
            await self.session.load()
        except SparktuiError as error:
            self.trouble = "\n".join(error.lines())
            return
        self.trouble = ""
        with contextlib.suppress(DeadlineExceeded):  # the run's notice says so, and begins again when it answers
            self.remembered = await self.session.remembered()
            run_dir = await self.session.current()
            if run_dir is not None:
                self.follow(run_dir)
        self.watch_cluster()
        self._looked = False
        self.look_once()
        self.show_data()  # a screen that shows neither run nor nodes learns here that there are settings

    def look_once(self) -> None:
        """The nodes are asked about the steps when somebody sees the steps: the monitor alone stays small."""
        if not self._looked and self.current_mode == "wizard" and self.session.settings is not None:
            self._looked = True
            self.look()

    def first_start(self) -> None:
        from sparktui.ui.first_start.flow import FirstStart

        def made(path: Path | None) -> None:
            if path is not None:
                self.session.opened(path)
                self.begin()
            elif self.session.needs_first_start:
                self.exit(0)

        self.push_screen(FirstStart(), made)

    @work(group="follow", exclusive=True, exit_on_error=False)
    async def follow(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        was_active = False
        async for view in self.session.follow(run_dir):
            was_active = was_active or view.active
            self.starting = ""
            self.post_message(RunChanged(view))
        with contextlib.suppress(DeadlineExceeded):
            self.remembered = await self.session.remembered()
        if was_active:
            # What build wrote into the env file decides what the nodes are asked next.
            with contextlib.suppress(SparktuiError):
                await self.session.reread()
            self._looked = False
            self.look_once()

    def on_run_changed(self, message: RunChanged) -> None:
        self.run_view = message.view
        self.watch_boots_where_wanted()

    @work(group="telemetry", exclusive=True, exit_on_error=False)
    async def watch_cluster(self) -> None:
        """Follow all nodes and the endpoint for as long as these settings hold."""
        from sparktui.telemetry.of_settings import endpoint_of, fleet_of

        settings = self.session.settings
        assert settings is not None
        self.endpoint = endpoint_of(settings)
        self.history = History()
        fleet = fleet_of(settings, await self.session.links(), endpoint=self.endpoint)
        async for snapshot in fleet.snapshots():
            self.history.take(snapshot)
            self.post_message(SnapshotArrived(snapshot))

    def on_snapshot_arrived(self, message: SnapshotArrived) -> None:
        hung = self.snapshot.serving.state is EndpointState.HANGS
        self.snapshot = message.snapshot
        self.watch_boots_where_wanted()
        if self._looked and hung is not (self.snapshot.serving.state is EndpointState.HANGS):
            self.look_again("serve")  # what the nodes said of it is no longer true

    @work(group="look again", exclusive=True, exit_on_error=False)
    async def look_again(self, verb: str) -> None:
        await self._look_at(verb)

    @work(group="look", exclusive=True, exit_on_error=False)
    async def look(self) -> None:
        """Ask the nodes about every step, all at once; each answer is shown as it comes."""
        from sparktui.steps.catalog import LOOKS

        verbs = [verb for verb in self.session.chain if verb not in LOOKS and verb != "smoke"]
        self.looking = frozenset(verbs)
        try:
            await asyncio.gather(*(self._look_at(verb) for verb in verbs))
        finally:
            self.looking = frozenset()

    async def _look_at(self, verb: str) -> None:
        answer: Inspection | SparktuiError
        try:
            answer = await self.session.inspect(verb)
        except SparktuiError as error:
            answer = error
        self.inspected_at[verb] = self.clock()
        self.inspections = {**self.inspections, verb: answer}
        self.looking = self.looking - {verb}

    # what is asked for

    def on_step_requested(self, message: StepRequested) -> None:
        self.start_run(message.verbs, message.forced)

    @work(group="start", exclusive=True, exit_on_error=False)
    async def start_run(self, verbs: tuple[str, ...], forced: tuple[str, ...] = ()) -> None:
        if self.session.settings is None:
            return  # they are being read, or the screen says what is wrong with them
        if self.starting or self.run_view.active:
            self.notify("a run is going on; it ends first", severity="warning", markup=False)
            return
        self.refused, self.starting = None, verbs[0] if len(verbs) == 1 else "up"
        try:
            run_dir = await self.session.run(verbs, forced=forced)
        except SparktuiError as error:
            self.refused, self.starting = error, ""
            self.notify("\n".join(error.lines()), severity="error", timeout=15, markup=False)
            return
        except OSError as error:  # a full disk, or a state folder that is not ours
            why = f"the run could not be written to {self.session.state_dir}: {error.strerror or error}"
            self.refused, self.starting = StepFailed(why, fix="df -h shows the disks; then again", node="head"), ""
            self.notify("\n".join(self.refused.lines()), severity="error", timeout=15, markup=False)
            return
        except Exception:
            self.starting = ""
            raise
        self.follow(run_dir)

    def on_copied(self, message: Copied) -> None:
        """To the terminal's clipboard, and to a file: many terminals drop the former without a word."""
        self.copy_to_clipboard(message.text)
        self.keep_copy(message.text, message.what)

    @work(group="copy", exit_on_error=False)
    async def keep_copy(self, text: str, what: str) -> None:
        where = ""
        if self.session.settings is not None:
            try:
                where = f"; also in {await self.session.keep_copy(text)}"
            except (OSError, DeadlineExceeded) as error:
                where = f"; not in a file: {getattr(error, 'strerror', '') or error}"
        self.notify(f"{what} copied{where}", markup=False)

    async def action_go(self, mode: str) -> None:
        await self.switch_mode(mode)
        self.look_once()

    def action_smoke(self) -> None:
        from sparktui.ui.widgets.smoke_card import SmokeCard

        if self.session.settings is not None:
            self.push_screen(SmokeCard())

    def action_talk(self) -> None:
        from sparktui.ui.widgets.talk_card import TalkCard

        if self.session.settings is not None:
            self.push_screen(TalkCard(self.session.talk()))

    def action_settings(self) -> None:
        from sparktui.ui.settings_screen.screen import SettingsScreen

        def closed(saved: bool | None) -> None:
            if saved:
                self.begin()

        self.push_screen(SettingsScreen(), closed)

    def action_help(self) -> None:
        from sparktui.ui.help import HelpScreen

        self.push_screen(HelpScreen(self.screen))

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What nobody foresaw becomes a sentence and a file; the screens stay."""
        if event.state is not WorkerState.ERROR or event.worker.error is None:
            return
        self.keep_traceback(event.worker.error)

    def _fatal_error(self) -> None:
        """One sentence and a file; Textual would print a page of code with the values in it."""
        error = sys.exc_info()[1] or self._exception
        if not self._exit and error is not None:  # while it leaves, half-built screens may complain: nobody needs that
            where = self.session.keep_last_traceback(error)
            what = f"sparktui ended by an error that it does not know ({type(error).__name__}). Runs go on."
            self._exit_renderables.append(Text(f"{what}\n  next: {where}"))
        self._close_messages_no_wait()

    @work(group="traceback", exit_on_error=False)
    async def keep_traceback(self, error: BaseException) -> None:
        known: SparktuiError | None = error if isinstance(error, SparktuiError) else None
        if isinstance(error, OSError | MemoryError):
            known = local_fault(error)
        what = str(known) if known else f"{type(error).__name__}: {error}"
        where = known.fix if known else await self.session.keep_traceback(error)
        self.notify(f"sparktui: {what}\n  next: {where}", severity="error", timeout=20, markup=False)

    async def on_unmount(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.session.close()

    def action_leave(self) -> None:
        """At once; a run goes on by itself."""
        self.exit(0)
