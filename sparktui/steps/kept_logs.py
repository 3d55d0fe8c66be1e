"""A container's last lines, saved on the head before the container goes: what `sparktui logs` shows afterwards."""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from pathlib import Path

from sparktui.errors import SparktuiError
from sparktui.events import Event, Note, State
from sparktui.remote.link import NodeLink
from sparktui.remote.our_containers import OurContainer
from sparktui.settings import Settings

KEPT_LINES = 5_000
KEPT_BYTES = 4 * 1024 * 1024
KEPT_FILES = 5
"""A node. Logs and Engram rows share a disk: an NVMe full of logs disturbs the reads."""
READ_SECONDS = 30.0


async def keep_log(settings: Settings, link: NodeLink, container: OurContainer, step: str) -> list[Event]:
    """Save what the container said last; a log that cannot be had is a warning, never a failure.

    The file is named by the container's start, so that the same boot is saved once however often it is asked for.
    """
    node = link.node.name
    try:
        lines = await _last_lines(link, container.name)
        if not lines:
            return []
        path = await asyncio.to_thread(_write, settings, node, _stamp(container.started_at), lines)
    except (SparktuiError, OSError, TimeoutError) as error:
        text = f"the log of {container.name} could not be kept: {error or type(error).__name__}"
        return [Note(step, node, text, State.WARN)]
    return [Note(step, node, f"the log of {container.name} is kept in {path}")]


async def _last_lines(link: NodeLink, name: str) -> list[str]:
    kept: deque[str] = deque()
    size = 0
    engine = await link.docker()
    async with asyncio.timeout(READ_SECONDS):
        async for line in engine.lines(name, since_seconds=None, tail=KEPT_LINES, follow=False):
            kept.append(line[:KEPT_BYTES])
            size += len(kept[-1]) + 1
            while size > KEPT_BYTES and len(kept) > 1:
                size -= len(kept.popleft()) + 1
    return list(kept)


def _write(settings: Settings, node: str, stamp: str, lines: list[str]) -> Path:
    """Beside, fsync, rename; then the oldest ones over the limit go."""
    folder = settings.logs_dir
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stamp}-{node}.log"
    beside = path.with_suffix(".log.partial")
    data = settings.mask("".join(f"{line}\n" for line in lines)).encode("utf-8", "replace")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    mine = sorted(each for each in folder.glob(f"*-{node}.log") if _STAMPED.fullmatch(each.name))
    for old in mine[:-KEPT_FILES]:
        old.unlink(missing_ok=True)
    return path


_STAMPED = re.compile(r"[0-9]{8}T[0-9]{6}Z-[A-Za-z0-9]+\.log")


def _stamp(rfc3339: str) -> str:
    """`2026-11-29T18:00:11.5Z` as `20261129T180011Z`."""
    digits = re.sub(r"[^0-9]", "", rfc3339[:19]).ljust(14, "0")[:14]
    return f"{digits[:8]}T{digits[8:]}Z"
