"""A machine before its first settings: what it answers about itself, and workers that say who they are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from sparktui.cluster.fabric import PORT_NAMES
from sparktui.errors import HostKeyChanged, HostKeyUnknown, NodeUnreachable
from sparktui.settings import Settings
from sparktui.ui.first_start.flow import FirstStart
from tests.scripted_link import ScriptedLink
from tests.ui.app_in_test import AppInTest

HEAD = "192.168.20.11"
ALIASES = "spark-b\thostname=192.168.20.12 user=nvidia \nspark-c\thostname=192.168.20.13 user=nvidia \n"
_CABLES = {"enp1s0f0np0": 0, "enP2p1s0f0np0": 1, "enp1s0f1np1": 4, "enP2p1s0f1np1": 5}


def fabric_text(*, down: bool = False) -> str:
    """Four RDMA devices as the fabric script prints them."""
    rows = []
    for port in PORT_NAMES:
        base = f"/sys/class/infiniband/{port.device}"
        rows += [
            f"{base}/device/net/{port.netdev}\t-",
            f"{base}/ports/1/state\t{'1: DOWN' if down else '4: ACTIVE'}",
            f"/sys/class/net/{port.netdev}/phys_port_name\t{port.cage}",
        ]
    return "\n".join(rows) + "\n"


def addresses_text(rank: int, *, lan: str | None = None) -> str:
    """`ip -o -4 addr show` of a rank in the triangle: cable N joins rank N's port 0 and the next rank's port 1."""
    nets = {
        0: {"enp1s0f0np0": 0, "enP2p1s0f0np0": 1, "enp1s0f1np1": 4, "enP2p1s0f1np1": 5},
        1: {"enp1s0f0np0": 2, "enP2p1s0f0np0": 3, "enp1s0f1np1": 0, "enP2p1s0f1np1": 1},
        2: {"enp1s0f0np0": 4, "enP2p1s0f0np0": 5, "enp1s0f1np1": 2, "enP2p1s0f1np1": 3},
    }[rank]
    rows = ["1: lo    inet 127.0.0.1/8 scope host lo"]
    rows.append(f"2: enP7s7    inet {lan or f'192.168.20.{11 + rank}'}/24 brd 192.168.20.255 scope global enP7s7")
    rows += [
        f"{number}: {name}    inet 10.10.{net}.{rank + 1}/24 scope global {name}"
        for number, (name, net) in enumerate(nets.items(), 3)
    ]
    return "\n".join(rows) + "\n"


def discovery_text(*, aliases: str = ALIASES, known: str = "", neighbours: str = "", cables: bool = True) -> str:
    own = addresses_text(0) if cables else "2: eth0    inet 192.168.20.11/24 scope global eth0\n"
    return (
        f"@hostname\nspark-a\n@addresses\n{own}@route\ndefault via 192.168.20.1 dev enP7s7 proto dhcp\n"
        f"@neighbours\n{neighbours}@hosts\n127.0.0.1 localhost\n@known\n{known}@aliases\n{aliases}"
        f"@fabric\n{fabric_text() if cables else ''}"
    )


class BeforeSettings(AppInTest):
    """The app without an env file, on a head that knows two workers.

    Attributes:
        found: what this machine says about itself.
        refusals: worker name to what its login raises; None never answers.
        trusted: known_hosts lines that were trusted; a worker's unknown key then works.
        opened_with: the settings of each time that links were opened.
        waits: every worker's login answers when this is set; None at once.
    """

    def __init__(self, folder: Path, **more: Any) -> None:
        self.found = discovery_text()
        self.refusals: dict[str, Exception | None] = {}
        self.opened_with: list[Settings] = []
        self.waits: asyncio.Event | None = None
        super().__init__(folder, env={}, **{"profile": None, **more})

    async def _open_links(self, settings: Settings) -> tuple[Any, ...]:
        self.opened_with.append(settings)
        links = tuple(ScriptedLink(node) for node in settings.nodes)
        for rank, link in enumerate(links):
            said = addresses_text(rank) if rank < 3 else ""
            link.answer(r"@fabric", stdout=f"@addresses\n{said}@fabric\n{fabric_text()}")
            link.answer(r"@hostname", stdout=self.found)
            link.answer(r"^true$")
            if link.node.name in self.refusals and self.refusals[link.node.name] is None:
                link.run = _never  # type: ignore[method-assign]
            if self.waits is not None and rank:
                link.run = _after(self.waits, link.run)  # type: ignore[method-assign]
            refusal = self.refusals.get(link.node.name)
            known = isinstance(refusal, HostKeyUnknown) and refusal.known_hosts_line in self.trusted
            if refusal is not None and not known:
                link.answer(r"^true$", error=refusal, times=1 if isinstance(refusal, HostKeyUnknown) else None)
        self.scripted_links = links
        return links

    @property
    def first(self) -> FirstStart:
        return next(each for each in self.screen_stack if isinstance(each, FirstStart))

    @property
    def at(self) -> str:
        """The group that is shown."""
        return self.first.draft.page


def _after(waits: asyncio.Event, run: Any) -> Any:
    async def later(*words: object, **more: object) -> Any:
        await waits.wait()
        return await run(*words, **more)

    return later


async def _never(*_: object, **__: object) -> Any:
    await asyncio.Event().wait()


def unknown_key(name: str) -> HostKeyUnknown:
    return HostKeyUnknown(
        f"nobody has confirmed the host key of {name} yet: ssh-ed25519 SHA256:abcdefghijkl",
        known_hosts_line=f"{name} ssh-ed25519 AAAAC3Nz",
        fingerprint="SHA256:abcdefghijkl",
        fix="compare it on that machine: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
        node=name,
    )


def changed_key(name: str) -> HostKeyChanged:
    return HostKeyChanged(
        "the host key of spark-c has CHANGED: it is now ssh-ed25519 SHA256:other. Refused: this may be another machine",
        fix="if the Spark was reinstalled: ssh-keygen -f ~/.ssh/known_hosts -R 'spark-c'",
        node=name,
    )


def dead(name: str) -> NodeUnreachable:
    return NodeUnreachable("spark-b port 22 did not answer in 15 s", fix="is it on? ping spark-b", node=name)
