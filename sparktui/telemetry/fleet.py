"""All nodes merged into one picture, about once a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from sparktui.remote.link import NodeLink
from sparktui.telemetry.alarms import AlarmBook, Limits, overruled
from sparktui.telemetry.follower import NodeFollower
from sparktui.telemetry.kept_samples import KeptSamples
from sparktui.telemetry.rank_lives import RankLives
from sparktui.telemetry.sample import ClusterSnapshot, Freshness, Serving

_CLOSE_SECONDS = 0.9


class ServingSource(Protocol):
    """Follows the endpoint; `latest` is what is known of it now."""

    @property
    def latest(self) -> Serving: ...

    async def run(self) -> None: ...


class Fleet:
    """Follows every node and the endpoint while `snapshots()` is iterated.

    Args:
        links: head first; they stay the caller's.
        clock: seconds, monotonic; the times of all samples.
        folders: by node name, whose file systems' free space is wanted.
        gpu: follow nvidia-smi as well (its cost is its own).
        serving: the endpoint's follower; None watches no endpoint.
        limits: what an alarm is; its floor is shown in each node's memory.
        planned: node name and cage (`p0`) of every planned cable's end.
        lives: look at the ranks' containers as well.
        kept: keeps the last minutes on the head's disk; a node that never answers is shown as it was last seen.
    """

    def __init__(
        self,
        links: Sequence[NodeLink],
        *,
        clock: Callable[[], float] = time.monotonic,
        folders: Mapping[str, Sequence[str]] | None = None,
        gpu: bool = True,
        serving: ServingSource | None = None,
        limits: Limits | None = None,
        planned: frozenset[tuple[str, str]] = frozenset(),
        kept: KeptSamples | None = None,
        lives: bool = False,
        interval_seconds: float = 1.0,
    ) -> None:
        limits = limits or Limits()
        self._clock, self._serving, self._interval = clock, serving, interval_seconds
        self._book, self._kept = AlarmBook(limits, planned), kept
        self._followers = tuple(
            NodeFollower(
                link,
                clock=clock,
                folders=(folders or {}).get(link.node.name, ()),
                gpu=gpu,
                floor_bytes=limits.available_warn_bytes,
            )
            for link in links
        )
        self._lives = RankLives(links, clock=clock, freshness=self._freshness) if lives else None

    def _freshness(self, place: int) -> Freshness:
        return self._followers[place].sample(self._clock()).freshness

    def snapshot(self) -> ClusterSnapshot:
        """The cluster as it is known now."""
        now = self._clock()
        nodes = tuple(follower.sample(now) for follower in self._followers)
        serving = self._serving.latest if self._serving else Serving()
        ranks = self._lives.latest if self._lives else ()
        self._book = self._book.judged(ClusterSnapshot(now, nodes, serving, ranks=ranks))
        alarms = self._book.alarms
        return ClusterSnapshot(now, nodes, overruled(serving, alarms), alarms, ranks)

    async def _keep(self, kept: KeptSamples) -> None:
        seen = await kept.last_seen()
        for follower in self._followers:
            if (before := seen.get(follower.name)) is not None:
                follower.last_seen = before.text
        await kept.run()

    def complete(self, samples: int = 2) -> bool:
        """Every node has given so many samples, or its stream has failed; and has told whether its rank runs."""
        return (self._lives is None or self._lives.complete) and all(
            each.count >= samples or each.failed for each in self._followers
        )

    async def snapshots(self) -> AsyncIterator[ClusterSnapshot]:
        """A picture at once, then one about each second. A node that fails costs its own row; nothing is raised for it.

        Ending the iteration (cancel, or `aclose()`) ends all streams within a second.
        """
        tasks = [asyncio.create_task(each.run()) for each in self._followers]
        if self._serving is not None:
            tasks.append(asyncio.create_task(self._serving.run()))
        if self._lives is not None:
            tasks.append(asyncio.create_task(self._lives.run()))
        if self._kept is not None:
            tasks.append(asyncio.create_task(self._keep(self._kept)))
        try:
            while True:
                snapshot = self.snapshot()
                if self._kept is not None:
                    self._kept.take(snapshot)
                yield snapshot
                await asyncio.sleep(self._interval)
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
