"""What viewers ask of runs: follow one, and what is true now."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sparktui.errors import StepFailed
from sparktui.events import Event, Outcome, RunFinished, RunStarted, StepFinished, StepStarted
from sparktui.local_fault import local_fault
from sparktui.runs import journal
from sparktui.runs.identity import Identity
from sparktui.runs.journal import Entry
from sparktui.runs.lock import holder
from sparktui.runs.request import RunRequest, read_process, read_request, run_folders, runs_folder

POLL_SECONDS = 0.15
BATCH_ENTRIES = 200
"""So few that a viewer which takes them at once still answers keys in between."""
STARTING_SECONDS = 30.0
"""How long a run may take until its process says who it is."""


class Condition(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    DIED = "died"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Standing:
    """What is true of a run now.

    Attributes:
        step: the step it is in, or was in last; empty before the first.
        step_outcome: None while the step runs, or when the run died in it.
        finished: the closing line; of a dead run, the one that it did not write itself; of one that cannot be read,
            why not and what to do.
        last_seq: of the journal's last line.
    """

    run_id: str
    run_dir: Path
    condition: Condition
    verbs: tuple[str, ...]
    started_at: str
    step: str
    step_outcome: Outcome | None
    finished: RunFinished | None
    process: Identity | None
    last_seq: int

    @property
    def active(self) -> bool:
        return self.condition in (Condition.STARTING, Condition.RUNNING)


def standing(run_dir: Path) -> Standing:
    """What the run's folder and /proc say of it; never an error: history informs, it stops nobody."""
    try:
        return _read_standing(run_dir)
    except OSError as error:
        return _unreadable(run_dir, error)


def _unreadable(folder: Path, error: OSError) -> Standing:
    fault = local_fault(error)
    what, fix = (fault.what, fault.fix) if fault else (error.strerror or str(error), f"ls -la {folder}")
    said = RunFinished(1, what, fix, "head")
    return Standing(folder.name, folder, Condition.UNREADABLE, (), "", "", None, said, read_process(folder), 0)


def _read_standing(run_dir: Path) -> Standing:
    # The process first: what it wrote before it ended is then in the journal that is read next.
    process = read_process(run_dir)
    alive = process.alive if process else _young(run_dir)
    request = _request(run_dir)
    started_at, step, last_seq = "", "", 0
    outcome: Outcome | None = None
    finished: RunFinished | None = None
    for entry in journal.read(run_dir):
        last_seq = max(last_seq, entry.seq)
        event = entry.event
        if isinstance(event, RunStarted):
            started_at = entry.at
        elif isinstance(event, StepStarted):
            step, outcome = event.step, None
        elif isinstance(event, StepFinished):
            outcome = event.outcome
        elif isinstance(event, RunFinished):
            finished = event
    if finished is not None:
        condition = Condition.FINISHED
    elif alive:
        condition = Condition.RUNNING if started_at else Condition.STARTING
    else:
        condition = Condition.DIED
        finished = RunFinished(
            1,
            f"the run ended without a closing line (killed?) {f'at step {step}' if step else 'before its first step'}",
            "run the same verb again: it asks the nodes what is done and goes on from there",
            "head",
        )
    verbs = request.verbs if request else ()
    return Standing(run_dir.name, run_dir, condition, verbs, started_at, step, outcome, finished, process, last_seq)


def current(state_dir: Path) -> Standing | None:
    """The run that holds the cluster's lock, or else the newest one; None when there never was one."""
    by = holder(state_dir)
    if by is not None and (runs_folder(state_dir) / by.run_id).is_dir():
        return standing(runs_folder(state_dir) / by.run_id)
    try:
        folders = run_folders(state_dir)
    except OSError as error:
        return _unreadable(runs_folder(state_dir), error)
    return standing(folders[-1]) if folders else None


class Follower:
    """The journal's lines from `from_seq` on, in batches as they come; ends after the closing line.

    When the process is gone without one, a closing line is made up from what is known (it is not in the journal).
    A thread reads, so that a folder that does not answer blocks nobody's event loop. Nobody waits for it either: once
    stopped it ends at its next look at the folder, and it is a daemon.

    Raises (while iterating):
        StepFailed: the folder cannot be read.
    """

    def __init__(self, run_dir: Path, from_seq: int = 0) -> None:
        self._run_dir = run_dir
        self._from_seq = from_seq
        self._found: asyncio.Queue[list[Entry] | StepFailed | None] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._began: float | None = None

    @property
    def silent_seconds(self) -> float:
        """How long the folder has owed an answer; 0 when it owes none."""
        began = self._began
        return time.monotonic() - began if began is not None else 0.0

    def stop(self) -> None:
        self._stopped.set()

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> list[Entry]:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._read, name=f"journal {self._run_dir.name}", daemon=True).start()
        found = await self._found.get()
        if isinstance(found, StepFailed):
            raise found
        if found is None:
            self._found.put_nowait(None)  # it has ended for whoever asks again, too
            raise StopAsyncIteration
        return found

    # in the thread

    def _read(self) -> None:
        tail = journal.Tail(self._run_dir, self._from_seq)
        try:
            if not self._read_to_closing_line(tail) and not self._stopped.is_set():
                self._make_up_closing_line()
        except OSError as error:
            fault = local_fault(error)
            why = fault.what if fault else f"{self._run_dir}: {error.strerror or error}"
            fix = fault.fix if fault else f"ls -l {self._run_dir}"
            self._hand(StepFailed(f"the run's journal cannot be read: {why}", fix=fix, node="head"))
        finally:
            tail.close()
            self._hand(None)
            self._began = None

    def _hand(self, found: list[Entry] | StepFailed | None) -> None:
        assert self._loop is not None
        self._began = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._found.put_nowait, found)
        except RuntimeError:  # the loop is closed
            self._stopped.set()

    def _read_to_closing_line(self, tail: journal.Tail) -> bool:
        """False when the process is gone without one."""
        while not self._stopped.is_set():
            self._began = time.monotonic()
            # The process first: what it wrote before it ended is then in the journal that is read next.
            process = read_process(self._run_dir)
            alive = process.alive if process else _young(self._run_dir)
            batch: list[Entry] = []
            for entry in tail.poll():
                batch.append(entry)
                if isinstance(entry.event, RunFinished):
                    self._hand(batch)
                    return True
                if len(batch) >= BATCH_ENTRIES:
                    self._hand(batch)
                    batch = []
                if self._stopped.is_set():
                    return False
            if batch:
                self._hand(batch)
            if not alive:
                return False
            self._began = None
            self._stopped.wait(POLL_SECONDS)
        return False

    def _make_up_closing_line(self) -> None:
        said = standing(self._run_dir)
        # A finished run whose closing line lies before `from_seq` has nothing new to say.
        if said.condition is Condition.DIED and said.finished is not None:
            seq = max(said.last_seq + 1, self._from_seq)
            self._hand([Entry(seq, "", said.finished, journal.envelope(said.finished, seq, str))])


async def follow_entries(run_dir: Path, from_seq: int = 0) -> AsyncIterator[Entry]:
    """`Follower`, line by line."""
    follower = Follower(run_dir, from_seq)
    try:
        async for batch in follower:
            for entry in batch:
                yield entry
    finally:
        follower.stop()


async def follow(run_dir: Path, from_seq: int = 0) -> AsyncIterator[tuple[int, Event]]:
    """`follow_entries` for a screen: sequence number and event, unknown kinds left out."""
    async for entry in follow_entries(run_dir, from_seq):
        if entry.event is not None:
            yield entry.seq, entry.event


def _request(run_dir: Path) -> RunRequest | None:
    from sparktui.errors import UsageError

    try:
        return read_request(run_dir)
    except UsageError:
        return None


def _young(run_dir: Path) -> bool:
    try:
        return abs(time.time() - (run_dir / "request.json").stat().st_mtime) < STARTING_SECONDS
    except FileNotFoundError:
        return False
