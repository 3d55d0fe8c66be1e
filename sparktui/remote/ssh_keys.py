"""Which keys are tried for a node, in which order and why, and what the tries tell. No network here.

The order: SSH_IDENTITY, the ssh configuration's identity list, the agent, then ~/.ssh/id_* and ~/.ssh/*_shared.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from sparktui.remote.ssh_config import HostConfig

ATTEMPTS_A_CONNECTION = 5
"""sshd's MaxAuthTries is 6 by default; the rest of the keys gets a fresh connection."""


class FoundBy(StrEnum):
    SETTING = "SSH_IDENTITY"
    SSH_CONFIG = "ssh config"
    SSH_DEFAULT = "ssh's own list"
    AGENT = "agent"
    GLOB = "glob"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A key to try. `file` is empty for a key that only the agent holds."""

    name: str
    found_by: FoundBy
    pair: Any
    """asyncssh's SSHKeyPair."""
    fingerprint: str
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """A key and what became of it: 'accepted', 'refused', or why it could not be offered."""

    name: str
    found_by: FoundBy
    result: str
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Login:
    """How a node was entered.

    Attributes:
        target: `user@host`.
        via: ProxyJump hops or the proxy command; empty for a direct way.
        key: the key that worked (a file's path, or the agent's comment); empty for a password.
        only_in_forwarded_agent: a run that goes on after logout cannot use this key.
        mismatch: SSH_IDENTITY is set, and ssh by itself would use another key: both names.
    """

    target: str
    via: str
    key: str
    found_by: FoundBy | None
    tried: tuple[Tried, ...]
    only_in_forwarded_agent: bool = False
    mismatch: tuple[str, str] | None = None
    banner: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """`OK user@host via <file> (found by: glob)`, the row that a user reads."""
        how = f"{self.key} (found by: {self.found_by})" if self.found_by else "password (WORKER_PASS)"
        return f"OK {self.target} via {how}" + (f", through {self.via}" if self.via else "")

    @property
    def warnings(self) -> tuple[str, ...]:
        out = []
        if self.only_in_forwarded_agent:
            out.append("only a forwarded agent holds this key: a run that goes on after you log out cannot use it")
        if self.mismatch:
            out.append(f"mismatch: .env says {self.mismatch[0]}, ssh uses {self.mismatch[1]}")
        return tuple(out)


@dataclass(slots=True)
class Discovery:
    """All candidates in order, without repeats, and those that could not even be offered."""

    candidates: list[Candidate] = field(default_factory=list)
    unusable: list[Tried] = field(default_factory=list)


def key_files(config: HostConfig, identity: Path | None, ssh_folder: Path) -> Iterator[tuple[Path, FoundBy]]:
    """Private key files before and after the agent's turn, in order; the agent's place is `Path()`."""
    if identity is not None:
        yield identity, FoundBy.SETTING
    for file in config.identity_files:
        yield file, FoundBy.SSH_CONFIG if config.identities_configured else FoundBy.SSH_DEFAULT
    yield Path(), FoundBy.AGENT
    for pattern in ("id_*", "*_shared"):
        for file in sorted(ssh_folder.glob(pattern)):
            if file.suffix != ".pub" and not file.name.endswith("-cert") and file.is_file():
                yield file, FoundBy.GLOB


def discover(
    files: Iterable[tuple[Path, FoundBy]], agent_pairs: Sequence[Any], load: Callable[[Path], Sequence[Any]]
) -> Discovery:
    """Read the key files; a key that the agent also holds is signed by the agent when its file is encrypted.

    Args:
        load: file -> asyncssh key pairs (its certificate first); raises OSError or ValueError (its text is shown).
    """
    found, seen, by_blob = Discovery(), set[bytes](), {pair.public_data: pair for pair in agent_pairs}
    read: set[Path] = set()

    def add(candidate: Candidate) -> None:
        if candidate.pair.public_data not in seen:
            seen.add(candidate.pair.public_data)
            found.candidates.append(candidate)

    for file, found_by in files:
        if found_by is FoundBy.AGENT:
            for pair in agent_pairs:
                name = pair.get_comment() or pair.get_algorithm()
                add(Candidate(str(name), FoundBy.AGENT, pair, _fingerprint(pair)))
            continue
        if file in read:
            continue
        read.add(file)
        if not file.exists():
            if found_by is FoundBy.SETTING:
                found.unusable.append(Tried(str(file), found_by, "the file does not exist"))
            continue
        try:
            pairs = load(file)
        except (OSError, ValueError) as error:
            held = by_blob.get(_public_blob(file))
            if held is not None:
                add(Candidate(str(file), found_by, held, _fingerprint(held), file))
                continue
            found.unusable.append(Tried(str(file), found_by, _why_unreadable(error)))
            continue
        for pair in pairs:
            add(Candidate(str(file), found_by, pair, _fingerprint(pair), file))
    return found


def _why_unreadable(error: Exception) -> str:
    text = str(error)
    if "passphrase" in text.lower() or "decrypt" in text.lower():
        return "needs its passphrase: `ssh-add` it first"
    return text or type(error).__name__


def _public_blob(file: Path) -> bytes:
    """The public half beside a private key file; b'' when there is none."""
    try:
        return base64.b64decode(file.with_name(file.name + ".pub").read_text().split()[1])
    except (OSError, IndexError, binascii.Error, ValueError):
        return b""


def _fingerprint(pair: Any) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(pair.public_data).digest()).decode().rstrip("=")


def find_mismatch(identity: Path | None, config: HostConfig) -> tuple[str, str] | None:
    """`(A, B)` when .env names key A and the ssh configuration, by itself, would offer key B first."""
    if identity is None or not config.identities_configured:
        return None
    existing = [file for file in config.identity_files if file.exists()]
    if not existing or any(_same_file(identity, file) for file in existing):
        return None
    return str(identity), str(existing[0])


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other


def agent_socket(config: HostConfig, environment: Mapping[str, str], home: Path) -> str:
    """The agent's socket for a host; '' when there is none."""
    named = config.agent
    if named.lower() == "none":
        return ""
    if not named or named == "SSH_AUTH_SOCK":
        return environment.get("SSH_AUTH_SOCK", "")
    if named.startswith("$"):
        return environment.get(named.strip("${}"), "")
    return str(home / named[2:]) if named.startswith("~/") else named


def agent_is_forwarded(path: str) -> bool | None:
    """Whether sshd itself answers on the agent's socket: then the agent is on the machine the user came from.

    None when that cannot be known. The kernel says which process listens (SO_PEERCRED).
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(2)
            probe.connect(path)
            raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid = struct.unpack("3i", raw)[0]
        return Path(f"/proc/{pid}/comm").read_text().strip().startswith("sshd")
    except OSError:
        return None
