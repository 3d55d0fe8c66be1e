"""What can be made to go wrong on a simulated node, as data: `sparktui demo fault worker2 off`."""

from __future__ import annotations

import json

from sparktui.demo.home import DemoHome, write_plain
from sparktui.errors import UsageError

OFF = "off"
DOCKER_HANGS = "docker-hangs"
DISK_FULL = "disk-full"
RANK_DIES = "rank-dies"
SLOW = "slow"
FAULTS = {
    OFF: "the node does not answer at all",
    DOCKER_HANGS: "its Docker Engine accepts calls and never answers",
    DISK_FULL: "its disk is full",
    RANK_DIES: "its rank runs out of GPU memory while it loads weights",
    SLOW: "it answers late and boots late",
}


def read_faults(home: DemoHome) -> dict[str, frozenset[str]]:
    """Faults by node's name; empty where nothing is said."""
    try:
        said = json.loads(home.faults_file.read_bytes())
        return {str(node): frozenset(map(str, kinds)) & FAULTS.keys() for node, kinds in said.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def set_fault(home: DemoHome, node: str, kind: str) -> None:
    """Raises UsageError for a fault that is unknown or that this node cannot have."""
    if kind not in FAULTS:
        raise UsageError(f"there is no fault {kind!r}", fix=f"one of: {', '.join(FAULTS)}")
    if node == "head" and kind == OFF:
        raise UsageError("the head cannot be off: sparktui runs on it", fix="name a worker, such as worker2")
    now = read_faults(home)
    _write(home, {**now, node: now.get(node, frozenset()) | {kind}})


def mend(home: DemoHome, node: str | None = None) -> None:
    """All is well again, on one node or on all."""
    _write(home, {} if node is None else {name: kinds for name, kinds in read_faults(home).items() if name != node})


def _write(home: DemoHome, faults: dict[str, frozenset[str]]) -> None:
    write_plain(home.faults_file, {node: sorted(kinds) for node, kinds in faults.items() if kinds})
