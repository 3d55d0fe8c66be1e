"""All ranks' lines for a screen: interleaved, bounded, through restarts, and from the saved log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparktui.remote.docker_log import LogPart
from sparktui.telemetry import rank_log_stream as module
from sparktui.telemetry.rank_log_stream import RankLine, RankLogStream
from tests.memory_engine import MemoryContainer
from tests.scripted_link import ScriptedEngine, ScriptedLink, scripted_cluster

KEY = "a-long-secret-key"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.01)
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)


def start(link: ScriptedLink, *lines: str, at: str = "2026-11-29T18:00:00Z") -> MemoryContainer:
    name = "dsv41-head" if link.node.is_head else "dsv41-worker"
    link.engine.add_container(name, labels={"sparktui.owner": "sparktui"})
    container = link.engine.containers[name]
    container.started_at = at
    container.log.extend(lines)
    return container


class Seen:
    def __init__(self) -> None:
        self.lines: list[RankLine] = []
        self.dropped = 0

    def texts(self, node: str, *, ours: bool = False) -> list[str]:
        return [line.text for line in self.lines if line.node == node and line.ours is ours]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():  # noqa: ASYNC110 - the stream is what is waited for
                await asyncio.sleep(0.005)


@asynccontextmanager
async def reading(stream: RankLogStream) -> AsyncIterator[Seen]:
    seen = Seen()

    async def follow() -> None:
        batches: Any = stream.batches()
        async with aclosing(batches):
            async for batch in batches:
                seen.lines += batch.lines
                seen.dropped = batch.dropped

    task = asyncio.create_task(follow())
    try:
        yield seen
        assert not task.done(), "the stream ended by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_all_ranks_together_each_line_once(tmp_path: Path) -> None:
    links = scripted_cluster(3)
    containers = [start(link, f"first of {link.node.name}") for link in links]
    stream = RankLogStream(links, tmp_path, mask=lambda text: text.replace(KEY, "***"))
    async with reading(stream) as seen:
        await seen.until(lambda: len({line.node for line in seen.lines}) == 3)
        containers[2].log += ["second", f"api_key={KEY}"]
        await seen.until(lambda: "api_key=***" in seen.texts("worker2"))
        await asyncio.sleep(0.05)
    assert seen.texts("worker2") == ["first of worker2", "second", "api_key=***"]
    assert seen.texts("head") == ["first of head"]
    assert {line.rank for line in seen.lines if line.node == "worker2"} == {2}
    assert KEY not in repr(seen.lines)


async def test_a_new_container_is_followed_from_its_beginning(tmp_path: Path) -> None:
    (link,) = scripted_cluster(1)
    start(link, "old 1", "old 2")
    async with reading(RankLogStream([link], tmp_path)) as seen:
        await seen.until(lambda: len(seen.texts("head")) == 2)
        del link.engine.containers["dsv41-head"]
        await seen.until(lambda: any("no container" in text.lower() for text in seen.texts("head", ours=True)))
        start(link, "new 1", at="2026-11-29T19:00:00Z")
        await seen.until(lambda: "new 1" in seen.texts("head"))
    assert seen.texts("head") == ["old 1", "old 2", "new 1"]


async def test_without_a_container_the_saved_log_stands_in(tmp_path: Path) -> None:
    (tmp_path / "20261129T180000Z-worker1.log").write_text("one\ntwo\nthree\n")
    links = scripted_cluster(2)
    async with reading(RankLogStream(links, tmp_path, tail=2)) as seen:
        await seen.until(lambda: len(seen.texts("worker1")) == 2)
        await asyncio.sleep(0.05)
    assert seen.texts("worker1") == ["two", "three"]
    remarks = seen.texts("worker1", ours=True)
    assert remarks[-1] == "this is 20261129T180000Z-worker1.log, saved earlier"
    assert len(remarks) == 2, "the same trouble is said once"
    assert seen.texts("head") == []


async def test_a_node_that_does_not_answer_is_a_remark_of_its_own(tmp_path: Path) -> None:
    links = scripted_cluster(2)
    start(links[0], "hello")
    links[1].unreachable("no route to 10.0.0.2")
    async with reading(RankLogStream(links, tmp_path)) as seen:
        await seen.until(lambda: bool(seen.texts("head")) and bool(seen.texts("worker1", ours=True)))
        assert seen.texts("worker1", ours=True) == ["no route to 10.0.0.2"]
        start(links[1], "back")
        links[1].reachable()
        await seen.until(lambda: seen.texts("worker1") == ["back"])


async def test_a_flood_is_bounded_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.3)
    (link,) = scripted_cluster(1)
    start(link, *(f"line {n}" for n in range(900)))
    async with reading(RankLogStream([link], tmp_path, held_lines=100)) as seen:
        await seen.until(lambda: bool(seen.lines))
    assert [line.text for line in seen.lines if not line.ours][-1] == "line 899", "the newest stay"
    assert len(seen.lines) <= 100
    assert seen.dropped == 901 - 100, "900 lines and the remark that the log has ended"


class PartsEngine(ScriptedEngine):
    """An Engine that gives many lines at a time, with stamps, as the real one does."""

    asked: list[str | None]
    parts: list[list[LogPart]]

    async def log_parts(
        self, container: str, *, after: str | None, tail: int | None, follow: bool
    ) -> AsyncIterator[LogPart]:
        self.asked.append(after)
        for part in self.parts.pop(0) if self.parts else ():
            yield part
        if not self.parts:
            await asyncio.sleep(3600)


async def test_a_lost_connection_goes_on_after_the_last_line(tmp_path: Path) -> None:
    (link,) = scripted_cluster(1)
    engine = PartsEngine(link)
    engine.asked = []
    engine.parts = [[LogPart(["a", "b"], "stamp-b")], [LogPart(["c"], "stamp-c")]]

    async def docker() -> PartsEngine:
        return engine

    link.docker = docker  # type: ignore[method-assign, assignment]
    async with reading(RankLogStream([link], tmp_path)) as seen:
        await seen.until(lambda: len(seen.texts("head")) == 3)
    assert seen.texts("head") == ["a", "b", "c"]
    assert engine.asked == [None, "stamp-b"]


async def test_a_long_line_is_cut(tmp_path: Path) -> None:
    (link,) = scripted_cluster(1)
    start(link, "x" * 10_000)
    async with reading(RankLogStream([link], tmp_path)) as seen:
        await seen.until(lambda: bool(seen.texts("head")))
    assert len(seen.texts("head")[0]) == module.LINE_CHARACTERS
