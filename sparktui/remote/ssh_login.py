"""Entering a node over asyncssh: configuration, jump hosts, host key, keys one after another, password last."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from sparktui.cluster.node import Node
from sparktui.errors import NodeUnreachable
from sparktui.remote.known_hosts import KnownHost, entries_of, host_pattern
from sparktui.remote.ssh_config import HostConfig, ask_config, config_argv, read_config
from sparktui.remote.ssh_failures import broken_way, refused_login, unknown_host_key
from sparktui.remote.ssh_keys import (
    ATTEMPTS_A_CONNECTION,
    Candidate,
    Discovery,
    FoundBy,
    Login,
    Tried,
    agent_is_forwarded,
    agent_socket,
    discover,
    find_mismatch,
    key_files,
)

_CIPHERS = (
    "aes128-gcm@openssh.com",  # 179 MB/s against 99 with the default order
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
)
_MOST_JUMPS = 5


@dataclass(frozen=True, slots=True)
class SshAccess:
    """What all nodes have in common.

    Attributes:
        identity: SSH_IDENTITY, or None where not set.
        password: WORKER_PASS, tried after all keys; never shown.
        home: whose ~/.ssh is read.
        home_is_other: `home` is not the account's own, so OpenSSH must be told.
        environment: SSH_AUTH_SOCK and what IdentityAgent may name.
    """

    home: Path
    identity: Path | None = None
    password: str | None = field(default=None, repr=False)
    home_is_other: bool = False
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_seconds: float = 15.0
    keepalive_seconds: float = 5.0
    keepalive_misses: int = 3


@dataclass(slots=True)
class Entered:
    """An open connection; `close()` also closes the jump hosts' below it."""

    connection: asyncssh.SSHClientConnection
    login: Login
    config: HostConfig
    below: list[asyncssh.SSHClientConnection] = field(default_factory=list)

    async def close(self) -> None:
        for connection in (self.connection, *reversed(self.below)):
            connection.close()
        with contextlib.suppress(TimeoutError, asyncssh.Error, OSError):
            async with asyncio.timeout(1):
                await self.connection.wait_closed()


class _Offering(asyncssh.SSHClient):
    """Offers the given keys in turn, and remembers what the server showed and accepted."""

    def __init__(self, candidates: Sequence[Candidate], password: str | None) -> None:
        self.left = list(candidates)
        self.password, self.password_used = password, False
        self.offered: list[Candidate] = []
        self.host_key: asyncssh.SSHKey | None = None
        self.banner: list[str] = []

    def public_key_auth_requested(self) -> Any:
        if not self.left:
            return None
        self.offered.append(self.left.pop(0))
        return self.offered[-1].pair

    def password_auth_requested(self) -> str | None:
        if self.password is None or self.password_used:
            return None
        self.password_used = True
        return self.password

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.banner += [line.strip() for line in msg.splitlines() if line.strip()]

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.host_key = key
        return False


async def resolve(host: str, access: SshAccess, *, user: str | None, port: int | None, node: str) -> HostConfig:
    """The user's ssh configuration for a host.

    Raises:
        NodeUnreachable: no ssh client here, or it refuses its configuration.
    """
    argv = config_argv(host, user=user, port=port, home=access.home if access.home_is_other else None)
    try:
        return read_config(await ask_config(argv), host, home=access.home)
    except FileNotFoundError:
        raise NodeUnreachable(
            "this machine has no ssh client", fix="sudo apt install openssh-client", node=node
        ) from None
    except ValueError as error:
        raise NodeUnreachable(
            f"ssh refuses its configuration for {host}: {error}", fix=f"try by hand: {shlex.join(argv)}", node=node
        ) from None
    except TimeoutError:
        raise NodeUnreachable(
            f"`ssh -G {host}` does not return", fix="look for a `Match exec` in ~/.ssh/config", node=node
        ) from None


async def enter(node: Node, access: SshAccess) -> Entered:
    """Log in to a node.

    Raises:
        HostKeyUnknown, HostKeyChanged, NodeUnreachable: with cause and next step.
    """
    config = await resolve(
        node.ssh_host or node.address, access, user=node.ssh_user, port=node.ssh_port, node=node.name
    )
    below: list[asyncssh.SSHClientConnection] = []
    try:
        return await _enter(config, access, node.name, below, depth=0)
    except BaseException:
        for connection in reversed(below):
            connection.close()
        raise


async def _enter(
    config: HostConfig, access: SshAccess, node: str, below: list[asyncssh.SSHClientConnection], *, depth: int
) -> Entered:
    if depth > _MOST_JUMPS:
        raise NodeUnreachable(f"more than {_MOST_JUMPS} jump hosts: {config.host} leads to itself", node=node)
    tunnel: asyncssh.SSHClientConnection | None = None
    for number, hop in enumerate(config.jumps):
        user, host, port = split_hop(hop)
        onward = await resolve(host, access, user=user, port=port, node=node)
        if number:  # only the first hop's own way counts, as with ssh -J
            onward = _direct(onward)
        tunnel = (
            await _enter(onward, access, node, below, depth=depth + 1)
            if tunnel is None
            else await _authenticate(onward, access, node, tunnel, below)
        ).connection
        below.append(tunnel)
    return await _authenticate(config, access, node, tunnel, below)


def split_hop(hop: str) -> tuple[str | None, str, int | None]:
    """`[user@]host[:port]`, also `ssh://…` and `[v6]:port`."""
    hop = hop.removeprefix("ssh://").rstrip("/")
    user, _, place = hop.rpartition("@")
    host, separator, port = place.rpartition(":")
    if not separator or (":" in host and not host.endswith("]")) or not port.isdigit():
        host, port = place, ""
    return user or None, host.strip("[]"), int(port) if port else None


def _direct(config: HostConfig) -> HostConfig:
    return dataclasses.replace(config, jumps=(), proxy_command="")


async def _authenticate(
    config: HostConfig,
    access: SshAccess,
    node: str,
    tunnel: asyncssh.SSHClientConnection | None,
    below: list[asyncssh.SSHClientConnection],
) -> Entered:
    agent_path = agent_socket(config, access.environment, access.home)
    agent = await _agent(agent_path)
    try:
        pairs = list(await agent.get_keys()) if agent else []
    except (OSError, ValueError):
        pairs = []
    found = await asyncio.to_thread(
        discover,
        list(key_files(config, access.identity, access.home / ".ssh")),
        pairs,
        _load,
    )
    if config.identities_only:
        found.candidates = [each for each in found.candidates if each.found_by is not FoundBy.AGENT]
    known = await asyncio.to_thread(_known, config)
    client, connection, tried = await _offer_all(config, access, node, tunnel, found, known)
    accepted = client.offered[-1] if client.offered and not client.password_used else None
    forwarded = False
    if accepted and accepted.found_by is FoundBy.AGENT:
        forwarded = bool(await asyncio.to_thread(agent_is_forwarded, agent_path))
    if agent:
        connection.set_extra_info(sparktui_agent=agent)  # lives as long as the connection; signs re-keys too
    login = Login(
        target=config.target,
        via=config.via,
        key=accepted.name if accepted else "",
        found_by=accepted.found_by if accepted else None,
        tried=tuple(tried),
        only_in_forwarded_agent=forwarded,
        mismatch=find_mismatch(access.identity, config),
        banner=tuple(client.banner),
    )
    return Entered(connection, login, config, list(below))


async def _offer_all(
    config: HostConfig,
    access: SshAccess,
    node: str,
    tunnel: asyncssh.SSHClientConnection | None,
    found: Discovery,
    known: list[KnownHost],
) -> tuple[_Offering, asyncssh.SSHClientConnection, list[Tried]]:
    """Offer every key, a few a connection (sshd counts failures), the password on the last one."""
    tried, left, every = list(found.unusable), list(found.candidates), tuple(found.candidates)
    while True:
        now, left = left[:ATTEMPTS_A_CONNECTION], left[ATTEMPTS_A_CONNECTION:]
        client = _Offering(now, access.password if not left else None)
        try:
            connection = await _connect(config, access, tunnel, client, known, node)
        except (asyncssh.PermissionDenied, _TooManyTries) as error:
            asked = client.offered
            tried += [Tried(each.name, each.found_by, "refused", each.fingerprint) for each in asked]
            left = (client.left if isinstance(error, _TooManyTries) and asked else []) + left
            if left and asked:
                continue
            if access.password is not None and not client.password_used:
                left = []  # keys are not allowed at all, or all of them are refused: the password's turn
                continue
            methods = await _allowed_methods(config, access, tunnel, known)
            offered = {each.name for each in tried}
            tried += [
                Tried(each.name, each.found_by, "not asked for", each.fingerprint)
                for each in every
                if each.name not in offered
            ]
            raise refused_login(
                config,
                tried,
                node=node,
                offered_methods=methods,
                last_line=f"{config.user}@{config.host}: Permission denied ({','.join(methods)})",
                password=client.password_used,
            ) from None
        for each in client.offered:
            worked = each is client.offered[-1] and not client.password_used
            tried.append(Tried(each.name, each.found_by, "accepted" if worked else "refused", each.fingerprint))
        return client, connection, tried


async def _connect(
    config: HostConfig,
    access: SshAccess,
    tunnel: asyncssh.SSHClientConnection | None,
    client: _Offering,
    known: list[KnownHost],
    node: str,
    *,
    any_host_key: bool = False,
) -> asyncssh.SSHClientConnection:
    try:
        async with asyncio.timeout(access.connect_seconds):
            return await asyncssh.connect(
                config.hostname,
                config.port,
                **_way(config, tunnel),
                client_factory=lambda: client,
                config=None,
                username=config.user,
                known_hosts=_trusted(known),
                host_key_alias=config.host_key_alias or None,
                server_host_key_algs="default" if any_host_key else (),
                client_keys=None,
                agent_path=None,
                gss_host=None,
                encryption_algs=_CIPHERS,
                preferred_auth=("publickey", "keyboard-interactive", "password"),
                keepalive_interval=access.keepalive_seconds,
                keepalive_count_max=access.keepalive_misses,
                login_timeout=access.connect_seconds,
            )
    except asyncssh.PermissionDenied:
        raise
    except asyncssh.HostKeyNotVerifiable as error:
        if client.host_key is None:
            raise broken_way(error, config, node=node, seconds=access.connect_seconds) from None
        raise unknown_host_key(
            config,
            client.host_key.export_public_key("openssh").decode(),
            client.host_key.get_fingerprint(),
            node=node,
            old=known,
        ) from None
    except (asyncssh.KeyExchangeFailed, asyncssh.ConnectionLost, ConnectionResetError) as error:
        # With a key of another type on file only that type was asked for, and sshd may just hang up on that: look at
        # what the host has now.
        if known and not any_host_key and not client.offered:
            return await _connect(config, access, tunnel, client, known, node, any_host_key=True)
        raise broken_way(error, config, node=node, seconds=access.connect_seconds) from None
    except asyncssh.DisconnectError as error:
        if "too many authentication failures" in str(error).lower():
            raise _TooManyTries from None
        raise broken_way(error, config, node=node, seconds=access.connect_seconds) from None
    except (OSError, asyncssh.Error) as error:
        raise broken_way(error, config, node=node, seconds=access.connect_seconds) from None


def _way(config: HostConfig, tunnel: asyncssh.SSHClientConnection | None) -> dict[str, Any]:
    if tunnel is not None:
        return {"tunnel": tunnel}
    if config.proxy_command:
        return {"proxy_command": ["/bin/sh", "-c", f"exec {expand_percent(config.proxy_command, config)}"]}
    return {}


def expand_percent(command: str, config: HostConfig) -> str:
    """ProxyCommand's tokens: %h %p %r %n %%."""
    tokens = {"h": config.hostname, "p": str(config.port), "r": config.user, "n": config.host, "%": "%"}
    return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), command)


async def _allowed_methods(
    config: HostConfig, access: SshAccess, tunnel: asyncssh.SSHClientConnection | None, known: list[KnownHost]
) -> tuple[str, ...]:
    """What sshd says it accepts from this user; () when it does not say."""
    options = asyncssh.SSHClientConnectionOptions(config=None, username=config.user, known_hosts=_trusted(known))
    with contextlib.suppress(OSError, asyncssh.Error, ValueError):
        async with asyncio.timeout(access.connect_seconds):
            return tuple(
                await asyncssh.get_server_auth_methods(
                    config.hostname, config.port, config.user, **_way(config, tunnel), config=None, options=options
                )
            )
    return ()


def _known(config: HostConfig) -> list[KnownHost]:
    name = config.host_key_alias or host_pattern(config.hostname, config.port)
    found: list[KnownHost] = []
    for file in config.known_hosts_files:
        with contextlib.suppress(OSError):
            found += entries_of(file.read_text(errors="replace"), [name], str(file))
    return found


def _trusted(known: Sequence[KnownHost]) -> Any:
    """Trusted keys, authorities and revoked keys, as asyncssh takes them; key types it does not know are left out."""
    sorts: dict[str, list[asyncssh.SSHKey]] = {"": [], "cert-authority": [], "revoked": []}
    for each in known:
        with contextlib.suppress(asyncssh.KeyImportError, KeyError):
            sorts[each.marker].append(asyncssh.import_public_key(f"{each.key_type} {each.key}"))
    return tuple(sorts.values())


def _load(file: Path) -> Sequence[Any]:
    return asyncssh.load_keypairs([str(file)])


async def _agent(path: str) -> asyncssh.SSHAgentClient | None:
    if not path:
        return None
    agent = asyncssh.SSHAgentClient(path)
    try:
        async with asyncio.timeout(3):
            await agent.connect()
    except (OSError, TimeoutError, asyncssh.Error):
        return None
    return agent


class _TooManyTries(Exception):
    """sshd counted too many refused keys on one connection; the rest needs another."""
