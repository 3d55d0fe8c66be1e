"""The row store under faults, in the file and in the reads: a right row or an error that says where, nothing else."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spark_overlay.crc32c import crc32c
from spark_overlay.engram_file import CRC_OFFSET, HEADER_BYTES, OLD_MAGIC, PAGE_BYTES, Header
from spark_overlay.row_store import Backend, ReadHook, RowStore, RowStoreError, Status

from tests.overlay import test_row_store as plain
from tests.overlay.test_row_store import BACKENDS, IDS, QUIET, ROWS, expected_rows, header_of, rows_of

# The same fixtures, found by pytest under their names.
library, table, packed = plain.library, plain.table, plain.packed


def refused(path: Path, library: ctypes.CDLL, expected: Header | None = None) -> str:
    with pytest.raises(RowStoreError) as caught:
        RowStore(path, expected=expected, options=QUIET, library=library)
    assert caught.value.status is Status.BAD_FILE
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rank": 2}, "rank 1, wanted 2"),
        ({"layer": 14}, "layer 1, wanted 14"),
        ({"tp": 4}, "tp 3, wanted 4"),
        ({"revision": "f" * 40}, f"checkpoint revision 1bae0e1{'0' * 33}, wanted {'f' * 40}"),
        ({"fingerprint": bytes(31) + b"\1"}, "checkpoint contents"),
        ({"row_hi": 5}, "wanted"),
        ({"total_rows": 5}, f"rows of the table {ROWS}, wanted 5"),
        ({"weight_bytes": 128}, "weight bytes 256, wanted 128"),
    ],
)
def test_a_file_of_another_rank_or_checkpoint_is_refused(
    change: dict[str, Any], reason: str, packed: dict[Any, Path], library: ctypes.CDLL
) -> None:
    assert reason in refused(packed[3, 1], library, replace(header_of(3, 1), **change))


def resealed(data: bytearray) -> bytes:
    """A header with a right checksum, whatever it says."""
    struct.pack_into("<I", data, CRC_OFFSET, crc32c(bytes(data[:CRC_OFFSET])))
    return bytes(data)


def put(offset: int, value: int, form: str) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        head = bytearray(data[:HEADER_BYTES])
        struct.pack_into(form, head, offset, value)
        return resealed(head) + data[HEADER_BYTES:]

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "no packed Engram file"),
        (lambda data: OLD_MAGIC + data[8:], "old file"),
        (lambda data: b"X" + data[1:], "no packed Engram file"),
        (lambda data: data[:4000], "ends inside its header"),
        (lambda data: data[:1000] + bytes([data[1000] ^ 4]) + data[1001:], "header's checksum"),
        (lambda data: data[:-1], "its header promises"),
        (lambda data: data[:-PAGE_BYTES], "its header promises"),
        (lambda data: data + bytes(PAGE_BYTES), "its header promises"),
        (put(8, 3, "<I"), "layout version 3"),
        (put(44, 16, "<I"), "contradicts itself"),
        (put(28, 0, "<I"), "contradicts itself"),
        (put(56, 2**63, "<Q"), "contradicts itself"),
        (put(72, 10**9, "<Q"), "contradicts itself"),
        (put(84, 7, "<I"), "contradicts itself"),
        (put(208, 2**40, "<Q"), "contradicts itself"),
        (put(192, 5000, "<I"), "layout version"),
    ],
)
def test_a_broken_file_is_refused_with_the_reason(
    change: Callable[[bytes], bytes], reason: str, packed: dict[Any, Path], library: ctypes.CDLL, tmp_path: Path
) -> None:
    path = tmp_path / "engram-l1-r1of3.bin"
    path.write_bytes(change(packed[3, 1].read_bytes()))
    assert reason in refused(path, library)


def test_a_missing_file_names_the_pack_step(library: ctypes.CDLL, tmp_path: Path) -> None:
    text = refused(tmp_path / "engram-l1-r0of3.bin", library)
    assert f"errno {errno.ENOENT}" in text and "pack step" in text


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("at", [0, 100, 263, 264 * 14, 3960, 3970, 4092, 4095])
def test_a_flipped_bit_anywhere_in_a_page_ends_the_call(
    backend: Backend, at: int, packed: dict[Any, Path], table: np.ndarray, library: ctypes.CDLL, tmp_path: Path
) -> None:
    """Also for a row of that page whose own bytes are right, and never for the other pages."""
    page = 7
    data = bytearray(packed[1, 0].read_bytes())
    data[HEADER_BYTES + page * PAGE_BYTES + at] ^= 0x10
    path = tmp_path / "flipped.bin"
    path.write_bytes(data)
    with RowStore(path, options=replace(QUIET, backend=backend, cache_bytes=50_000), library=library) as store:
        good = [row for row in range(300) if row // 15 != page]
        assert np.array_equal(rows_of(store, good), table[good])
        out = np.full((200, 264), 0xA5, dtype=np.uint8)
        offset = HEADER_BYTES + page * PAGE_BYTES
        with pytest.raises(
            RowStoreError, match=rf"flipped.bin: offset {offset} \(page {page}\): wrong checksum"
        ) as error:
            store.lookup(np.arange(200, dtype=np.int64), out)
        assert error.value.status is Status.READ_FAILED
        assert not out.any()
        assert np.array_equal(rows_of(store, good), table[good])
        assert store.statistics().retries == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sound_page_in_anothers_place_is_not_taken(
    backend: Backend, packed: dict[Any, Path], library: ctypes.CDLL, tmp_path: Path
) -> None:
    data = bytearray(packed[1, 0].read_bytes())
    place = HEADER_BYTES + 3 * PAGE_BYTES
    data[place : place + PAGE_BYTES] = data[place + PAGE_BYTES : place + 2 * PAGE_BYTES]
    path = tmp_path / "moved.bin"
    path.write_bytes(data)
    with RowStore(path, options=replace(QUIET, backend=backend), library=library) as store:
        with pytest.raises(RowStoreError, match=r"offset 16384 \(page 3\): the page there is another page"):
            rows_of(store, [45])
        assert rows_of(store, [60]).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_file_cut_while_it_is_open_ends_the_call(
    backend: Backend, packed: dict[Any, Path], table: np.ndarray, library: ctypes.CDLL, tmp_path: Path
) -> None:
    path = tmp_path / "cut.bin"
    path.write_bytes(packed[1, 0].read_bytes())
    with RowStore(path, options=replace(QUIET, backend=backend), library=library) as store:
        assert np.array_equal(rows_of(store, [150]), table[[150]])
        os.truncate(path, HEADER_BYTES + 10 * PAGE_BYTES)
        with pytest.raises(RowStoreError, match=r"cut.bin: offset 45056 \(page 10\): read cut short twice: 0 of 4096"):
            rows_of(store, [150])
        assert np.array_equal(rows_of(store, [149]), table[[149]])


class Injected:
    """Replaces the results of reads: `faults[attempt]` for the pages in `pages`."""

    def __init__(self, pages: set[int], faults: dict[int, Callable[[int, int], int]]) -> None:
        self.calls: list[tuple[int, int]] = []

        def hook(context: Any, page: int, attempt: int, address: int, result: int) -> int:
            if page not in pages:
                return result
            self.calls.append((page, attempt))
            fault = faults.get(attempt)
            return fault(address, result) if fault else result

        self.hook = ReadHook(hook)


def failing(number: int) -> Callable[[int, int], int]:
    def fault(address: int, result: int) -> int:
        ctypes.memset(address, 0x5A, PAGE_BYTES)  # what a failed read leaves behind is anybody's guess
        return -number

    return fault


def short(count: int) -> Callable[[int, int], int]:
    def fault(address: int, result: int) -> int:
        ctypes.memset(address + count, 0, PAGE_BYTES - count)
        return count

    return fault


def stale(address: int, result: int) -> int:
    """A read that says "done" and moved nothing: the buffer still has other bytes."""
    ctypes.memset(address, 0, PAGE_BYTES)
    return result


def flipped(address: int, result: int) -> int:
    ctypes.memset(address + 5, 1 ^ ctypes.c_ubyte.from_address(address + 5).value, 1)
    return result


FAULTS = {
    "EIO": (failing(errno.EIO), f"read failed twice: Input/output error (errno {errno.EIO})"),
    "ENODATA": (failing(errno.ENODATA), f"(errno {errno.ENODATA})"),
    "short 0": (short(0), "read cut short twice: 0 of 4096"),
    "short 512": (short(512), "read cut short twice: 512 of 4096"),
    "short 4095": (short(4095), "read cut short twice: 4095 of 4096"),
    "nothing moved": (stale, "wrong checksum"),
    "flipped on the way": (flipped, "wrong checksum"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FAULTS)
def test_a_read_that_fails_once_is_done_again_and_twice_ends_the_call(
    backend: Backend, name: str, packed: dict[Any, Path], table: np.ndarray, library: ctypes.CDLL
) -> None:
    fault, text = FAULTS[name]
    ids = np.random.default_rng(1).permutation(ROWS)
    options = replace(QUIET, backend=backend)
    once = Injected({2, 9, 150}, {0: fault})
    with RowStore(packed[1, 0], options=options, library=library, hook=once.hook) as store:
        assert np.array_equal(rows_of(store, ids[:200]), table[ids[:200]])
        found = store.statistics()
        assert found.errors == 0 and found.retries == len([call for call in once.calls if call[1] == 1]) > 0
    twice = Injected({9}, {0: fault, 1: fault})
    with RowStore(packed[1, 0], options=options, library=library, hook=twice.hook) as store:
        out = np.full((ROWS, 264), 0xA5, dtype=np.uint8)
        with pytest.raises(RowStoreError) as caught:
            store.lookup(np.arange(ROWS, dtype=np.int64), out)
        assert f"{packed[1, 0]}: offset 40960 (page 9): " in str(caught.value) and text in str(caught.value)
        assert twice.calls == [(9, 0), (9, 1)]
        assert not out.any()
        others = [row for row in range(ROWS) if row // 15 != 9]
        assert np.array_equal(rows_of(store, others), table[others]), "nothing of the failed call is left"
        assert store.statistics().errors == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", [errno.EINTR, errno.EAGAIN])
def test_an_interrupted_read_is_no_failure_unless_it_never_ends(
    backend: Backend, number: int, packed: dict[Any, Path], table: np.ndarray, library: ctypes.CDLL
) -> None:
    left = [20]

    def some(address: int, result: int) -> int:
        left[0] -= 1
        return failing(number)(address, result) if left[0] >= 0 else result

    few = Injected({4}, {0: some})
    with RowStore(packed[1, 0], options=replace(QUIET, backend=backend), library=library, hook=few.hook) as store:
        # An injected "interrupted" overwrites the page: the same page must come again from the drive.
        assert np.array_equal(rows_of(store, [60, 74]), table[[60, 74]])
        assert store.statistics().retries == 0 and len(few.calls) == 21
    ever = Injected({4}, {0: failing(number), 1: failing(number)})
    with (
        RowStore(packed[1, 0], options=replace(QUIET, backend=backend), library=library, hook=ever.hook) as store,
        pytest.raises(RowStoreError, match=rf"page 4.*errno {number}"),
    ):
        rows_of(store, [60])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_under_random_faults_a_call_gives_right_rows_or_an_error(
    data: st.DataObject, packed: dict[Any, Path], table: np.ndarray, library: ctypes.CDLL
) -> None:
    dice = random.Random(data.draw(st.integers(0, 2**32)))
    rate = data.draw(st.sampled_from([0.001, 0.02, 0.3]))
    names = list(FAULTS)

    def hook(context: Any, page: int, attempt: int, address: int, result: int) -> int:
        return FAULTS[dice.choice(names)][0](address, result) if dice.random() < rate else result

    injected = ReadHook(hook)
    options = replace(
        QUIET, backend=data.draw(st.sampled_from(BACKENDS)), cache_bytes=data.draw(st.sampled_from([0, 90_000]))
    )
    with RowStore(packed[3, 1], options=options, library=library, hook=injected) as store:
        for _ in range(4):
            ids = np.array(data.draw(IDS), dtype=np.int64)
            out = np.full((len(ids), 264), 0xA5, dtype=np.uint8)
            try:
                store.lookup(ids, out)
            except RowStoreError as error:
                assert error.status is Status.READ_FAILED
                assert not out.any()
            else:
                assert np.array_equal(out, expected_rows(table, header_of(3, 1), ids))
