"""Whether every rank's engine still runs, looked at for as long as a monitor is open (cases T5, U75).

An endpoint answers /health, /v1/models and /metrics for minutes after a worker's engine has died. One small GET over
the node's open connection each LOOK_SECONDS: no SDK, no thread, no process on the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparktui.engine.launch import container_name
from sparktui.errors import SparktuiError
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.remote.our_containers import OurContainer
from sparktui.telemetry.sample import Freshness, Life, RankLife

LOOK_SECONDS = 8.0
WAITING_SECONDS = 1.0
"""Until a node's first sample; nobody but its sampler tries to enter a node."""
LONGEST_PAUSE_SECONDS = 30.0
"""Between looks at an Engine that does not answer."""
DEADLINE_SECONDS = 30.0
"""For a look that first has to enter the node and open the way to its Engine."""


class RankLives:
    """Looks at the containers of `links` (rank order) while `run()` runs; `latest` is what is known now.

    Args:
        freshness: by place in `links`, whether the node's samples come: one that is gone is not asked.
    """

    def __init__(
        self,
        links: Sequence[NodeLink],
        *,
        clock: Callable[[], float],
        freshness: Callable[[int], Freshness] = lambda _: Freshness.LIVE,
    ) -> None:
        self._links, self._clock, self._freshness = tuple(links), clock, freshness
        self.latest = tuple(RankLife(link.node.rank, link.node.name) for link in links)

    @property
    def complete(self) -> bool:
        """Every rank's node has answered, or has been asked in vain."""
        return all(each.seen_at is not None or each.problem for each in self.latest)

    async def run(self) -> None:
        """Until cancelled; never raises for a node's failure."""
        await asyncio.gather(*(self._follow(place) for place in range(len(self._links))))

    async def _follow(self, place: int) -> None:
        pause = LOOK_SECONDS
        while True:
            there = self._freshness(place)
            if there is Freshness.WAITING:
                await asyncio.sleep(WAITING_SECONDS)
                continue
            gone = there is Freshness.GONE
            now = _unseen(self.latest[place], "its node does not answer") if gone else await self.look(place)
            self.latest = (*self.latest[:place], now, *self.latest[place + 1 :])
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS) if now.problem and not gone else LOOK_SECONDS
            await asyncio.sleep(pause)

    async def look(self, place: int) -> RankLife:
        """One rank, asked now."""
        link, before = self._links[place], self.latest[place]
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                container = await our_containers.glance(link, container_name(link.node))
        except TimeoutError:
            return _unseen(before, f"its Docker Engine did not answer in {DEADLINE_SECONDS:.0f} s")
        except SparktuiError as error:
            return _unseen(before, error.what)
        except Exception as error:  # whatever it is, it is this node's
            return _unseen(before, f"{type(error).__name__}: {error}")
        return _seen(before, container, self._clock())


def _seen(before: RankLife, container: OurContainer | None, at: float) -> RankLife:
    fresh = RankLife(before.rank, before.node, seen_at=at, has_run=before.has_run)
    if container is None or container.status == "created":
        return replace(fresh, life=Life.ABSENT, has_run=False)
    if container.running:
        return replace(fresh, life=Life.RUNS, has_run=True)
    return replace(fresh, life=Life.ENDED, exit_code=container.exit_code, oom_killed=container.oom_killed)


def _unseen(before: RankLife, why: str) -> RankLife:
    """What has ended stays ended; what ran may have ended since."""
    life = Life.ENDED if before.life is Life.ENDED else Life.UNKNOWN
    return replace(before, life=life, problem=why)
