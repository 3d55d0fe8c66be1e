"""The app in a terminal of its own (a pty), and what it does to that terminal when it is ended.

`python -m tests.ui.ended_terminal [TRIES]` prints a table: each signal at random moments, TRIES times (30).
"""

from __future__ import annotations

import fcntl
import os
import pty
import random
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
END_SECONDS = 20.0
MODES = {"the other screen": "?1049", "the mouse": "?1003", "bracketed paste": "?2004"}


@dataclass(frozen=True, slots=True)
class Ended:
    """`status` as a shell would show it; `output` is all that the terminal got; `cooked` what stty would say."""

    status: int
    output: str
    cooked: bool

    @property
    def left_on(self) -> list[str]:
        """What the terminal was not given back from."""
        found = [name for name, mode in MODES.items() if self._last(mode, "h") > self._last(mode, "l")]
        if self._last("?25", "l") > self._last("?25", "h"):
            found.append("a hidden cursor")
        return [*found, *([] if self.cooked else ["raw input"])]

    def _last(self, mode: str, letter: str) -> int:
        return self.output.rfind(f"\x1b[{mode}{letter}")


APP = "import sys; sys.argv[0] = 'sparktui'; import sparktui.__main__"


def run(folder: Path, seconds: float, act: Callable[[int, int], None], code: str = APP) -> Ended:
    """Start the app in `folder`, call `act(pid, terminal)` after `seconds`, wait for its end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm-256color", "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        os.execv(sys.executable, [sys.executable, "-c", code])
    resize(terminal, 80, 24)
    output, began, acted = b"", time.monotonic(), False
    while time.monotonic() < began + seconds + END_SECONDS:
        if select.select([terminal], [], [], 0.02)[0]:
            try:
                part = os.read(terminal, 1 << 16)
            except OSError:
                break
            if not part:
                break
            output += part
        if not acted and time.monotonic() >= began + seconds:
            acted = True
            act(pid, terminal)
    else:
        os.kill(pid, signal.SIGKILL)
    try:
        cooked = bool(termios.tcgetattr(terminal)[3] & termios.ICANON)
    except termios.error:
        cooked = True
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return Ended(code if code >= 0 else 128 - code, output.decode(errors="replace"), cooked)


def resize(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def main() -> None:
    tries = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    print("| signal | tries | status | terminal not given back | tracebacks |\n|---|---|---|---|---|")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        with tempfile.TemporaryDirectory() as folder:
            ends = [
                run(Path(folder), random.uniform(0.02, 2.5), lambda pid, _, number=number: os.kill(pid, number))
                for _ in range(tries)
            ]
        statuses = sorted({each.status for each in ends})
        bad = sum(bool(each.left_on) for each in ends)
        traces = sum("Traceback" in each.output for each in ends)
        print(f"| {number.name} | {tries} | {', '.join(map(str, statuses))} | {bad} | {traces} |", flush=True)


if __name__ == "__main__":
    main()
