"""Row stores that cannot go on: a kernel that refuses io_uring's calls; what the launcher makes of the last line."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparktui.engine.signatures import explain
from tests.overlay import test_row_store as plain
from tests.overlay.conftest import OVERLAY
from tests.overlay.test_row_store import ROWS
from tests.overlay.test_row_store_build import built

table, packed = plain.table, plain.packed

# Stands before libc's syscall(): after `refused_after` calls of io_uring_enter the next `refused` get `refused_with`.
BEFORE_SYSCALL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
int refused_after = 0, refused = 0, refused_with = 0;
long syscall(long number, ...) {
    static long (*real)(long, ...);
    long words[6];
    va_list rest;
    va_start(rest, number);
    for (int at = 0; at < 6; ++at) words[at] = va_arg(rest, long);
    va_end(rest);
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == 426 && (refused_after > 0 ? refused_after-- : 0) == 0 && refused > 0) {
        --refused;
        errno = refused_with;
        return -1;
    }
    return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
"""

OPENED = """
import ctypes, os, struct, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import numpy as np
from spark_overlay.row_store import Backend, Options, RowStore, RowStoreError, load
library = load(Path(sys.argv[2]))
options = Options(depth=8, backend=Backend.IO_URING, quiet=True)
store = RowStore(sys.argv[3], options=options, library=library)
assert store.backend is Backend.IO_URING
def rows_of(first, last):
    ids, out = np.arange(first, last, dtype=np.int64), np.full((last - first, 264), 0xA5, dtype=np.uint8)
    try:
        store.lookup(ids, out)
    except RowStoreError as error:
        assert not out.any(), "something of a call that failed is left"
        return str(error)
    return out.tobytes()
good = rows_of(0, 3001)
assert isinstance(good, bytes)
"""

# The filter is the calling thread's, and it is for ever: io_uring_enter (426) gets the answer.
FILTERED = """
libc = ctypes.CDLL(None, use_errno=True)
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 426), (0x06, 0, 0, 0x00050000 | int(sys.argv[4])), (0x06, 0, 0, 0x7FFF0000)]
buffer = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in code))
class Prog(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_void_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
prog = Prog(len(code), ctypes.cast(buffer, ctypes.c_void_p).value)
assert libc.prctl(22, 2, ctypes.byref(prog), 0, 0) == 0
print(rows_of(30, 3001))
print(rows_of(600, 700))
store.close()
print("closed")
"""

REFUSED = """
shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
def refuse(after, count, answer):
    for name, value in (("refused_after", after), ("refused_with", answer), ("refused", count)):
        ctypes.c_int.in_dll(shim, name).value = value
refuse(*map(int, sys.argv[4:7]))
first = rows_of(0, 3001)
print("good" if first == good else first)
refuse(0, 0, 0)
second = rows_of(30, 3001)
print("good" if second == good[30 * 264:] else second)
print("errors", store.statistics().errors)
store.close()
print("closed")
"""


def ran(script: str, path: Path, *words: int, environment: dict[str, str] | None = None) -> list[str]:
    argv = [sys.executable, "-B", "-c", OPENED + script, OVERLAY, built().library, path, *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=os.environ | (environment or {}))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(BEFORE_SYSCALL)
    subprocess.run(
        ["g++", "-x", "c", "-shared", "-fPIC", folder / "shim.c", "-o", folder / "shim.so", "-ldl"],
        check=True, timeout=120,
    )  # fmt: skip
    return folder / "shim.so"


@pytest.mark.parametrize("answer", [errno.ENOMEM, errno.EBUSY])
def test_a_kernel_that_takes_no_more_reads_ends_the_call_with_its_reason_and_blames_no_page(
    answer: int, packed: dict[Any, Path]
) -> None:
    """Busy is waited for, but not for ever. The second call, of other pages, gives the same answer."""
    path = packed[1, 0]
    text = f"{path}: io_uring failed: {os.strerror(answer)} (errno {answer}) while reading from page 2 on"
    assert ran(FILTERED, path, answer) == [text, text, "closed"]
    found = explain([f"Engram rows: layer=1 rank=0 of 1 {text}"], 134, False)
    assert found is not None and found.id == "engram.ring" and "move" not in found.fix
    assert f"{os.strerror(answer)} (errno {answer})" in found.cause


def test_a_ring_that_failed_with_reads_under_way_is_not_used_again(packed: dict[Any, Path], shim: Path) -> None:
    """Though the kernel would take reads again: what comes late must not be taken for another read's."""
    path = packed[1, 0]
    text = f"{path}: io_uring failed: Cannot allocate memory (errno 12) while reading from page 0 on"
    said = ran(REFUSED, path, 5, 1, errno.ENOMEM, environment={"LD_PRELOAD": str(shim)})
    assert said == [text, text, "errors 2", "closed"]


@pytest.mark.parametrize("answer", [errno.EBUSY, errno.EAGAIN, errno.EINTR])
@pytest.mark.parametrize("after", [0, 3])
def test_a_kernel_that_is_busy_for_a_while_is_waited_for(
    answer: int, after: int, packed: dict[Any, Path], shim: Path
) -> None:
    said = ran(REFUSED, packed[1, 0], after, 200, answer, environment={"LD_PRELOAD": str(shim)})
    assert said == ["good", "good", "errors 0", "closed"]


STRICT = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import numpy as np
from spark_overlay.row_store import Options, ReadHook, RowStore, load
kind = sys.argv[4]
def hook(context, page, attempt, address, result):
    if page != 9 or kind not in ("5", "12", "short", "flipped"):
        return result
    if kind == "flipped":
        ctypes.memset(address + 5, 1 ^ ctypes.c_ubyte.from_address(address + 5).value, 1)
    return {"short": 512, "flipped": result}.get(kind) or -int(kind)
reading = ReadHook(hook)
store = RowStore(sys.argv[3], options=Options(depth=8, strict=True), library=load(Path(sys.argv[2])), hook=reading)
ids = np.array([1, 3001 if kind == "beyond" else 135], dtype=np.int64)
out = np.zeros((2, 264), dtype=np.uint8)
request = store.request(ids.ctypes.data, 2, out.ctypes.data)
import os
if kind != "forked" or os.fork() == 0:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(store.host_function)(ctypes.addressof(request))
    print("went on")
else:
    os.abort() if os.waitstatus_to_exitcode(os.wait()[1]) == -6 else print("went on")
"""


@pytest.mark.parametrize(
    ("kind", "identity", "said"),
    [
        ("5", "engram.drive", "Input/output error (errno 5)"),
        ("12", "engram.read", "Cannot allocate memory (errno 12)"),
        ("short", "engram.cut-short", "512 of 4096 bytes"),
        ("flipped", "engram.damaged", "wrong checksum, twice"),
        ("moved", "engram.damaged", "the page there is another page, twice"),
        ("beyond", "engram.bad-id", f"id {ROWS} at place 1"),
        ("forked", "engram.forked", "opened by process"),
    ],
)
def test_the_launcher_names_file_place_and_next_step_of_an_engine_that_its_row_store_ended(
    kind: str, identity: str, said: str, packed: dict[Any, Path], tmp_path: Path
) -> None:
    path = tmp_path / "engram-l1-r0of1.bin"
    data = bytearray(packed[1, 0].read_bytes())
    if kind == "moved":
        data[4096 * 10 : 4096 * 11] = data[4096 * 11 : 4096 * 12]
    path.write_bytes(data)
    argv = [sys.executable, "-B", "-c", STRICT, OVERLAY, built().library, path, kind]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == -6 and "went on" not in done.stdout, done.stderr
    found = explain([*done.stderr.splitlines(), "Connection closed by peer"], 134, False)
    assert found is not None and found.id == identity
    assert str(path) in found.cause and (said in found.cause or identity == "engram.forked")
    if identity not in ("engram.bad-id", "engram.forked"):
        assert "offset 40960 (page 9)" in found.cause
        assert f"move {path} away" in found.fix
