"""Bulk commands of a simulated node: an image on its way, a build fed on stdin, the hub's child."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from sparktui.demo.home import speed
from sparktui.remote.link import Completed

_SHIP_SECONDS = 6.0
_CHUNKS = 60


class Asks(Protocol):
    """What a pipe needs of its link."""

    async def ask(self, call: str, **fields: Any) -> Any: ...

    def follow(self, call: str, **fields: Any) -> AsyncIterator[dict[str, Any]]: ...

    def refuse(self, answer: Mapping[str, Any]) -> None: ...


class Bulk(bytes):
    """Stands for many bytes of an image without holding them: its length is what it stands for."""

    image: dict[str, Any]
    size: int

    @classmethod
    def of(cls, image: dict[str, Any], size: int) -> Bulk:
        made = cls(b"")
        made.image, made.size = image, size
        return made

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0


class DemoPipe:
    """What `NodeLink.pipe` yields; `stdin` and `stdout` are the pipe itself."""

    def __init__(self, argv: tuple[str, ...], link: Asks) -> None:
        self.argv, self._link = argv, link
        self.stdin = self.stdout = self

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def write_eof(self) -> None: ...

    async def read(self, n: int = 65536) -> bytes:
        return b""

    async def wait(self) -> Completed:
        return Completed(self.argv, 0, "", "")

    async def abandon(self) -> None: ...


class SavePipe(DemoPipe):
    """`docker save`: chunks that stand for the image."""

    def __init__(self, argv: tuple[str, ...], link: Asks) -> None:
        super().__init__(argv, link)
        self._left: int | None = None
        self._image: dict[str, Any] | None = None

    async def read(self, n: int = 65536) -> bytes:
        if self._left is None:
            self._image = await self._link.ask("save", reference=self.argv[-1])
            self._left = int(self._image["Size"]) if self._image else 0
        if self._image is None or self._left <= 0:
            return b""
        size = min(int(self._image["Size"]) // _CHUNKS + 1, self._left)
        self._left -= size
        await asyncio.sleep(_SHIP_SECONDS / _CHUNKS / speed())
        return Bulk.of(self._image, size)

    async def wait(self) -> Completed:
        if self._image is None:
            return Completed(self.argv, 1, "", f"No such image: {self.argv[-1]}")
        return Completed(self.argv, 0, "", "")


class LoadPipe(DemoPipe):
    """`docker load`: takes chunks that stand for an image, or a tar of its missing layers."""

    def __init__(self, argv: tuple[str, ...], link: Asks) -> None:
        super().__init__(argv, link)
        self._image: dict[str, Any] | None = None
        self._data = bytearray()

    def write(self, data: bytes) -> None:
        if isinstance(data, Bulk):
            self._image = data.image
        else:
            self._data.extend(data)

    async def drain(self) -> None:
        # A node that went off is noticed while it is sent to.
        await self._link.ask("alive")

    async def wait(self) -> Completed:
        fields: dict[str, Any] = {"image": self._image}
        if self._image is None:
            fields = {"data": base64.b64encode(bytes(self._data)).decode()}
        status, said = await self._link.ask("load", **fields)
        return Completed(self.argv, status, said if not status else "", said if status else "")


class _StreamPipe(DemoPipe):
    """A command whose output is a stream of the cluster's; closing the pipe ends it."""

    def __init__(self, argv: tuple[str, ...], link: Asks) -> None:
        super().__init__(argv, link)
        self._stream: AsyncIterator[dict[str, Any]] | None = None
        self._held = b""
        self._status, self._stderr = 0, ""

    def _begun(self) -> AsyncIterator[dict[str, Any]]:
        raise NotImplementedError

    def _heard(self, line: str) -> None: ...

    async def read(self, n: int = 65536) -> bytes:
        if self._stream is None:
            self._stream = self._begun()
        while not self._held:
            plain = await anext(self._stream, None)
            if plain is None:
                return b""
            if "line" not in plain:
                self._link.refuse(plain)
                self._status, self._stderr = self._status or int(plain.get("end", 0)), str(plain.get("stderr", ""))
                return b""
            self._heard(str(plain["line"]))
            self._held = str(plain["line"]).encode() + b"\n"
        part, self._held = self._held[:n], self._held[n:]
        return part

    async def wait(self) -> Completed:
        while await self.read():
            pass
        return Completed(self.argv, self._status, "", self._stderr)

    async def abandon(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(Exception):
                await self._stream.aclose()  # type: ignore[attr-defined]


class BuildPipe(_StreamPipe):
    """`docker build -` with its context on stdin."""

    def _begun(self) -> AsyncIterator[dict[str, Any]]:
        return self._link.follow("lines", argv=list(self.argv))


class HubPipe(_StreamPipe):
    """The hub's child: its request comes on stdin, its JSON lines are the answer."""

    def __init__(self, argv: tuple[str, ...], link: Asks) -> None:
        super().__init__(argv, link)
        self._said = bytearray()

    def write(self, data: bytes) -> None:
        self._said.extend(data)

    def _begun(self) -> AsyncIterator[dict[str, Any]]:
        request = json.loads(bytes(self._said).partition(b"\n")[0] or b"{}")
        # The simulated hub asks for no token, so none is sent on.
        request.pop("token", None)
        return self._link.follow("hub", request=request)

    def _heard(self, line: str) -> None:
        if json.loads(line).get("event") == "refused":
            self._status = 1
