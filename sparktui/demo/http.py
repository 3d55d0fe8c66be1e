"""A small HTTP/1.1 server for the simulated Docker Engines and for the simulated endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

_HEAD_BYTES = 65_536
_BODY_BYTES = 64 * 1024 * 1024
_REASONS = {200: "OK", 201: "Created", 204: "No Content", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized"}
_REASONS |= {404: "Not Found", 409: "Conflict", 500: "Internal Server Error", 501: "Not Implemented"}
_REASONS |= {503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body or b"null")


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer, or a stream of chunks that goes on until it ends or the other side has gone."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    stream: AsyncIterator[bytes] | None = None


Handler = Callable[[Request], Awaitable[Reply]]


def as_json(plain: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(plain).encode())


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """Answer requests of one connection until it ends."""
    try:
        while (request := await _read(reader)) is not None:
            reply = await handler(request)
            if reply.stream is None:
                await _whole(writer, reply)
            elif not await _streamed(reader, writer, reply, reply.stream):
                return
            if request.headers.get("connection", "").lower() == "close":
                return
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        return
    finally:
        writer.close()
        with contextlib.suppress(Exception):
            await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *rows = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {}
    for row in rows:
        name, colon, value = row.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    if length > _BODY_BYTES:
        raise ValueError("too large")
    body = await reader.readexactly(length) if length else b""
    parts = urlsplit(target)
    return Request(method, unquote(parts.path), dict(parse_qsl(parts.query)), headers, body)


def _head(reply: Reply, *rows: str) -> bytes:
    reason = _REASONS.get(reply.status, "Status")
    lines = [f"HTTP/1.1 {reply.status} {reason}", f"Content-Type: {reply.content_type}", "Server: sparktui-demo", *rows]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _whole(writer: asyncio.StreamWriter, reply: Reply) -> None:
    writer.write(_head(reply, f"Content-Length: {len(reply.body)}") + reply.body)
    await writer.drain()


async def _streamed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Reply, chunks: AsyncIterator[bytes]
) -> bool:
    """Send chunks; False when the other side has left."""
    writer.write(_head(reply, "Transfer-Encoding: chunked"))
    gone = asyncio.create_task(reader.read(1))

    async def send() -> None:
        async for chunk in chunks:
            if chunk:
                writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    sending = asyncio.create_task(send())
    try:
        await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            return False
        sending.result()
        # A byte that came early would belong to the next request: such a connection is not used again.
        return not gone.done()
    finally:
        for task in (gone, sending):
            task.cancel()
        await asyncio.gather(gone, sending, return_exceptions=True)
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
