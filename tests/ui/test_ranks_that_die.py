"""The whole way of a rank's death while the endpoint answers: container, telemetry, alarm, top line, boot pane."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sparktui.errors import DockerUnavailable
from sparktui.steps.step import Inspection
from sparktui.telemetry import boots as boots_module
from sparktui.telemetry import rank_lives, serving
from sparktui.telemetry.sample import EndpointState, Life
from sparktui.ui.app import SparkApp
from tests.memory_engine import MemoryContainer
from tests.telemetry.watched import StreamLink
from tests.ui.app_in_test import AppInTest, screen_text, settled, until

LINES = (
    "[2026-09-11 23:34:02 TP{rank}] Init parallel begin.",
    "[2026-09-11 23:34:05 TP{rank}] Load weight begin. avail mem=113.61 GB",
)
HEAD_UP = ("[2026-09-11 23:40:00] The server is fired up and ready to roll!",)
READY_LINE = "[spark] READY rank=0 port=8888 model=deepseek-v4.1-flash max_total_num_tokens=749824 boot_seconds=812.3"
WORKER_UP = ("[2026-09-11 23:39:00 TP1] Dummy health check server started",)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_lives, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(rank_lives, "WAITING_SECONDS", 0.02)
    monkeypatch.setattr(rank_lives, "LONGEST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(serving, "POLL_SECONDS", 0.05)
    for name in ("BOOTING_SECONDS", "WAITING_SECONDS", "UP_SECONDS", "UNREACHED_SECONDS", "SHORTEST_SECONDS"):
        monkeypatch.setattr(boots_module, name, 0.05)


class Answering:
    """SGLang's own HTTP server, which goes on answering whatever becomes of the workers."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    async def __aenter__(self) -> Answering:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = b""
        if b"/v1/models" in head:
            body = b'{"object": "list", "data": [{"id": "deepseek-v4.1-flash"}]}'
        if b"/metrics" in head:
            body = b"sglang:num_running_reqs 1.0\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()


class Watching(AppInTest):
    """The app with its real telemetry: nodes and Docker Engines are scripted, the endpoint is a real socket."""

    def __init__(self, folder: Path, port: int, **options: Any) -> None:
        super().__init__(folder, env={"PORT": str(port)}, **options)
        self.nodes: tuple[StreamLink, ...] = ()
        self.engines: list[MemoryContainer] = []
        self.without_engines = False

    async def _open_links(self, settings: Any) -> tuple[Any, ...]:
        self.nodes = tuple(StreamLink(node.name) for node in settings.nodes)
        for rank, link in enumerate(self.nodes):
            link.node = settings.nodes[rank]
            link.sample(10.0)
            link.sample(11.0)
            if self.without_engines:
                continue
            name = "dsv41-head" if rank == 0 else "dsv41-worker"
            container = link.engine.add_container(name, labels={"sparktui.owner": "sparktui"})
            container.log.extend(line.format(rank=rank) for line in LINES)
            container.log.extend(HEAD_UP if rank == 0 else WORKER_UP)
            self.engines.append(container)
        return self.nodes

    watch_cluster = SparkApp.watch_cluster  # type: ignore[assignment]


@pytest.fixture
async def endpoint() -> AsyncIterator[Answering]:
    async with Answering() as answering:
        yield answering


async def ready(app: Watching, pilot: Any) -> None:
    await until(pilot, lambda: app.snapshot.serving.state is EndpointState.READY)
    await until(pilot, lambda: all(each.life is Life.RUNS for each in app.snapshot.ranks))


async def test_u75_a_worker_killed_while_serving_turns_every_screen_from_green(
    tmp_path: Path, endpoint: Answering
) -> None:
    app = Watching(tmp_path, endpoint.port)
    app.all_done("doctor", "download", "build", "share", "ship", "pack", "serve")
    async with app.run_test(size=(160, 50)) as pilot:
        await settled(pilot)
        await ready(app, pilot)
        app.engines[0].log.append(READY_LINE)
        assert "endpoint ready" in screen_text(app).splitlines()[0]
        app.step("serve").inspection = Inspection(done=False, summary="worker2's engine has ended")
        app.engines[2].kill()
        await until(pilot, lambda: app.snapshot.serving.state is EndpointState.HANGS)
        await until(pilot, lambda: any(boot.exited for boot in app.boots))
        await until(pilot, lambda: app.inspections["serve"] == app.step("serve").inspection)
        text = screen_text(app)
        top = text.splitlines()[0]
        assert "endpoint hangs" in top and "endpoint ready" not in top
        assert "worker2: rank 2 is gone" in top
        await pilot.press("m", "3")
        await until(pilot, lambda: "requests now hang" in screen_text(app))
        text = screen_text(app)
        assert "rank 2 ended (exit status 137) at server" in text, "the ladder is read again, for the cause"
        assert "sparktui logs worker2" in text


async def test_a_monitor_of_a_calm_cluster_says_that_the_ranks_run_without_reading_their_logs(
    tmp_path: Path, endpoint: Answering
) -> None:
    app = Watching(tmp_path, endpoint.port, mode="monitor")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await pilot.press("3")
        await until(pilot, lambda: "rank 2 worker2" in screen_text(app))
        text = screen_text(app)
        assert "their boot is not read while it serves" in text and "no engine container" not in text
        assert not any("logs dsv41" in asked.text for node in app.nodes for asked in node.asked)


async def test_without_engines_the_boot_pane_says_that_all_were_asked(tmp_path: Path) -> None:
    app = Watching(tmp_path, 9, mode="monitor")
    app.without_engines = True
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.snapshot.ranks and all(e.life is Life.ABSENT for e in app.snapshot.ranks))
        await pilot.press("3")
        await until(pilot, lambda: "no engine container on any node; serve begins one" in screen_text(app))


async def test_an_endpoint_that_answers_during_its_warm_up_is_not_called_ready(
    tmp_path: Path, endpoint: Answering
) -> None:
    app = Watching(tmp_path, endpoint.port, mode="monitor")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        app.snapshot = app.snapshot.__class__()  # as during a boot: somebody watches the ladders
        app._watching_boots = True
        app.watch_ladders()
        await until(pilot, lambda: app.snapshot.serving.state is EndpointState.STARTING)
        assert "its warm-up is not over" in app.snapshot.serving.problem
        assert "endpoint starting" in screen_text(app).splitlines()[0]
        app.engines[0].log.append(READY_LINE)
        await until(pilot, lambda: app.snapshot.serving.state is EndpointState.READY)
        assert app.boots[0].up, "the last rungs stay"


async def test_a_rank_that_cannot_be_asked_is_last_seen_and_not_on_a_rung(tmp_path: Path, endpoint: Answering) -> None:
    app = Watching(tmp_path, endpoint.port, mode="monitor")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        app._watching_boots = True
        app.watch_ladders()
        await until(pilot, lambda: app.boots and app.boots[2].changes)
        app.nodes[2].engine.broken = DockerUnavailable("the Docker Engine is not running", node="worker2")
        await until(pilot, lambda: app.boots[2].unseen)
        await pilot.press("3")
        await until(pilot, lambda: "last seen" in screen_text(app))
        assert "worker2: the Docker Engine is not running" in screen_text(app)
