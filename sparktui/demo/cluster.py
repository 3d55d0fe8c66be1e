"""The process of the simulated cluster: `python -m sparktui.demo.cluster HOME`.

It holds the nodes' state, so that the app, a run's process and a second terminal see the same machines. It ends by
itself when nobody has asked for ten minutes and no engine runs, or when its folder is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from sparktui.demo import http, rpc
from sparktui.demo.docker_api import DockerApi, NoAnswer
from sparktui.demo.endpoint import Endpoint
from sparktui.demo.home import DemoHome
from sparktui.demo.machine import Container
from sparktui.demo.play import Mark
from sparktui.demo.world import World

IDLE_SECONDS = 600.0
_LOOK_SECONDS = 1.0
_PORT_SECONDS = 0.2
LINE_BYTES = 1 << 26


class Cluster:
    """The servers of one demo home."""

    def __init__(self, home: DemoHome) -> None:
        self._home = home
        self._world = World.load(home)
        self._engines: dict[str, asyncio.Server] = {}
        self._endpoint: tuple[Container, asyncio.Server] | None = None
        self._open = 0
        self._asked_at = time.monotonic()
        self.leaving = asyncio.Event()

    async def run(self) -> None:
        """Serve until it is time to go."""
        self._home.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("head", "worker1", "worker2", "worker3"):
            await self.engine_of(name)
        for node in self._world.config.get("nodes", []):
            await self.engine_of(str(node["name"]))
        server = await _listen(self._home.rpc_socket, self._rpc)
        keeping = asyncio.create_task(self._keep_endpoint())
        try:
            while not self.leaving.is_set() and not self._may_go():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self.leaving.wait()
        finally:
            keeping.cancel()
            self._world.save()
            server.close()
            for each in self._engines.values():
                each.close()
            await self._close_endpoint()
            for path in (self._home.rpc_socket, *(self._home.docker_socket(name) for name in self._engines)):
                path.unlink(missing_ok=True)

    def _may_go(self) -> bool:
        if not self._home.marker.exists():
            return True
        if self._open or time.monotonic() - self._asked_at < IDLE_SECONDS:
            return False
        return not any(machine.engine() for machine in self._world.machines.values())

    async def engine_of(self, name: str) -> None:
        """The node's Docker Engine listens from now on."""
        if name in self._engines:
            return
        api = DockerApi(self._world, name)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with self._counted():
                try:
                    await http.serve(reader, writer, api)
                except NoAnswer:
                    writer.close()

        self._engines[name] = await _listen(self._home.docker_socket(name), connected)

    @contextlib.contextmanager
    def _counted(self) -> Any:
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            self._asked_at = time.monotonic()

    async def _rpc(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._counted():
            await rpc.answer(self, self._world, reader, writer)

    # -- the endpoint -------------------------------------------------------------------------------------------

    async def _keep_endpoint(self) -> None:
        """Listens from the engine's own server line on, and no longer than its container runs."""
        while True:
            engine = self._world.head.engine()
            if self._endpoint is not None and (engine is None or engine.id != self._endpoint[0].id):
                await self._close_endpoint()
            if engine is not None and self._endpoint is None:
                self._world.refresh(self._world.head)
                if self._world.play(self._world.head, engine).reached(Mark.SERVER, time.time()):
                    await self._open_endpoint(engine)
            await asyncio.sleep(_PORT_SECONDS if engine is not None or self._endpoint else _LOOK_SECONDS)

    async def _open_endpoint(self, engine: Container) -> None:
        endpoint = Endpoint(self._world, engine)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with self._counted():
                await http.serve(reader, writer, endpoint)

        port = engine.whole("SERVER_PORT", 8888)
        try:
            server = await asyncio.start_server(connected, "127.0.0.1", port, limit=LINE_BYTES)
        except OSError:
            now = time.time()
            engine.extra.append(
                (now, f"ERROR: [Errno 98] error while attempting to bind: address already in use {port}")
            )
            engine.end(now, 1)
            self._world.save()
            return
        self._endpoint = (engine, server)

    async def _close_endpoint(self) -> None:
        if self._endpoint is not None:
            self._endpoint[1].close()
            self._endpoint = None


async def _listen(path: Path, connected: Any) -> asyncio.Server:
    await asyncio.to_thread(path.unlink, missing_ok=True)
    return await asyncio.start_unix_server(connected, str(path), limit=LINE_BYTES)


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: python -m sparktui.demo.cluster HOME", file=sys.stderr)
        return 2
    home = DemoHome(Path(argv[0]).resolve())
    home.check()
    handle = os.open(home.root / "cluster.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0  # another one serves this folder
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps({"pid": os.getpid()}).encode(), 0)
    asyncio.run(_serve(home))
    return 0


async def _serve(home: DemoHome) -> None:
    cluster = Cluster(home)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, cluster.leaving.set)
    await cluster.run()


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # Streams that nobody reads any more must not hold the end.
    os._exit(status)
