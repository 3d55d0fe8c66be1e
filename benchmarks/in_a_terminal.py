"""Programs in a pseudo-terminal of a given size, and what the kernel says that their process trees use."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FULL_SCREEN = b"\x1b[?1049h"
TICKS = os.sysconf("SC_CLK_TCK")
ENVIRONMENT = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}


@dataclass
class InTerminal:
    """A running program; its output is read and thrown away by `read`."""

    argv: Sequence[str]
    columns: int = 120
    rows: int = 40
    seen: bytearray = field(default_factory=bytearray)
    first_byte_at: float | None = None

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        environment = {**os.environ, **ENVIRONMENT}
        self.process = subprocess.Popen(
            self.argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.ours = ours

    def read(self, seconds: float, *, keep: bool = False, until: bytes | None = None) -> bool:
        """Take its output for so long; True when `until` came."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.ours], [], [], left)[0]:
                break
            try:
                taken = os.read(self.ours, 65536)
            except OSError:
                break
            if keep or until is not None:
                self.seen += taken
                # Only on the full screen: the words of a traceback are no frame.
                if until is not None and until in self.seen.partition(FULL_SCREEN)[2]:
                    return True
        return False

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(number)
                self.read(1.0)
        self.process.wait()
        os.close(self.ours)

    def tree(self) -> list[int]:
        """Its process and all descendants."""
        parents: dict[int, int] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, ValueError, IndexError):
                    continue
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def processor_seconds(self) -> float:
        total = 0.0
        for pid in self.tree():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += (int(fields[11]) + int(fields[12])) / TICKS
        return total

    def resident_bytes(self) -> int:
        total = 0
        for pid in self.tree():
            try:
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            except OSError:
                continue
        return total
