"""Who a node is: uname, /etc/os-release, /etc/dgx-release, id, the process list."""

from __future__ import annotations

import re
from dataclasses import dataclass

_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_GROUP = re.compile(r"(\d+)(?:\(([^)]*)\))?")
BAD_RDMA_KERNELS = ("7.0.0-1019-nvidia",)
"""Kernels whose owners report that RDMA memory registration fails (CmaTotal 0)."""


@dataclass(frozen=True, slots=True)
class Uname:
    hostname: str | None
    kernel: str | None
    machine: str | None


def parse_uname(text: str) -> Uname:
    """`uname -snrm` or `uname -a`: the machine is the last word that names an architecture."""
    words = text.split()
    if len(words) < 4 or words[0] != "Linux":
        return Uname(None, None, None)
    known = ("aarch64", "x86_64", "arm64", "armv7l", "riscv64", "ppc64le", "s390x")
    return Uname(words[1], words[2], next((word for word in reversed(words) if word in known), None))


def parse_release(text: str) -> dict[str, str]:
    """KEY="value" lines (os-release, dgx-release); the last of a repeated key wins."""
    found = {}
    for line in text.split("\n"):
        match = _KEY.fullmatch(line.strip())
        if match:
            value = match[2].strip()
            quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
            found[match[1]] = value[1:-1] if quoted else value
    return found


def dgx_os_version(release: dict[str, str]) -> str | None:
    """The version in force: the last over-the-air update, else the factory image."""
    return release.get("DGX_OTA_VERSION") or release.get("DGX_SWBUILD_VERSION") or None


@dataclass(frozen=True, slots=True)
class Identity:
    """`id`: the session's own groups, not what /etc/group says now."""

    user: str | None
    uid: int | None
    groups: tuple[str, ...]


def parse_id(text: str) -> Identity:
    user = re.search(r"uid=(\d{1,10})(?:\(([^)]*)\))?", text)
    groups = re.search(r"groups=(\S+)", text)
    names = tuple(match[2] or match[1] for match in _GROUP.finditer(groups[1])) if groups else ()
    return Identity(user[2] if user else None, int(user[1]) if user else None, names)


def group_members(text: str, group: str) -> tuple[str, ...] | None:
    """Members of a group by /etc/group or `getent group NAME`; None when the group is not listed."""
    for line in text.split("\n"):
        cells = line.strip().split(":")
        if len(cells) >= 4 and cells[0] == group:
            return tuple(member for member in cells[3].split(",") if member)
    return None


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent_pid: int
    user: str
    command: str


def parse_processes(text: str) -> tuple[Process, ...]:
    """`ps -eo pid=,ppid=,user=,args=`."""
    found = []
    for line in text.split("\n"):
        cells = line.split(None, 3)
        if len(cells) == 4 and all(re.fullmatch(r"\d{1,10}", cell) for cell in cells[:2]):
            found.append(Process(int(cells[0]), int(cells[1]), cells[2], cells[3].strip()))
    return tuple(found)
