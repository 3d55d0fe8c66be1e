"""What a verb of the command line does, once it is known to be one. Imported late: `--version` needs none of it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktui import rank_logs, verbs
from sparktui.errors import LockHeld, SparktuiError, StepFailed
from sparktui.events import (
    Answered,
    CommandShown,
    Event,
    LogLine,
    Note,
    Question,
    RunFinished,
    State,
    from_plain,
)
from sparktui.local_fault import LocalFault, local_fault
from sparktui.printing import Printer, plain
from sparktui.runs import answers, journal
from sparktui.runs import cancel as canceling
from sparktui.runs import start as starting
from sparktui.runs.execute import Execution, close_links
from sparktui.runs.follow import Condition, Standing, current, follow_entries
from sparktui.runs.kept_traceback import keep_traceback
from sparktui.runs.lock import holder
from sparktui.runs.parts import Parts, product
from sparktui.runs.request import RunRequest, read_request, runs_folder

if TYPE_CHECKING:
    from sparktui.remote.link import NodeLink
    from sparktui.settings import Settings

INTERRUPTED = 130


class Command:
    """One verb with its options."""

    def __init__(self, options: argparse.Namespace, given: Parts | None, program: Sequence[str] | None) -> None:
        self._options = options
        self._parts = given or product()
        self._program = program or starting.PROGRAM
        self._printer = Printer(bare=options.verb if options.verb in ("status", "talk", "plan", "monitor") else "")
        self._seq = 0
        self._mask: Callable[[str], str] = str
        # Somebody at a terminal can be asked; a pipe, a script or an agent cannot.
        self._attended = sys.stdin.isatty() and not options.json

    def run(self) -> int:
        verb = self._options.verb
        from sparktui.steps.catalog import UP

        request = RunRequest(
            env_file=str(verbs.env_file(self._options.env_file, self._options.profile)),
            verbs=UP if verb == verbs.CHAIN else (verb,),
            profile=self._options.profile,
            yes=self._options.yes,
            unattended=not self._attended,
            only_node=self._options.node,
        )
        settings = self._parts.load_settings(request)
        self._mask = settings.mask
        if verb == "plan":
            return asyncio.run(self._plan(settings))
        if verb == "logs":
            return asyncio.run(self._logs(settings))
        if verb == "monitor":
            return asyncio.run(self._monitor(settings))
        if self._options.dry_run:
            return asyncio.run(self._dry_run(request, settings))
        if verb in verbs.READING:
            return asyncio.run(self._read(request, settings))
        return asyncio.run(self._change(request, settings))

    # what is printed

    def _emit(self, event: Event) -> int:
        """Print an event that is in no journal, just as if it were."""
        self._seq += 1
        self._show(journal.envelope(event, self._seq, self._mask))
        return self._seq

    def _show(self, line: dict[str, object]) -> None:
        if self._options.json:
            print(journal.dumps_ascii(line), flush=True)
            return
        event = from_plain(line)
        if event is not None:
            self._printer.event(event)

    def _say(self, text: str) -> None:
        """Words for a person; never among the JSON lines."""
        if not self._options.json:
            self._printer.lines([text])

    # verbs that change nothing

    async def _read(self, request: RunRequest, settings: Settings) -> int:
        if request.verbs == ("status",):
            self._emit(Note("status", "head", run_text(current(settings.state_dir))))

        def save_traceback(text: str) -> str:
            return keep_traceback(settings.state_dir, text, self._mask)

        async def ask_viewer(_seq: int, question: Question) -> str:
            return await _prompt(question)

        execution = Execution(request, self._parts, self._emit, ask_viewer=ask_viewer, save_traceback=save_traceback)
        finished = await execution.run(settings)
        self._emit(finished)
        return finished.exit_status

    async def _dry_run(self, request: RunRequest, settings: Settings) -> int:
        from sparktui.steps.step import Context

        async def ask(question: Question) -> str:
            return question.assume_yes

        async with self._links(settings) as links:
            rank_logs.chosen(links, request.only_node)
            context = Context(settings=settings, links=links, ask=ask, only_node=request.only_node, verbs=request.verbs)
            for verb in request.verbs:
                for command in await self._parts.step(verb).plan(context):
                    self._show_command(verb, command.node, command.text, command.why)
        return 0

    def _show_command(self, verb: str, node: str, text: str, why: str) -> None:
        if self._options.json:
            self._emit(CommandShown(verb, node, text))
            return
        # Whole and exact, to be copied: only secrets are masked.
        print(f"# {verb}, {node}{': ' + plain(why) if why else ''}\n{self._mask(text)}", flush=True)

    async def _plan(self, settings: Settings) -> int:
        from sparktui.memory_sheet import read_totals, sheet_events
        from sparktui.steps.load_result import kept_rows

        async with self._links(settings) as links:
            totals, loads = await asyncio.gather(read_totals(links), kept_rows(settings, links, "plan"))
        status = 0
        for event in sheet_events(settings, totals, loads):
            self._emit(event)
            if isinstance(event, RunFinished):
                status = event.exit_status
        return status

    async def _monitor(self, settings: Settings) -> int:
        from sparktui import monitor_once

        async with self._links(settings) as links:
            picked = rank_logs.chosen(links, self._options.node)
            status = 0
            for event in await monitor_once.show(settings, picked):
                self._emit(event)
                if isinstance(event, RunFinished):
                    status = event.exit_status
            return status

    @contextlib.asynccontextmanager
    async def _links(self, settings: Settings) -> AsyncIterator[tuple[NodeLink, ...]]:
        links = await self._parts.open_links(settings)
        try:
            yield links
        finally:
            await close_links(links)

    async def _logs(self, settings: Settings) -> int:
        tail = rank_logs.DEFAULT_LINES if self._options.lines is None else self._options.lines
        async with self._links(settings) as links:
            picked = rank_logs.chosen(links, self._options.log_node or self._options.node)

            def emit(event: Event) -> None:
                if isinstance(event, LogLine) and not self._options.json:
                    name = f"{event.node:<9}" if len(picked) > 1 else ""
                    print(f"{name}{plain(self._mask(event.text))}", flush=True)
                else:
                    self._emit(event)

            return await rank_logs.show(picked, settings.logs_dir, emit, tail=tail, follow=self._options.follow)

    # verbs that change something

    async def _change(self, request: RunRequest, settings: Settings) -> int:
        loop = asyncio.get_running_loop()
        # From here on, so that a Ctrl-C while the run starts is not lost.
        interrupts: asyncio.Queue[None] = asyncio.Queue()
        loop.add_signal_handler(signal.SIGINT, interrupts.put_nowait, None)
        try:
            run_dir = await self._run_for(request, settings)
        except (StepFailed, LocalFault, OSError) as error:
            loop.remove_signal_handler(signal.SIGINT)
            said = local_fault(error) if isinstance(error, OSError) else error
            if request.verbs != ("stop",) or said is None:
                raise
            # A full disk or somebody else's files must not keep the engine running.
            self._emit(Note("stop", "head", f"{said.what}: stopping without a journal", State.WARN))
            return await self._read(request, settings)
        try:
            return await self._follow(run_dir, interrupts)
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _run_for(self, request: RunRequest, settings: Settings) -> Path:
        """The folder of the run that does this: a new one, or one that is at it already."""
        state_dir = settings.state_dir
        attached = self._same_run(request, state_dir)
        if attached is None:
            if request.verbs == ("stop",):
                await self._cancel_holder(state_dir)
            try:
                return await starting.start(request, state_dir, logs_dir=settings.logs_dir, program=self._program)
            except LockHeld:
                # Somebody may have started just this in the meantime.
                attached = self._same_run(request, state_dir)
                if attached is None:
                    raise
        self._say(f"attached to run {attached.name}, which is going on")
        return attached

    def _same_run(self, request: RunRequest, state_dir: Path) -> Path | None:
        """The run that is doing just this already."""
        by = holder(state_dir)
        if by is None:
            return None
        run_dir = runs_folder(state_dir) / by.run_id
        try:
            other = read_request(run_dir)
        except SparktuiError:
            return None
        same = (other.verbs, other.only_node, other.env_file) == (request.verbs, request.only_node, request.env_file)
        standing = current(state_dir)
        return run_dir if same and standing is not None and standing.active else None

    async def _cancel_holder(self, state_dir: Path) -> None:
        by = holder(state_dir)
        if by is None:
            return
        self._say(f"cancelling run {by.run_id}")
        said = await canceling.cancel(runs_folder(state_dir) / by.run_id)
        if said.active:
            raise LockHeld(
                f"run {by.run_id} (pid {by.process.pid}) does not end, not even by SIGKILL",
                fix="it waits in the kernel (a dead mount?); see its state: ps -o stat,wchan -p " + str(by.process.pid),
                node="head",
            )

    async def _follow(self, run_dir: Path, interrupts: asyncio.Queue[None]) -> int:
        """Show the run until it ends; its exit status. Ctrl-C cancels it, a second one lets it go on alone."""
        following = asyncio.create_task(self._follow_lines(run_dir))
        leaving = asyncio.create_task(self._hear(run_dir, interrupts))
        try:
            await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                return following.result()
            self._say(f"run {run_dir.name} goes on in the background; `sparktui stop` cancels it")
            return INTERRUPTED
        finally:
            for task in (following, leaving):
                task.cancel()
            await asyncio.gather(following, leaving, return_exceptions=True)

    async def _hear(self, run_dir: Path, interrupts: asyncio.Queue[None]) -> None:
        """Cancels the run at the first interrupt, returns at the second."""
        await interrupts.get()
        self._say("cancelling the run (Ctrl-C again: leave it going in the background)")
        cancelling = asyncio.create_task(canceling.cancel(run_dir))
        try:
            await interrupts.get()
        finally:
            cancelling.cancel()

    async def _follow_lines(self, run_dir: Path) -> int:
        status = 1
        asking: dict[str, asyncio.Task[None]] = {}
        try:
            async for entry in follow_entries(run_dir):
                self._show(entry.plain)
                event = entry.event
                if isinstance(event, RunFinished):
                    status = event.exit_status
                elif isinstance(event, Answered) and event.question in asking:
                    asking.pop(event.question).cancel()
                elif isinstance(event, Question) and answers.is_open(run_dir, entry.seq, event):
                    if self._options.yes:
                        answers.answer(run_dir, entry.seq, event, event.assume_yes)
                    elif self._attended:
                        task = asyncio.create_task(_carry_answer(run_dir, entry.seq, event))
                        asking[event.question] = task
        finally:
            for task in asking.values():
                task.cancel()
        return status


async def _carry_answer(run_dir: Path, seq: int, question: Question) -> None:
    answers.answer(run_dir, seq, question, await _prompt(question))


async def _prompt(question: Question) -> str:
    """Read one of the choices from the terminal; cancelled when another viewer answers."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop.add_reader(0, lambda: lines.put_nowait(os.read(0, 4096).decode(errors="replace").strip()))
    try:
        while True:
            print(f"answer ({'/'.join(question.choices)}): ", end="", flush=True)
            text = (await lines.get()).lower()
            found = [choice for choice in question.choices if text and choice.lower().startswith(text)]
            if text in question.choices or len(found) == 1:
                return text if text in question.choices else found[0]
    finally:
        loop.remove_reader(0)


def run_text(standing: Standing | None) -> str:
    """One sentence on the cluster's current or last run."""
    if standing is None:
        return "no run yet"
    verb = standing.verbs[0] if len(standing.verbs) == 1 else "up"
    at = f", at {standing.step}" if standing.step and standing.step_outcome is None else ""
    if standing.active:
        return f"run {standing.run_id} ({verb}) is going on{at}"
    finished = standing.finished
    assert finished is not None
    if standing.condition is Condition.UNREADABLE:
        return f"the last run cannot be read: {finished.text}. Next: {finished.fix}"
    node = f"{finished.node}: " if finished.node else ""
    return f"last run {standing.run_id} ({verb}): exit status {finished.exit_status}, {node}{finished.text}"
