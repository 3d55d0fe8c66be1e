"""The process of a run: `python -m sparktui.runs.process RUN_DIR`.

It belongs to no terminal: a session of its own, no standard input, output into a bounded file of the run's folder,
hangups ignored. SIGTERM cancels it cleanly (exit status 130). Its journal is all that anybody sees of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from sparktui import __version__
from sparktui.errors import LockHeld, SparktuiError
from sparktui.events import Note, Question, RunFinished, RunStarted, State
from sparktui.local_fault import local_fault
from sparktui.runs import answers, parts, retention
from sparktui.runs.execute import Execution, closing
from sparktui.runs.follow import Condition, standing
from sparktui.runs.identity import own
from sparktui.runs.journal import Journal
from sparktui.runs.kept_traceback import keep_traceback
from sparktui.runs.lock import ClusterLock
from sparktui.runs.request import RunRequest, read_request, run_folders, write_process

OUTPUT_BYTES = 1024 * 1024
_TICK_SECONDS = 0.5


def main(argv: list[str] | None = None, given: parts.Parts | None = None) -> int:
    """Carry out the request in RUN_DIR; the exit status is also that of the journal's last line."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1:
        print("usage: python -m sparktui.runs.process RUN_DIR", file=sys.stderr)
        return 2
    run_dir = Path(arguments[0]).resolve()
    cancel = _Cancel()
    _leave_the_terminal(run_dir)
    try:
        return _Process(run_dir, given or parts.product(), cancel).main()
    except (SparktuiError, OSError, MemoryError) as error:
        said = error if isinstance(error, SparktuiError) else local_fault(error)
        if said is None:
            raise
        print("\n".join(said.lines()), file=sys.stderr)
        return said.exit_status


def _leave_the_terminal(run_dir: Path) -> None:
    with contextlib.suppress(PermissionError):
        os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(run_dir / "output.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(nothing)
    os.close(output)


class _Cancel:
    """SIGTERM (and SIGINT) from the first moment on, also before there is anything to cancel."""

    def __init__(self) -> None:
        self.wanted = False
        self._task: asyncio.Task[RunFinished] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._early)

    def _early(self, _number: int, _frame: FrameType | None) -> None:
        self.wanted = True

    def attach(self, task: asyncio.Task[RunFinished]) -> None:
        self._task = task
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._now)
        if self.wanted:
            task.cancel()

    def _now(self) -> None:
        # Once: a second signal must not break the clean-up that the first one began.
        if not self.wanted and self._task is not None:
            self._task.cancel()
        self.wanted = True


class _Process:
    def __init__(self, run_dir: Path, given: parts.Parts, cancel: _Cancel) -> None:
        self._run_dir = run_dir
        self._state_dir = run_dir.parent.parent
        self._parts = given
        self._cancel = cancel

    def main(self) -> int:
        request = read_request(self._run_dir)
        process = own()
        write_process(self._run_dir, process)
        lock = ClusterLock(self._state_dir)
        journal = Journal(self._run_dir)
        try:
            lock.acquire(self._run_dir.name, process)
        except LockHeld as error:
            journal.write(RunFinished(error.exit_status, error.what, error.fix, error.node or ""))
            raise
        try:
            retention.prune(self._state_dir)
            try:
                finished = self._run(request, journal)
            except Exception as error:
                finished = closing(error, "the run", partial(keep_traceback, self._run_dir, mask=journal.mask))
            journal.write(finished)
        finally:
            journal.close()
            _bound_output(self._run_dir, journal)
            lock.release()
        return finished.exit_status

    def _run(self, request: RunRequest, journal: Journal) -> RunFinished:
        process = own()
        problem: SparktuiError | None = None
        profile = request.profile or ""
        try:
            settings = self._parts.load_settings(request)
            profile = settings.profile.name
            journal.mask = settings.mask
        except SparktuiError as error:
            problem = error
        journal.write(
            RunStarted(
                run_id=self._run_dir.name,
                verbs=request.verbs,
                profile=profile,
                env_file=request.env_file,
                pid=process.pid,
                pid_started_ticks=process.started_ticks,
                version=__version__,
            )
        )
        self._say_how_the_last_one_ended(journal)
        if problem is not None:
            return RunFinished(problem.exit_status, problem.what, problem.fix, problem.node or "")

        async def ask_viewer(seq: int, question: Question) -> str:
            return await answers.wait(self._run_dir, seq, question)

        def save_traceback(text: str) -> str:
            return keep_traceback(self._run_dir, text, journal.mask, append=True)

        async def supervised() -> RunFinished:
            execution = Execution(
                request, self._parts, journal.write, ask_viewer=ask_viewer, save_traceback=save_traceback
            )
            task = asyncio.create_task(execution.run(settings))
            self._cancel.attach(task)
            keeping = asyncio.create_task(self._keep(journal))
            try:
                return await task
            except asyncio.CancelledError:
                # Cancelled before its first instruction ran.
                return RunFinished(130, "cancelled before the first step")
            finally:
                keeping.cancel()

        loop = asyncio.new_event_loop()
        finished = loop.run_until_complete(supervised())
        loop.run_until_complete(loop.shutdown_asyncgens())
        return finished

    def _say_how_the_last_one_ended(self, journal: Journal) -> None:
        earlier = [folder for folder in run_folders(self._state_dir) if folder.name < self._run_dir.name]
        last = standing(earlier[-1]) if earlier else None
        if last is None or last.finished is None:
            return
        text = f"run {last.run_id}: {last.finished.text}; going on from what the nodes say"
        if last.condition is Condition.UNREADABLE:
            text = f"how run {last.run_id} ended cannot be read: {last.finished.text}. Next: {last.finished.fix}"
        elif last.condition is not Condition.DIED:
            return
        journal.write(Note("", "head", text, State.WARN))

    async def _keep(self, journal: Journal) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            journal.tick()
            _bound_output(self._run_dir, journal, only_above=OUTPUT_BYTES)


def _bound_output(run_dir: Path, journal: Journal, *, only_above: int = 0) -> None:
    """Keep the last part of the output, secrets masked. Standard output appends, so it may be cut under way."""
    path = run_dir / "output.txt"
    with contextlib.suppress(OSError):
        size = path.stat().st_size
        if size <= only_above:
            return
        with path.open("r+b") as file:
            file.seek(max(0, size - OUTPUT_BYTES // 4))
            kept = journal.mask(file.read().decode(errors="replace")).encode()
            file.seek(0)
            file.write(kept)
            file.truncate()


def leave(status: int) -> NoReturn:
    """End this process now."""
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread that waits for a dead node must not hold up the end: everything is written and closed.
    os._exit(status)


if __name__ == "__main__":
    leave(main())
