"""The row store (C++, by ctypes): the table's rows for every rank and back end, and under no fault a wrong row."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spark_overlay.engram_file import Header
from spark_overlay.engram_layout import shard_range
from spark_overlay.engram_pages import build_pages
from spark_overlay.row_store import (
    Backend,
    Options,
    RowStore,
    RowStoreError,
    Status,
    load,
)  # fmt: skip

from tests.overlay.conftest import OVERLAY
from tests.overlay.test_row_store_build import built

ROWS = 3_001
SEED = 20261129
BACKENDS = (Backend.THREADS, Backend.IO_URING)
QUIET = Options(depth=16, block_ids=256, quiet=True)
RANKS = [(tp, rank) for tp in (1, 3, 4) for rank in range(tp)]


def bounds_of(rows: int = ROWS) -> tuple[int, ...]:
    """24 columns of odd lengths, as in the real tables."""
    return (0, *sorted(random.Random(SEED).sample(range(1, rows), 23)), rows)


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    return load(built().library)


@pytest.fixture(scope="session")
def table() -> np.ndarray:
    return np.random.default_rng(SEED).integers(0, 256, (ROWS, 264), dtype=np.uint8)


def header_of(tp: int, rank: int) -> Header:
    found = shard_range(bounds_of(), rank, tp)
    return Header(
        layer=1, rank=rank, tp=tp, weight_bytes=256, scale_bytes=8, row_lo=found.lo, row_hi=found.hi, total_rows=ROWS,
        column_lo=found.column_lo, column_hi=found.column_hi, by_columns=found.by_columns,
        revision="1bae0e1" + "0" * 33, fingerprint=bytes(range(32)), bounds=bounds_of(),
    )  # fmt: skip


def write_packed(path: Path, header: Header, table: np.ndarray) -> Path:
    own = table[header.row_lo : header.row_hi]
    path.write_bytes(header.packed() + build_pages(header, 0, own[:, :256].tobytes(), own[:, 256:].tobytes()).tobytes())
    return path


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory, table: np.ndarray) -> dict[tuple[int, int], Path]:
    folder = tmp_path_factory.mktemp("packed")
    return {key: write_packed(folder / f"engram-l1-r{key[1]}of{key[0]}.bin", header_of(*key), table) for key in RANKS}


@pytest.fixture(scope="session")
def stores(packed: dict[tuple[int, int], Path], library: ctypes.CDLL) -> Iterator[dict[Any, RowStore]]:
    """Every rank by both back ends, plain and with a cache that is far too small."""
    found: dict[Any, RowStore] = {}
    for key in RANKS:
        for backend in BACKENDS:
            for cache in (0, 20_000):
                options = replace(QUIET, backend=backend, cache_bytes=cache)
                found[*key, backend, cache] = RowStore(
                    packed[key], expected=header_of(*key), options=options, library=library
                )
    yield found
    for store in found.values():
        store.close()


def rows_of(store: RowStore, ids: list[int] | np.ndarray) -> np.ndarray:
    wanted = np.asarray(ids, dtype=np.int64)
    out = np.full((len(wanted), 264), 0xA5, dtype=np.uint8)
    store.lookup(wanted, out)
    return out


def expected_rows(table: np.ndarray, header: Header, ids: list[int] | np.ndarray) -> np.ndarray:
    wanted = np.asarray(ids, dtype=np.int64)
    own = (wanted >= header.row_lo) & (wanted < header.row_hi)
    return np.where(own[:, None], table[wanted], 0).astype(np.uint8)


def edges() -> list[int]:
    """Ids at every border: columns, ranks, pages, the table's own."""
    found = {0, ROWS - 1}
    for bound in bounds_of():
        found |= {bound - 1, bound, bound + 1}
    for key in RANKS:
        header = header_of(*key)
        for row in (header.row_lo, header.row_lo + 14, header.row_lo + 15, header.row_hi):
            found |= {row - 1, row}
    return sorted(row for row in found if 0 <= row < ROWS)


IDS = st.one_of(
    st.lists(st.integers(0, ROWS - 1), max_size=600),
    st.lists(st.sampled_from(edges()), max_size=600),
    st.builds(lambda row, count: [row] * count, st.integers(0, ROWS - 1), st.integers(1, 300)),
    st.builds(
        lambda first, order: [min(first + step, ROWS - 1) for step in order],
        st.integers(0, ROWS - 1), st.permutations(range(30)),
    ),
)  # fmt: skip
"""Random, border, one row many times, one or two pages in any order."""


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=IDS)
def test_every_rank_and_back_end_gives_the_tables_rows_and_zeros_elsewhere(
    ids: list[int], stores: dict[Any, RowStore], table: np.ndarray
) -> None:
    for (tp, rank, _, _), store in stores.items():
        assert np.array_equal(rows_of(store, ids), expected_rows(table, header_of(tp, rank), ids))


@pytest.mark.parametrize("tp", [1, 3, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_union_over_ranks_is_the_table(
    tp: int, backend: Backend, stores: dict[Any, RowStore], table: np.ndarray
) -> None:
    ids = np.random.default_rng(7).permutation(ROWS)
    parts = [rows_of(stores[tp, rank, backend, 0], ids).astype(np.uint32) for rank in range(tp)]
    assert np.array_equal(sum(parts), table[ids])


def test_a_page_wanted_twice_is_read_once(packed: dict[Any, Path], table: np.ndarray, library: ctypes.CDLL) -> None:
    for backend in BACKENDS:
        with RowStore(packed[1, 0], options=replace(QUIET, backend=backend), library=library) as store:
            ids = [16, 29, 16, 15, 0, 14, 45, 29]  # pages 1 1 1 1 0 0 3 1
            assert np.array_equal(rows_of(store, ids), table[ids])
            found = store.statistics()
            assert (found.pages, found.ids, found.owned, found.retries) == (3, 8, 8, 0)


def test_none_of_this_ranks_rows_reads_nothing(stores: dict[Any, RowStore]) -> None:
    store = stores[3, 1, Backend.IO_URING, 0]
    before = store.statistics().pages
    header = header_of(3, 1)
    assert not rows_of(store, [0, header.row_lo - 1, header.row_hi, ROWS - 1] * 50).any()
    assert rows_of(store, []).shape == (0, 264)
    assert store.statistics().pages == before


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [ROWS, -1, 2**62, -(2**63)])
def test_an_id_outside_the_table_is_named_and_gives_no_row(
    backend: Backend, bad: int, packed: dict[Any, Path], library: ctypes.CDLL
) -> None:
    with RowStore(packed[3, 0], options=replace(QUIET, backend=backend), library=library) as store:
        ids = np.array([*range(300), bad, 5], dtype=np.int64)  # in the second block: the first has been read
        out = np.full((len(ids), 264), 0xA5, dtype=np.uint8)
        with pytest.raises(RowStoreError, match=rf"id {bad} at place 300 .*{ROWS} rows") as caught:
            store.lookup(ids, out)
        assert caught.value.status is Status.BAD_ID
        assert not out.any()
        assert rows_of(store, [0]).any(), "the store goes on"


def test_a_strict_store_ends_the_process_and_names_the_id(packed: dict[Any, Path]) -> None:
    script = f"""
import sys; sys.path.insert(0, {str(OVERLAY)!r})
import numpy as np
from pathlib import Path
from spark_overlay.row_store import Options, RowStore, load
library = load(Path({str(built().library)!r}))
store = RowStore({str(packed[1, 0])!r}, options=Options(strict=True, quiet=True), library=library)
ids = np.array([1, {ROWS}], dtype=np.int64); out = np.zeros((2, 264), dtype=np.uint8)
request = store.request(ids.ctypes.data, 2, out.ctypes.data)
import ctypes
ctypes.CFUNCTYPE(None, ctypes.c_void_p)(store.host_function)(ctypes.addressof(request))
print("still here")
"""
    ended = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -6 and "still here" not in ended.stdout
    assert f"layer=1 rank=0 of 1 {packed[1, 0]}: id {ROWS} at place 1" in ended.stderr


def test_a_cache_changes_reads_and_nothing_else(
    packed: dict[Any, Path], table: np.ndarray, library: ctypes.CDLL
) -> None:
    for backend in BACKENDS:
        for ways in (1, 4, 16):
            options = replace(QUIET, backend=backend, cache_bytes=150_000, cache_ways=ways)
            with RowStore(packed[3, 2], options=options, library=library) as store:
                assert 150_000 * 0.9 < store.info.cache_bytes <= 150_000
                assert store.info.cache_slots == store.info.cache_bytes // (ways * 272 + 1) * ways
                dice = np.random.default_rng(3)
                for _ in range(60):
                    ids = dice.integers(ROWS * 2 // 3, ROWS, dice.integers(1, 700))
                    ids = np.minimum(ids, ids[::-1])
                    assert np.array_equal(rows_of(store, ids), expected_rows(table, header_of(3, 2), ids))
                found = store.statistics()
                assert 0 < found.cache_hits < found.owned
                pages = found.pages
                last = [ROWS - 1] * 3
                rows_of(store, last)
                rows_of(store, last)
                assert store.statistics().pages <= pages + 1, "a row just read is there"


def test_eight_threads_at_once(stores: dict[Any, RowStore], table: np.ndarray) -> None:
    for key in ((3, 1, backend, cache) for backend in BACKENDS for cache in (0, 20_000)):
        store, header = stores[key], header_of(3, 1)
        wrong: list[int] = []

        def work(seed: int, store: RowStore = store, header: Header = header, wrong: list[int] = wrong) -> None:
            dice = np.random.default_rng(seed)
            for _ in range(40):
                ids = dice.integers(0, ROWS, dice.integers(1, 300))
                if not np.array_equal(rows_of(store, ids), expected_rows(table, header, ids)):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_the_host_function_replays_with_new_ids(stores: dict[Any, RowStore], table: np.ndarray) -> None:
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    for backend in BACKENDS:
        store = stores[4, 2, backend, 0]
        ids, out = np.zeros(48, dtype=np.int64), np.zeros((48, 264), dtype=np.uint8)
        request = store.request(ids.ctypes.data, 48, out.ctypes.data)
        for seed in range(5):
            ids[:] = np.random.default_rng(seed).integers(0, ROWS, 48)
            call(store.host_function)(ctypes.addressof(request))
            assert request.status == 0
            assert np.array_equal(out, expected_rows(table, header_of(4, 2), ids))


def test_signals_do_not_disturb_reads(stores: dict[Any, RowStore], table: np.ndarray) -> None:
    """Real interruptions: a timer signal every 200 us, handled without SA_RESTART."""
    import signal

    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        for backend in BACKENDS:
            store = stores[1, 0, backend, 0]
            for seed in range(30):
                ids = np.random.default_rng(seed).integers(0, ROWS, 200)
                assert np.array_equal(rows_of(store, ids), table[ids])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_forked_child_is_told_and_does_not_hang(stores: dict[Any, RowStore]) -> None:
    store = stores[1, 0, Backend.THREADS, 0]
    rows_of(store, [1])
    child = os.fork()
    if child == 0:
        try:
            rows_of(store, [1])
        except RowStoreError as error:
            os._exit(17 if error.status is Status.BAD_CALL and "used in another" in str(error) else 18)
        os._exit(19)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17


def test_arguments_that_cannot_be_meant_are_refused(
    packed: dict[Any, Path], library: ctypes.CDLL, stores: dict[Any, RowStore]
) -> None:
    for change in ({"depth": 0}, {"depth": 5000}, {"cache_ways": 17}, {"block_ids": 0}, {"block_ids": 2**21}):
        with pytest.raises(RowStoreError) as caught:
            RowStore(packed[1, 0], options=replace(QUIET, **change), library=library)
        assert caught.value.status is Status.BAD_CALL
    store = stores[1, 0, Backend.THREADS, 0]
    for ids, out in (
        (np.zeros(3, np.int32), np.zeros((3, 264), np.uint8)),
        (np.zeros(3, np.int64), np.zeros((2, 264), np.uint8)),
        (np.zeros(6, np.int64)[::2], np.zeros((3, 264), np.uint8)),
        (np.zeros(3, np.int64), np.zeros((3, 528), np.uint8)[:, ::2]),
    ):
        with pytest.raises(ValueError):
            store.lookup(ids, out)
