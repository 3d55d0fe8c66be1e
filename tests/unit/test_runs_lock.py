"""The lock says who holds it, and a signal reaches that process or none."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from pathlib import Path

import pytest

from sparktui.errors import LockHeld
from sparktui.runs.identity import Identity, own, started_ticks
from sparktui.runs.lock import ClusterLock, holder


def test_a_torn_or_empty_lock_file_is_no_holder(tmp_path: Path) -> None:
    for content in (b"", b'{"pid": 1', b"null", b"[]", b"\xff\xfe"):
        (tmp_path / "run.lock").write_bytes(content)
        assert holder(tmp_path) is None
        lock = ClusterLock(tmp_path)
        lock.acquire("r", own())
        said = holder(tmp_path)
        assert said is not None and (said.run_id, said.process) == ("r", own())
        lock.release()
        assert holder(tmp_path) is None


def test_a_lock_that_nobody_signs_is_still_a_lock(tmp_path: Path) -> None:
    with (tmp_path / "run.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LockHeld, match="does not say who it is"):
            ClusterLock(tmp_path).acquire("r", own(), patience_seconds=0.1)


def test_a_signal_never_reaches_a_process_that_only_has_the_pid() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        ticks = started_ticks(child.pid)
        assert ticks is not None
        assert not Identity(child.pid, ticks + 1, own().boot_id).signal(signal.SIGKILL)
        assert not Identity(child.pid, ticks, "another").signal(signal.SIGKILL)
        assert child.poll() is None
        real = Identity(child.pid, ticks, own().boot_id)
        assert real.alive and real.signal(signal.SIGKILL)
        # Its zombie is not it.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not real.alive
    finally:
        child.kill()
        child.wait()
