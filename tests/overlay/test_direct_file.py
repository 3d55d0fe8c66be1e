"""Buffers for transfers past the page cache."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark_overlay.direct_file import BLOCK, FOLIO, aligned_bytes

SMAPS = Path("/proc/self/smaps")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def flags_of(address: int) -> set[str]:
    """The kernel's flags of the mapping that holds an address (proc(5): smaps)."""
    for ends, flags in mappings(SMAPS.read_text()):
        if ends[0] <= address < ends[1]:
            return flags
    raise AssertionError(f"{address:x} is in no mapping")


def mappings(text: str) -> Iterator[tuple[tuple[int, int], set[str]]]:
    for low, high, flags in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .*?^VmFlags: (.*?)$", text, re.MULTILINE | re.DOTALL):
        yield (int(low, 16), int(high, 16)), set(flags.split())


@pytest.mark.parametrize("count", [1, BLOCK, FOLIO, 4 * FOLIO + 1])
def test_a_buffer_begins_at_a_block_and_may_be_of_huge_pages(count: int) -> None:
    """Shared memory never was, whatever was asked of it, and each transfer came to the drive in pieces of 0.5 MiB."""
    buffer = aligned_bytes(count)
    assert buffer.ctypes.data % (FOLIO if count >= FOLIO else BLOCK) == 0
    assert len(buffer) % BLOCK == 0
    assert len(buffer) >= count
    flags = flags_of(buffer.ctypes.data)
    assert "sh" not in flags
    if HUGE_PAGES.exists():
        assert "hg" in flags


def test_a_buffer_can_be_written_to_its_end() -> None:
    buffer = aligned_bytes(3 * FOLIO + 5)
    buffer[:] = 7
    assert int(buffer[-1]) == 7
