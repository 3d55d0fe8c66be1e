"""The whole app on scripted parts: no ssh, no Docker, no process of a run; the screens cannot tell.

    app = AppInTest(tmp_path)                        # three Sparks, settings read from a real env file
    app.step("pack").inspection = Inspection(done=True, summary="66.0 GiB on each node")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)                         # settings read, nodes asked, last run followed
        await pilot.press("enter")
        run = await app.started(pilot)               # the run that was asked for, in a journal that the test writes
        run.say(StepStarted("doctor", ("head",)))
        await until(pilot, lambda: app.run_view.current == "doctor")
        assert "doctor" in screen_text(app)

For a picture, values go straight in: `app.run_view = run_of(...)`, `app.snapshot = cluster_values.WORKING`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from sparktui.errors import SettingsError, SparktuiError
from sparktui.events import Event, Outcome, RunFinished, RunStarted, StepFinished, StepStarted
from sparktui.runs import answers
from sparktui.runs.identity import own
from sparktui.runs.journal import Journal
from sparktui.runs.parts import Parts
from sparktui.runs.request import RunRequest, make_run_folder, write_process
from sparktui.runs.view import Asked, RunView
from sparktui.settings import Settings, load_settings
from sparktui.steps.step import Command, Context, Inspection
from sparktui.ui.app import SparkApp
from sparktui.ui.session import Session, Start
from sparktui.ui.terminal import Terminal
from tests.scripted_link import ScriptedLink

ENV = {
    "HEAD_IP": "10.0.0.1",
    "WORKER_IPS": "10.0.0.2 10.0.0.3",
    "WORKER_HOSTS": "spark2 spark3",
    "MODEL_DIR": "/srv/DeepSeek-V4.1-Flash-1017",
    "API_KEY": "a-long-enough-key",
}
NOON = datetime(2026, 11, 29, 12, 0, tzinfo=UTC).timestamp()
"""The clock of an app in a test stands here until the test moves it."""
SECONDS = 10.0
"""How long `until` waits before it says that nothing came."""


class ScriptedStep:
    """A step whose answers the test chooses.

    Attributes:
        inspection: what the nodes say; an error is raised, None never answers.
        commands: what it would execute.
    """

    def __init__(self, verb: str) -> None:
        self.name = self.title = verb
        self.inspection: Inspection | SparktuiError | None = Inspection(done=False, summary=f"{verb} is to do")
        self.commands: Sequence[Command] | SparktuiError = (Command("head", f"{verb} --now", f"does {verb}"),)
        self.inspected = 0

    async def inspect(self, context: Context) -> Inspection:
        self.inspected += 1
        if self.inspection is None:
            await asyncio.Event().wait()
        if isinstance(self.inspection, SparktuiError):
            raise self.inspection
        assert self.inspection is not None
        return self.inspection

    async def plan(self, context: Context) -> list[Command]:
        if isinstance(self.commands, SparktuiError):
            raise self.commands
        return list(self.commands)

    def run(self, context: Context) -> AsyncIterator[Event]:
        raise AssertionError("no step runs inside the app: a run is a process of its own")


class RunInTest:
    """A run whose journal the test writes. `request` is what the app asked for."""

    def __init__(self, state_dir: Path, request: RunRequest) -> None:
        self.request = request
        self.run_dir = make_run_folder(state_dir, request)
        write_process(self.run_dir, own())
        self._journal = Journal(self.run_dir)
        self.cancelled = False
        self.say(started(*request.verbs, run_id=self.run_dir.name))

    def say(self, *events: Event) -> int:
        """Write the events; the last one's sequence number."""
        seq = 0
        for event in events:
            seq = self._journal.write(event)
        return seq

    def end(self, exit_status: int = 0, text: str = "done in 3 s", fix: str = "", node: str = "") -> None:
        self.say(RunFinished(exit_status, text, fix, node))
        self._journal.close()

    def answer_to(self, asked: Asked) -> str | None:
        return answers.given(self.run_dir, asked.seq, asked.question)


class ScriptedSession(Session):
    """Everything real but the runs' processes: their journals are written by the test."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.runs: list[RunInTest] = []
        self.refuses: SparktuiError | None = None
        """Raised instead of starting a run."""

    async def run(self, wanted: tuple[str, ...], *, forced: tuple[str, ...] = (), yes: bool = False) -> Path:
        if self.refuses is not None:
            raise self.refuses
        request = RunRequest(str(self.start.env_file), wanted, self.start.profile, forced=forced, yes=yes)
        self.runs.append(RunInTest(self.state_dir, request))
        return self.runs[-1].run_dir

    async def cancel(self, run_dir: Path) -> None:
        run = next(each for each in self.runs if each.run_dir == run_dir)
        run.cancelled = True


class AppInTest(SparkApp):
    """The app on three scripted Sparks.

    Attributes:
        steps: the scripted step of each verb (`step(verb)` makes it).
        links: the scripted nodes, once the app has asked for them.
        now: what the app's clock says, seconds since the epoch.
        copied: every text that went to the clipboard.
    """

    def __init__(
        self,
        folder: Path,
        *,
        env: dict[str, str] | None = None,
        terminal: Terminal | None = None,
        banner: str = "",
        mode: str = "wizard",
        profile: str | None = "three",
    ) -> None:
        self.steps: dict[str, ScriptedStep] = {}
        self.scripted_links: tuple[ScriptedLink, ...] = ()
        self.now = NOON
        self.copied: list[str] = []
        self.env_file = folder / ".env"
        self.trusted: list[str] = []
        if env != {}:
            write_env(self.env_file, **(env or {}))
        parts = Parts(self._load_settings, self._open_links, self.step, self.trusted.append)
        start = Start(parts, self.env_file, profile=profile, banner=banner, mode=mode)
        super().__init__(start, terminal)
        self.session: ScriptedSession = ScriptedSession(start)
        self.clock = lambda: self.now
        self.animation_level = "none"

    def _load_settings(self, request: RunRequest) -> Settings:
        return load_settings(Path(request.env_file), profile=request.profile, environment={"HOME": "/home/user"})

    async def _open_links(self, settings: Settings) -> tuple[Any, ...]:
        self.scripted_links = tuple(ScriptedLink(node) for node in settings.nodes)
        return self.scripted_links

    def step(self, verb: str) -> ScriptedStep:
        return self.steps.setdefault(verb, ScriptedStep(verb))

    def all_done(self, *verbs: str) -> None:
        """The nodes will say that these steps are done."""
        for verb in verbs:
            self.step(verb).inspection = Inspection(done=True, summary=f"{verb} is done on all nodes")

    def watch_cluster(self) -> None:  # type: ignore[override]
        """No telemetry: a test sets `snapshot` and `boots` itself."""

    def copy_to_clipboard(self, text: str) -> None:
        self.copied.append(text)
        super().copy_to_clipboard(text)

    async def started(self, pilot: Pilot[Any], count: int = 1) -> RunInTest:
        """The run that the app has been asked for, when it is followed."""
        await until(pilot, lambda: len(self.session.runs) >= count and self.run_dir == self.session.runs[-1].run_dir)
        await until(pilot, lambda: self.run_view.run_id == self.session.runs[-1].run_dir.name)
        return self.session.runs[-1]

    def earlier_run(self, verbs: tuple[str, ...], *events: Event) -> RunInTest:
        """A run that the app finds when it starts (before `run_test`)."""
        run = RunInTest(self.env_file.parent / "state", RunRequest(str(self.env_file), verbs, "three"))
        run.say(*events)
        self.session.runs.append(run)
        return run


def write_env(path: Path, **changed: str) -> None:
    path.write_text("".join(f'{name}="{value}"\n' for name, value in (ENV | changed).items()))
    path.chmod(0o600)


async def until(pilot: Pilot[Any], true: Callable[[], object]) -> None:
    """Let the app go on until this holds; fails with the screen's text when it never does."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    while not true():
        assert loop.time() < end, f"it never came; the screen:\n{screen_text(pilot.app)}"
        await pilot.pause(0.02)
    await pilot.pause()


async def settled(pilot: Pilot[Any]) -> None:
    """Settings are read (or known to be unreadable) and all nodes have answered about all steps."""
    app = pilot.app
    assert isinstance(app, SparkApp)
    await until(pilot, lambda: app.trouble or (app.inspections and not app.looking) or app.session.needs_first_start)


def screen_text(app: Any) -> str:
    """What is seen, one line a row, blanks at the end cut; a card over a screen included."""
    lines = [strip.text.rstrip() for strip in app.screen._compositor.render_strips(app.size)]
    return "\n".join(lines)


def started(*verbs: str, run_id: str = "20261129T115500000Z-up-abcd") -> RunStarted:
    return RunStarted(run_id, verbs, "three", "/srv/.env", 4242, 99, "0")


def run_of(events: Iterable[Event | tuple[float, Event]], *, begin: float = NOON - 300) -> RunView:
    """The view of a run that said this; an event alone comes one second after the one before, a pair at its second."""
    view, at = RunView(), 0.0
    for seq, each in enumerate(events, 1):
        at, event = each if isinstance(each, tuple) else (at + 1.0, each)
        view = view.after(event, seq, datetime.fromtimestamp(begin + at, UTC).isoformat(timespec="milliseconds"))
    return view


def done(verb: str, seconds: float, text: str = "") -> tuple[Event, Event]:
    return StepStarted(verb, ("head", "worker1", "worker2")), StepFinished(verb, Outcome.DONE, seconds, text)


def unreadable(app: AppInTest, problem: str) -> None:
    """The env file now holds something that is refused."""
    app.env_file.write_text(problem)


def show(values: Callable[[AppInTest], None]) -> Callable[[Pilot[Any]], Awaitable[None]]:
    """For `snap_compare(run_before=…)`: wait for the app, put values into it, let it paint."""

    async def before(pilot: Pilot[Any]) -> None:
        await settled(pilot)
        assert isinstance(pilot.app, AppInTest)
        values(pilot.app)
        await pilot.pause()

    return before


__all__ = [
    "AppInTest",
    "RunInTest",
    "ScriptedSession",
    "ScriptedStep",
    "SettingsError",
    "done",
    "run_of",
    "screen_text",
    "settled",
    "show",
    "started",
    "unreadable",
    "until",
    "write_env",
]
