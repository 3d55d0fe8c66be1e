"""Processes and cgroups of a testbed as the host's /proc and cgroup tree show them."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def only_child(pid: int, deadline_seconds: float = 5.0) -> int:
    """The one child of a process that forks once (unshare, nsenter).

    Raises:
        RuntimeError: there is none in time.
    """
    deadline = time.monotonic() + deadline_seconds
    while time.monotonic() < deadline:
        found = children(pid)
        if found:
            return found[0]
        time.sleep(0.01)
    raise RuntimeError(f"process {pid} has no child")


def descendants(pid: int) -> list[int]:
    """`pid` and everything below it; children of any thread count."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(after_name[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        here = todo.pop()
        found.append(here)
        todo += parents.get(here, [])
    return found


def start_ticks(pid: int) -> int | None:
    """When a process started, in the kernel's ticks since boot: with it a reused pid is told from the old one."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def wait_gone(pid: int, deadline_seconds: float = 30.0) -> bool:
    """Whether `pid` ended (a zombie counts: its namespaces are gone)."""
    deadline = time.monotonic() + deadline_seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def cgroup_dirs(name: str) -> list[Path]:
    """Where a cgroup path exists: in each v1 hierarchy, or in the one v2 tree."""
    if not CGROUPS.is_dir():
        return []
    roots = [CGROUPS, *(entry for entry in CGROUPS.iterdir() if entry.is_dir() and not entry.is_symlink())]
    return [root / name.strip("/") for root in roots if (root / name.strip("/")).is_dir()]


def cgroup_remove(name: str, deadline_seconds: float = 10.0) -> None:
    """Remove a cgroup and all below it; the last processes in it may need a moment to be reaped."""
    deadline = time.monotonic() + deadline_seconds
    for top in cgroup_dirs(name):
        while top.exists():
            for folder in sorted((entry for entry in top.rglob("*") if entry.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                top.rmdir()
            if time.monotonic() > deadline:
                return
            if top.exists():
                time.sleep(0.02)
