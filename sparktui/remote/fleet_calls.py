"""All nodes at once: their links, and calls in which a node that fails costs its own row and nothing else."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from sparktui.cluster.node import Node
from sparktui.errors import NodeUnreachable, SparktuiError
from sparktui.remote.link import NodeLink

T = TypeVar("T")


class _Secret(Protocol):
    def get_secret_value(self) -> str: ...


class LinkSettings(Protocol):
    """What links need of the settings."""

    @property
    def nodes(self) -> tuple[Node, ...]: ...
    @property
    def ssh_identity(self) -> str | Path | None: ...
    @property
    def worker_pass(self) -> _Secret | None: ...


def open_links(settings: LinkSettings, *, environment: Mapping[str, str] | None = None) -> tuple[NodeLink, ...]:
    """A link for each node, head first, whether it answers or not: nothing is connected yet.

    `$HOME/.ssh` is read where HOME is set to another folder than the account's (plain ssh ignores HOME).
    """
    from sparktui.remote.local import LocalLink
    from sparktui.remote.ssh import SshLink
    from sparktui.remote.ssh_login import SshAccess

    around = os.environ if environment is None else environment
    account_home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    home = Path(around.get("HOME") or account_home)
    password = settings.worker_pass.get_secret_value() if settings.worker_pass is not None else ""
    identity = str(settings.ssh_identity or "")
    access = SshAccess(
        home=home,
        identity=_expanded(identity, home) if identity else None,
        password=password or None,
        home_is_other=home.resolve() != account_home.resolve(),
        environment=dict(around),
    )
    links = (LocalLink(node) if node.is_head else SshLink(node, access) for node in settings.nodes)
    return tuple(links)


def _expanded(path: str, home: Path) -> Path:
    return home / path[2:] if path.startswith("~/") else Path(path)


async def gather_nodes(
    links: Sequence[NodeLink],
    call: Callable[[NodeLink], Awaitable[T]],
    *,
    deadline_seconds: float | None = None,
) -> list[T | SparktuiError]:
    """`call(link)` for all nodes at once, in the order of `links`.

    A node's SparktuiError becomes its own value, and a node that is later than `deadline_seconds` a NodeUnreachable; a
    mistake in our own code is raised, and the other calls are cancelled.
    """

    async def one(link: NodeLink) -> T | SparktuiError:
        try:
            async with asyncio.timeout(deadline_seconds):
                return await call(link)
        except SparktuiError as error:
            if error.node is None:
                error.node = link.node.name
            return error
        except TimeoutError:
            return NodeUnreachable(f"no answer for {deadline_seconds:g} s", node=link.node.name)

    tasks: list[asyncio.Task[T | SparktuiError]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(link)) for link in links]
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


async def close_links(links: Iterable[NodeLink]) -> None:
    """Close all; what a dying node says then is of no interest."""

    async def close(link: NodeLink) -> None:
        try:
            async with asyncio.timeout(3):
                await link.aclose()
        except (SparktuiError, OSError, TimeoutError):
            pass

    await asyncio.gather(*(close(link) for link in links))
