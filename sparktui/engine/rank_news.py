"""What happens to the engine's containers of all ranks: their states and their log lines, in one queue.

A boot's step and a monitor's ladder both feed on this. Each rank has one task that looks at the container and one that
reads its log from the container's start; a log that is read again goes on where it was (its lines are counted).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from sparktui.errors import DockerUnavailable, SparktuiError
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.remote.our_containers import OurContainer

HELD_NEWS = 2_000
_BEFORE_START_SECONDS = 1.0
"""The Engine notes a start a moment after the process has begun to speak."""


@dataclass(frozen=True, slots=True)
class Began:
    """A container that was not there before, or was started anew: its log follows from here."""

    rank: int
    container: OurContainer


@dataclass(frozen=True, slots=True)
class Line:
    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The container as it is now; None when there is none."""

    rank: int
    container: OurContainer | None


@dataclass(frozen=True, slots=True)
class Trouble:
    rank: int
    error: SparktuiError
    of_log: bool = False
    """The log alone could not be read; the container's state tells what that means."""


News = Began | Line | Seen | Trouble


class RankNews:
    """Follows the containers `names` on `links`, both in rank order, between `start()` and `aclose()`.

    Args:
        pause: seconds until a rank's container is looked at again.
    """

    def __init__(self, links: Sequence[NodeLink], names: Sequence[str], *, pause: Callable[[int], float]) -> None:
        self._links, self._names, self._pause = links, names, pause
        self._queue: asyncio.Queue[News] = asyncio.Queue(maxsize=HELD_NEWS)
        self._tasks: list[asyncio.Task[None]] = []
        self._enough: set[int] = set()

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._follow(rank)) for rank in range(len(self._links))]

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def get(self, timeout_seconds: float) -> News | None:
        """The next of it, or None when nothing happened for so long."""
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._queue.get()
        except TimeoutError:
            return None

    def enough(self, rank: int) -> None:
        """Read no more of this rank's log, until its container is started anew."""
        self._enough.add(rank)

    async def _follow(self, rank: int) -> None:
        link, name = self._links[rank], self._names[rank]
        began = ""
        reading: asyncio.Task[None] | None = None
        taken = [0]
        try:
            while True:
                try:
                    container = await our_containers.look(link, name)
                    await self._queue.put(Seen(rank, container))
                    if container is None:
                        began = ""
                    else:
                        if container.started_at != began:
                            await _ended(reading)
                            began, taken, reading = container.started_at, [0], None
                            self._enough.discard(rank)
                            await self._queue.put(Began(rank, container))
                        if rank not in self._enough and (reading is None or reading.done()):
                            reading = asyncio.create_task(self._read(rank, began, taken))
                except Exception as error:
                    await self._queue.put(Trouble(rank, self._on_purpose(rank, error)))
                await asyncio.sleep(self._pause(rank))
        finally:
            await _ended(reading)

    async def _read(self, rank: int, began: str, taken: list[int]) -> None:
        """The log from `began` on; the first `taken[0]` lines are known."""
        try:
            engine = await self._links[rank].docker()
            at = 0
            lines = engine.lines(self._names[rank], since_seconds=_since(began), tail=None, follow=True)
            async with aclosing(lines):  # type: ignore[type-var]
                async for line in lines:
                    at += 1
                    if at > taken[0]:
                        taken[0] = at
                        await self._queue.put(Line(rank, line))
                    if rank in self._enough:
                        return
        except Exception as error:
            await self._queue.put(Trouble(rank, self._on_purpose(rank, error), of_log=True))

    def _on_purpose(self, rank: int, error: Exception) -> SparktuiError:
        """A watcher must not end in silence: what Docker's SDK raises is this node's trouble as well."""
        if isinstance(error, SparktuiError):
            return error
        return DockerUnavailable(f"its Docker Engine: {error}", node=self._links[rank].node.name)


def has_ended(container: OurContainer | None) -> bool:
    return container is None or not (container.running or container.status == "created")


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _since(started_at: str) -> float | None:
    """Epoch seconds of the start, a moment earlier; None (from the beginning) where it has not been started.

    A container that was started again keeps the log of its earlier life.
    """
    try:
        # Nanoseconds are more than fromisoformat takes.
        at = datetime.fromisoformat(f"{started_at[:19]}+00:00").timestamp()
    except ValueError:
        return None
    return at - _BEFORE_START_SECONDS if at > 0 else None
