"""What the user's own ssh would do for a host: asked of OpenSSH itself (`ssh -G`), so that Include, Match, patterns and
the system's file count exactly as they do by hand."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_DEADLINE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The client configuration of one host.

    Attributes:
        identity_files: in order, `~` expanded; OpenSSH's built-in defaults are among them when none is configured.
        identities_configured: at least one IdentityFile comes from the user's configuration.
        jumps: ProxyJump hops in order, each `[user@]host[:port]`.
        agent: IdentityAgent; '' means the environment's, 'none' means none.
        known_hosts_files: the user's, then the system's.
    """

    host: str
    hostname: str
    user: str
    port: int
    identity_files: tuple[Path, ...] = ()
    identities_configured: bool = False
    identities_only: bool = False
    jumps: tuple[str, ...] = ()
    proxy_command: str = ""
    host_key_alias: str = ""
    agent: str = ""
    known_hosts_files: tuple[Path, ...] = ()

    @property
    def via(self) -> str:
        """'' for a direct way, else the hops or the proxy command, for messages."""
        return ", ".join(self.jumps) or self.proxy_command

    @property
    def target(self) -> str:
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != 22 else "")


_DEFAULT_IDENTITIES = {"id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss"}
_DEFAULT_IDENTITIES |= {"id_mldsa44_ed25519", "id_mldsa65"}


def read_config(text: str, host: str, *, home: Path) -> HostConfig:
    """Parse the output of `ssh -G HOST`: one lower-case keyword and its value a line."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        keyword, _, value = line.strip().partition(" ")
        values.setdefault(keyword.lower(), []).append(value.strip())

    def last(keyword: str, default: str = "") -> str:
        found = values.get(keyword, [default])[0]
        return default if found.lower() == "none" and keyword != "identityagent" else found

    def path(value: str) -> Path:
        value = value.strip('"')
        return home / value[2:] if value.startswith("~/") else Path(value)

    identities = tuple(path(value) for value in values.get("identityfile", []) if value.lower() != "none")
    configured = any(each.parent != home / ".ssh" or each.name not in _DEFAULT_IDENTITIES for each in identities)
    # The built-in list is printed whole; a part of it means that somebody wrote it down.
    configured = configured or 0 < len(identities) < 3
    known = [*last("userknownhostsfile").split(), *last("globalknownhostsfile").split()]
    return HostConfig(
        host=host,
        hostname=last("hostname", host),
        user=last("user"),
        port=int(last("port", "22")),
        identity_files=identities,
        identities_configured=configured,
        identities_only=last("identitiesonly") == "yes",
        jumps=tuple(each.strip() for each in last("proxyjump").split(",") if each.strip()),
        proxy_command=last("proxycommand"),
        host_key_alias=last("hostkeyalias"),
        agent=last("identityagent"),
        known_hosts_files=tuple(path(each) for each in known),
    )


def config_argv(host: str, *, user: str | None, port: int | None, home: Path | None) -> list[str]:
    """The question to OpenSSH. With `home`, another home's files instead of the account's."""
    argv = ["ssh", "-G"]
    if home is not None:
        own = home / ".ssh" / "config"
        argv += ["-F", str(own) if own.is_file() else "/dev/null"]
        argv += ["-o", f"UserKnownHostsFile={home}/.ssh/known_hosts {home}/.ssh/known_hosts2"]
    argv += ["-l", user] if user else []
    argv += ["-p", str(port)] if port else []
    return [*argv, "--", host]


async def ask_config(argv: Sequence[str]) -> str:
    """Run `ssh -G`.

    Raises:
        FileNotFoundError: no ssh client on this machine.
        ValueError: ssh refused its own configuration (its last line).
        TimeoutError: a `Match exec` that does not return.
    """
    child = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            out, errors = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    if child.returncode:
        said = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
        raise ValueError(said[-1] if said else f"{shlex.join(argv)} ended with status {child.returncode}")
    return out.decode("utf-8", "replace")
