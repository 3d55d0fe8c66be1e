"""One container's state without Docker's SDK: a monitor asks for it every few seconds, for days."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

from sparktui.errors import DockerUnavailable
from sparktui.remote.scrape import parse_answer

GLANCE_SECONDS = 5.0


async def inspected(socket: str, container: str, *, node: str) -> dict[str, Any] | None:
    """What `docker inspect` says; None where there is no such container.

    Raises:
        DockerUnavailable: the Engine refuses, or answers what is none of its answers.
        OSError: the socket is absent, not permitted, or broke off.
        TimeoutError: no answer in GLANCE_SECONDS.
    """
    async with asyncio.timeout(GLANCE_SECONDS):
        reader, writer = await asyncio.open_unix_connection(socket)
        try:
            path = f"/containers/{quote(container, safe='')}/json"
            writer.write(f"GET {path} HTTP/1.0\r\nHost: docker\r\nConnection: close\r\n\r\n".encode())
            raw = await reader.read()
        finally:
            writer.transport.abort()
    if not raw:
        raise ConnectionResetError("it closed the connection without an answer")
    answer = parse_answer(raw)
    if answer is None:
        raise DockerUnavailable("its Docker Engine's answer broke off", node=node)
    if answer.status == 404:
        return None
    try:
        plain = json.loads(answer.text) if answer.status == 200 else None
    except ValueError:
        plain = None
    if not isinstance(plain, dict):
        raise DockerUnavailable(f"the Docker Engine refused: {answer.status} {answer.text.strip()[:300]}", node=node)
    return plain
