"""The head itself: the same seam as a worker, without ssh."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from sparktui.cluster.node import Node
from sparktui.errors import DeadlineExceeded
from sparktui.remote.docker import DOCKER_SOCKET, SocketEngine
from sparktui.remote.files_by_script import NodeFiles
from sparktui.remote.link import Completed, DockerEngine
from sparktui.remote.posix_script import Framed, command_text, frame, frame_pipe
from sparktui.remote.script_streams import Pipe, collect, completed, follow

_REAP_SECONDS = 1.5


class LocalLink:
    """Commands of this machine, each in a session of its own, ended as a whole."""

    def __init__(self, node: Node, *, docker_socket: str = DOCKER_SOCKET) -> None:
        self.node = node
        self._docker_socket = docker_socket
        # Every docker command gets an explicit choice: the user's DOCKER_HOST or context may be another daemon.
        self._exports = {"DOCKER_HOST": f"unix://{docker_socket}", "DOCKER_CONTEXT": ""}
        self._engine: SocketEngine | None = None
        self._files = NodeFiles(node.name, self._script)

    async def run(self, argv: Sequence[str], *, deadline_seconds: float, stdin: bytes = b"") -> Completed:
        return await self._framed(
            frame(command_text(argv), data=stdin, deadline_seconds=deadline_seconds, exports=self._exports),
            tuple(argv),
            deadline_seconds,
        )

    async def script(self, text: str, *, deadline_seconds: float, values: Mapping[str, str] | None = None) -> Completed:
        framed = frame(text, values=values, deadline_seconds=deadline_seconds, exports=self._exports)
        return await self._framed(framed, ("/bin/sh",), deadline_seconds)

    async def _script(self, text: str, values: dict[str, str], data: bytes, deadline_seconds: float) -> Completed:
        framed = frame(text, values=values, data=data, deadline_seconds=deadline_seconds, exports=self._exports)
        return await self._framed(framed, ("/bin/sh",), deadline_seconds)

    async def _framed(self, framed: Framed, argv: tuple[str, ...], deadline_seconds: float) -> Completed:
        try:
            async with asyncio.timeout(deadline_seconds), _child(framed) as child:
                assert child.stdout and child.stderr
                answer = await collect(child.stdout, child.stderr, framed.marker)
        except TimeoutError:
            raise DeadlineExceeded(f"{argv[0]} did not answer in {deadline_seconds:g} s", node=self.node.name) from None
        return completed(answer, argv, node=self.node.name)

    async def lines(self, argv: Sequence[str]) -> AsyncIterator[str]:
        framed = frame(command_text(argv), deadline_seconds=None, exports=self._exports)
        async with _child(framed) as child:
            assert child.stdout and child.stderr and child.stdin
            streams = (child.stdin, child.stdout, child.stderr)
            async for line in follow(*streams, framed.marker, node=self.node.name, what=argv[0], ended="was killed"):
                yield line

    @asynccontextmanager
    async def pipe(self, argv: Sequence[str]) -> AsyncIterator[Pipe]:
        framed = frame_pipe(argv, exports=self._exports)
        async with _child(framed) as child:
            assert child.stdout and child.stderr and child.stdin
            pipe = Pipe(tuple(argv), child.stdin, child.stdout, child.stderr, framed.marker, child.wait)
            try:
                yield pipe
            finally:
                pipe.abandon()

    async def read_file(self, path: str, *, deadline_seconds: float) -> bytes | None:
        return await self._files.read(path, deadline_seconds=deadline_seconds)

    async def write_file(self, path: str, data: bytes, *, mode: int, deadline_seconds: float) -> None:
        await self._files.write(path, data, mode=mode, deadline_seconds=deadline_seconds)

    async def docker(self) -> DockerEngine:
        if self._engine is None:
            self._engine = SocketEngine(self, self._docker_socket, remote_socket=self._docker_socket)
        return self._engine

    async def aclose(self) -> None:
        await self._files.aclose()
        if self._engine is not None:
            await self._engine.aclose()
            self._engine = None


@asynccontextmanager
async def _child(framed: Framed) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the frame and, however the block ends, end its whole group without ever waiting for a stuck child."""
    shell = framed.command.removeprefix("exec /bin/sh -c '").removesuffix("'")
    child = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        shell,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=1 << 20,
    )
    try:
        assert child.stdin is not None
        child.stdin.write(framed.stdin)
        # The reader on the other side may be gone already; its answer tells more than the broken pipe.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await child.stdin.drain()
        yield child
    finally:
        # Its own supervisor (or SIGPIPE) ends it; by force after a moment; a child stuck in the kernel is left behind.
        for force in (signal.SIGTERM, signal.SIGKILL):
            if child.stdin is not None:
                child.stdin.close()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, force)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REAP_SECONDS):
                    await child.wait()
                    break
