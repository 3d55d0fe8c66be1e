"""Which process is that, for ever: a pid together with its start time and the boot it belongs to."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROC = Path("/proc/self/stat")


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that no later one can be mistaken for.

    Attributes:
        started_ticks: field 22 of /proc/PID/stat, clock ticks since boot.
        boot_id: of the kernel; ticks of another boot say nothing.
    """

    pid: int
    started_ticks: int
    boot_id: str

    @property
    def alive(self) -> bool:
        return self.boot_id == boot_id() and started_ticks(self.pid) == self.started_ticks

    def signal(self, number: signal.Signals, *, group: bool = False) -> bool:
        """Send a signal to exactly this process (or the group it leads); False when it is gone."""
        if not hasattr(os, "pidfd_open"):
            return _signal_by_pid(self, number, group=group)
        try:
            handle = os.pidfd_open(self.pid)
        except (ProcessLookupError, OSError):
            return False
        try:
            # The handle is of whatever has the pid now; only then is it known to be the right one.
            if not self.alive:
                return False
            if group and os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


def _signal_by_pid(process: Identity, number: signal.Signals, *, group: bool) -> bool:
    """Where there is no handle on a process (macOS): looked at just before."""
    if not process.alive:
        return False
    try:
        if group and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def started_ticks(pid: int) -> int | None:
    """Start time of a process that runs; None when there is none, or only its zombie."""
    if not _PROC.exists():
        return _started_by_ps(pid)
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command name in parentheses may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in ("Z", "X") else None


def _started_by_ps(pid: int) -> int | None:
    """The same where there is no /proc (macOS, for the demo): seconds since the epoch, as ps tells them."""
    argv = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    try:
        said = subprocess.run(
            argv, capture_output=True, text=True, timeout=5, env={**os.environ, "LC_ALL": "C"}, check=False
        )
        state, *words = said.stdout.split()
        moment = time.strptime(" ".join(words), "%a %b %d %H:%M:%S %Y")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return None if state.startswith("Z") else int(time.mktime(moment))


def own() -> Identity:
    return Identity(os.getpid(), started_ticks(os.getpid()) or 0, boot_id())
