"""What a failed login means, in words, with the next step. Pure; used by the ssh link only."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from sparktui.errors import HostKeyChanged, HostKeyUnknown, NodeUnreachable
from sparktui.remote.known_hosts import KnownHost, host_pattern
from sparktui.remote.ssh_config import HostConfig
from sparktui.remote.ssh_keys import Tried

AS_SEEN = "addresses are as seen from this head"


def refused_login(
    config: HostConfig,
    tried: Sequence[Tried],
    *,
    node: str,
    offered_methods: Sequence[str],
    last_line: str,
    password: bool,
) -> NodeUnreachable:
    """No key was accepted. Three branches: nothing to offer, the node refuses keys at all, or it does not know ours."""
    listed = (
        "; ".join(f"{each.name} (found by: {each.found_by}): {each.result}" for each in tried) or "no key was found"
    )
    says = f" ssh says: {last_line}." if last_line else ""
    methods = ", ".join(offered_methods)
    what = f"login as {config.target} was refused. Tried: {listed}.{says}"
    if password:
        what += " WORKER_PASS was refused too."
    refused = [each for each in tried if each.result == "refused"]
    if offered_methods and "publickey" not in offered_methods:
        return NodeUnreachable(
            f"sshd on {config.host} refuses keys (it allows: {methods}). {what}",
            fix="public-key login is off there: read the drop-ins in /etc/ssh/sshd_config.d/ on that node, and "
            "`sudo sshd -T | grep -i -e pubkey -e allowusers -e authenticationmethods` "
            "(sparktui does not change sshd)",
            node=node,
        )
    if not refused:
        return NodeUnreachable(
            f"no key could be offered. {what}",
            fix=f"ssh-keygen -t ed25519, then ssh-copy-id {config.user}@{config.host}; {AS_SEEN}",
            node=node,
        )
    key = refused[0].name
    return NodeUnreachable(
        what,
        fix=f"either the key is not installed: ssh-copy-id -i {key}.pub {config.user}@{config.host}; "
        "or a mode is wrong there: "
        "chmod 700 ~/.ssh, chmod 600 ~/.ssh/authorized_keys, home not writable by others; or sshd refuses this user or "
        f"algorithm: read /etc/ssh/sshd_config.d/ on that node; {AS_SEEN}",
        node=node,
    )


def unknown_host_key(
    config: HostConfig, key_text: str, fingerprint: str, *, node: str, old: Sequence[KnownHost]
) -> NodeUnreachable:
    """The host's key is not on file, or not the one that is."""
    name = config.host_key_alias or host_pattern(config.hostname, config.port)
    kind, blob = key_text.split()[:2]
    against = [each for each in old if each.marker != "cert-authority"]
    if any(each.marker == "revoked" and each.key == blob for each in old):
        each = next(each for each in old if each.marker == "revoked" and each.key == blob)
        return HostKeyChanged(
            f"the host key {fingerprint} of {config.host} is marked as revoked in {each.file} line {each.line_number}",
            fix="do not connect; ask whoever runs that machine",
            node=node,
        )
    if against:
        first = next((each for each in against if each.key_type == kind), against[0])
        return HostKeyChanged(
            f"the host key of {config.host} has CHANGED: it is now {kind} {fingerprint}, and {first.file} line "
            f"{first.line_number} holds another one. Refused: this may be another machine",
            fix=f"if the Spark was reinstalled: ssh-keygen -f {first.file} -R '{name}', then compare the new "
            "fingerprint on its own screen",
            node=node,
        )
    return HostKeyUnknown(
        f"nobody has confirmed the host key of {config.host} yet: {kind} {fingerprint}",
        known_hosts_line=f"{name} {kind} {blob}",
        fingerprint=fingerprint,
        fix=f"compare it on that machine: ssh-keygen -lf /etc/ssh/ssh_host_{kind.removeprefix('ssh-').split('-')[0]}"
        f"_key.pub; then trust it here, or log in once by hand: ssh {config.user}@{config.host}",
        node=node,
    )


def broken_way(error: BaseException, config: HostConfig, *, node: str, seconds: float) -> NodeUnreachable:
    """No TCP, no ssh on the other side, no common algorithm, or a connection that died."""
    import socket

    import asyncssh

    place = f"{config.hostname} port {config.port}"
    through = f" through {config.via}" if config.via else ""
    said = str(error).strip().rstrip(".")
    if isinstance(error, TimeoutError):
        return NodeUnreachable(
            f"{place}{through} did not answer in {seconds:g} s",
            fix=f"is it on, and is the address right? ping {config.hostname}; "
            "if ping answers and ssh does not, it is wedged: power cycle",
            node=node,
        )
    if isinstance(error, socket.gaierror):
        return NodeUnreachable(
            f"the name {config.hostname} is not known here",
            fix=f"use an IP address in WORKER_HOSTS, or add the name to /etc/hosts or ~/.ssh/config; {AS_SEEN}",
            node=node,
        )
    if isinstance(error, ConnectionRefusedError):
        return NodeUnreachable(
            f"{place}{through}: connection refused, nothing listens there",
            fix="on that node: sudo systemctl enable --now ssh; or set its Port in ~/.ssh/config",
            node=node,
        )
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return NodeUnreachable(
            f"{place}: no algorithm in common with its sshd ({said})",
            fix="read the Ciphers, MACs and KexAlgorithms lines of sshd_config and its drop-ins on that node",
            node=node,
        )
    if isinstance(error, asyncssh.ChannelOpenError):
        return NodeUnreachable(
            f"{place}{through} cannot be opened: {said}",
            fix="the jump host cannot reach it, or forbids forwarding (AllowTcpForwarding): try ssh by hand from there",
            node=node,
        )
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN):
        return NodeUnreachable(
            f"no route to {config.hostname}",
            fix=f"is the cable in and the address in this head's network? ip route get {config.hostname}",
            node=node,
        )
    if isinstance(error, asyncssh.ConnectionLost):
        return NodeUnreachable(
            f"the connection to {place}{through} was lost: {said}",
            fix="try again; if it stays so, look at that node's sshd (journalctl -u ssh) and at its console",
            node=node,
        )
    if isinstance(error, asyncssh.DisconnectError):
        return NodeUnreachable(
            f"{place}{through} ended the ssh dialogue: {said}", fix=f"try by hand: ssh -v {config.host}", node=node
        )
    return NodeUnreachable(
        f"{place}{through}: {said or type(error).__name__}", fix=f"try by hand: ssh -v {config.host}", node=node
    )
