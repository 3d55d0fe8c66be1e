"""One run at a time on a cluster: a file lock under its state folder that also says who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sparktui.errors import LockHeld
from sparktui.runs.identity import Identity

LOCK_NAME = "run.lock"


@dataclass(frozen=True, slots=True)
class Holder:
    run_id: str
    process: Identity


def holder(state_dir: Path) -> Holder | None:
    """Who holds the lock; None when nobody does: a dead process or another one with its pid is nobody."""
    try:
        said = json.loads((state_dir / LOCK_NAME).read_bytes())
        found = Holder(
            str(said["run_id"]), Identity(int(said["pid"]), int(said["pid_started_ticks"]), str(said["boot_id"]))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.process.alive else None


class ClusterLock:
    """Held from `acquire` until `release` or the end of the process, whatever ends it.

    The kernel's lock (flock) decides; the content only tells others who it is, so a stale file is no obstacle.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / LOCK_NAME
        self._fd = -1

    def acquire(self, run_id: str, process: Identity, *, patience_seconds: float = 3.0) -> None:
        """Take the lock; waits a moment for a run that is closing.

        Raises:
            LockHeld: names the run that has it.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + patience_seconds
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    os.close(fd)
                    raise self._held() from None
                time.sleep(0.05)
        said = {
            "pid": process.pid,
            "pid_started_ticks": process.started_ticks,
            "boot_id": process.boot_id,
            "run_id": run_id,
        }
        self._fd = fd
        # On a full disk the lock holds all the same; it only cannot say whose it is.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(said).encode() + b"\n", 0)
            os.fsync(fd)

    def _held(self) -> LockHeld:
        by = holder(self._path.parent)
        if by is None:
            return LockHeld(
                "the cluster's lock is held by a process that does not say who it is",
                fix=f"see who has it: fuser -v {self._path}",
                node="head",
            )
        return LockHeld(
            f"run {by.run_id} (pid {by.process.pid}) is changing this cluster",
            fix="wait for it, or cancel it: sparktui stop",
            node="head",
        )

    def release(self) -> None:
        if self._fd >= 0:
            # Emptied while still locked: nobody reads a holder that has let go.
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1
