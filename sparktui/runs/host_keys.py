"""An unknown host key is shown and asked about, once, before the first step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from sparktui.errors import HostKeyUnknown, SparktuiError
from sparktui.events import Question

if TYPE_CHECKING:
    from sparktui.remote.link import NodeLink

STEP = "ssh"
_LOGIN_SECONDS = 20.0
_MOST_KEYS = 4
"""A way through jump hosts meets more than one unknown key."""


async def confirm_host_keys(
    links: Sequence[NodeLink], ask: Callable[[Question], Awaitable[str]], trust: Callable[[str], None]
) -> None:
    """Log in to all nodes at once; ask about each key that nobody has confirmed, `trust` those that are.

    Every other problem of a node, and a key that was not confirmed, is left to the step: it says it in its own row.
    """
    unknown = [each for each in await asyncio.gather(*map(_unknown_key, links)) if each is not None]
    for link, error in unknown:
        found: HostKeyUnknown | None = error
        for _ in range(_MOST_KEYS):
            if found is None:
                break
            text = f"{link.node.name}: {found.what}. Is it {found.fingerprint} there too, and trust it?"
            question = Question(STEP, f"hostkey.{link.node.name}", text)
            if await ask(question) != "yes":
                break
            trust(found.known_hosts_line)
            again = await _unknown_key(link)
            found = again[1] if again else None


async def _unknown_key(link: NodeLink) -> tuple[NodeLink, HostKeyUnknown] | None:
    try:
        await link.run(["true"], deadline_seconds=_LOGIN_SECONDS)
    except HostKeyUnknown as error:
        return link, error
    except SparktuiError:
        return None
    return None
