"""The ladders of all ranks as a viewer sees them: before, during, after a boot, and through a new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from sparktui.engine.ladder import RankBoot
from sparktui.engine.phases import Phase
from sparktui.telemetry import boots as module
from sparktui.telemetry.boots import BootWatch, with_lives
from sparktui.telemetry.sample import Life, RankLife
from tests.memory_engine import MemoryContainer
from tests.scripted_link import ScriptedLink, scripted_cluster
from tests.telemetry.watched import Clock

PARALLEL = "[2026-09-11 23:34:02 TP{}] Init parallel begin."
LOAD = "[2026-09-11 23:34:05 TP0] Load weight begin. avail mem=113.61 GB"
READY = "[spark] READY rank=0 port=8888 model=deepseek-v4.1-flash max_total_num_tokens=749824 boot_seconds=812.3"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "BOOTING_SECONDS",
        "WAITING_SECONDS",
        "UP_SECONDS",
        "UNREACHED_SECONDS",
        "SHORTEST_SECONDS",
        "QUIET_SECONDS",
    )
    for name in names:
        monkeypatch.setattr(module, name, 0.01)


class Watched:
    def __init__(self, links: tuple[ScriptedLink, ...], watch: BootWatch) -> None:
        self.links, self.watch = links, watch
        self.seen: list[tuple[RankBoot, ...]] = []

    def start(self, rank: int, *lines: str, at: str = "2026-11-29T18:00:00Z") -> MemoryContainer:
        name = "dsv41-head" if rank == 0 else "dsv41-worker"
        engine = self.links[rank].engine
        engine.add_container(name, labels={"sparktui.owner": "sparktui"})
        container = engine.containers[name]
        container.started_at = at
        container.log.extend(lines)
        return container

    async def until(self, holds: Callable[[tuple[RankBoot, ...]], bool]) -> tuple[RankBoot, ...]:
        async with asyncio.timeout(5):
            while not (self.seen and holds(self.seen[-1])):  # noqa: ASYNC110 - the watch is what is waited for
                await asyncio.sleep(0.005)
        return self.seen[-1]


@asynccontextmanager
async def watching() -> AsyncIterator[Watched]:
    links = scripted_cluster(3)
    watched = Watched(links, BootWatch(links, clock=Clock()))

    async def follow() -> None:
        ladders: Any = watched.watch.boots()
        async with aclosing(ladders):
            async for each in ladders:
                watched.seen.append(each)

    task = asyncio.create_task(follow())
    try:
        yield watched
        assert not task.done(), "the watch ended by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_waits_quietly_and_follows_what_begins() -> None:
    async with watching() as watched:
        first = await watched.until(lambda _: True)
        assert [(boot.node, boot.phase) for boot in first] == [
            ("head", Phase.NOTHING),
            ("worker1", Phase.NOTHING),
            ("worker2", Phase.NOTHING),
        ]
        assert not any(boot.asked for boot in first), "nobody has looked yet: not started would be a guess"
        await watched.until(lambda now: all(boot.asked for boot in now))
        said = len(watched.seen)
        await asyncio.sleep(0.1)
        assert len(watched.seen) == said, "nothing happened, nothing is said"
        assert watched.watch.running(0) is False
        for rank in range(3):
            watched.start(rank, PARALLEL.format(rank))
        found = await watched.until(lambda now: all(boot.phase is Phase.RENDEZVOUS for boot in now))
        assert watched.watch.running(0) is True
        change = found[1].reached(Phase.RENDEZVOUS)
        assert change is not None and change.line == PARALLEL.format(1)


async def test_a_rank_that_is_up_is_read_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watching() as watched:
        container = watched.start(0, PARALLEL.format(0), READY)
        await watched.until(lambda now: now[0].up)
        container.log.extend(f"Decode batch {n}" for n in range(1000))
        await asyncio.sleep(0.1)
        assert watched.seen[-1][0].last_line == READY


async def test_a_new_container_begins_a_new_ladder() -> None:
    async with watching() as watched:
        watched.start(0, PARALLEL.format(0), READY)
        await watched.until(lambda now: now[0].up)
        del watched.links[0].engine.containers["dsv41-head"]
        found = await watched.until(lambda now: now[0].phase is Phase.NOTHING)
        assert watched.watch.running(0) is False and found[0].changes == ()
        watched.start(0, PARALLEL.format(0), LOAD, at="2026-11-29T19:00:00Z")
        found = await watched.until(lambda now: now[0].phase is Phase.WEIGHTS)
        assert not found[0].up


async def test_a_rank_that_ended_says_how() -> None:
    async with watching() as watched:
        container = watched.start(1, PARALLEL.format(1))
        await watched.until(lambda now: now[1].phase is Phase.RENDEZVOUS)
        container.status, container.exit_code, container.oom_killed = "exited", 137, True
        found = await watched.until(lambda now: now[1].exited)
        assert (found[1].exit_code, found[1].oom_killed, found[1].phase) == (137, True, Phase.RENDEZVOUS)
        assert watched.watch.running(1) is False


async def test_a_rank_that_had_ended_before_anybody_looked() -> None:
    async with watching() as watched:
        container = watched.start(2, PARALLEL.format(2))
        container.status, container.exit_code = "exited", 1
        found = await watched.until(lambda now: now[2].exited and now[2].phase is Phase.RENDEZVOUS)
        assert found[2].exit_code == 1


async def test_a_node_that_does_not_answer_keeps_its_rung_and_says_why() -> None:
    async with watching() as watched:
        for rank in range(3):
            watched.start(rank, PARALLEL.format(rank))
        await watched.until(lambda now: all(boot.phase is Phase.RENDEZVOUS for boot in now))
        watched.links[1].unreachable("no route to 10.0.0.2")
        await watched.until(lambda _: "worker1" in watched.watch.problems)
        assert "no route" in watched.watch.problems["worker1"]
        assert watched.watch.running(1) is None, "unknown, not stopped"
        assert watched.seen[-1][1].phase is Phase.RENDEZVOUS
        watched.links[0].engine.containers["dsv41-head"].log.append(LOAD)
        await watched.until(lambda now: now[0].phase is Phase.WEIGHTS)
        watched.links[1].reachable()
        await watched.until(lambda _: not watched.watch.problems)


def test_what_is_known_of_containers_corrects_ladders_that_nobody_reads_any_more() -> None:
    up = (
        RankBoot(0, "head").container_started(1.0).feed("The server is fired up and ready to roll!", 2.0).feed(READY, 3)
    )
    worker = RankBoot(1, "worker1").container_started(1.0)
    lives = (RankLife(0, "head", Life.RUNS, True), RankLife(1, "worker1", Life.ENDED, True, 137, seen_at=9.0))
    head, ended = with_lives((up, worker), lives)
    assert head is not None and head == up and head.up
    assert (ended.exited, ended.exit_code, ended.phase) == (True, 137, Phase.CONTAINER)
    assert with_lives((head, ended), lives) == (head, ended), "the next picture changes nothing"
    # An old ladder does not outlive its container.
    gone, _ = with_lives((up, worker), (RankLife(0, "head", Life.ABSENT), lives[1]))
    assert (gone.phase, gone.asked, gone.read) == (Phase.NOTHING, True, True)
    # Of a rank that cannot be asked the last rung stays, with the time at which it was seen.
    dark = RankLife(1, "worker1", Life.UNKNOWN, True, seen_at=5.0, problem="no answer")
    _, unseen = with_lives((up, worker), (lives[0], dark))
    assert (unseen.phase, unseen.seen_at, unseen.unseen) == (Phase.CONTAINER, 5.0, "no answer")


def test_ranks_whose_logs_nobody_has_read_run_end_or_are_unknown() -> None:
    lives = (RankLife(0, "head", Life.RUNS, True), RankLife(1, "worker1", Life.ENDED), RankLife(2, "worker2"))
    runs, ended, unknown = with_lives((), lives)
    assert (runs.read, runs.exited) == (False, False)
    assert (ended.read, ended.exited) == (False, True)
    assert unknown.asked is False
    assert with_lives((runs, ended, unknown), lives) == (runs, ended, unknown)
    assert with_lives((), ()) == ()
