"""A node's Docker Engine over a Unix socket: the SDK in threads with deadlines, log streams without a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from sparktui.errors import DeadlineExceeded, DockerUnavailable, SparktuiError
from sparktui.remote.docker_access import ACCESS_PROBE, explain_refusal, read_access
from sparktui.remote.link import NodeLink

if TYPE_CHECKING:
    import docker
    import httpx

    from sparktui.remote.docker_log import LogPart

T = TypeVar("T")
DOCKER_SOCKET = "/var/run/docker.sock"
_THREADS = 4
_PROBE_SECONDS = 10.0
_FRAME_HEADER_BYTES = 8
LIFE_SECONDS = 5.0
"""An Engine that nobody has heard for a while is first asked whether it is there, and given this long to say so."""
FRESH_SECONDS = 20.0
"""For so long after an answer a call has its whole deadline: an Engine may be slow for a moment under a step's load."""


class SocketEngine:
    """Speaks to the Engine behind `socket`, a path on this machine.

    Args:
        link: the node's link, asked why when the Engine cannot be reached.
        socket: where the Engine (or the tunnel to it) listens on this machine.
        remote_socket: the Engine's own path on the node, for messages.
        threads: how many SDK calls run at once; a stuck one keeps its place until its own timeout.
    """

    def __init__(self, link: NodeLink, socket: str, *, remote_socket: str, threads: int = _THREADS) -> None:
        self._link, self.socket, self._remote_socket = link, socket, remote_socket
        self._free: list[docker.DockerClient] = []
        self._slots = asyncio.Semaphore(threads)
        self._api_version: str | None = None
        self._heard_at = float("-inf")
        self._closed = False

    async def call(self, work: Callable[[docker.DockerClient], T], *, deadline_seconds: float) -> T:
        """Run `work(client)` in a thread of its own; see DockerEngine."""
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._slots.acquire()
                return await self._in_thread(work, deadline_seconds)
        except TimeoutError:
            raise self._late(deadline_seconds) from None
        except _Unreachable as error:
            raise await self.explain(str(error)) from None
        except _Late as late:
            raise self._late(late.seconds) from None

    async def _in_thread(self, work: Callable[[docker.DockerClient], T], deadline_seconds: float) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            self._slots.release()
            if not answer.done():
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(value)

        def in_thread() -> None:
            value, error = None, None
            try:
                value = self._with_client(work, deadline_seconds)
            except BaseException as raised:  # handed over to the caller as it is
                error = raised
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:
                return  # the loop has ended while the Engine was silent; nobody waits any more

        # Daemon threads: quitting never waits for a silent Engine.
        threading.Thread(target=in_thread, name=f"docker-{self._link.node.name}", daemon=True).start()
        return await answer

    def _with_client(self, work: Callable[[docker.DockerClient], T], deadline_seconds: float) -> T:
        import docker
        import requests

        patience = min(deadline_seconds, LIFE_SECONDS)
        try:
            client = self._free.pop() if self._free else None
            if client is None:
                client = self._new_client(patience)
            if time.monotonic() - self._heard_at > FRESH_SECONDS:
                client.api.timeout = max(1.0, patience)
                client.ping()
            patience = deadline_seconds
            client.api.timeout = max(1.0, patience)
            value = work(client)
        except requests.exceptions.ConnectionError as error:
            if "timed out" in str(error).lower():
                raise _Late(patience) from error
            raise _Unreachable(str(error)) from error
        except requests.exceptions.Timeout as error:
            raise _Late(patience) from error
        except docker.errors.APIError:
            self._keep(client)
            raise
        self._keep(client)
        return value

    def _new_client(self, patience: float) -> docker.DockerClient:
        """The first one asks the Engine for its version; the others are told."""
        import docker

        asks = self._api_version is None
        try:
            client = docker.DockerClient(
                base_url=f"unix://{self.socket}", timeout=max(1.0, patience), version=self._api_version
            )
        except docker.errors.DockerException as error:
            if isinstance(error, docker.errors.APIError):
                raise
            if "timed out" in str(error).lower():
                raise _Late(patience) from error
            raise _Unreachable(str(error)) from error
        self._api_version = client.api._version
        if asks:
            self._heard_at = time.monotonic()
        return client

    def _keep(self, client: docker.DockerClient | None) -> None:
        self._heard_at = time.monotonic()
        if client is not None and not self._closed:
            self._free.append(client)

    def _late(self, deadline_seconds: float) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"the Docker Engine did not answer in {deadline_seconds:g} s",
            fix="see `systemctl status docker` and `journalctl -u docker` on that node",
            node=self._link.node.name,
        )

    async def explain(self, error: str) -> SparktuiError:
        """Ask the node why its Engine is out of reach: absent, no permission, or a session older than the group."""
        try:
            asked = await self._link.script(
                ACCESS_PROBE, values={"socket": self._remote_socket}, deadline_seconds=_PROBE_SECONDS
            )
        except SparktuiError as gone:
            return gone
        return explain_refusal(read_access(asked.stdout), error, node=self._link.node.name)

    async def inspected(self, container: str) -> dict[str, Any] | None:
        """See DockerEngine."""
        from sparktui.remote.docker_glance import GLANCE_SECONDS, inspected

        try:
            return await inspected(self.socket, container, node=self._link.node.name)
        except TimeoutError:
            raise self._late(GLANCE_SECONDS) from None
        except OSError as error:
            raise await self.explain(str(error) or type(error).__name__) from None

    async def lines(
        self, container: str, *, since_seconds: float | None, tail: int | None, follow: bool
    ) -> AsyncIterator[str]:
        """The container's log lines, stdout and stderr as they come.

        Raises:
            DockerUnavailable: the Engine cannot be reached, or knows no such container.
        """
        import httpx

        parameters = {"stdout": "1", "stderr": "1", "follow": "1" if follow else "0"}
        if since_seconds is not None:
            parameters["since"] = f"{since_seconds:.9f}"
        if tail is not None:
            parameters["tail"] = str(tail)
        # Time between two lines is unlimited; everything before the first byte is not.
        patience = httpx.Timeout(15.0, read=None if follow else 30.0)
        transport = httpx.AsyncHTTPTransport(uds=self.socket)
        async with httpx.AsyncClient(transport=transport, base_url="http://docker", timeout=patience) as client:
            try:
                async with asyncio.timeout(15):
                    about = await client.get(f"/containers/{container}/json", timeout=15.0)
                self._refuse(about, container)
                terminal = bool(about.json()["Config"]["Tty"])
                async with client.stream("GET", f"/containers/{container}/logs", params=parameters) as stream:
                    if stream.status_code >= 400:
                        await stream.aread()
                        self._refuse(stream, container)
                    chunks = stream.aiter_raw()
                    async for line in _split_lines(chunks if terminal else demultiplex(chunks)):
                        yield line
            except httpx.TimeoutException:
                raise self._late(15) from None
            except TimeoutError:
                raise self._late(15) from None
            except httpx.HTTPError as error:
                raise await self.explain(str(error) or type(error).__name__) from None

    async def log_parts(
        self, container: str, *, after: str | None, tail: int | None, follow: bool
    ) -> AsyncIterator[LogPart]:
        """The same lines, as many at a time as have come: for a viewer that must survive a flood.

        Args:
            after: an earlier part's `until`: only what was said later.
        """
        from sparktui.remote.docker_log import ANSWER_SECONDS, log_parts

        node = self._link.node.name
        try:
            parts = log_parts(self.socket, container, after=after, tail=tail, follow=follow, node=node)
            async with aclosing(parts):  # type: ignore[type-var]
                async for part in parts:
                    yield part
        except TimeoutError:
            raise self._late(ANSWER_SECONDS) from None
        except (OSError, EOFError) as error:
            raise await self.explain(str(error) or type(error).__name__) from None

    def _refuse(self, response: httpx.Response, container: str) -> None:
        if response.status_code == 404:
            raise DockerUnavailable(f"there is no container {container}", node=self._link.node.name)
        if response.status_code >= 400:
            raise DockerUnavailable(
                f"the Docker Engine refused: {response.status_code} {response.text.strip()[:300]}",
                node=self._link.node.name,
            )

    async def aclose(self) -> None:
        self._closed = True
        while self._free:
            self._free.pop().close()


async def demultiplex(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Strip the 8-byte frame headers of a container without a terminal.

    A header is the stream's number (1 stdout, 2 stderr), three zero bytes and the big-endian length of what follows.
    Source: Docker Engine API, ContainerAttach, "Stream format".
    """
    held = bytearray()
    left = 0
    async for chunk in chunks:
        held.extend(chunk)
        while held:
            if not left:
                if len(held) < _FRAME_HEADER_BYTES:
                    break
                left = int.from_bytes(held[4:_FRAME_HEADER_BYTES], "big")
                del held[:_FRAME_HEADER_BYTES]
                continue
            part = bytes(held[:left])
            del held[: len(part)]
            left -= len(part)
            yield part


async def _split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    held = b""
    async for chunk in chunks:
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").removesuffix("\r")
    if held:
        yield held.decode("utf-8", "replace")


class _Unreachable(Exception):
    """The socket refused, is absent, or may not be opened."""


class _Late(Exception):
    """The socket was there and said nothing for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nothing for {seconds:g} s")
        self.seconds = seconds


def load_image_argv(socket: str = DOCKER_SOCKET) -> list[str]:
    """For `link.pipe`: bulk goes through the CLI's process on the node, never through the SDK."""
    return ["docker", "--host", f"unix://{socket}", "load"]


def save_image_argv(*references: str, socket: str = DOCKER_SOCKET) -> list[str]:
    return ["docker", "--host", f"unix://{socket}", "save", *references]
