"""A worker's Docker Engine: its socket forwarded by the node's ssh connection into a private folder here.

Where sshd forbids forwarding, each Docker connection becomes a `docker system dial-stdio` on the node, over a second
ssh connection of its own, so that it takes no session from commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import asyncssh

from sparktui.errors import DockerUnavailable, NodeUnreachable, SparktuiError
from sparktui.remote.docker import SocketEngine
from sparktui.remote.docker_access import ACCESS_PROBE, explain_refusal, read_access
from sparktui.remote.posix_script import frame_pipe
from sparktui.remote.script_streams import PipeOutput
from sparktui.remote.ssh_login import Entered, enter

if TYPE_CHECKING:
    import docker

    from sparktui.remote.ssh import SshLink

T = TypeVar("T")
_OPEN_SECONDS = 10.0
_CHUNK_BYTES = 65536
_DIAL_THREADS = 3


class TunnelledEngine(SocketEngine):
    """The Engine behind a tunnel; `way` is `forwarded` or `docker system dial-stdio`."""

    def __init__(
        self,
        link: SshLink,
        entered: Entered,
        socket: str,
        remote_socket: str,
        *,
        way: str,
        on_close: Callable[[], Awaitable[None]],
        **options: Any,
    ) -> None:
        super().__init__(link, socket, remote_socket=remote_socket, **options)
        self._ssh, self.connection, self.way = link, entered.connection, way
        self._on_close = on_close

    async def call(self, work: Callable[[docker.DockerClient], T], *, deadline_seconds: float) -> T:
        if not self.connection.is_closed():
            return await super().call(work, deadline_seconds=deadline_seconds)
        # Whoever holds this engine goes on over the link's next connection.
        return await (await self._ssh.docker()).call(work, deadline_seconds=deadline_seconds)

    async def inspected(self, container: str) -> dict[str, Any] | None:
        if not self.connection.is_closed():
            return await super().inspected(container)
        return await (await self._ssh.docker()).inspected(container)

    async def explain(self, error: str) -> SparktuiError:
        if self.connection.is_closed():
            return NodeUnreachable(
                "the connection was lost while Docker was asked",
                fix="run the same command again; it connects anew",
                node=self._ssh.node.name,
            )
        return await super().explain(error)

    async def lines(
        self, container: str, *, since_seconds: float | None, tail: int | None, follow: bool
    ) -> AsyncIterator[str]:
        if self.connection.is_closed():
            lines = (await self._ssh.docker()).lines(container, since_seconds=since_seconds, tail=tail, follow=follow)
        else:
            lines = super().lines(container, since_seconds=since_seconds, tail=tail, follow=follow)
        async for line in lines:
            yield line

    async def aclose(self) -> None:
        await super().aclose()
        await self._on_close()


async def open_engine(link: SshLink, entered: Entered, remote_socket: str) -> TunnelledEngine:
    """Open the tunnel.

    Raises:
        DockerUnavailable: absent, stopped, not permitted (which one, in words).
        NodeUnreachable: the connection died.
    """
    folder = Path(tempfile.mkdtemp(prefix="sparktui-docker-"))  # mode 0700
    local = str(folder / "docker.sock")
    try:
        if await _forwarding_works(link, entered, remote_socket):
            return await _forwarded(link, entered, local, remote_socket, folder)
        return await _dialled(link, entered, local, remote_socket, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


async def _forwarding_works(link: SshLink, entered: Entered, remote_socket: str) -> bool:
    """Try one forwarded connection; when it is refused, the node says whether sshd or the socket refused it."""
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            _, writer = await entered.connection.open_unix_connection(remote_socket)
        writer.close()
        return True
    except TimeoutError:
        raise NodeUnreachable(
            f"opening {remote_socket} did not answer in {_OPEN_SECONDS:g} s", node=link.node.name
        ) from None
    except asyncssh.ChannelOpenError as error:
        said = str(error)
    except (asyncssh.Error, OSError) as error:
        raise NodeUnreachable(f"the connection was lost: {error}", fix="run it again", node=link.node.name) from None
    asked = await link.script(ACCESS_PROBE, values={"socket": remote_socket}, deadline_seconds=_OPEN_SECONDS)
    access = read_access(asked.stdout)
    if not (access.exists and access.is_socket and access.allowed):
        raise explain_refusal(access, said, node=link.node.name)
    if not access.has_cli:
        raise DockerUnavailable(
            "sshd forbids forwarding (AllowStreamLocalForwarding no) and there is no docker command for the other way",
            fix="install docker-cli on that node, or allow forwarding in its sshd_config",
            node=link.node.name,
        )
    return False


async def _forwarded(link: SshLink, entered: Entered, local: str, remote_socket: str, folder: Path) -> TunnelledEngine:
    listener = await entered.connection.forward_local_path(local, remote_socket)
    # With no session open, forwarded requests stall for about 44 ms at random: keep an idle one.
    idle = await entered.connection.create_process("exec cat", encoding=None)

    async def close() -> None:
        listener.close()
        idle.close()
        shutil.rmtree(folder, ignore_errors=True)

    return TunnelledEngine(link, entered, local, remote_socket, way="forwarded", on_close=close)


async def _dialled(link: SshLink, entered: Entered, local: str, remote_socket: str, folder: Path) -> TunnelledEngine:
    second = await enter(link.node, link.access)
    argv = ["docker", "--host", f"unix://{remote_socket}", "system", "dial-stdio"]
    open_bridges: set[asyncio.Task[None]] = set()

    async def bridge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framed = frame_pipe(argv)
        task = asyncio.current_task()
        assert task is not None
        open_bridges.add(task)
        try:
            process = await second.connection.create_process(framed.command, encoding=None)
            try:
                process.stdin.write(framed.stdin)
                out = PipeOutput(process.stdout, framed.marker)
                up = asyncio.create_task(_copy(reader.read, process.stdin))
                try:
                    await _copy(out.read, writer)
                finally:
                    up.cancel()
            finally:
                process.close()
        except (asyncssh.Error, OSError):
            pass  # the SDK sees a closed socket and asks the node why
        finally:
            open_bridges.discard(task)
            writer.close()

    server = await asyncio.start_unix_server(bridge, path=local)

    async def close() -> None:
        server.close()
        for task in tuple(open_bridges):
            task.cancel()
        await second.close()
        shutil.rmtree(folder, ignore_errors=True)

    return TunnelledEngine(
        link,
        entered,
        local,
        remote_socket,
        way="docker system dial-stdio",
        on_close=close,
        threads=_DIAL_THREADS,
    )


async def _copy(read: Callable[[int], Awaitable[bytes]], writer: Any) -> None:
    while chunk := await read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError, asyncssh.Error):
        if writer.can_write_eof():
            writer.write_eof()
