"""A rank that dies while the endpoint goes on answering: noticed from the nodes' Docker Engines, within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparktui.errors import DockerUnavailable
from sparktui.remote.docker import SocketEngine
from sparktui.remote.docker_glance import GLANCE_SECONDS
from sparktui.telemetry import rank_lives as module
from sparktui.telemetry.alarms import ABSENT_SECONDS, UNSEEN_SECONDS
from sparktui.telemetry.fleet import Fleet
from sparktui.telemetry.rank_lives import LOOK_SECONDS, RankLives
from sparktui.telemetry.sample import ClusterSnapshot, EndpointState, Life, Serving
from sparktui.telemetry.sampler import INTERVAL_SECONDS
from tests.memory_engine import MemoryContainer
from tests.scripted_link import ScriptedLink
from tests.telemetry.watched import Clock, StreamLink, links, until

READY = Serving(EndpointState.READY, "http://10.0.0.1:8888", was_ready=True)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "WAITING_SECONDS", 0.02)
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 0.02)


class SaysReady:
    """An endpoint that answers whatever happens, as a real one does for minutes."""

    def __init__(self) -> None:
        self.latest = READY

    async def run(self) -> None:
        await asyncio.sleep(3600)


class Cluster:
    """Three Sparks that serve."""

    def __init__(self) -> None:
        self.links: list[StreamLink] = links()
        self.clock, self.serving = Clock(), SaysReady()
        self.fleet = Fleet(self.links, clock=self.clock, serving=self.serving, lives=True)
        self.engines: list[MemoryContainer] = []
        for link in self.links:
            name = "dsv41-head" if link.node.is_head else "dsv41-worker"
            self.engines.append(link.engine.add_container(name, labels={"sparktui.owner": "sparktui"}))

    async def calm(self) -> ClusterSnapshot:
        return await self.until(lambda now: all(each.life is Life.RUNS for each in now.ranks))

    async def until(self, holds: Any) -> ClusterSnapshot:
        return await until(self.fleet, holds)


@asynccontextmanager
async def serving(cluster: Cluster | None = None) -> AsyncIterator[Cluster]:
    cluster = cluster or Cluster()

    async def follow() -> None:
        async for _ in cluster.fleet.snapshots():
            pass

    task = asyncio.create_task(follow())
    try:
        for link in cluster.links:
            link.sample(10.0)
            link.sample(11.0)
        await until(cluster.fleet, lambda _: cluster.fleet.complete())
        yield cluster
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ids(snapshot: ClusterSnapshot) -> list[str]:
    return [alarm.id for alarm in snapshot.alarms]


async def test_u75_t5_a_rank_that_is_killed_ends_ready_although_the_endpoint_answers() -> None:
    async with serving() as cluster:
        calm = await cluster.calm()
        assert (calm.serving.state, calm.alarms) == (EndpointState.READY, ())
        cluster.engines[2].kill()
        hung = await cluster.until(lambda now: now.serving.state is EndpointState.HANGS)
        (alarm,) = hung.alarms
        assert (alarm.id, alarm.node, alarm.severe) == ("endpoint.ranks", "worker2", True)
        assert "rank 2 is gone: its engine on worker2 ended, exit status 137" in alarm.what
        assert "requests now hang" in alarm.what and "sparktui logs worker2" in alarm.fix
        assert hung.serving.problem == alarm.what
        # It is over when somebody has served again.
        cluster.engines[2].start()
        again = await cluster.calm()
        assert (again.serving.state, again.alarms) == (EndpointState.READY, ())


def test_u75_a_death_is_seen_within_fifteen_seconds() -> None:
    """The longest wait for a look, a slow answer to it, and the next picture."""
    assert LOOK_SECONDS + GLANCE_SECONDS + INTERVAL_SECONDS < 15.0


async def test_a_rank_whose_engine_ran_out_of_memory_says_so_and_stays_said_when_the_endpoint_goes_too() -> None:
    async with serving() as cluster:
        await cluster.calm()
        cluster.engines[1].kill()
        cluster.engines[1].oom_killed = True
        hung = await cluster.until(lambda now: now.serving.state is EndpointState.HANGS)
        assert "its engine on worker1 ran out of memory" in hung.serving.problem
        cluster.serving.latest = Serving(EndpointState.DOWN, was_ready=False, problem="nothing listens")
        later = cluster.fleet.snapshot()
        assert later.serving.state is EndpointState.DOWN, "a true word is not replaced"
        assert ids(later) == ["endpoint.ranks"]
        assert "requests" not in later.alarms[0].what


async def test_an_engine_that_cannot_be_looked_at_is_never_taken_for_a_running_one() -> None:
    async with serving() as cluster:
        await cluster.calm()
        cluster.links[2].engine.broken = DockerUnavailable("the Docker Engine is not running", node="worker2")
        unseen = await cluster.until(lambda now: now.ranks[2].life is Life.UNKNOWN)
        assert ids(unseen) == [], "one look in vain is no alarm"
        cluster.clock.now += UNSEEN_SECONDS + 1
        for link in cluster.links:
            link.sample(30.0)
        told = await cluster.until(lambda now: "endpoint.unseen" in ids(now))
        alarm = next(each for each in told.alarms if each.id == "endpoint.unseen")
        assert "rank 2 (worker2): not known whether it runs: the Docker Engine is not running" in alarm.what
        assert told.serving.problem == alarm.what and not alarm.severe
        cluster.links[2].engine.broken = None
        assert "endpoint.unseen" not in ids(await cluster.calm())


async def test_a_node_that_is_gone_is_entered_by_its_sampler_only() -> None:
    """Logins that fail get addresses banned; the rank behind it is unknown until the node is back."""
    async with serving() as cluster:
        await cluster.calm()
        cluster.clock.now += 30.0
        for link in cluster.links[:2]:
            link.sample(60.0)
        gone = await cluster.until(lambda now: now.ranks[2].problem)
        assert (gone.ranks[2].life, gone.ranks[2].problem) == (Life.UNKNOWN, "its node does not answer")
        asked = len(cluster.links[2].asked)
        await asyncio.sleep(0.1)
        assert len(cluster.links[2].asked) == asked
        hung = await cluster.until(lambda now: now.serving.state is EndpointState.HANGS)
        assert "worker2 is gone; the endpoint still answers" in hung.serving.problem
        cluster.links[2].sample(61.0)
        assert (await cluster.calm()).serving.state is EndpointState.READY


async def test_containers_that_go_one_after_the_other_while_sparktui_stops_raise_nothing() -> None:
    async with serving() as cluster:
        await cluster.calm()
        for rank in (2, 1):
            cluster.engines[rank].remove(force=True)
        await cluster.until(lambda now: now.ranks[1].life is now.ranks[2].life is Life.ABSENT)
        cluster.clock.now += 3.0
        assert "endpoint.container" not in ids(cluster.fleet.snapshot())
        cluster.engines[0].remove(force=True)
        await cluster.until(lambda now: now.ranks[0].life is Life.ABSENT)
        cluster.serving.latest = Serving(EndpointState.DOWN, was_ready=True, problem="nothing listens")
        stopped = cluster.fleet.snapshot()
        assert "endpoint.down" not in ids(stopped), "somebody has removed it"
        assert "endpoint.ranks" not in ids(stopped)


async def test_a_rank_without_a_container_under_an_endpoint_that_goes_on_answering_is_said_after_a_while() -> None:
    async with serving() as cluster:
        await cluster.calm()
        cluster.engines[2].remove(force=True)
        await cluster.until(lambda now: now.ranks[2].life is Life.ABSENT)
        cluster.clock.now += ABSENT_SECONDS + 1
        for link in cluster.links:
            link.sample(60.0)
        hung = await cluster.until(lambda now: now.serving.state is EndpointState.HANGS)
        assert "rank 2 (worker2): no engine container" in hung.serving.problem


async def test_an_old_container_beside_another_program_s_endpoint_is_no_alarm() -> None:
    cluster = Cluster()
    for engine in cluster.engines:
        engine.remove(force=True)
    old = cluster.links[2].engine.add_container("dsv41-worker", labels={"sparktui.owner": "sparktui"})
    old.status, old.exit_code = "exited", 1
    async with serving(cluster):
        now = cluster.fleet.snapshot()
        assert [each.life for each in now.ranks] == [Life.ABSENT, Life.ABSENT, Life.ENDED]
        assert (now.serving.state, now.alarms) == (EndpointState.READY, ())


async def test_a_container_of_somebody_else_s_is_unknown() -> None:
    link = ScriptedLink("worker1")
    link.engine.add_container("dsv41-worker", labels={})
    life = await RankLives((link,), clock=Clock()).look(0)
    assert life.life is Life.UNKNOWN and "is not sparktui's" in life.problem


async def test_what_has_ended_stays_ended_when_its_engine_falls_silent() -> None:
    link = ScriptedLink("worker1")
    container = link.engine.add_container("dsv41-worker", labels={"sparktui.owner": "sparktui"})
    container.status, container.exit_code = "exited", 137
    lives = RankLives((link,), clock=Clock())
    lives.latest = (await lives.look(0),)
    link.engine.broken = DockerUnavailable("not running", node="worker1")
    later = await lives.look(0)
    assert (later.life, later.exit_code, later.problem) == (Life.ENDED, 137, "not running")


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (b'HTTP/1.0 200 OK\r\n\r\n{"State": {"Status": "exited"}}', "exited"),
        (b'HTTP/1.0 404 Not Found\r\n\r\n{"message": "No such container"}', "none"),
        (b"HTTP/1.0 500 Oh\r\n\r\nbroken", "refused: 500 broken"),
        (b"HTTP/1.0 200 OK\r\n\r\n[1]", "refused: 200"),
        (b"nonsense", "broke off"),
    ],
)
async def test_the_glance_reads_every_answer_of_an_engine(tmp_path: Path, answer: bytes, wanted: str) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    socket = str(tmp_path / "docker.sock")
    server = await asyncio.start_unix_server(serve, path=socket)
    engine = SocketEngine(ScriptedLink("worker1"), socket, remote_socket="/var/run/docker.sock")
    try:
        if wanted == "none":
            assert await engine.inspected("dsv41-worker") is None
        elif wanted == "exited":
            found = await engine.inspected("dsv41-worker")
            assert found is not None and found["State"]["Status"] == "exited"
        else:
            with pytest.raises(DockerUnavailable, match=wanted):
                await engine.inspected("dsv41-worker")
    finally:
        server.close()
    assert asked[0].startswith(b"GET /containers/dsv41-worker/json HTTP/1.0\r\n")
