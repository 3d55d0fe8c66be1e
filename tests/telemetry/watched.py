"""Nodes whose stream a test writes line by line, and a clock that it puts forward."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from sparktui.errors import NodeUnreachable
from sparktui.telemetry.fleet import Fleet
from sparktui.telemetry.gpu import ABSENT
from sparktui.telemetry.sample import ClusterSnapshot
from tests.scripted_link import ScriptedLink
from tests.telemetry.records import listing, record


class Clock:
    """Monotonic seconds that stand still until they are put forward."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class StreamLink(ScriptedLink):
    """The sampler's lines come from `say`; `end` ends or breaks the stream; `opened` counts how often it was begun."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.opened = self.closed_streams = 0
        self.gpu: list[str] = [ABSENT]
        self._said: asyncio.Queue[str | Exception | None] = asyncio.Queue()

    def say(self, *lines: str) -> None:
        for line in lines:
            self._said.put_nowait(line)

    def sample(self, uptime: float, **values: object) -> None:
        self.say(*listing(), *record(uptime, **values))  # type: ignore[arg-type]

    def end(self, error: Exception | None = None) -> None:
        self._said.put_nowait(error)

    async def lines(self, argv: Sequence[str]) -> AsyncIterator[str]:
        if "sparktui-gpu" in argv:
            for line in self.gpu:
                yield line
            await asyncio.sleep(3600)
        if self._gone is not None:
            raise self._gone
        self.opened += 1
        try:
            while True:
                said = await self._said.get()
                if isinstance(said, Exception):
                    raise said
                if said is None:
                    return
                yield said
        finally:
            self.closed_streams += 1


def links(count: int = 3) -> list[StreamLink]:
    return [StreamLink("head" if rank == 0 else f"worker{rank}") for rank in range(count)]


def lost(node: str) -> NodeUnreachable:
    return NodeUnreachable("the connection was lost: reset by peer", fix="look at its console", node=node)


async def until(fleet: Fleet, holds: Callable[[ClusterSnapshot], bool], seconds: float = 5.0) -> ClusterSnapshot:
    """The first picture of a running fleet for which this holds."""
    async with asyncio.timeout(seconds):
        while not holds(snapshot := fleet.snapshot()):  # noqa: ASYNC110 - the fleet has no event for this
            await asyncio.sleep(0.01)
    return snapshot
