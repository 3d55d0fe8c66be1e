"""All ranks' engine output, interleaved as it comes: batches for a screen, bounded however much is said.

A node is followed across restarts of its container and lost connections; while there is no container, the last saved
log stands in. It needs the Docker Engines: start it only while it is shown.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sparktui.engine.launch import container_name
from sparktui.errors import DeadlineExceeded, DockerUnavailable, NodeUnreachable, SparktuiError
from sparktui.rank_logs import last_lines, saved_log

if TYPE_CHECKING:
    from sparktui.remote.link import DockerEngine, NodeLink

BATCH_SECONDS = 0.1
HELD_LINES = 20_000
"""Between two batches, all ranks together; then the oldest go, and are counted."""
LINE_CHARACTERS = 4_000
AGAIN_SECONDS = 2.0
LONGEST_AGAIN_SECONDS = 60.0
"""Between tries on a node that does not answer; a container that is not there is looked for every AGAIN_SECONDS."""
FIRST_TAIL = 500


class RankLine(NamedTuple):
    """One line; `at` is when it came, by the clock that was passed in. `ours` marks a remark of the stream itself."""

    node: str
    rank: int
    text: str
    at: float
    ours: bool = False


@dataclass(frozen=True, slots=True)
class LogBatch:
    """What came since the last batch, in the order in which it came; `dropped` counts from the beginning."""

    lines: tuple[RankLine, ...]
    dropped: int


class RankLogStream:
    """Follows every rank while `batches()` is iterated.

    Args:
        logs_dir: where saved logs are.
        mask: takes secrets out of a line.
        tail: lines of each rank to begin with.
    """

    def __init__(
        self,
        links: Sequence[NodeLink],
        logs_dir: Path,
        *,
        mask: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
        tail: int = FIRST_TAIL,
        held_lines: int = HELD_LINES,
    ) -> None:
        self._links, self._logs_dir, self._mask, self._clock, self._tail = links, logs_dir, mask, clock, tail
        self._held: deque[RankLine] = deque(maxlen=held_lines)
        self._dropped = 0
        self._news = asyncio.Event()

    async def batches(self) -> AsyncIterator[LogBatch]:
        """About ten a second while there is something to say. A node's failure is a remark among its lines."""
        tasks = [asyncio.create_task(self._follow(link)) for link in self._links]
        try:
            while True:
                await self._news.wait()
                await asyncio.sleep(BATCH_SECONDS)
                self._news.clear()
                lines = tuple(self._held)
                self._held.clear()
                yield LogBatch(lines, self._dropped)
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=0.8)

    def _put(self, link: NodeLink, lines: Sequence[str], *, ours: bool = False) -> None:
        if not lines:
            return
        held, at, name, rank = self._held, self._clock(), link.node.name, link.node.rank
        room = (held.maxlen or 0) - len(held)
        self._dropped += max(0, len(lines) - room)
        # Masked as one text: a secret is looked for once a batch, not once a line.
        text = self._mask("\n".join(line[:LINE_CHARACTERS] for line in lines))
        held.extend(RankLine(name, rank, line, at, ours) for line in text.split("\n"))
        self._news.set()

    async def _follow(self, link: NodeLink) -> None:
        said, pause = "", AGAIN_SECONDS
        seen = _Seen()
        while True:
            unreached = False
            try:
                await self._read(link, seen)
                problem = "the container's log has ended"
            except SparktuiError as error:
                problem, unreached = error.what, isinstance(error, NodeUnreachable | DeadlineExceeded)
            except Exception as error:
                problem = f"its log: {error or type(error).__name__}"
            if seen.fresh:
                said = ""
            if problem != said:
                self._put(link, [problem], ours=True)
                said = problem
                if not seen.any:
                    await self._saved(link)
                    seen.any = True
            seen.fresh = False
            pause = min(2 * pause, LONGEST_AGAIN_SECONDS) if unreached else AGAIN_SECONDS
            await asyncio.sleep(pause)

    async def _read(self, link: NodeLink, seen: _Seen) -> None:
        """One log to its end: its last lines the first time, later from where it was."""
        engine = await link.docker()
        async for lines in _parts(engine, link, seen, self._tail):
            seen.any = seen.fresh = True
            self._put(link, lines)

    async def _saved(self, link: NodeLink) -> None:
        path = await asyncio.to_thread(saved_log, self._logs_dir, link.node.name)
        if path is not None:
            self._put(link, [f"this is {path.name}, saved earlier"], ours=True)
            self._put(link, await asyncio.to_thread(last_lines, path, self._tail))


@dataclass(slots=True)
class _Seen:
    """How far a node's log has been read.

    Attributes:
        until: the moment of the last line, as the Engine stamps it.
        started_at, count: of an Engine that does not stamp: which container, and how many of its lines are known.
        fresh: something came since it was opened last.
    """

    any: bool = False
    fresh: bool = False
    until: str | None = None
    started_at: str | None = None
    count: int = 0


async def _parts(engine: DockerEngine, link: NodeLink, seen: _Seen, tail: int) -> AsyncIterator[Sequence[str]]:
    """By many lines where the Engine gives them so, else line by line."""
    name = container_name(link.node)
    by_part = getattr(engine, "log_parts", None)
    found: Any
    if by_part is not None:
        found = by_part(name, after=seen.until, tail=tail if seen.until is None else None, follow=True)
        async with aclosing(found):
            async for part in found:
                seen.until = part.until
                yield part.lines
        return
    from sparktui.remote.our_containers import look

    container = await look(link, name)
    if container is None:
        raise DockerUnavailable(f"there is no container {name}", node=link.node.name)
    if container.started_at != seen.started_at:
        seen.started_at, seen.count = container.started_at, 0
    at = 0
    found = engine.lines(name, since_seconds=None, tail=None, follow=True)
    async with aclosing(found):
        async for line in found:
            at += 1
            if at > seen.count:
                seen.count = at
                yield (line,)
