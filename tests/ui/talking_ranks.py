"""Scripted Sparks whose engines' logs say what the test lets them say, as long as the test likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from sparktui.remote.docker_log import LogPart
from sparktui.settings import Settings
from tests.scripted_link import ScriptedLink
from tests.ui.app_in_test import AppInTest

T = TypeVar("T")


class TalkingEngine:
    """A Docker Engine of which only the log of one container is asked."""

    def __init__(self, link: TalkingLink) -> None:
        self._link = link

    async def call(self, work: Callable[[Any], T], *, deadline_seconds: float) -> T:
        return work(self._link.engine.client)

    async def log_parts(
        self, container: str, *, after: str | None, tail: int | None, follow: bool
    ) -> AsyncIterator[LogPart]:
        while True:
            yield LogPart(await self._link.said.get(), None)

    async def lines(
        self, container: str, *, since_seconds: float | None, tail: int | None, follow: bool
    ) -> AsyncIterator[str]:
        while True:
            for line in await self._link.said.get():
                yield line


class TalkingLink(ScriptedLink):
    """`say` makes the rank say lines; `hung` never answers when its Docker is asked."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self.said: asyncio.Queue[list[str]] = asyncio.Queue()
        self.hung = False

    def say(self, *lines: str) -> None:
        self.said.put_nowait(list(lines))

    async def docker(self) -> Any:
        if self.hung:
            await asyncio.Event().wait()
        if self._gone:
            raise self._gone
        return TalkingEngine(self)


class AppWithLogs(AppInTest):
    """`prepare` is called with the links before anybody asks them."""

    def __init__(self, *args: Any, prepare: Callable[[tuple[TalkingLink, ...]], object] | None = None, **named: Any):
        self.prepare = prepare
        self.ranks: tuple[TalkingLink, ...] = ()
        super().__init__(*args, **named)

    async def _open_links(self, settings: Settings) -> tuple[Any, ...]:
        self.ranks = tuple(TalkingLink(node) for node in settings.nodes)
        if self.prepare is not None:
            self.prepare(self.ranks)
        return self.ranks
