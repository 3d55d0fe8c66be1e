"""Why a Docker Engine cannot be used, and which one a user's environment points at. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sparktui.errors import DockerUnavailable

ACCESS_PROBE = """
printf 'user=%s\\n' "$(id -un)"
printf 'session=%s\\n' "$(id -Gn)"
printf 'account=%s\\n' "$(id -Gn "$(id -un)" 2>/dev/null)"
printf 'socket=%s\\n' "$socket"
[ -e "$socket" ] && printf 'exists=yes\\ngroup=%s\\n' "$(stat -c %G "$socket")"
[ -S "$socket" ] && printf 'is_socket=yes\\n'
[ -r "$socket" ] && [ -w "$socket" ] && printf 'allowed=yes\\n'
command -v docker >/dev/null && printf 'cli=yes\\n'
command -v dockerd >/dev/null && printf 'engine=yes\\n'
said=$(timeout 5 docker --host "unix://$socket" version --format '{{.Server.Version}}' 2>&1 </dev/null | tail -n 1)
printf 'said=%s\\n' "$said"
"""
"""What the node itself says about its socket; give it `socket`."""


@dataclass(frozen=True, slots=True)
class Access:
    """A login's way to a Docker socket.

    Attributes:
        session_groups: the groups of this login; read once, when it began.
        account_groups: the groups of the account now.
        said: the docker CLI's last line, always shown.
    """

    user: str
    session_groups: tuple[str, ...]
    account_groups: tuple[str, ...]
    socket: str
    exists: bool
    is_socket: bool
    group: str
    allowed: bool
    has_cli: bool
    has_engine: bool
    said: str


def read_access(text: str) -> Access:
    """Parse the probe's answer."""
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return Access(
        user=found.get("user", "?"),
        session_groups=tuple(found.get("session", "").split()),
        account_groups=tuple(found.get("account", "").split()),
        socket=found.get("socket", "/var/run/docker.sock"),
        exists="exists" in found,
        is_socket="is_socket" in found,
        group=found.get("group", "docker"),
        allowed="allowed" in found,
        has_cli="cli" in found,
        has_engine="engine" in found,
        said=found.get("said", ""),
    )


def explain_refusal(access: Access, error: str, *, node: str) -> DockerUnavailable:
    """Absent, stopped, not permitted, or permitted since this login began: four different texts."""
    said = f" (docker says: {access.said})" if access.said else ""
    if not access.exists:
        if not access.has_engine and not access.has_cli:
            return DockerUnavailable(
                f"there is no Docker Engine: {access.socket} does not exist, nor is docker installed",
                fix="install Docker (it is part of DGX OS), then `sudo systemctl enable --now docker`",
                node=node,
            )
        return DockerUnavailable(
            f"the Docker Engine is not running: {access.socket} does not exist{said}",
            fix="sudo systemctl enable --now docker",
            node=node,
        )
    if not access.allowed:
        if access.group in access.account_groups and access.group not in access.session_groups:
            return DockerUnavailable(
                f"group {access.group} was added to {access.user}, but this session is older: reconnect{said}",
                fix="log out and in again (on the head: leave sparktui and tmux too), then run this again",
                node=node,
            )
        return DockerUnavailable(
            f"user {access.user} is not in group {access.group}, which owns {access.socket}{said}",
            fix=f"sudo usermod -aG {access.group} {access.user}, then log in again",
            node=node,
        )
    if not access.is_socket:
        return DockerUnavailable(f"{access.socket} is not a socket", fix="sudo systemctl restart docker", node=node)
    return DockerUnavailable(
        f"the Docker Engine at {access.socket} does not answer: {error}{said}",
        fix="see `systemctl status docker` on that node",
        node=node,
    )


@dataclass(frozen=True, slots=True)
class DaemonChoice:
    """The daemon that a plain `docker` of this user would talk to.

    Attributes:
        endpoint: such as `unix:///var/run/docker.sock`; empty when the context's own file is missing.
        source: where that came from, in words.
        is_system: it is the local system socket; another one lacks the GPU and /dev/infiniband.
    """

    endpoint: str
    source: str
    is_system: bool


_SYSTEM = ("unix:///var/run/docker.sock", "unix:///run/docker.sock")


def daemon_in_use(
    environment: Mapping[str, str], config_json: str | None, context_endpoints: Mapping[str, str]
) -> DaemonChoice:
    """Which daemon the docker CLI would choose.

    Args:
        environment: the user's environment (DOCKER_HOST, DOCKER_CONTEXT).
        config_json: the text of ~/.docker/config.json, or None.
        context_endpoints: context name to endpoint (the meta.json files below ~/.docker/contexts).

    The order is the CLI's: DOCKER_HOST, DOCKER_CONTEXT, currentContext, default.
    """
    if host := environment.get("DOCKER_HOST", ""):
        return DaemonChoice(host, "DOCKER_HOST in the environment", host in _SYSTEM)
    name, source = environment.get("DOCKER_CONTEXT", ""), "DOCKER_CONTEXT in the environment"
    if not name and config_json:
        try:
            loaded = json.loads(config_json)
        except ValueError:
            loaded = {}
        found = loaded.get("currentContext", "") if isinstance(loaded, dict) else ""
        name, source = (found if isinstance(found, str) else ""), "currentContext in ~/.docker/config.json"
    if not name or name == "default":
        return DaemonChoice(_SYSTEM[0], "docker's default", True)
    endpoint = context_endpoints.get(name, "")
    missing = "" if endpoint else ", which does not exist"
    return DaemonChoice(endpoint, f"context {name}{missing} ({source})", endpoint in _SYSTEM)


def context_endpoint(meta_json: str) -> tuple[str, str] | None:
    """Name and endpoint of a context's meta.json; None when it is not one."""
    try:
        loaded = json.loads(meta_json)
        return str(loaded["Name"]), str(loaded["Endpoints"]["docker"]["Host"])
    except (ValueError, KeyError, TypeError):
        return None
