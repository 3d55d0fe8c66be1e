"""The engine's own output, of any rank: from its container, or from what was saved when the container is gone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktui.errors import SparktuiError, StepFailed, UsageError
from sparktui.events import Event, LogLine, Note, State

if TYPE_CHECKING:
    from sparktui.remote.link import NodeLink

STEP = "logs"
DEFAULT_LINES = 100
_LINE_CHARACTERS = 4_000


def chosen(links: Sequence[NodeLink], name: str | None) -> list[NodeLink]:
    """The links that are meant: one by node name, or all.

    Raises:
        UsageError: there is no such node; names those there are.
    """
    if name is None:
        return list(links)
    found = [link for link in links if link.node.name == name]
    if not found:
        raise UsageError(f"there is no node {name!r}", fix=f"one of: {', '.join(link.node.name for link in links)}")
    return found


def saved_log(logs_dir: Path, node: str) -> Path | None:
    """The newest saved log of a node: a file of logs/ whose name has the node's as one of its parts."""
    if not logs_dir.is_dir():
        return None
    found = [
        path
        for path in logs_dir.rglob("*.log")
        if node in path.stem.replace("_", "-").replace(".", "-").split("-") and path.is_file()
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


async def log_lines(link: NodeLink, logs_dir: Path, *, tail: int, follow: bool) -> AsyncIterator[Event]:
    """A node's last lines, then (with `follow`) what comes.

    Raises:
        StepFailed: neither a container nor a saved log.
        SparktuiError: the node does not answer.
    """
    from sparktui.engine.launch import container_name

    node = link.node.name
    engine = await link.docker()
    name = container_name(link.node)
    listed = await engine.call(lambda client: client.api.containers(all=True), deadline_seconds=10)
    exists = any(f"/{name}" in (each.get("Names") or ()) for each in listed)
    if exists:
        async for line in engine.lines(name, since_seconds=None, tail=tail, follow=follow):
            yield LogLine(STEP, node, line[:_LINE_CHARACTERS])
        return
    path = saved_log(logs_dir, node)
    if path is None:
        raise StepFailed(f"no container {name} and no saved log", fix="start it: sparktui serve", node=node)
    yield Note(STEP, node, f"the container {name} is gone; this is {path}", State.INFO)
    for line in await asyncio.to_thread(last_lines, path, tail):
        yield LogLine(STEP, node, line[:_LINE_CHARACTERS])


def last_lines(path: Path, count: int) -> list[str]:
    """The end of a saved log, oldest first."""
    with path.open(errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=count)]


async def show(
    links: Sequence[NodeLink], logs_dir: Path, emit: Callable[[Event], object], *, tail: int, follow: bool
) -> int:
    """The given nodes, in their order (followed: as lines come). A node that fails costs its own line.

    Returns the worst exit status.
    """

    async def one(link: NodeLink, say: Callable[[Event], object]) -> int:
        try:
            async for event in log_lines(link, logs_dir, tail=tail, follow=follow):
                say(event)
        except SparktuiError as error:
            say(Note(STEP, link.node.name, f"{error.what}{'; ' + error.fix if error.fix else ''}", State.FAIL))
            return error.exit_status
        return 0

    if follow:
        return max(await asyncio.gather(*(one(link, emit) for link in links)), default=0)
    kept: list[list[Event]] = [[] for _ in links]
    statuses = await asyncio.gather(*(one(link, events.append) for link, events in zip(links, kept, strict=True)))
    for events in kept:
        for event in events:
            emit(event)
    return max(statuses, default=0)
