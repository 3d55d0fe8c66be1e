"""Is each node entered by ssh? Asked of all at once; what a node says then becomes the next group's proposals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktui.envfile import quoted
from sparktui.errors import HostKeyChanged, HostKeyUnknown, SparktuiError
from sparktui.events import State
from sparktui.steps.discovery import (
    DISCOVERY_SCRIPT,
    DISCOVERY_SECONDS,
    NODE_SCRIPT,
    Found,
    is_ipv4,
    parse_discovery,
    parse_node,
)
from sparktui.steps.fabric_probe import PROBE_SECONDS
from sparktui.ui.first_start.proposals import NodeSaid, bare_host

if TYPE_CHECKING:
    from pathlib import Path

    from sparktui.remote.link import NodeLink
    from sparktui.runs.parts import Parts
    from sparktui.settings import Settings

LOGIN_SECONDS = 25.0
_NOBODY = "10.255.255.{}"
"""Stands for an address that is not known yet: ssh is given the name, nothing is sent here."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One node's result in words.

    Attributes:
        state: None while it is tried.
        known_hosts_line: what would trust an unknown host key, with its fingerprint.
    """

    name: str
    target: str
    state: State | None = None
    word: str = "trying"
    text: str = ""
    fix: str = ""
    fingerprint: str = ""
    known_hosts_line: str = ""
    said: NodeSaid | None = None


def link_settings(values: Mapping[str, str], known: Mapping[str, str], env_file: Path, nnodes: int) -> Settings:
    """Settings that are good enough to open links with; whoever has no address yet gets a stand-in.

    Args:
        values: the answers so far; `known` gives an address for a host where one is known.

    Raises:
        SettingsError: a host or user that ssh could not be given.
    """
    from sparktui.settings import parse_settings

    hosts = values.get("WORKER_HOSTS", "").split() or [_NOBODY.format(rank) for rank in range(2, nnodes + 1)]
    addresses = []
    for rank, written in enumerate(hosts, 2):
        host = bare_host(written)
        address = known.get(host) or host
        addresses.append(address if _may_stand(address) else _NOBODY.format(rank))
    head = values.get("HEAD_IP", "")
    lines = {
        "HEAD_IP": head if _may_stand(head) and head not in addresses else _NOBODY.format(1),
        "WORKER_IPS": " ".join(addresses),
        "WORKER_HOSTS": " ".join(hosts),
        "WORKER_USER": values.get("WORKER_USER", ""),
        "SSH_IDENTITY": values.get("SSH_IDENTITY", ""),
        # The count is judged with the whole file, not by the way of a login.
        **_sizes(len(hosts) + 1),
    }
    text = "".join(f"{name}={quoted(value)}\n" for name, value in lines.items())
    return parse_settings(text, env_path=env_file)


def _may_stand(address: str) -> bool:
    """Whether the rules take it; whether it is right is judged with the whole file."""
    from sparktui.settings.rule import means_itself
    from sparktui.settings.rules_spelling import is_example

    return is_ipv4(address) and not means_itself(address) and not is_example(address)


def _sizes(nnodes: int) -> dict[str, str]:
    if nnodes == 3:
        return {"NNODES": "3"}
    size = str(nnodes if nnodes in (4, 8) else 4)
    return {"NNODES": size, "TP_SIZE": size, "EP_SIZE": size, "DSV41_TP_PAD": "0"}


async def discover(parts: Parts, settings: Settings) -> Found:
    """Ask this machine. A machine that cannot be asked is a Found that says why."""
    from sparktui.runs.execute import close_links

    links = await parts.open_links(settings)
    try:
        answer = await links[0].script(DISCOVERY_SCRIPT, deadline_seconds=DISCOVERY_SECONDS)
    except SparktuiError as error:
        return Found(trouble=f"this machine could not be looked at: {error.what}")
    finally:
        await close_links(links)
    return parse_discovery(answer.stdout)


async def try_node(link: NodeLink) -> KeyRow:
    """Log in to one node and let it say its addresses."""
    node = link.node
    target = "this machine" if node.is_head else _target(node.ssh_user, node.ssh_host or node.address)
    try:
        await link.run(["true"], deadline_seconds=LOGIN_SECONDS)
    except HostKeyUnknown as error:
        return KeyRow(
            node.name,
            target,
            State.WARN,
            "host key not confirmed",
            error.what,
            error.fix,
            error.fingerprint,
            error.known_hosts_line,
        )
    except HostKeyChanged as error:
        return KeyRow(node.name, target, State.FAIL, "refused", error.what, error.fix)
    except SparktuiError as error:
        return KeyRow(node.name, target, State.FAIL, "no login", error.what, error.fix)
    words = "" if node.is_head else await _login_words(link)
    return KeyRow(node.name, target, State.OK, "works", words, said=await _what_it_says(link))


def _target(user: str | None, host: str) -> str:
    return f"{user}@{host}" if user else host


async def _login_words(link: Any) -> str:
    """Which key opened the door, where the link knows."""
    ask = getattr(link, "login", None)
    if ask is None:
        return ""
    try:
        login = await ask()
    except SparktuiError:
        return ""
    return "; ".join([str(login.text).removeprefix("OK "), *login.warnings])


async def _what_it_says(link: NodeLink) -> NodeSaid:
    """Addresses and RDMA devices; a node that does not say leaves them unknown."""
    try:
        answer = await link.script(NODE_SCRIPT, deadline_seconds=PROBE_SECONDS)
    except SparktuiError:
        return NodeSaid(link.node.name)
    places, fabric = parse_node(answer.stdout)
    return NodeSaid(link.node.name, places, fabric)


def waiting_rows(links: Sequence[NodeLink]) -> tuple[KeyRow, ...]:
    return tuple(
        KeyRow(
            link.node.name,
            "this machine" if link.node.is_head else _target(link.node.ssh_user, link.node.ssh_host),
        )
        for link in links
    )
