"""All nodes in one picture: what a dead, a silent and a returning node look like, and what they cost the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from sparktui.telemetry import follower
from sparktui.telemetry.fleet import Fleet
from sparktui.telemetry.sample import ClusterSnapshot, Freshness, NodeSample
from tests.telemetry.watched import Clock, StreamLink, links, lost, until


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(follower, "LONGEST_PAUSE_SECONDS", 0.05)


@asynccontextmanager
async def running(fleet: Fleet) -> AsyncIterator[list[ClusterSnapshot]]:
    """The fleet at work; its pictures so far."""
    seen: list[ClusterSnapshot] = []

    async def follow() -> None:
        pictures: Any = fleet.snapshots()
        async with aclosing(pictures):
            async for snapshot in pictures:
                seen.append(snapshot)

    task = asyncio.create_task(follow())
    try:
        yield seen
        assert not task.done(), "the fleet ended by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def of(snapshot: ClusterSnapshot, name: str) -> NodeSample:
    found = snapshot.node(name)
    assert found is not None
    return found


def states(snapshot: ClusterSnapshot) -> list[str]:
    return [str(node.freshness) for node in snapshot.nodes]


async def test_all_nodes_head_first_and_live() -> None:
    nodes, clock = links(), Clock()
    fleet = Fleet(nodes, clock=clock)
    async with running(fleet) as seen:
        snapshot = await until(fleet, lambda _: bool(seen))
        assert states(seen[0]) == ["waiting"] * 3
        assert not fleet.complete()
        for node in nodes:
            node.sample(10.0, sent_words=0)
            node.sample(11.0, sent_words=500)
        snapshot = await until(fleet, lambda _: fleet.complete())
    assert [node.node for node in snapshot.nodes] == ["head", "worker1", "worker2"]
    assert states(snapshot) == ["live"] * 3
    assert all(node.ports and node.ports[0].sent_bytes_per_second == 2000 for node in snapshot.nodes)
    assert snapshot.alarms == ()


async def test_a_dead_node_costs_its_own_row_and_comes_back() -> None:
    nodes, clock = links(), Clock()
    fleet = Fleet(nodes, clock=clock)
    nodes[1].unreachable("no route to 10.0.0.2", fix="is it on?")
    async with running(fleet):
        for node in (nodes[0], nodes[2]):
            node.sample(10.0)
            node.sample(11.0)
        snapshot = await until(fleet, lambda _: fleet.complete())
        assert states(snapshot) == ["live", "gone", "live"]
        dead = of(snapshot, "worker1")
        assert dead.problem == "no route to 10.0.0.2; is it on?"
        assert (dead.age_seconds, dead.memory, dead.ports) == (None, None, None)
        assert [alarm.id for alarm in snapshot.alarms] == ["gone.worker1"]
        nodes[1].reachable()
        nodes[1].sample(3.0)
        snapshot = await until(fleet, lambda now: of(now, "worker1").freshness is Freshness.LIVE)
        assert of(snapshot, "worker1").problem == ""
        assert snapshot.alarms == ()


async def test_a_slow_node_is_waited_for() -> None:
    nodes, clock = links(2), Clock()
    fleet = Fleet(nodes, clock=clock)
    async with running(fleet):
        nodes[0].sample(1.0)
        nodes[0].sample(2.0)
        await until(fleet, lambda now: states(now) == ["live", "waiting"])
        clock.now += 3.6
        slow = of(fleet.snapshot(), "worker1")
        assert (slow.freshness, slow.problem) == (Freshness.WAITING, "no sample yet, 4 s")
        assert not fleet.complete()


async def test_a_node_that_falls_silent_ages_with_its_last_values() -> None:
    nodes, clock = links(2), Clock()
    fleet = Fleet(nodes, clock=clock)
    async with running(fleet):
        for node in nodes:
            node.sample(10.0)
        await until(fleet, lambda now: states(now) == ["live"] * 2)
        clock.now += 3.0
        assert states(fleet.snapshot()) == ["live"] * 2, "a busy node may miss a sample"
        nodes[0].sample(14.0)
        clock.now += 3.0
        snapshot = await until(fleet, lambda now: of(now, "head").freshness is Freshness.LIVE)
        silent = of(snapshot, "worker1")
        assert (silent.freshness, silent.age_seconds) == (Freshness.STALE, 6.0)
        assert silent.memory is not None, "the last values stay"
        assert "no sample for 6 s" in silent.problem
        clock.now += 10.0
        gone = of(fleet.snapshot(), "worker1")
        assert (gone.freshness, gone.age_seconds) == (Freshness.GONE, 16.0)


async def test_a_stream_that_breaks_is_opened_again_and_says_why_meanwhile() -> None:
    (node,), clock = links(1), Clock()
    fleet = Fleet([node], clock=clock)
    async with running(fleet):
        node.sample(10.0, sent_words=0)
        await until(fleet, lambda now: states(now) == ["live"])
        node.end(lost("head"))
        clock.now += 5.0
        snapshot = await until(fleet, lambda _: node.opened == 2)
        assert "the connection was lost" in of(snapshot, "head").problem
        node.sample(20.0, sent_words=900)
        snapshot = await until(fleet, lambda now: states(now) == ["live"])
        ports = of(snapshot, "head").ports
        assert ports and ports[0].sent_bytes_per_second is None, "no rate across a gap"


async def test_an_open_stream_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "HANG_SECONDS", 0.04)
    (node,), clock = links(1), Clock()
    fleet = Fleet([node], clock=clock)
    async with running(fleet):
        node.sample(10.0)
        await until(fleet, lambda now: states(now) == ["live"])
        clock.now += 60.0
        await until(fleet, lambda _: node.opened >= 2)
        assert node.closed_streams >= 1
        node.sample(71.0)
        await until(fleet, lambda now: states(now) == ["live"])


async def test_what_no_one_expected_of_a_node_is_its_own_row() -> None:
    nodes, clock = links(2), Clock()
    fleet = Fleet(nodes, clock=clock)
    async with running(fleet):
        nodes[0].sample(1.0)
        nodes[1].end(ZeroDivisionError("a mistake of ours"))
        snapshot = await until(fleet, lambda now: states(now) == ["live", "gone"])
        assert of(snapshot, "worker1").problem == "a mistake of ours"


async def test_leaving_ends_every_stream_at_once() -> None:
    nodes = links(4)
    fleet = Fleet(nodes, clock=Clock())
    async with running(fleet):
        await until(fleet, lambda _: all(node.opened for node in nodes))
    assert [node.closed_streams for node in nodes] == [1] * 4


async def test_the_gpu_is_read_at_its_own_pace_and_gets_old_by_itself() -> None:
    (node,), clock = links(1), Clock()
    node.gpu = [
        "@apps 0",
        "4242, sglang::scheduler, 1024 MiB",
        "@end",
        "61, 96, 74.20, 2405, Not Active, Active, Not Active",
    ]
    fleet = Fleet([node], clock=clock)
    async with running(fleet):
        node.sample(1.0)
        snapshot = await until(fleet, lambda now: bool(now.nodes[0].gpu))
        gpu = snapshot.nodes[0].gpu
        assert gpu is not None
        assert (gpu.utilization_percent, gpu.clock_mhz, gpu.power_watts) == (96, 2405, 74.2)
        assert (gpu.throttled, gpu.process_bytes) == (True, 1024**3)
        clock.now += 30.0
        node.sample(31.0)
        snapshot = await until(fleet, lambda now: states(now) == ["live"])
        assert snapshot.nodes[0].gpu is None, "an old reading is no reading"


async def test_without_the_gpu_nothing_asks_for_it() -> None:
    node = StreamLink("head")
    asked: list[str] = []
    own = node.lines

    def lines(argv: Any) -> Any:
        asked.append(argv[3])
        return own(argv)

    node.lines = lines  # type: ignore[method-assign]
    fleet = Fleet([node], clock=Clock(), gpu=False)
    async with running(fleet):
        node.sample(1.0)
        await until(fleet, lambda now: states(now) == ["live"])
    assert asked == ["sparktui-sampler"]
