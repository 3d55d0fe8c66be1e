"""The row store compiles without a warning for x86-64 and aarch64, and its self-test passes on both (qemu-user)."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from spark_overlay.crc32c import crc32c
from spark_overlay.engram_layout import shard_range
from spark_overlay.row_store import Options, RowStoreError, Status, library_path, load

from tests.overlay.conftest import OVERLAY
from tests.overlay.row_store_library import CROSS, built


@pytest.fixture(scope="module")
def packed_and_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Rank 1 of 3 of a small table, and the whole table's rows."""
    import numpy as np

    from tests.overlay.test_row_store import ROWS, bounds_of, header_of, write_packed

    assert shard_range(bounds_of(), 1, 3).by_columns
    folder = tmp_path_factory.mktemp("self-test")
    table = np.random.default_rng(9).integers(0, 256, (ROWS, 264), dtype=np.uint8)
    (folder / "rows").write_bytes(table.tobytes())
    return write_packed(folder / "engram-l1-r1of3.bin", header_of(3, 1), table), folder / "rows"


def test_the_self_test_passes_here_without_an_allocation_in_a_lookup(packed_and_rows: tuple[Path, Path]) -> None:
    file, rows = packed_and_rows
    done = subprocess.run([built().self_test, file, rows, "400"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ok crc32c\n")
    assert done.stdout.count("backend=threads direct=1 ") >= 2
    if load(built().library).rs_probe_io_uring() == 0:
        assert done.stdout.count("backend=io_uring direct=1 ") == 4
    assert done.stdout.count(" allocations=0\n") == done.stdout.count("ok rows ")


def test_the_self_test_passes_on_aarch64(packed_and_rows: tuple[Path, Path]) -> None:
    """Under qemu-user, which has the CRC32C instructions and no io_uring: the probe must say so and go on."""
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("qemu-aarch64 is missing")
    file, rows = packed_and_rows
    program = built(CROSS).self_test
    done = subprocess.run(
        ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", program, file, rows, "60"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok all, crc32c by instruction" in done.stdout
    assert done.stdout.count("backend=threads direct=1 ") >= 2


@pytest.mark.parametrize("compiler", ["g++", CROSS])
def test_the_library_needs_only_libc_and_shows_only_its_functions(compiler: str) -> None:
    library = built(compiler).library
    dump = "objdump" if compiler == "g++" else "aarch64-linux-gnu-objdump"
    needed = subprocess.run([dump, "-p", library], capture_output=True, text=True, check=True, timeout=60).stdout
    names = {line.split()[1] for line in needed.splitlines() if line.strip().startswith("NEEDED")}
    assert names <= {"libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2"}
    symbols = subprocess.run([dump, "-T", library], capture_output=True, text=True, check=True, timeout=60).stdout
    shown = {
        line.split()[-1] for line in symbols.splitlines() if " g " in line and "*UND*" not in line and ".text" in line
    }
    assert {name for name in shown if not name.startswith("rs_")} == set()
    assert {"rs_open", "rs_lookup", "rs_host_lookup", "rs_close"} <= shown


def test_crc32c_equals_the_packers_by_instruction_and_by_table() -> None:
    library = load(built().library)
    dice = random.Random(2)
    for count in (0, 1, 7, 8, 9, 15, 1359, 1360, 4079, 4080, 4081, 4092, 4096, 8200):
        data = dice.randbytes(count)
        assert library.rs_crc32c(data, count) == library.rs_crc32c_portable(data, count) == crc32c(data)
    assert library.rs_crc32c(b"123456789", 9) == 0xE3069283


# What a container's default seccomp profile does to io_uring, made with a filter of our own.
FORBIDDEN = """
import ctypes, struct, sys
sys.path.insert(0, sys.argv[1])
answer = int(sys.argv[4])
libc = ctypes.CDLL(None, use_errno=True)
# BPF: load the call's number; io_uring_setup, _enter, _register (425-427) get the answer, the rest may pass.
code = [(0x20, 0, 0, 0), (0x35, 0, 2, 425), (0x25, 1, 0, 427)]
code += [(0x06, 0, 0, 0x00050000 | answer), (0x06, 0, 0, 0x7FFF0000)]
program = b"".join(struct.pack("<HBBI", *line) for line in code)
buffer = ctypes.create_string_buffer(program)
class Prog(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_void_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
prog = Prog(len(code), ctypes.cast(buffer, ctypes.c_void_p).value)
assert libc.prctl(22, 2, ctypes.byref(prog), 0, 0) == 0
from pathlib import Path
import numpy as np
from spark_overlay.row_store import Backend, Options, RowStore, RowStoreError, load
library = load(Path(sys.argv[2]))
assert library.rs_probe_io_uring() == answer
with RowStore(sys.argv[3], options=Options(depth=8), library=library) as store:
    assert store.backend is Backend.THREADS
    ids, out = np.arange(3000, dtype=np.int64), np.zeros((3000, 264), dtype=np.uint8)
    store.lookup(ids, out)
    assert out[store.info.row_lo : store.info.row_hi].any(axis=1).all()
try:
    RowStore(sys.argv[3], options=Options(backend=Backend.IO_URING, quiet=True), library=library)
except RowStoreError as error:
    assert f"errno {answer}" in str(error), error
else:
    raise SystemExit("io_uring was not refused")
"""


@pytest.mark.parametrize("answer", [errno.EPERM, errno.ENOSYS])
def test_where_seccomp_forbids_io_uring_threads_read_and_the_log_says_why(
    answer: int, packed_and_rows: tuple[Path, Path]
) -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", FORBIDDEN, OVERLAY, built().library, packed_and_rows[0], str(answer)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("Engram rows: layer=1 rank=1 of 3 rows=[")
    assert "backend=threads depth=8 " in line and line.endswith(
        f"packed=True; threads because io_uring: {os.strerror(answer)} (errno {answer})"
    )


def test_statistics_are_printed_at_most_every_so_many_seconds(packed_and_rows: tuple[Path, Path]) -> None:
    script = f"""
import sys, time; sys.path.insert(0, {str(OVERLAY)!r})
from pathlib import Path
import numpy as np
from spark_overlay.row_store import Options, RowStore, load
ids = np.arange(1200, 1300, dtype=np.int64); out = np.zeros((100, 264), dtype=np.uint8)
library = load(Path({str(built().library)!r}))
with RowStore({str(packed_and_rows[0])!r}, options=Options(stats_seconds=1), library=library) as store:
    for _ in range(20): store.lookup(ids, out)
    time.sleep(1.1)
    for _ in range(20): store.lookup(ids, out)
    found = store.statistics()
    assert 0 < found.p50_ns <= found.p99_ns < 10**10
"""
    done = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    opened, *lines = done.stderr.splitlines()
    assert "backend=" in opened
    assert len(lines) == 1 and lines[0].startswith("Engram rows: layer=1 rank=1 of 3 lookups=21 ids=2100 owned=2100 ")
    assert " hit_rate=0.0% retries=0 errors=0 p50_us=" in lines[0]


def test_options_come_from_the_environment() -> None:
    assert Options.from_environment({}) == Options(depth=96, strict=True, stats_seconds=60)
    found = Options.from_environment(
        {"DSV41_IO_THREADS": "32", "DSV41_CACHE_GIB": "1.5", "DSV41_CACHE_WAYS": "16", "DSV41_STATS_SECONDS": "0"},
        files=2,
    )
    assert found == Options(depth=32, strict=True, cache_bytes=3 << 28, cache_ways=16, stats_seconds=0)
    for name, text in (("DSV41_IO_THREADS", "many"), ("DSV41_CACHE_GIB", "-1"), ("DSV41_CACHE_WAYS", "17")):
        with pytest.raises(ValueError, match=f"{name}={text}"):
            Options.from_environment({name: text})


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    assert library_path({"SPARK_ROW_STORE": "/x/y.so"}) == Path("/x/y.so")
    with pytest.raises(RowStoreError, match=r"nothing\.so") as caught:
        load(tmp_path / "nothing.so")
    assert caught.value.status is Status.BAD_CALL
