"""Whether the nodes are entered, tried from the group `ssh`, and the host keys that nobody has confirmed yet."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual import work

from sparktui.cluster.profile import PROFILES
from sparktui.errors import SparktuiError
from sparktui.events import State
from sparktui.steps.discovery import Found
from sparktui.ui.first_start.draft import Draft
from sparktui.ui.first_start.env_text import values_of
from sparktui.ui.first_start.host_key_card import TRUST, HostKeyCard
from sparktui.ui.first_start.key_test import KeyRow, link_settings, try_node, waiting_rows
from sparktui.ui.first_start.proposals import NodeSaid, Proposal, bare_host, propose
from sparktui.ui.frame import FrameScreen

if TYPE_CHECKING:
    from sparktui.settings import Settings


class NodeLogins(FrameScreen):
    """The part of the first start that logs in."""

    env_file: Path

    def __init__(self) -> None:
        super().__init__()
        self.draft = Draft()
        self.found: Found | None = None
        self.said: dict[str, NodeSaid] = {}
        self.rows: tuple[KeyRow, ...] = ()
        self.insisted = False
        self._tested: tuple[str, ...] = ()
        self._tested_with: Settings | None = None
        self._keys_asked: set[str] = set()

    @property
    def proposed(self) -> dict[str, Proposal]:
        return propose(PROFILES[self.draft.profile], self.draft.answers, self.found or Found(), self.said)

    def say(self, text: str) -> None:
        """Below the questions."""

    def show(self) -> None:
        """What is known now."""

    def check_soon(self) -> None:
        """The answers may make another file now."""

    def refresh_data(self) -> None:
        self.ask_host_key()  # something was over this screen

    # trying

    def _asked(self) -> tuple[str, ...]:
        """What a test of the nodes depends on."""
        values = values_of(self.draft, self.proposed)
        return tuple(values.get(name, "") for name in ("WORKER_HOSTS", "WORKER_USER", "SSH_IDENTITY"))

    def test_if_new(self) -> bool:
        """Try the nodes unless exactly that was tried; whether it was begun."""
        if self._asked() == self._tested:
            return False
        self.action_test()
        return True

    def action_test(self) -> None:
        self._tested = self._asked()
        self._keys_asked.clear()
        self.insisted = False
        self.workers.cancel_group(self, "first.trust")
        self._test(values_of(self.draft, self.proposed))

    @work(group="first.test", exclusive=True, exit_on_error=False)
    async def _test(self, values: dict[str, str]) -> None:
        from sparktui.runs.execute import close_links

        self.rows = ()
        if not values.get("WORKER_HOSTS"):
            self.show()
            return
        found = self.found or Found()
        known = {each.host: each.address for each in found.candidates if each.address}
        nnodes = PROFILES[self.draft.profile].nnodes
        try:
            settings = await asyncio.to_thread(link_settings, values, known, self.env_file, nnodes)
        except SparktuiError as error:
            self.say(error.what.partition("\n")[0])
            self.show()
            return
        self._tested_with = settings
        links = await self.app.session.start.parts.open_links(settings)
        try:
            self.rows = waiting_rows(links)
            self.show()
            await asyncio.gather(*(self._try(link) for link in links))
        finally:
            await close_links(links)
        self._tried()

    async def _try(self, link: object) -> None:
        row = await try_node(link)  # type: ignore[arg-type]
        if row.said is not None and row.name != "head":
            self.said[bare_host(row.target)] = row.said
        self._put(row)

    def _put(self, row: KeyRow) -> None:
        self.rows = tuple(row if (each.name, each.target) == (row.name, row.target) else each for each in self.rows)
        self.show()

    def _tried(self) -> None:
        if self.rows and all(row.state is State.OK for row in self.rows):
            self.say("All nodes answer.")
        self.ask_host_key()
        self.check_soon()

    # host keys

    def ask_host_key(self) -> bool:
        """Ask for the first key that nobody has confirmed, once each test, and only over the group it belongs to.

        Nor while something else is being typed than what was tried: the next test asks again. Whether it asks now.
        """
        if self.draft.page != "ssh" or self.app.screen is not self or self._asked() != self._tested:
            return False
        if any(row.state is None for row in self.rows):
            return False
        waiting = (row for row in self.rows if row.known_hosts_line and row.known_hosts_line not in self._keys_asked)
        row = next(waiting, None)
        if row is None:
            return False
        self._keys_asked.add(row.known_hosts_line)
        self.app.push_screen(HostKeyCard(row), partial(self._answered, row))
        return True

    def _answered(self, row: KeyRow, answer: str | None) -> None:
        if answer == TRUST:
            self._trust(row)
        else:
            self.ask_host_key()

    @work(group="first.trust", exit_on_error=False)
    async def _trust(self, row: KeyRow) -> None:
        """Write it to known_hosts and try again whoever showed it; behind a jump host there may be one more key."""
        from sparktui.runs.execute import close_links

        parts, settings = self.app.session.start.parts, self._tested_with
        if settings is None:
            return
        try:
            await asyncio.to_thread(parts.trust_host_key, row.known_hosts_line)
        except (OSError, ValueError) as error:
            self.say(f"known_hosts cannot be written: {error}")
            self.ask_host_key()
            return
        names = {each.name for each in self.rows if each.known_hosts_line == row.known_hosts_line}
        for each in self.rows:
            if each.name in names:
                self._put(replace(each, state=None, word="trying", text="", fix="", known_hosts_line=""))
        links = await parts.open_links(settings)
        try:
            await asyncio.gather(*(self._try(link) for link in links if link.node.name in names))
        finally:
            await close_links(links)
        self._tried()
