"""known_hosts: a host's entries (hashed, patterns, ports) with their line numbers, and adding a line safely."""

from __future__ import annotations

import base64
import binascii
import contextlib
import fnmatch
import hashlib
import hmac
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KnownHost:
    """One line that speaks of a host. `marker` is '', 'cert-authority' or 'revoked'."""

    file: str
    line_number: int
    marker: str
    key_type: str
    key: str


def host_pattern(host: str, port: int) -> str:
    """How known_hosts names a host: plain on port 22, `[host]:port` elsewhere."""
    return host if port == 22 else f"[{host}]:{port}"


def entries_of(text: str, names: Iterable[str], file: str = "") -> list[KnownHost]:
    """The lines of a known_hosts text that match one of `names` (each as `host_pattern` gives it)."""
    wanted, found = [name.lower() for name in names], []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0)[1:] if words[0].startswith("@") else ""
        if len(words) >= 3 and any(_matches(words[0], name) for name in wanted):
            found.append(KnownHost(file, number, marker, words[1], words[2]))
    return found


def well_formed(text: str) -> str:
    """Only the lines that a strict reader accepts, so that one bad line does not hide the rest."""
    kept = []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0].startswith("@"):
            if words[0] not in ("@cert-authority", "@revoked"):
                continue
            words = words[1:]
        if len(words) >= 3 and (not words[0].startswith("|") or _hash_parts(words[0])):
            kept.append(line.strip())
    return "\n".join(kept) + "\n"


def _hash_parts(pattern: str) -> tuple[bytes, bytes] | None:
    parts = pattern.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return None
    try:
        return base64.b64decode(parts[2], validate=True), base64.b64decode(parts[3], validate=True)
    except (binascii.Error, ValueError):
        return None


def _matches(patterns: str, name: str) -> bool:
    if patterns.startswith("|"):
        parts = _hash_parts(patterns)
        return parts is not None and hmac.compare_digest(
            hmac.new(parts[0], name.encode(), hashlib.sha1).digest(), parts[1]
        )
    hit = False
    for pattern in patterns.lower().split(","):
        refused, bare = pattern.startswith("!"), pattern.removeprefix("!")
        # `[` is literal in known_hosts; only * and ? are wild.
        if fnmatch.fnmatchcase(name, bare.replace("[", "[[]")):
            if refused:
                return False
            hit = True
    return hit


def trust_host_key(line: str, file: Path) -> None:
    """Append a line to a known_hosts file: beside, fsync, rename. Mode and owner stay; a new file is 0600.

    Raises:
        ValueError: the line is not one known_hosts entry.
        OSError: the folder cannot be written.
    """
    if not line.strip() or "\n" in line.strip() or well_formed(line).strip() != line.strip():
        raise ValueError("not a known_hosts line")
    target = file.resolve()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = target.stat() if target.exists() else None
    old = target.read_bytes() if before else b""
    if line.strip().encode() in old.splitlines():
        return
    if old and not old.endswith(b"\n"):
        old += b"\n"
    descriptor, beside = tempfile.mkstemp(dir=target.parent, prefix=f"{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(old + line.strip().encode() + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
        if before:
            Path(beside).chmod(before.st_mode & 0o777)
            if os.geteuid() == 0:
                os.chown(beside, before.st_uid, before.st_gid)
        Path(beside).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(beside).unlink()
        raise
