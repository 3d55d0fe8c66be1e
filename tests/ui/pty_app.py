"""A program on a pseudo-terminal of its own: what it writes is read as bytes, keys are sent, its window is resized."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence


class PtyApp:
    """Owns the process; leaves nothing behind when the block ends.

    Attributes:
        output: everything that was written so far.
    """

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], *, columns: int = 80, rows: int = 24
    ) -> None:
        self._master, slave = os.openpty()
        self._size(columns, rows)
        self.output = bytearray()
        self.process = subprocess.Popen(
            list(argv), stdin=slave, stdout=slave, stderr=slave, env=dict(environment), start_new_session=True
        )
        os.close(slave)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self) -> PtyApp:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=10)
        os.close(self._master)

    def resize(self, columns: int, rows: int) -> None:
        self._size(columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def send(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def read(self, seconds: float) -> bytes:
        """What comes within this time; returns at the first bytes."""
        if not select.select([self._master], [], [], max(0.0, seconds))[0]:
            return b""
        try:
            new = os.read(self._master, 1 << 16)
        except OSError:  # the other end is closed
            return b""
        self.output += new
        return new

    def drain(self, seconds: float) -> None:
        """Read on for this long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self.read(left) and self.process.poll() is not None:
                return

    def until(self, marker: bytes, *, since: int = 0, seconds: float = 20.0) -> bytes:
        """Read until the marker has been written after position `since`; all that was written from there."""
        end = time.monotonic() + seconds
        while marker not in self.output[since:]:
            left = end - time.monotonic()
            ended = not self.read(left) and self.process.poll() is not None
            assert left > 0 and not ended, f"{marker!r} never came; the last bytes: {bytes(self.output[-600:])!r}"
        return bytes(self.output[since:])

    def press(self, keys: bytes, marker: bytes, *, seconds: float = 20.0) -> bytes:
        """Send keys, wait for what they bring."""
        since = len(self.output)
        self.send(keys)
        return self.until(marker, since=since, seconds=seconds)

    def wait(self, seconds: float) -> int:
        """The exit status; output is read on meanwhile, so that nobody blocks on a full terminal."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.05)
        return self.process.wait(timeout=0.1)
