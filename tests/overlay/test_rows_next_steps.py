"""Rows that cannot be opened: whatever the reason, the error has a next step that names the file or the setting."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spark_overlay import checkpoint_rows, engram_check, packed_rows
from spark_overlay.checkpoint_rows import CheckpointRows
from spark_overlay.engram_file import file_name
from spark_overlay.packed_rows import RowsError, open_rows
from spark_overlay.row_store import RowStoreError

from tests.overlay import test_packed_rows as plain
from tests.overlay.conftest import OVERLAY
from tests.overlay.packing import COMMAND, ENVIRONMENT, run, table_of
from tests.overlay.row_store_library import built
from tests.overlay.test_packed_rows import wanted_of

checkpoint, packed, environment, library = plain.checkpoint, plain.packed, plain.environment, plain.library
NAME = file_name(1, 0, 3)


def test_a_file_of_another_size_has_to_be_moved_before_it_is_packed_again(
    checkpoint: Path, packed: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / NAME
    path.write_bytes((packed / NAME).read_bytes() + b"\0")
    with pytest.raises(RowsError, match="its header promises") as caught:
        open_rows(wanted_of(checkpoint), environment)
    assert caught.value.fix.startswith(f"move {path} away, then `sparktui pack`, which runs `python3 -m spark_overlay")
    status, events = run([*COMMAND, "check", str(path)])
    assert status == 1 and f"move {path} away, then sparktui pack" in events[-1]["fix"]


@pytest.mark.parametrize(
    ("more", "step"),
    [
        ({"DSV41_IO_THREADS": "many"}, "correct this setting"),
        ({"DSV41_ENGRAM_FALLBACK": "ram"}, "correct this setting"),
    ],
)
def test_a_setting_that_cannot_be_meant_has_a_next_step(
    checkpoint: Path, packed: Path, environment: dict[str, str], more: dict[str, str], step: str
) -> None:
    with pytest.raises(RowsError) as caught:
        open_rows(wanted_of(checkpoint), environment | {"DSV41_PACKED_DIR": str(packed)} | more)
    assert next(iter(more)) in caught.value.what and step in caught.value.fix


def test_a_library_that_is_missing_sends_to_the_image(
    checkpoint: Path, packed: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_ROW_STORE", str(tmp_path / "none.so"))
    with pytest.raises(RowsError, match=r"cannot be loaded: .*none\.so") as caught:
        open_rows(wanted_of(checkpoint), environment | {"DSV41_PACKED_DIR": str(packed)})
    assert "sparktui build" in caught.value.fix


def test_a_file_that_cannot_be_read_is_named_with_a_next_step(
    checkpoint: Path, packed: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed / NAME
    real = os.pread

    def failing(handle: int, count: int, offset: int) -> bytes:
        if os.path.samestat(os.fstat(handle), path.stat()):
            raise OSError(5, os.strerror(5))
        return real(handle, count, offset)

    monkeypatch.setattr(os, "pread", failing)
    with pytest.raises(RowsError, match=rf"{path}: read at byte 0 failed: Input/output error \(errno 5\)") as caught:
        open_rows(wanted_of(checkpoint), environment | {"DSV41_PACKED_DIR": str(packed)})
    assert "dmesg" in caught.value.fix and str(path) in caught.value.fix


def test_a_file_that_may_not_be_opened_is_named_with_a_next_step(
    checkpoint: Path, packed: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed / NAME

    def refused(*_: Any) -> None:
        raise PermissionError(13, os.strerror(13), str(path))

    monkeypatch.setattr(packed_rows, "_expected", refused)
    with pytest.raises(RowsError, match="Permission denied") as caught:
        open_rows(wanted_of(checkpoint), environment | {"DSV41_PACKED_DIR": str(packed)})
    assert str(path) in caught.value.fix and "owner" in caught.value.fix


# A process that may have no more memory, or no io_uring (its set-up, 425, is forbidden) and no more threads.
SHORT = """
import ctypes, os, resource, struct, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import numpy as np
from spark_overlay import row_store
from spark_overlay.packed_rows import RowsError, Wanted, open_rows
bounds = tuple(map(int, sys.argv[3].split(",")))
wanted = Wanted(1, 0, 3, 0, int(sys.argv[4]), bounds, 256, Path(sys.argv[2]))
row_store.load()
libc = ctypes.CDLL(None)
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
buffer = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in code))
class Prog(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_void_p)]
prog = Prog(len(code), ctypes.cast(buffer, ctypes.c_void_p).value)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(prog), 0, 0) == 0
now = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
most = now + int(sys.argv[5])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    open_rows(wanted, os.environ)
except RowsError as error:
    print(error.what)
    print(error.fix)
"""


@pytest.mark.parametrize(
    ("setting", "value", "more_bytes", "what", "step"),
    [
        ("DSV41_IO_THREADS", "4096", 200 << 20, "could not be started (errno 11)", "a smaller DSV41_IO_THREADS (4096"),
        ("DSV41_IO_THREADS", "4096", 10 << 20, "no memory for the page buffers", "a smaller DSV41_IO_THREADS (4096"),
        ("DSV41_CACHE_GIB", "60", 200 << 20, "no memory for a row cache", "a smaller DSV41_CACHE_GIB (60 now)"),
    ],
)
def test_what_the_node_is_short_of_sends_to_the_setting(
    checkpoint: Path, packed: Path, setting: str, value: str, more_bytes: int, what: str, step: str
) -> None:
    wanted = wanted_of(checkpoint)
    bounds = ",".join(map(str, wanted.bounds))
    argv = [sys.executable, "-B", "-c", SHORT, OVERLAY, checkpoint, bounds, wanted.row_hi, more_bytes]
    settings = {"DSV41_PACKED_DIR": str(packed), "DSV41_IO_THREADS": "8", setting: value}
    done = subprocess.run(
        [str(word) for word in argv], env=os.environ | settings | {"SPARK_ROW_STORE": str(built().library)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said, fix = done.stdout.splitlines()[-2:]
    assert what in said and step in fix


def some(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    argv = [*COMMAND, "check", str(folder / NAME), *more]
    status, events = run(argv)
    return status, events[-1]


def test_each_check_looks_at_other_pages_and_a_seed_repeats_one(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[list[int]] = []
    real = engram_check.page_maker().verify

    class Noting:
        def verify(self, header: Any, first: int, data: Any) -> Any:
            looked[-1].append(first)
            return real(header, first, data)

    monkeypatch.setattr(engram_check, "page_maker", Noting)
    seeds = []
    for seed in (None, None, None):
        looked.append([])
        seeds.append(engram_check.check(packed / NAME, pages=8, seed=seed)["seed"])
    for seed in seeds:
        looked.append([])
        assert engram_check.check(packed / NAME, pages=8, seed=seed)["seed"] == seed
    assert looked[:3] == looked[3:] and len({tuple(each) for each in looked}) > 1


def test_the_command_prints_the_seed_and_takes_it(checkpoint: Path, packed: Path) -> None:
    status, first = some(packed, "--pages", "3", "--source", str(checkpoint), "--rows", "20")
    assert (status, first["event"]) == (0, "checked")
    assert some(packed, "--pages", "3", "--seed", str(first["seed"]))[1]["seed"] == first["seed"]


@pytest.mark.parametrize(
    "words",
    [
        ["check", "x.bin", "--pages", "-1"],
        ["check", "x.bin", "--rows", "-5"],
        ["check", "x.bin", "--seed", "-5"],
        ["pack", "--source", "m", "--out", "o", "--rank", "-1", "--tp", "3", "--revision", "a"],
    ],
    ids=["pages", "rows", "seed", "rank"],
)
def test_a_negative_count_is_usage(words: list[str]) -> None:
    done = subprocess.run([*COMMAND, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "is less than 0" in done.stderr and "Traceback" not in done.stderr


def fallback_rows(checkpoint: Path, environment: dict[str, str]) -> CheckpointRows:
    rows = open_rows(wanted_of(checkpoint), environment | {"DSV41_ENGRAM_FALLBACK": "checkpoint"})
    assert isinstance(rows, CheckpointRows)
    return rows


def test_the_collector_stays_off_until_the_last_of_several_callbacks_ends() -> None:
    """Callbacks of two layers overlap: the first to end must not let the other collect, nor the last leave it off."""
    entered = {number: threading.Event() for number in (1, 2)}
    may_end = {number: threading.Event() for number in (1, 2)}
    seen: list[bool] = []

    def answer(number: int) -> None:
        entered[number].set()
        may_end[number].wait(30)
        seen.append(gc.isenabled())

    called = checkpoint_rows._ending(answer)
    threads = {number: threading.Thread(target=called, args=(number,)) for number in (1, 2)}
    assert gc.isenabled()
    try:
        for number in (1, 2):
            threads[number].start()
            assert entered[number].wait(30)
        for number in (1, 2):
            may_end[number].set()
            threads[number].join(30)
        assert seen == [False, False] and gc.isenabled()
    finally:
        gc.enable()


def shortened(count: int) -> Callable[..., int]:
    """Every row's first read is cut to `count` bytes, and what is not read is overwritten."""
    real, met = os.preadv, set[tuple[int, int]]()

    def short(handle: int, buffers: list[Any], offset: int) -> int:
        if (handle, offset) in met:
            return real(handle, buffers, offset)
        met.add((handle, offset))
        buffers[0][:] = bytes(len(buffers[0]))
        return real(handle, [buffers[0][:count]], offset) if count else 0

    return short


@pytest.mark.parametrize("count", [0, 3])
def test_a_short_read_of_the_checkpoint_is_repeated_once(
    checkpoint: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    rows = fallback_rows(checkpoint, environment)
    monkeypatch.setattr(os, "preadv", shortened(count))
    out = np.zeros((50, 264), dtype=np.uint8)
    rows.lookup(np.arange(50), out)
    assert np.array_equal(out, table_of(checkpoint / "model-00001-of-00002.safetensors")[:50])


def test_reads_of_the_checkpoint_that_stay_short_or_fail_are_named(
    checkpoint: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = fallback_rows(checkpoint, environment)
    out = np.zeros((1, 264), dtype=np.uint8)
    monkeypatch.setattr(os, "preadv", lambda handle, buffers, offset: 5)
    with pytest.raises(RowStoreError, match=r"safetensors at byte \d+, row 7: read cut short twice: 5 of 256 bytes"):
        rows.lookup(np.array([7]), out)

    def failing(*_: Any) -> int:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(RowStoreError, match=r"row 7: read failed twice: Input/output error \(errno 5\)\. Next: dmesg"):
        rows.lookup(np.array([7]), out)
