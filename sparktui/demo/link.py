"""A node of the simulated cluster behind the product's own seam: what differs between demo and product is here."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from sparktui.cluster.node import Node
from sparktui.demo.home import DemoHome
from sparktui.demo.pipes import BuildPipe, DemoPipe, HubPipe, LoadPipe, SavePipe
from sparktui.demo.scripts import UnknownOnDemo, script_name
from sparktui.demo.wire import Wire
from sparktui.errors import DeadlineExceeded, NodeUnreachable, RemoteCommandFailed
from sparktui.remote.docker import DOCKER_SOCKET, SocketEngine
from sparktui.remote.hub import CHILD_MODULE
from sparktui.remote.link import Completed, DockerEngine

if TYPE_CHECKING:
    from sparktui.remote.ssh_keys import Login

_LOGIN_SECONDS = 10.0


class DemoLink:
    """Implements NodeLink: every call is answered by the simulated cluster's process."""

    def __init__(self, node: Node, home: DemoHome) -> None:
        self.node = node
        self._home, self._wire = home, Wire(home)
        self._engine: SocketEngine | None = None
        if not node.is_head:
            # doctor and the first start ask a worker's link how it was entered.
            self.login = self._login

    async def run(self, argv: Sequence[str], *, deadline_seconds: float, stdin: bytes = b"") -> Completed:
        status, out = await self._ask("run", deadline_seconds, argv=list(argv))
        return Completed(tuple(argv), status, out, "")

    async def script(self, text: str, *, deadline_seconds: float, values: Mapping[str, str] | None = None) -> Completed:
        name = script_name(text)
        status, out = await self._ask("script", deadline_seconds, name=name, values=dict(values or {}))
        return Completed(("/bin/sh",), status, out, "")

    async def lines(self, argv: Sequence[str]) -> AsyncIterator[str]:
        stream = self._wire.follow("lines", node=self.node.name, argv=list(argv))
        try:
            async for plain in stream:
                if "line" in plain:
                    yield str(plain["line"])
                    continue
                self.refuse(plain)
                if plain.get("end"):
                    raise RemoteCommandFailed(
                        f"{argv[0]} ended with status {plain['end']}: {plain.get('stderr')}",
                        exit_status_remote=int(plain["end"]),
                        stderr=str(plain.get("stderr")),
                        node=self.node.name,
                    )
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    @asynccontextmanager
    async def pipe(self, argv: Sequence[str]) -> AsyncIterator[DemoPipe]:
        words = tuple(argv)
        pipe: DemoPipe
        if CHILD_MODULE in words:
            pipe = HubPipe(words, self)
        elif "docker" in words and "save" in words:
            pipe = SavePipe(words, self)
        elif "docker" in words and "load" in words:
            pipe = LoadPipe(words, self)
        elif "docker" in words and "build" in words:
            pipe = BuildPipe(words, self)
        else:
            raise UnknownOnDemo(f"the simulated cluster knows no such bulk command: {' '.join(words)[:300]}")
        try:
            yield pipe
        finally:
            await pipe.abandon()

    async def read_file(self, path: str, *, deadline_seconds: float) -> bytes | None:
        data = await self._ask("read", deadline_seconds, path=path)
        return None if data is None else base64.b64decode(data)

    async def write_file(self, path: str, data: bytes, *, mode: int, deadline_seconds: float) -> None:
        await self._ask("write", deadline_seconds, path=path, data=base64.b64encode(data).decode(), mode=mode)

    async def docker(self) -> DockerEngine:
        if self._engine is None:
            await self._ask("alive", _LOGIN_SECONDS)
            socket = str(self._home.docker_socket(self.node.name))
            self._engine = SocketEngine(self, socket, remote_socket=DOCKER_SOCKET)
        return self._engine

    async def aclose(self) -> None:
        if self._engine is not None:
            await self._engine.aclose()
            self._engine = None

    async def _login(self) -> Login:
        """How the node is entered, as ssh would have found it."""
        from sparktui.remote.ssh_keys import FoundBy, Login, Tried

        await self._ask("alive", _LOGIN_SECONDS)
        target = f"{self.node.ssh_user or 'nvidia'}@{self.node.ssh_host or self.node.address}"
        key, found_by = "~/.ssh/id_ed25519", FoundBy.SSH_DEFAULT
        return Login(target, "", key, found_by, (Tried(key, found_by, "accepted"),))

    # -- for the pipes ------------------------------------------------------------------------------------------

    async def ask(self, call: str, **fields: Any) -> Any:
        """Without a deadline of its own."""
        answer = await self._wire.ask(call, node=self.node.name, **fields)
        self.refuse(answer)
        return answer.get("value")

    def follow(self, call: str, **fields: Any) -> AsyncIterator[dict[str, Any]]:
        return self._wire.follow(call, node=self.node.name, **fields)

    # -- inside -------------------------------------------------------------------------------------------------

    async def _ask(self, call: str, deadline_seconds: float, **fields: Any) -> Any:
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self.ask(call, **fields)
        except TimeoutError:
            text = f"it did not answer in {deadline_seconds:g} s"
            raise DeadlineExceeded(text, node=self.node.name) from None

    def refuse(self, answer: Mapping[str, Any]) -> None:
        """Raises what an answer with an error means."""
        error = answer.get("error")
        if error == "unreachable":
            host = self.node.ssh_host or self.node.address
            raise NodeUnreachable(
                f"no answer from {host} port 22 (simulated: the node is off)",
                fix=f"is it on, and does `ssh {host}` reach it? Here: sparktui demo mend {self.node.name}",
                node=self.node.name,
            )
        if error:
            raise UnknownOnDemo(str(answer.get("what")))
