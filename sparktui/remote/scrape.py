"""One short GET to the head's own endpoint, without an HTTP library: a monitor asks every few seconds, for days.

`server.py` (httpx) costs 9 MiB more and stays the place for everything else that the endpoint is asked.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

from sparktui.errors import SparktuiError

_LARGEST_BYTES = 8 * 1024 * 1024


class ScrapeFailed(SparktuiError):
    """No answer.

    Attributes:
        kind: `refused` nothing listens, `timeout`, `lost` broke off, `garbled` no HTTP.
    """

    def __init__(self, what: str, *, kind: str) -> None:
        super().__init__(what, node="head")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str


async def get(base_url: str, path: str, *, api_key: str | None = None, deadline_seconds: float = 5.0) -> Answer:
    """GET `base_url` + `path` (http only); the key goes into the Authorization header and nowhere else.

    Raises:
        ScrapeFailed: nothing listens, no answer in time, or not HTTP.
    """
    where = urlsplit(base_url)
    host, port = where.hostname or "127.0.0.1", where.port or 80
    shown = f"[{host}]" if ":" in host else host
    words = [f"GET {where.path.rstrip('/')}{path} HTTP/1.1", f"Host: {shown}:{port}", "Connection: close"]
    words += ["Accept: */*", *([f"Authorization: Bearer {api_key}"] if api_key else [])]
    try:
        async with asyncio.timeout(deadline_seconds):
            raw = await _exchange(host, port, ("\r\n".join(words) + "\r\n\r\n").encode("latin-1", "replace"))
    except TimeoutError:
        raise ScrapeFailed(f"{base_url}{path} did not answer in {deadline_seconds:g} s", kind="timeout") from None
    except ConnectionRefusedError:
        raise ScrapeFailed(f"nothing listens at {base_url}", kind="refused") from None
    except OSError as error:
        raise ScrapeFailed(f"{base_url} is out of reach: {error.strerror or error}", kind="lost") from None
    answer = parse_answer(raw)
    if answer is None:
        raise ScrapeFailed(f"{base_url} answered something that is no HTTP", kind="garbled")
    return answer


async def _exchange(host: str, port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        got = bytearray()
        while (chunk := await reader.read(65536)) and len(got) < _LARGEST_BYTES:
            got.extend(chunk)
        return bytes(got)
    finally:
        writer.transport.abort()


def parse_answer(raw: bytes) -> Answer | None:
    """A whole HTTP/1.x response; None when it is none or its body is cut off."""
    head, blank, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    words = first.split(None, 2)
    if not blank or len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        return None
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip().lower()
    if headers.get(b"transfer-encoding") == b"chunked":
        whole = _unchunk(body)
    else:
        length = headers.get(b"content-length", b"")
        whole = body if not length.isdigit() else body[: int(length)] if len(body) >= int(length) else None
    return None if whole is None else Answer(int(words[1][:3]), whole.decode("utf-8", "replace"))


def _unchunk(body: bytes) -> bytes | None:
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.find(b"\r\n", at)
        size_text = body[at:end].split(b";")[0].strip() if end >= 0 else b""
        if not size_text or len(size_text) > 8:
            return None
        try:
            size = int(size_text, 16)
        except ValueError:
            return None
        start = end + 2
        if size == 0:
            return b"".join(parts)
        if size < 0 or len(body) < start + size + 2:
            return None
        parts.append(body[start : start + size])
        at = start + size + 2
