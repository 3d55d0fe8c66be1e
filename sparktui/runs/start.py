"""Starts a run: a detached process that outlives whoever asked for it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sparktui.errors import DeadlineExceeded, LockHeld, StepFailed
from sparktui.events import RunFinished, RunStarted
from sparktui.runs import journal
from sparktui.runs.lock import holder
from sparktui.runs.request import RunRequest, make_run_folder, runs_folder

PROGRAM = (sys.executable, "-m", "sparktui.runs.process")
_START_SECONDS = 60.0


async def start(request: RunRequest, state_dir: Path, *, program: Sequence[str] = PROGRAM) -> Path:
    """Start the run and wait until its journal has begun; the run's folder, named by its id.

    Raises:
        LockHeld: another run is changing this cluster.
        StepFailed: the process ended before it began; says why.
        DeadlineExceeded: it neither began nor ended.
    """
    refuse_when_held(state_dir)
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
            last = _last_line(run_dir / "output.txt")
            raise StepFailed(
                f"the run's process ended before it began (status {process.returncode}){': ' + last if last else ''}",
                fix=f"see {run_dir / 'output.txt'}",
                node="head",
            )
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


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""
