"""docs/engine-lock.md beside the locks: what it counts, and every CUDA component with its version and reason."""

from __future__ import annotations

import re

import pytest

from tests.overlay.conftest import OVERLAY

PAGE = (OVERLAY.parent / "docs" / "engine-lock.md").read_text(encoding="utf-8")
LOCKS = {name: (OVERLAY / f"engine-{name}.lock").read_text(encoding="utf-8") for name in ("aarch64", "x86_64")}
PACKAGE = re.compile(r"^([a-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
HELD = re.compile(r"^([a-z0-9-]+)>=13\.0,<13\.1$", re.MULTILINE)
ROW = re.compile(r"^\| `(.+?)` \| (.+) \|$", re.MULTILINE)
TOLD = {name: cells.split(" | ") for name, cells in ROW.findall(PAGE)}


def test_the_page_counts_what_the_locks_hold() -> None:
    counts = [(len(PACKAGE.findall(text)), text.count("--hash=")) for text in LOCKS.values()]
    for number, row in enumerate((r"\| packages", r"\| hashes .*")):
        found = re.search(rf"^{row} \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
        assert found and [int(each) for each in found.groups()] == [count[number] for count in counts]


@pytest.mark.parametrize("machine", LOCKS)
def test_every_cuda_component_is_on_the_page_with_its_version_and_why(machine: str) -> None:
    locked = dict(PACKAGE.findall(LOCKS[machine]))
    of_cuda = {name: locked[name] for name in locked if re.match(r"nvidia|cuda|nccl|nvshmem", name)}
    assert {name: TOLD[name][0] for name in of_cuda} == of_cuda
    assert all(len(TOLD[name]) == 5 and all(TOLD[name]) for name in of_cuda)
    assert {name: cells[0] for name, cells in TOLD.items()} == {name: locked[name] for name in TOLD}


def test_what_is_held_to_the_drivers_cuda_is_told_so() -> None:
    held = set(HELD.findall((OVERLAY / "engine-constraints.txt").read_text(encoding="utf-8")))
    assert len(held) == 9
    assert held == {name for name, cells in TOLD.items() if len(cells) == 5 and "held to 13.0" in cells[3]}
