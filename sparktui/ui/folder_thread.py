"""Reads and writes of one folder beside the event loop: a network disk that does not answer freezes no screen.

One after the other in one thread, so that a folder that hangs holds one thread and no more. It is a daemon: a thread of
asyncio's own pool is waited for when the process ends, for as long as the disk stays away.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sparktui.errors import DeadlineExceeded

T = TypeVar("T")


class FolderThread:
    """Args:
    deadline_seconds: how long anyone waits for one piece of work, its turn included.
    """

    def __init__(self, deadline_seconds: float) -> None:
        self._deadline_seconds = deadline_seconds
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._working = False
        self._began: float | None = None

    @property
    def silent_seconds(self) -> float:
        """How long the work that is being done now has taken; 0 when there is none."""
        began = self._began
        return time.monotonic() - began if began is not None else 0.0

    async def do(self, folder: Path, work: Callable[[], T]) -> T:
        """What `work` returns or raises; what nobody waits for any more is left out when its turn comes.

        Raises:
            DeadlineExceeded: the folder did not answer in time, or has not answered for as long already.
        """
        if self.silent_seconds > self._deadline_seconds:
            raise _no_answer(folder, self.silent_seconds)
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.append((work, done))
            idle, self._working = not self._working, True
        if idle:
            threading.Thread(target=self._work, name=f"sparktui {folder.name}", daemon=True).start()
        try:
            async with asyncio.timeout(self._deadline_seconds):
                result: T = await done
                return result
        except TimeoutError:
            raise _no_answer(folder, self._deadline_seconds) from None

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working = False
                    return
                work, done = self._waiting.popleft()
            if done.cancelled():
                continue
            result, error = None, None
            self._began = time.monotonic()
            try:
                result = work()
            except Exception as raised:
                error = raised
            self._began = None
            with contextlib.suppress(RuntimeError):  # the loop is closed: the app has been left
                done.get_loop().call_soon_threadsafe(_settle, done, result, error)


def _settle(done: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)


def _no_answer(folder: Path, seconds: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the folder {folder} has not answered for {seconds:.0f} s",
        fix=f"a network disk that is away? In another terminal: ls -d {folder}",
        node="head",
    )
