"""Watches a boot: all ranks' logs and containers at once. A rank that ends, ends the wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from sparktui.engine.ladder import Boot, RankBoot, kv_pool
from sparktui.engine.launch import LaunchSpec
from sparktui.engine.phases import Phase
from sparktui.engine.rank_news import Line, News, RankNews, Seen, Trouble, has_ended
from sparktui.engine.signatures import Explanation, explain, first_cause
from sparktui.errors import DeadlineExceeded, NodeUnreachable, SparktuiError, StepFailed
from sparktui.events import Event, LogLine, NodeOutcome, Note, Outcome, Progress, State, Unit
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.remote.our_containers import OurContainer
from sparktui.settings import Settings
from sparktui.steps.kept_logs import keep_log
from sparktui.steps.merge import merged

STEP = "serve"
STATE_SECONDS = 2.0
SILENT_NODE_SECONDS = 45.0
LAST_LINES = 30
SETTLE_SECONDS = 1.0
"""A rank that goes takes others with it within moments: see all of them before blaming one."""
HALT_SECONDS = 20


class BootWatch:
    """One boot, followed to its ready line or to the first rank that ends.

    Args:
        links: of all ranks, in rank order.
        specs: what was started, in the same order.
    """

    def __init__(self, settings: Settings, links: Sequence[NodeLink], specs: Sequence[LaunchSpec]) -> None:
        self._settings, self._links, self._specs = settings, links, specs
        self._boot = Boot.of([link.node.name for link in links])
        self._shown: dict[int, float] = {}
        self._said: set[str] = set()
        self._silent_since: dict[int, float] = {}

    async def events(self) -> AsyncIterator[Event]:
        """Yields phase changes and troubles.

        Raises:
            StepFailed: a rank ended (its name, exit code, cause; its last lines go before), or the time is over.
            NodeUnreachable: a node has not answered for 45 s.
        """
        names = [spec.container.name for spec in self._specs]
        following = RankNews(self._links, names, pause=lambda _rank: STATE_SECONDS)
        following.start()
        end = time.monotonic() + self._settings.ready_seconds
        try:
            while not self._boot.ready:
                if time.monotonic() > end:
                    raise self._too_late()
                news = await following.get(1.0)
                if isinstance(news, Seen) and has_ended(news.container):
                    async for event in self._ended(news):
                        yield event
                for event in self._take(news):
                    yield event
                for event in self._troubles():
                    yield event
            for event in self._closing():
                yield event
        finally:
            await following.aclose()

    # -- telling ------------------------------------------------------------------------------------------------

    def _take(self, news: News | None) -> list[Event]:
        now = time.monotonic()
        match news:
            case Line(rank, text):
                before = self._boot.ranks[rank]
                self._boot = self._boot.feed(rank, text, now)
                self._silent_since.pop(rank, None)
                return self._progress(before, self._boot.ranks[rank], now)
            case Seen(rank, _):
                self._silent_since.pop(rank, None)
                if self._boot.ranks[rank].phase is Phase.NOTHING:
                    before = self._boot.ranks[rank]
                    self._boot = self._boot.with_rank(before.container_started(now))
                    return self._progress(before, self._boot.ranks[rank], now)
            case Trouble(rank, error):
                if news.of_log and not isinstance(error, (NodeUnreachable, DeadlineExceeded)):
                    return self._once(rank, f"its log: {error.what}", State.WARN)
                since = self._silent_since.setdefault(rank, now)
                if isinstance(error, StepFailed):
                    raise error
                if now - since > SILENT_NODE_SECONDS:
                    raise self._lost(rank, error)
                return self._once(rank, f"no answer: {error.what}", State.UNKNOWN)
        return []

    def _lost(self, rank: int, error: SparktuiError) -> SparktuiError:
        node = self._links[rank].node.name
        text = f"no answer for {SILENT_NODE_SECONDS:.0f} s ({error.what}); the other ranks were left as they are"
        fix = "sparktui serve follows the boot again once it answers; sparktui stop ends the others"
        return NodeUnreachable(text, fix=fix, node=node)

    def _progress(self, before: RankBoot, after: RankBoot, now: float) -> list[Event]:
        events: list[Event] = []
        for change in after.changes[len(before.changes) :] if after.changes[: len(before.changes)] else after.changes:
            text = f"rank {after.rank}: {change.phase.title}: {change.line[:300]}"
            events.append(Note(STEP, after.node, self._settings.mask(text)))
            events.append(
                Progress(
                    STEP, after.node, change.phase.title, float(change.phase), float(Phase.READY), unit=Unit.PHASES
                )
            )
        for load, old, phase in (
            (after.figures.target, before.figures.target, "weights"),
            (after.figures.draft, before.figures.draft, "draft weights"),
        ):
            if load.shards_done is not None and load.shards_done != old.shards_done:
                total = None if load.shards_total is None else float(load.shards_total)
                events.append(Progress(STEP, after.node, phase, float(load.shards_done), total, unit=Unit.ITEMS))
        return events

    def _troubles(self) -> list[Event]:
        events: list[Event] = []
        for each in self._boot.troubles(time.monotonic()):
            events += self._once(each.rank, each.kind, State.WARN, f"{each.text}; next: {each.fix}")
        return events

    def _once(self, rank: int, key: str, state: State, text: str = "") -> list[Event]:
        if (mark := f"{rank} {key}") in self._said:
            return []
        self._said.add(mark)
        return [Note(STEP, self._links[rank].node.name, text or key, state)]

    def _closing(self) -> list[Event]:
        head = self._boot.ranks[0]
        events: list[Event] = []
        pool = kv_pool(head.figures, self._settings.max_total_tokens)
        if pool is not None:
            events.append(Note(STEP, head.node, pool.text, State.WARN if pool.clamped else State.INFO))
        for each in self._boot.ranks:
            events.append(NodeOutcome(STEP, each.node, Outcome.DONE, f"rank {each.rank} is up"))
        return events

    def _too_late(self) -> StepFailed:
        behind = min(self._boot.ranks, key=lambda each: each.phase)
        return StepFailed(
            f"not ready after {self._settings.ready_seconds} s: rank {behind.rank} is at {behind.phase.title}; "
            f"its last line: {behind.last_line[:200] or 'none'}",
            fix=f"sparktui logs {behind.node}; READY_TIMEOUT gives more time",
            node=behind.node,
        )

    # -- a rank that ended --------------------------------------------------------------------------------------

    async def _ended(self, seen: Seen) -> AsyncIterator[Event]:
        """Find the rank that ended first and why, show its last lines, stop the others, and fail."""
        await asyncio.sleep(SETTLE_SECONDS)
        found = await asyncio.gather(*(self._final(rank) for rank in range(len(self._links))))
        gone = [each for each in found if each is not None]
        if not any(each.rank == seen.rank for each in gone):
            gone.append(_gone(seen.rank, self._links[seen.rank].node.name, seen.container, []))
        gone.sort(key=lambda each: (not each.finished_at, each.finished_at))
        first = gone[first_cause([each.explanation for each in gone]) or 0]
        for line in first.lines:
            yield LogLine(STEP, first.node, self._settings.mask(line))
        # Said at once: stopping the others takes a while.
        for each in gone:
            yield NodeOutcome(STEP, each.node, Outcome.FAILED, f"rank {each.rank} ended: {each.how}")
        names = {each.node for each in gone}
        others = [link for link in self._links if link.node.name not in names]
        async for event in merged([self._halted(link) for link in others]):
            yield event
        for link, spec in zip(self._links, self._specs, strict=True):
            async for event in self._kept(link, spec.container.name):
                yield event
        cause = first.explanation.cause if first.explanation else "its last lines are above"
        fix = first.explanation.fix if first.explanation else f"sparktui logs {first.node}"
        raise StepFailed(f"rank {first.rank} ended ({first.how}): {cause}", fix=fix, node=first.node)

    async def _kept(self, link: NodeLink, name: str) -> AsyncIterator[Event]:
        try:
            container = await our_containers.look(link, name)
        except (SparktuiError, OSError):
            return  # a node that is gone has said so
        for event in await keep_log(self._settings, link, container, STEP) if container else ():
            yield event

    async def _final(self, rank: int) -> _Gone | None:
        link, name = self._links[rank], self._specs[rank].container.name
        try:
            container = await our_containers.look(link, name)
            if not has_ended(container):
                return None
            lines = [] if container is None else await our_containers.last_lines(link, name, LAST_LINES)
        except (SparktuiError, OSError):
            return None
        return _gone(rank, link.node.name, container, lines)

    async def _halted(self, link: NodeLink) -> AsyncIterator[Event]:
        """A rank left alone waits for ever and holds its memory: stop it, keep its log."""
        name = self._specs[link.node.rank].container.name
        try:
            await our_containers.halt(link, name, stop_seconds=HALT_SECONDS)
        except (SparktuiError, OSError) as error:
            what = our_containers.refusal(link, error).what
            yield Note(STEP, link.node.name, f"{name} could not be stopped: {what}", State.WARN)
            return
        text = f"stopped, because another rank ended; {name} keeps its log"
        yield NodeOutcome(STEP, link.node.name, Outcome.CANCELLED, text)


@dataclass(frozen=True, slots=True)
class _Gone:
    rank: int
    node: str
    how: str
    finished_at: str
    lines: tuple[str, ...]
    explanation: Explanation | None


def _gone(rank: int, node: str, container: OurContainer | None, lines: list[str]) -> _Gone:
    if container is None:
        return _Gone(rank, node, "its container was removed", "", (), None)
    how = "out of memory" if container.oom_killed else f"exit code {container.exit_code}"
    return _Gone(
        rank, node, how, container.finished_at, tuple(lines), explain(lines, container.exit_code, container.oom_killed)
    )
