"""Starts a run: a detached process that outlives whoever asked for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sparktui.errors import DeadlineExceeded, LockHeld, StepFailed
from sparktui.events import RunFinished, RunStarted
from sparktui.local_fault import foreign
from sparktui.runs import journal
from sparktui.runs.lock import holder
from sparktui.runs.request import RunRequest, make_run_folder, runs_folder

PROGRAM = (sys.executable, "-m", "sparktui.runs.process")
_START_SECONDS = 60.0


async def start(
    request: RunRequest, state_dir: Path, *, logs_dir: Path | None = None, program: Sequence[str] = PROGRAM
) -> Path:
    """Start the run and wait until its journal has begun; the run's folder, named by its id.

    Args:
        logs_dir: where its steps keep logs.

    Raises:
        LockHeld: another run is changing this cluster.
        LocalFault: a file that the run would need belongs to another user; a disk that is full, and its kind.
        StepFailed: the process ended before it began; says why.
        DeadlineExceeded: it neither began nor ended.
    """
    refuse_when_held(state_dir)
    refuse_foreign(state_dir, logs_dir)
    run_dir = make_run_folder(state_dir, request)
    process = _spawn(program, run_dir)
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        ended = process.poll() is not None
        for entry in journal.read(run_dir):
            if isinstance(entry.event, RunStarted):
                return run_dir
            if isinstance(entry.event, RunFinished):
                if holder(state_dir):
                    # It never was a run: the next look at the newest one must not find this folder.
                    shutil.rmtree(run_dir, ignore_errors=True)
                    raise LockHeld(entry.event.text, fix=entry.event.fix, node=entry.event.node or None)
                raise StepFailed(entry.event.text, fix=entry.event.fix, node=entry.event.node or None)
        if ended:
            raise _ended_early(process.returncode, run_dir / "output.txt")
        await asyncio.sleep(0.03)
    process.kill()
    raise DeadlineExceeded(
        f"the run's process said nothing in {_START_SECONDS:.0f} s", fix=f"see {run_dir / 'output.txt'}", node="head"
    )


def refuse_when_held(state_dir: Path) -> None:
    """Raises LockHeld, naming run, verb and step, when a run is changing the cluster."""
    by = holder(state_dir)
    if by is None:
        return
    from sparktui.runs.follow import standing

    said = standing(runs_folder(state_dir) / by.run_id)
    if said.finished is not None:
        return  # closing: its lock goes in a moment, and the new run waits for that
    what = f" ({'up' if len(said.verbs) > 1 else ' '.join(said.verbs)}{', at ' + said.step if said.step else ''})"
    raise LockHeld(
        f"run {by.run_id}{what} is changing this cluster",
        fix="follow it with the same verb, or cancel it: sparktui stop",
        node="head",
    )


def refuse_foreign(state_dir: Path, logs_dir: Path | None = None) -> None:
    """Raises LocalFault, naming them all, when a file that a run needs is somebody else's (after a run under sudo)."""
    needed = [state_dir, *([logs_dir] if logs_dir is not None else [])]
    with contextlib.suppress(FileNotFoundError, PermissionError, NotADirectoryError):
        needed += sorted(state_dir.iterdir())
    refused = [path for path in needed if _is_foreign(path)]
    if refused:
        raise foreign(*refused)


def _is_foreign(path: Path) -> bool:
    try:
        there = path.stat()
    except OSError:
        return False
    access = os.R_OK | os.W_OK | (os.X_OK if stat.S_ISDIR(there.st_mode) else 0)
    return there.st_uid != os.geteuid() and not os.access(path, access)


def _spawn(program: Sequence[str], run_dir: Path) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    here = Path(__file__).resolve().parents[2]
    if here.name not in ("site-packages", "dist-packages"):
        # From a checkout that is not installed, whatever the working folder is.
        inherited = filter(None, [environment.get("PYTHONPATH")])
        environment["PYTHONPATH"] = os.pathsep.join([str(here), *inherited])
    fd = os.open(run_dir / "output.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        return subprocess.Popen(
            [*program, str(run_dir)],
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            env=environment,
        )
    finally:
        os.close(fd)


def _ended_early(status: int, output: Path) -> StepFailed:
    what = f"the run's process ended before it began (status {status})"
    try:
        lines = [line for line in output.read_text(errors="replace").splitlines() if line.strip()][-2:]
    except OSError:
        lines = []
    # Its own errors have the next step on a line behind the cause.
    if len(lines) == 2 and lines[1].startswith("  next: "):
        return StepFailed(f"{what}: {lines[0][:300]}", fix=lines[1].removeprefix("  next: "), node="head")
    return StepFailed(f"{what}{': ' + lines[-1][:300] if lines else ''}", fix=f"see {output}", node="head")
