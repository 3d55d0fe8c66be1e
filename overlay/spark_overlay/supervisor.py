"""One child in a session of its own, watched by a process that may be pid 1: signals forwarded, orphans reaped,
leftovers killed.

A stop signal goes to the child alone at first. SGLang's main process then lets running requests end and tells the
schedulers of all ranks to go; the schedulers have no handler, so the same signal sent to the group kills them in the
middle of a step, which their parent takes for a crash. SIGKILL is for the group, and for what left the group.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
_WATCHED = STOP_SIGNALS | {signal.SIGCHLD}
_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVER_SECONDS = 5.0
"""How long what was killed may take to go: a process that waits for a dead NFS server never does."""


class Supervisor:
    """`run()` starts the child and returns its exit code (128 + signal for a killed one) when it is over.

    While it runs, `tick()` is called about once a second; a text that it returns stops the child. After a stop signal
    the child gets SIGTERM and has `grace_seconds`, then its whole process group is killed; a second signal kills at
    once. Whatever is left when the child ends is killed and reaped, also what made itself a daemon.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], grace_seconds: float) -> None:
        self._argv = list(argv)
        self._environment = dict(environment)
        self._grace_seconds = grace_seconds
        self._kill_at: float | None = None
        self._pid = 0
        self.stopped_by: str | None = None
        """The signal's name or tick()'s text, once a stop began."""

    @property
    def pid(self) -> int:
        return self._pid

    def run(self, tick: Callable[[], str | None]) -> int:
        _adopt_orphans()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        try:
            # The child must not inherit the blocked signals, hence spawn with an empty mask.
            self._pid = os.posix_spawn(
                self._argv[0], self._argv, self._environment, setsid=True, setsigmask=(), setsigdef=_WATCHED
            )
            try:
                return self._watch(tick)
            except BaseException:
                # An error of ours must not leave an engine behind that nobody watches.
                self._kill_all()
                raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _watch(self, tick: Callable[[], str | None]) -> int:
        while True:
            arrived = signal.sigtimedwait(_WATCHED, 1.0)
            code = self._reap()
            if code is not None:
                # Schedulers that survive their parent would keep the memory and the port.
                self._kill_all()
                return code
            if arrived and arrived.si_signo in STOP_SIGNALS:
                self._stop(signal.Signals(arrived.si_signo).name, again=self.stopped_by is not None)
            elif self.stopped_by is None:
                reason = tick()
                if reason:
                    self._stop(reason, again=False)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._signal_group(signal.SIGKILL)
                self._kill_at = None

    def _stop(self, reason: str, again: bool) -> None:
        self.stopped_by = self.stopped_by or reason
        if again:
            self._signal_group(signal.SIGKILL)
            return
        self._kill_at = time.monotonic() + self._grace_seconds
        try:
            os.kill(self._pid, signal.SIGTERM)
        except ProcessLookupError:
            return

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def _kill_all(self) -> None:
        self._signal_group(signal.SIGKILL)
        end = time.monotonic() + _LEFTOVER_SECONDS
        while (left := _children()) and time.monotonic() < end:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)

    def _reap(self) -> int | None:
        """Collects every dead child; the exit code if the watched one is among them."""
        code = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return code
            if pid == 0:
                return code
            if pid == self._pid:
                value = os.waitstatus_to_exitcode(status)
                code = 128 - value if value < 0 else value


def _adopt_orphans() -> None:
    """Become the parent of what loses its own, as pid 1 is by itself."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> list[int]:
    """Processes whose parent is this one; ended ones too, until they are reaped."""
    found, here = [], str(os.getpid()).encode()
    for path in Path("/proc").glob("[1-9]*/stat"):
        try:
            # The name in brackets may hold anything; state and parent follow it.
            parent = path.read_bytes().rpartition(b") ")[2].split()[1]
        except (OSError, IndexError):
            continue
        if parent == here:
            found.append(int(path.parent.name))
    return found


def python_child(module: str, arguments: Sequence[str]) -> list[str]:
    """The argv that runs `module` in this interpreter, with its site-packages."""
    return [sys.executable, "-u", "-m", module, *arguments]
