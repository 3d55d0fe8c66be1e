"""What the screens ask of the product: settings, nodes, runs. Knows no Textual; nothing here blocks the event loop.

Everything heavy (pydantic, asyncssh, docker) is imported on first use, after the first paint.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparktui.errors import DeadlineExceeded, SparktuiError
from sparktui.runs.view import Asked, RunView, StepView
from sparktui.ui.folder_thread import FolderThread

if TYPE_CHECKING:
    from sparktui.remote.link import NodeLink
    from sparktui.runs.follow import Follower
    from sparktui.runs.journal import Entry
    from sparktui.runs.parts import Parts
    from sparktui.settings import Settings
    from sparktui.steps.step import Command, Context, Inspection

INSPECT_SECONDS = 45.0
FOLDER_SECONDS = 10.0
SETTINGS_SECONDS = 30.0
"""To read the env file and what it names."""
RUN_SECONDS = 75.0
"""To start or to cancel a run, each of which has a deadline of its own."""
SILENT_SECONDS = 5.0
"""A state folder that owes an answer this long is spoken of."""
REMEMBERED_RUNS = 12
TOGETHER_SECONDS = 0.05
"""Entries of a journal that come this close together are shown as one."""


@dataclass(frozen=True, slots=True)
class Start:
    """How the app is started.

    Attributes:
        parts: the product's, or the demo's.
        program: what a run's process is started with; None for the product's.
        env_file: absolute; it need not exist yet.
        profile: as given on the command line.
        banner: a word for every screen, such as SIMULATED.
        mode: `wizard` or `monitor`.
    """

    parts: Parts
    env_file: Path
    profile: str | None = None
    program: Sequence[str] | None = None
    banner: str = ""
    mode: str = "wizard"


class Session:
    """The settings in force, their links, and the runs of this cluster."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.settings: Settings | None = None
        self.needs_first_start = False
        """There was no env file at the last look."""
        self._links: tuple[NodeLink, ...] = ()
        self._env = FolderThread(SETTINGS_SECONDS)
        self._state = FolderThread(FOLDER_SECONDS)
        self._starting = FolderThread(RUN_SECONDS)
        self._cancelling = FolderThread(RUN_SECONDS)
        self._follower: Follower | None = None

    async def look_for_env_file(self) -> None:
        """Sets `needs_first_start`.

        Raises:
            DeadlineExceeded: its folder does not answer.
        """
        path = self.start.env_file
        self.needs_first_start = not await self._env.do(path.parent, path.exists)

    def opened(self, env_file: Path) -> None:
        """The first start saved this file, which may be another profile's than the one that was asked for."""
        if env_file != self.start.env_file:
            self.start = replace(self.start, env_file=env_file, profile=None)
        self.needs_first_start = False

    async def load(self) -> Settings:
        """Read the env file; links of older settings are closed.

        Raises:
            SettingsError: all problems at once.
            DeadlineExceeded: a folder does not answer.
        """
        settings = await self._read()
        await self.close()
        self.settings = settings
        return settings

    async def reread(self) -> None:
        """After a run: a step may have written the env file (build pins the base). Links to the same nodes stay.

        Raises:
            SettingsError: the file can no longer be read.
            DeadlineExceeded: a folder does not answer.
        """
        settings = await self._read()
        if self.settings is not None and settings.nodes != self.settings.nodes:
            await self.close()
        self.settings = settings

    async def _read(self) -> Settings:
        from sparktui.runs.request import RunRequest

        # As `status` reads them: what cannot fit is refused where it would be started, and shown there.
        request = RunRequest(str(self.start.env_file), ("status",), profile=self.start.profile)
        return await self._env.do(self.start.env_file.parent, partial(self.start.parts.load_settings, request))

    async def links(self) -> tuple[NodeLink, ...]:
        """Head first; opened once."""
        assert self.settings is not None
        if not self._links:
            self._links = await self.start.parts.open_links(self.settings)
        return self._links

    async def close(self) -> None:
        if self._links:
            from sparktui.runs.execute import close_links

            links, self._links = self._links, ()
            await close_links(links)

    # steps

    async def _context(self) -> Context:
        from sparktui.events import Question
        from sparktui.steps.step import Context

        async def ask(question: Question) -> str:
            return question.assume_yes  # only looks and plans come here; a run asks through its journal

        assert self.settings is not None
        return Context(settings=self.settings, links=await self.links(), ask=ask)

    async def inspect(self, verb: str) -> Inspection:
        """What the nodes say about a step now.

        Raises:
            SparktuiError: they could not be asked, or not in time.
        """
        step = self.start.parts.step(verb)
        try:
            async with asyncio.timeout(INSPECT_SECONDS):
                return await step.inspect(await self._context())
        except TimeoutError:
            raise DeadlineExceeded(
                f"looking at {verb} took longer than {INSPECT_SECONDS:.0f} s", fix="sparktui doctor"
            ) from None

    async def commands(self, verb: str) -> list[Command]:
        """What the step would execute now, secrets masked.

        Raises:
            SparktuiError: the nodes could not be asked.
        """
        assert self.settings is not None
        step = self.start.parts.step(verb)
        try:
            async with asyncio.timeout(INSPECT_SECONDS):
                return await step.plan(await self._context())
        except TimeoutError:
            raise DeadlineExceeded(f"planning {verb} took longer than {INSPECT_SECONDS:.0f} s") from None

    # runs

    async def run(self, wanted: tuple[str, ...], *, forced: tuple[str, ...] = (), yes: bool = False) -> Path:
        """Start a run of these verbs in a process of its own; its folder.

        Raises:
            LockHeld, StepFailed, DeadlineExceeded: it did not start; says why.
        """
        from sparktui.runs import start as starting
        from sparktui.runs.request import RunRequest

        assert self.settings is not None
        request = RunRequest(
            env_file=str(self.start.env_file), verbs=wanted, profile=self.start.profile, forced=forced, yes=yes
        )
        program = self.start.program or starting.PROGRAM
        state_dir = self.settings.state_dir
        # With a loop of its own: what it does between two looks at the folder is to wait.
        start = partial(starting.start, request, state_dir, logs_dir=self.settings.logs_dir, program=program)
        return await self._starting.do(state_dir, lambda: asyncio.run(start()))

    async def current(self) -> Path | None:
        """The folder of the run that holds the cluster, or else of the newest one.

        Raises:
            DeadlineExceeded: the state folder does not answer.
        """
        from sparktui.runs.follow import current

        standing = await self._state.do(self.state_dir, partial(current, self.state_dir))
        return standing.run_dir if standing is not None else None

    async def holding(self) -> Path | None:
        """The folder of the run that holds the cluster now, whoever started it: a read of one small file.

        Raises:
            DeadlineExceeded: the state folder does not answer.
        """
        return await self._state.do(self.state_dir, partial(_holding, self.state_dir))

    async def keep_copy(self, text: str) -> Path:
        """Write what was copied into a file of the state folder; its path.

        Raises:
            OSError, DeadlineExceeded: it could not be written.
        """
        return await self._state.do(self.state_dir, partial(_keep_copy, self.state_dir, text))

    async def keep_traceback(self, error: BaseException) -> str:
        """Into a file of the state folder; what to do next, in words."""
        from sparktui.runs.kept_traceback import NAME, keep_traceback

        if self.settings is None:
            return "run it again from a terminal that keeps its output"
        text, mask = "".join(traceback.format_exception(error)), self.settings.mask
        try:
            path = await self._state.do(self.state_dir, partial(keep_traceback, self.state_dir, text, mask))
        except (OSError, DeadlineExceeded) as refused:
            return f"{self.state_dir / NAME} cannot be written: {getattr(refused, 'strerror', '') or refused}"
        return f"see {path}"

    def keep_last_traceback(self, error: BaseException) -> str:
        """The same at once, where nothing can wait any more; without settings in a file of its own."""
        text = "".join(traceback.format_exception(error))
        try:
            if self.settings is not None:
                from sparktui.runs.kept_traceback import keep_traceback

                return f"see {keep_traceback(self.state_dir, text, self.settings.mask)}"
            import tempfile

            with tempfile.NamedTemporaryFile("w", prefix="sparktui-traceback-", suffix=".txt", delete=False) as file:
                file.write(text)
            return f"see {file.name}"
        except OSError as refused:
            return f"its details could not be kept: {refused.strerror or refused}"

    def silence(self) -> str:
        """Why what is known of runs may be old; empty while the state folder answers."""
        follower = self._follower
        seconds = max(self._state.silent_seconds, follower.silent_seconds if follower is not None else 0.0)
        if seconds < SILENT_SECONDS:
            return ""
        return f"the state folder {self.state_dir} does not answer; what is shown of runs may be old"

    async def follow(self, run_dir: Path) -> AsyncIterator[RunView]:
        """The run's view after each entry; entries that come close together are shown as one."""
        from sparktui.runs.follow import Follower

        loop = asyncio.get_running_loop()
        view, shown_at, unseen = RunView(), loop.time(), False
        self._follower = follower = Follower(run_dir)
        try:
            while True:
                batch: list[Entry] | None = []
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TOGETHER_SECONDS if unseen else None):
                        batch = await anext(follower, None)
                if batch is None:
                    break
                for entry in batch:
                    view, unseen = view.after(entry.event, entry.seq, entry.at), True
                if batch and loop.time() < shown_at + TOGETHER_SECONDS:
                    continue
                shown_at, unseen = loop.time(), False
                yield view
            if unseen:
                yield view
        finally:
            follower.stop()
            if self._follower is follower:
                self._follower = None

    async def remembered(self) -> dict[str, StepView]:
        """How each verb ended the last time, from the journals that are kept.

        Raises:
            DeadlineExceeded: the state folder does not answer.
        """
        return await self._state.do(self.state_dir, partial(_remembered, self.state_dir))

    def answer(self, run_dir: Path, asked: Asked, text: str) -> None:
        from sparktui.runs import answers

        answers.answer(run_dir, asked.seq, asked.question, text)

    async def cancel(self, run_dir: Path) -> None:
        from sparktui.runs.cancel import cancel

        await self._cancelling.do(self.state_dir, lambda: asyncio.run(cancel(run_dir)))

    def talk(self) -> list[str]:
        """The card's lines: base URLs, model, key (masked), curl."""
        from sparktui.steps.talk import card

        assert self.settings is not None
        return card(self.settings)

    @property
    def chain(self) -> tuple[str, ...]:
        from sparktui.steps.catalog import UP

        return UP

    @property
    def state_dir(self) -> Path:
        assert self.settings is not None
        return self.settings.state_dir


def _holding(state_dir: Path) -> Path | None:
    from sparktui.runs.lock import holder
    from sparktui.runs.request import runs_folder

    by = holder(state_dir)
    run_dir = runs_folder(state_dir) / by.run_id if by is not None else None
    return run_dir if run_dir is not None and run_dir.is_dir() else None


def _keep_copy(state_dir: Path, text: str) -> Path:
    path = state_dir / "copied.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(text + "\n")
    beside.replace(path)
    return path


def _remembered(state_dir: Path) -> dict[str, StepView]:
    from sparktui.runs import journal
    from sparktui.runs.request import run_folders

    kept: dict[str, StepView] = {}
    try:
        folders = run_folders(state_dir)
    except OSError:
        return kept  # `current` says why
    for run_dir in folders[-REMEMBERED_RUNS:]:
        view = RunView()
        try:
            for entry in journal.read(run_dir):
                view = view.after(entry.event, entry.seq, entry.at)
        except (OSError, SparktuiError):
            continue  # a folder that goes away while it is read
        kept |= {step.verb: step for step in view.steps if step.outcome is not None}
    return kept
