"""All ranks' logs from a real Docker Engine: in parts, through a restart, after a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import docker
import pytest

from sparktui.cluster.node import Node
from sparktui.engine.rank_news import Began, Line, RankNews
from sparktui.errors import DockerUnavailable
from sparktui.remote.docker import SocketEngine
from sparktui.remote.local import LocalLink
from sparktui.telemetry import rank_log_stream
from sparktui.telemetry.rank_log_stream import RankLine, RankLogStream
from tests.wire.conftest import dockerd  # noqa: F401 - the fixture
from tests.wire.private_dockerd import PrivateDockerd

pytestmark = pytest.mark.testbed
NAME = "dsv41-head"


def start(client: docker.DockerClient, command: str) -> None:
    body = {
        "Image": "bb:1",
        "Cmd": ["/bin/sh", "-c", command],
        "HostConfig": {"NetworkMode": "host"},
        "Labels": {"sparktui.owner": "sparktui"},
    }
    client.api.start(client.api.create_container_from_config(body, NAME)["Id"])


def remove(client: docker.DockerClient) -> None:
    client.api.remove_container(NAME, force=True)


@pytest.fixture
async def link(dockerd: PrivateDockerd) -> AsyncIterator[LocalLink]:  # noqa: F811
    made = LocalLink(Node("head", 0, "127.0.0.1"), docker_socket=dockerd.socket)
    yield made
    engine = await made.docker()
    with suppress(docker.errors.NotFound):
        await engine.call(remove, deadline_seconds=60)
    await made.aclose()


async def run(link: LocalLink, command: str) -> SocketEngine:
    engine: Any = await link.docker()
    await engine.call(lambda client: start(client, command), deadline_seconds=60)
    return engine  # type: ignore[no-any-return]


async def test_lines_in_parts_and_nothing_twice_after(link: LocalLink) -> None:
    engine = await run(link, "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done; echo err >&2; sleep 600")
    seen: list[str] = []
    until: str | None = None
    parts: Any = engine.log_parts(NAME, after=None, tail=None, follow=True)
    async with asyncio.timeout(60), aclosing(parts):
        async for part in parts:
            seen += part.lines
            until = part.until
            if len(seen) == 501:
                break
    assert sorted(seen) == sorted([f"line {n}" for n in range(500)] + ["err"])
    assert until is not None
    again = [line async for p in engine.log_parts(NAME, after=until, tail=None, follow=False) for line in p.lines]
    assert again == [], "`after` is the moment after the last line"
    two = [line async for p in engine.log_parts(NAME, after=None, tail=2, follow=False) for line in p.lines]
    assert len(two) == 2
    with pytest.raises(DockerUnavailable, match="there is no container"):
        await anext(engine.log_parts("nothing", after=None, tail=None, follow=False))


async def test_the_stream_goes_on_through_a_restart_and_a_new_container(
    link: LocalLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_log_stream, "AGAIN_SECONDS", 0.2)
    engine = await run(link, "echo begun; sleep 1; echo ended; exit 3")
    seen: list[RankLine] = []
    news = asyncio.Event()

    async def follow() -> None:
        batches: Any = RankLogStream([link], tmp_path).batches()
        async with aclosing(batches):
            async for batch in batches:
                seen.extend(batch.lines)
                news.set()

    def texts() -> list[str]:
        return [line.text for line in seen if not line.ours]

    async def until(count: int) -> None:
        async with asyncio.timeout(60):
            while len(texts()) < count:
                news.clear()
                await news.wait()

    task = asyncio.create_task(follow())
    try:
        await until(2)
        await engine.call(lambda client: client.api.restart(NAME, timeout=1), deadline_seconds=60)
        await until(4)
        await engine.call(remove, deadline_seconds=60)
        await run(link, "echo new; sleep 600")
        await until(5)
        assert texts() == ["begun", "ended", "begun", "ended", "new"]
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_happens_to_a_rank_begins_with_its_container_each_time(link: LocalLink) -> None:
    engine = await run(link, "echo first words; echo second words; sleep 600")
    following = RankNews([link], [NAME], pause=lambda _rank: 0.2)
    following.start()
    lives: list[list[str]] = []

    async def life(number: int) -> list[str]:
        """What was said since the container began for the `number`th time, once it has said both."""
        async with asyncio.timeout(60):
            while len(lives) < number or len(lives[-1]) < 2:
                match await following.get(1.0):
                    case Began():
                        lives.append([])
                    case Line(_, text):
                        lives[-1].append(text)
        assert len(lives) == number
        return lives[-1]

    try:
        assert await life(1) == ["first words", "second words"]
        await asyncio.sleep(2.0)  # what was said in the last second before a start may be read once more
        await engine.call(lambda client: client.api.restart(NAME, timeout=0), deadline_seconds=60)
        # On a busy machine the old log is read on before the start is seen; all of it comes again after the beginning.
        assert await life(2) == ["first words", "second words"]
    finally:
        await following.aclose()
