"""A worker over asyncssh: one kept connection, opened on first use, opened again once when it has died."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncssh

from sparktui.cluster.node import Node
from sparktui.errors import DeadlineExceeded, HostKeyChanged, HostKeyUnknown, NodeUnreachable, RemoteCommandFailed
from sparktui.remote.docker import DOCKER_SOCKET
from sparktui.remote.docker_tunnel import TunnelledEngine, open_engine
from sparktui.remote.files_by_script import NodeFiles
from sparktui.remote.link import Completed, DockerEngine
from sparktui.remote.posix_script import Framed, command_text, frame, frame_pipe
from sparktui.remote.script_streams import Pipe, collect, completed, follow
from sparktui.remote.ssh_keys import Login
from sparktui.remote.ssh_login import Entered, SshAccess, enter

SESSIONS = 6
"""Commands at once; sshd refuses the eleventh session of a connection (MaxSessions)."""
STREAMS = 3
"""Followed outputs and bulk pipes at once; with the idle session this makes ten."""
_SLOW_SECONDS = 2.0
_REMEMBER_SECONDS = 5.0


class SshLink:
    """Implements NodeLink for a node behind ssh."""

    def __init__(self, node: Node, access: SshAccess, *, docker_socket: str = DOCKER_SOCKET) -> None:
        self.node, self.access = node, access
        self._docker_socket = docker_socket
        # Every docker command gets an explicit choice: the user's DOCKER_HOST or context may be another daemon.
        self._exports = {"DOCKER_HOST": f"unix://{docker_socket}", "DOCKER_CONTEXT": ""}
        self._entering: asyncio.Task[Entered] | None = None
        self._entered: Entered | None = None
        # A node that was silent just now is not waited for again by each of ten questions.
        self._silent: tuple[float, NodeUnreachable] | None = None
        self._sessions = asyncio.Semaphore(SESSIONS)
        self._streams = asyncio.Semaphore(STREAMS)
        self._engine: TunnelledEngine | None = None
        self._engine_lock = asyncio.Lock()
        self._files = NodeFiles(node.name, self._script)

    # -- the connection -----------------------------------------------------------------------------------------

    async def login(self) -> Login:
        """How this node is entered: key, how it was found, what else was tried. Connects when needed."""
        return (await self.entered()).login

    async def entered(self) -> Entered:
        """The open connection; callers that come together share one attempt."""
        if self._entered is not None and not self._entered.connection.is_closed():
            return self._entered
        if self._silent is not None and asyncio.get_running_loop().time() < self._silent[0]:
            raise self._silent[1]
        if self._entering is None or self._entering.done():
            self._entering = asyncio.create_task(self._enter())
        task = self._entering
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done() and task is self._entering:
                task.add_done_callback(_forget)
            raise

    async def _enter(self) -> Entered:
        if self._entered is not None:
            await self._entered.close()
        clock = asyncio.get_running_loop().time
        started, self._silent = clock(), None
        try:
            self._entered = await enter(self.node, self.access)
        except NodeUnreachable as error:
            if clock() - started > _SLOW_SECONDS and not isinstance(error, HostKeyUnknown | HostKeyChanged):
                self._silent = (clock() + _REMEMBER_SECONDS, error)
            raise
        return self._entered

    async def _open(self, command: str) -> asyncssh.SSHClientProcess[bytes]:
        """A session for `command`. A connection found dead is opened again, once; nothing had been sent on it."""
        for attempt in (1, 2):
            entered = await self.entered()
            try:
                return await entered.connection.create_process(command, encoding=None)
            except (asyncssh.Error, OSError) as error:
                if attempt == 1 and _is_dead(error, entered.connection):
                    await entered.close()
                    continue
                raise self._lost(error) from None
        raise AssertionError("unreachable")

    def _lost(self, error: BaseException) -> NodeUnreachable:
        said = str(error).strip() or type(error).__name__
        if isinstance(error, asyncssh.ChannelOpenError) and self._entered and not self._entered.connection.is_closed():
            return NodeUnreachable(
                f"sshd refuses another session: {said}",
                fix="raise MaxSessions in sshd_config there to at least 10, or end other sparktui processes",
                node=self.node.name,
            )
        return NodeUnreachable(
            f"the connection was lost: {said}",
            fix="run the same command again; it connects anew. If the node stays silent, look at its console",
            node=self.node.name,
        )

    # -- NodeLink -----------------------------------------------------------------------------------------------

    async def run(self, argv: Sequence[str], *, deadline_seconds: float, stdin: bytes = b"") -> Completed:
        framed = frame(command_text(argv), data=stdin, deadline_seconds=deadline_seconds, exports=self._exports)
        return await self._framed(framed, tuple(argv), deadline_seconds)

    async def script(self, text: str, *, deadline_seconds: float, values: Mapping[str, str] | None = None) -> Completed:
        framed = frame(text, values=values, deadline_seconds=deadline_seconds, exports=self._exports)
        return await self._framed(framed, ("/bin/sh",), deadline_seconds)

    async def _script(self, text: str, values: dict[str, str], data: bytes, deadline_seconds: float) -> Completed:
        framed = frame(text, values=values, data=data, deadline_seconds=deadline_seconds, exports=self._exports)
        return await self._framed(framed, ("/bin/sh",), deadline_seconds)

    async def _framed(self, framed: Framed, argv: tuple[str, ...], deadline_seconds: float) -> Completed:
        await self.entered()  # its own deadline: a node that is off is "unreachable", not "slow"
        try:
            async with asyncio.timeout(deadline_seconds), self._sessions, self._session(framed) as process:
                answer = await collect(process.stdout, process.stderr, framed.marker)
                if answer.exit_status is None and self._is_gone():
                    raise self._lost(ConnectionError(f"{argv[0]} may not have finished"))
        except TimeoutError:
            raise DeadlineExceeded(f"{argv[0]} did not answer in {deadline_seconds:g} s", node=self.node.name) from None
        except (asyncssh.Error, OSError) as error:
            raise self._lost(error) from None
        return completed(answer, argv, node=self.node.name)

    def _is_gone(self) -> bool:
        return self._entered is None or self._entered.connection.is_closed()

    @asynccontextmanager
    async def _session(self, framed: Framed) -> AsyncIterator[asyncssh.SSHClientProcess[bytes]]:
        """Start a frame; leaving the block closes the channel, whose end of file ends everything on the node."""
        process = await self._open(framed.command)
        try:
            process.stdin.write(framed.stdin)
            with contextlib.suppress(BrokenPipeError, ConnectionError):
                await process.stdin.drain()
            yield process
        finally:
            process.close()

    async def lines(self, argv: Sequence[str]) -> AsyncIterator[str]:
        framed = frame(command_text(argv), deadline_seconds=None, exports=self._exports)
        await self.entered()
        async with self._stream_slot(argv[0]), self._session(framed) as process:
            streams = (process.stdin, process.stdout, process.stderr)
            try:
                async for line in follow(
                    *streams, framed.marker, node=self.node.name, what=argv[0], ended="was cut off"
                ):
                    yield line
            except (asyncssh.Error, OSError) as error:
                raise self._lost(error) from None
            except RemoteCommandFailed as error:
                if error.exit_status_remote == -1 and self._is_gone():
                    raise self._lost(ConnectionError(f"{argv[0]} was being followed")) from None
                raise

    @asynccontextmanager
    async def pipe(self, argv: Sequence[str]) -> AsyncIterator[Pipe]:
        framed = frame_pipe(argv, exports=self._exports)
        await self.entered()
        async with self._stream_slot(argv[0]), self._session(framed) as process:

            async def status() -> int:
                await process.wait_closed()
                if process.returncode is None and self._is_gone():
                    raise self._lost(ConnectionError(f"{argv[0]} may not have finished"))
                return process.returncode if process.returncode is not None else -1

            stdin, stdout, stderr = (
                _PipeStream(each, self._lost) for each in (process.stdin, process.stdout, process.stderr)
            )
            pipe = Pipe(tuple(argv), stdin, stdout, stderr, framed.marker, status)
            try:
                yield pipe
            finally:
                pipe.abandon()

    @asynccontextmanager
    async def _stream_slot(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(60):
                await self._streams.acquire()
        except TimeoutError:
            raise DeadlineExceeded(
                f"{STREAMS} streams are open already; {what} found no place in 60 s", node=self.node.name
            ) from None
        try:
            yield
        finally:
            self._streams.release()

    async def read_file(self, path: str, *, deadline_seconds: float) -> bytes | None:
        return await self._files.read(path, deadline_seconds=deadline_seconds)

    async def write_file(self, path: str, data: bytes, *, mode: int, deadline_seconds: float) -> None:
        await self._files.write(path, data, mode=mode, deadline_seconds=deadline_seconds)

    async def docker(self) -> DockerEngine:
        async with self._engine_lock:
            entered = await self.entered()
            if self._engine is not None and self._engine.connection is not entered.connection:
                await self._engine.aclose()
                self._engine = None
            if self._engine is None:
                self._engine = await open_engine(self, entered, self._docker_socket)
            return self._engine

    async def aclose(self) -> None:
        await self._files.aclose()
        if self._engine is not None:
            await self._engine.aclose()
            self._engine = None
        if self._entering is not None and not self._entering.done():
            self._entering.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._entering
        if self._entered is not None:
            await self._entered.close()
            self._entered = None


class _PipeStream:
    """One stream of a bulk command. asyncssh's own errors are no OSErrors: who reads or writes hears of a lost node."""

    def __init__(self, stream: Any, lost: Callable[[BaseException], NodeUnreachable]) -> None:
        self._stream, self._lost = stream, lost

    def write(self, data: bytes) -> None:
        with self._told():
            self._stream.write(data)

    async def drain(self) -> None:
        with self._told():
            await self._stream.drain()

    def write_eof(self) -> None:
        with self._told():
            self._stream.write_eof()

    async def read(self, n: int = -1, /) -> bytes:
        with self._told():
            data: bytes = await self._stream.read(n)
        return data

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except asyncssh.Error as error:
            raise self._lost(error) from None


def _is_dead(error: BaseException, connection: asyncssh.SSHClientConnection) -> bool:
    return connection.is_closed() or isinstance(error, asyncssh.ConnectionLost | ConnectionError)


def _forget(task: asyncio.Task[Any]) -> None:
    """Nobody waits for this login any more: take its error, so that the loop does not complain."""
    if not task.cancelled():
        task.exception()
