"""Several event streams as one, in the order in which they happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from sparktui.events import Event


async def merged(streams: Sequence[AsyncIterator[Event]]) -> AsyncIterator[Event]:
    """Yield what any of `streams` yields; the first error ends all of them and is raised."""
    queue: asyncio.Queue[Event | None] = asyncio.Queue(maxsize=256)

    async def drain(stream: AsyncIterator[Event]) -> None:
        try:
            async for event in stream:
                await queue.put(event)
        finally:
            await queue.put(None)

    tasks = [asyncio.create_task(drain(stream)) for stream in streams]
    try:
        open_streams = len(tasks)
        while open_streams:
            event = await queue.get()
            if event is not None:
                yield event
                continue
            open_streams -= 1
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()):
                    raise error
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
