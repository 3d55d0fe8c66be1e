"""Where testbeds live, who owns them, and how every trace of one is removed, also after a crash.

A slot is a folder `BASE/N` and the subnet 10.78.N.0/24. Nothing is mounted, bridged or named in the host's own
namespaces except one veth to reach the nodes, so ending the marked processes ends everything but the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.testbed.processes import cgroup_remove, start_ticks, wait_gone

SLOTS = range(8)
BY_HAND = "by hand"
MARK = "SPARKTUI_TESTBED"
"""Environment variable of every process that holds a namespace; its value is the slot's folder."""


class SlotTaken(RuntimeError):
    """The slot holds a testbed that somebody alive owns."""


def base_dir() -> Path:
    return Path(os.environ.get("SPARKTUI_TESTBED_DIR", "/var/lib/sparktui-testbed"))


def slot_dir(slot: int) -> Path:
    return base_dir() / str(slot)


def slot_cgroup(slot: int) -> str:
    return f"/sparktui-testbed-{slot}"


def claim(slot: int | None) -> int:
    """Make a slot's empty folder ours; a crashed owner's leftovers are removed first. None takes the first free one.

    Raises:
        SlotTaken: the slot, or every slot, is in use.
    """
    base_dir().mkdir(parents=True, exist_ok=True)
    with _locked():
        for candidate in SLOTS if slot is None else [slot]:
            if slot_dir(candidate).exists():
                if _owner_alive(candidate):
                    continue
                _delete(_detach(candidate))
            slot_dir(candidate).mkdir(parents=True)  # removing the last one took the base along
            (slot_dir(candidate) / "owner").write_text(f"{os.getpid()} {start_ticks(os.getpid())}")
            return candidate
    which = "every slot is" if slot is None else f"slot {slot} is"
    raise SlotTaken(f"{which} in use; `python -m tests.testbed down` removes one brought up by hand")


def leave_running(slot: int) -> None:
    """From now on the slot belongs to nobody's process; only `remove` ends it."""
    (slot_dir(slot) / "owner").write_text(BY_HAND)


def by_hand() -> list[int]:
    """The slots that were brought up by hand."""
    owners = [(slot, slot_dir(slot) / "owner") for slot in SLOTS]
    return [slot for slot, owner in owners if owner.exists() and owner.read_text() == BY_HAND]


def remove(slot: int) -> None:
    """Remove every process, namespace, mount, cgroup, netdev and file of a slot; nothing there is fine."""
    if base_dir().parent.exists():
        with _locked():
            gone = _detach(slot)
        _delete(gone)


def remove_abandoned() -> list[int]:
    """Remove the slots whose owner is no longer alive and say which they were; those brought up by hand stay."""
    if base_dir().exists():
        with _locked():
            dead = [slot for slot in SLOTS if slot_dir(slot).exists() and not _owner_alive(slot)]
            gone = [_detach(slot) for slot in dead]
            # What a removal left that was itself killed.
            gone += list(base_dir().glob(".gone-*"))
        for folder in gone:
            _delete(folder)
        return dead
    return []


def _detach(slot: int) -> Path | None:
    """End what runs in a slot and move its folder aside in one step, so that the slot is free at once and for good."""
    folder = slot_dir(slot)
    marked = _marked(folder)
    for pid in marked:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in marked:
        wait_gone(pid)
    cgroup_remove(slot_cgroup(slot))
    if not folder.exists():
        return None
    aside = base_dir() / f".gone-{slot}-{os.getpid()}-{time.monotonic_ns()}"
    folder.rename(aside)
    return aside


def _delete(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)  # two may delete one folder that was left behind
        if folder.exists():
            shutil.rmtree(folder)
    with contextlib.suppress(OSError):
        base_dir().rmdir()  # only when it was the last one


def _owner_alive(slot: int) -> bool:
    try:
        owner = (slot_dir(slot) / "owner").read_text()
    except OSError:
        return False
    if owner == BY_HAND:
        return bool(_marked(slot_dir(slot)))
    pid, ticks = owner.split()
    return str(start_ticks(int(pid))) == ticks


def _marked(folder: Path) -> list[int]:
    mark = f"{MARK}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    # The folder above is locked itself: a lock file would be a trace.
    folder = os.open(base_dir().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
