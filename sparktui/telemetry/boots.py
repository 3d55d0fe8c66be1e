"""Every rank's boot ladder, live. It asks the Docker Engines (and loads their SDK): start it where it is shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from sparktui.engine.ladder import RankBoot
from sparktui.engine.launch import container_name
from sparktui.engine.phases import Phase
from sparktui.engine.rank_news import Began, Line, News, RankNews, Seen, Trouble, has_ended
from sparktui.remote.link import NodeLink
from sparktui.telemetry.log_clock import LogClock
from sparktui.telemetry.sample import Life, RankLife

BOOTING_SECONDS = 2.0
WAITING_SECONDS = 3.0
UP_SECONDS = 8.0
"""How often a container is looked at: while it boots, while there is none, and when its rank is up."""
UNREACHED_SECONDS = 20.0
"""On a node that does not answer."""
SHORTEST_SECONDS = 0.25
QUIET_SECONDS = 5.0


class BootWatch:
    """The ladders of all ranks; a node that cannot be asked keeps its last rung and says so in `problems`.

    Args:
        links: all ranks, head first.
        wall: seconds since the epoch; with it a boot that began before this watch keeps its times.
    """

    def __init__(
        self,
        links: Sequence[NodeLink],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._wall = clock, wall
        self._said_at: dict[int, LogClock] = {}
        self._boots = [RankBoot(link.node.rank, link.node.name, asked=False) for link in links]
        self._running: list[bool | None] = [None] * len(links)
        self._problems: dict[str, str] = {}
        self._heard_at: list[float | None] = [None] * len(links)
        self._news = RankNews(links, [container_name(link.node) for link in links], pause=self._pause)

    @property
    def ranks(self) -> tuple[RankBoot, ...]:
        return tuple(self._boots)

    @property
    def problems(self) -> dict[str, str]:
        """Why a node's ladder may be old, by node name."""
        return dict(self._problems)

    def running(self, rank: int) -> bool | None:
        """Whether the rank's container runs; None while nobody has said."""
        return self._running[rank]

    async def boots(self) -> AsyncIterator[tuple[RankBoot, ...]]:
        """The ladders at once, then after changes, at most four times a second."""
        self._news.start()
        try:
            shown: tuple[tuple[RankBoot, ...], dict[str, str]] = self.ranks, self.problems
            yield self.ranks
            while True:
                await self._gather()
                now = self.ranks, self.problems
                if now != shown:
                    shown = now
                    yield now[0]
        finally:
            await self._news.aclose()

    async def _gather(self) -> None:
        """Take what comes for a quarter of a second from the first news on."""
        self._take(await self._news.get(QUIET_SECONDS))
        end = asyncio.get_running_loop().time() + SHORTEST_SECONDS
        while (left := end - asyncio.get_running_loop().time()) > 0:
            self._take(await self._news.get(left))

    def _take(self, news: News | None) -> None:
        if news is None:
            return
        rank, now = news.rank, self._clock()
        boot = self._boots[rank]
        match news:
            case Began(_, started):
                said_at = self._said_at[rank] = LogClock(started.started_at, now, self._wall())
                boot = boot.container_started(said_at.began)
                if has_ended(started):
                    boot = boot.container_exited(now, started.exit_code, started.oom_killed)
            case Line(_, text):
                boot = boot.feed(text, self._said_at[rank].at(text, now) if rank in self._said_at else now)
                if boot.up:
                    self._news.enough(rank)
            case Seen(_, None):
                boot = RankBoot(boot.rank, boot.node)
            case Seen(_, container) if has_ended(container):
                if container is not None and not boot.exited:
                    boot = boot.container_exited(now, container.exit_code, container.oom_killed)
        if isinstance(news, Seen):
            self._running[rank] = news.container is not None and news.container.running
            self._problems.pop(boot.node, None)
            boot = replace(boot, unseen="", seen_at=None)
        elif isinstance(news, Trouble) and not news.of_log:
            self._problems[boot.node] = news.error.what
            self._running[rank] = None
            boot = replace(boot, unseen=news.error.what, seen_at=self._heard_at[rank])
        if not isinstance(news, Trouble):
            self._heard_at[rank] = now
        self._boots[rank] = boot

    def _pause(self, rank: int) -> float:
        boot = self._boots[rank]
        if boot.node in self._problems:
            return UNREACHED_SECONDS
        if boot.up:
            return UP_SECONDS
        return WAITING_SECONDS if boot.phase is Phase.NOTHING else BOOTING_SECONDS


def warming_up(boots: Sequence[RankBoot]) -> bool:
    """The head's server answers (SGLang's own `fired up`) and the overlay's warm-up has not said READY."""
    return bool(boots) and boots[0].phase is Phase.WARM_UP and not boots[0].exited


def with_lives(boots: Sequence[RankBoot], lives: Sequence[RankLife]) -> tuple[RankBoot, ...]:
    """The ladders as they were last read, corrected by what is known of the containers since; for a time without watch.

    A rank whose ladder was never read shows whether its container runs.
    """
    known = {boot.rank: boot for boot in boots}
    return tuple(_with_life(known.get(each.rank), each) for each in lives) or tuple(boots)


def _with_life(boot: RankBoot | None, life: RankLife) -> RankBoot:
    bare = RankBoot(life.rank, life.node)
    if life.life is Life.ABSENT:
        return bare
    there = boot if boot is not None and boot.phase is not Phase.NOTHING else None
    unseen, seen_at = life.problem, life.seen_at if life.problem else None
    if life.life is Life.UNKNOWN:
        last = there or boot or replace(bare, asked=False)
        return replace(last, unseen=unseen, seen_at=seen_at)
    if life.life is Life.RUNS:
        running = there if there is not None and not there.exited else replace(bare, read=False)
        return replace(running, unseen="", seen_at=None)
    ended = there or (boot if boot is not None and boot.exited else replace(bare, read=False))
    if not ended.exited:
        ended = ended.container_exited(life.seen_at or 0.0, life.exit_code, life.oom_killed)
    return replace(ended, unseen=unseen, seen_at=seen_at)
