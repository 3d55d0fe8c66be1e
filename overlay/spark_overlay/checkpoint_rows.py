"""Engram rows read from the checkpoint itself: what `row_store.RowStore` does from a packed file, slowly.

Two reads a row, weights and scales, by plain pread through the page cache. It stands in where a packed file is missing
and DSV41_ENGRAM_FALLBACK=checkpoint allows it. The same interface as RowStore, so the same lookup runs on top of it;
its host function is Python's, and waits for the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spark_overlay.engram_file import Header
from spark_overlay.row_store import Info, Request, RowStoreError, Status
from spark_overlay.safetensors_source import EngramSource

FAILED = 71
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CheckpointRows:
    """The rows of one layer that belong to one rank."""

    strict = True

    def __init__(self, source: EngramSource, header: Header, threads: int) -> None:
        """`header`: the packed file's, were it there. Raises OSError."""
        self._source, self._header = source, header
        self._weights = os.open(source.weight.path, os.O_RDONLY | os.O_CLOEXEC)
        self._scales = os.open(source.scale.path, os.O_RDONLY | os.O_CLOEXEC)
        self._pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="engram-rows")
        self.info = Info(
            layer=header.layer, rank=header.rank, tp=header.tp, row_bytes=header.row_bytes,
            weight_bytes=header.weight_bytes, scale_bytes=header.scale_bytes,
            row_lo=header.row_lo, row_hi=header.row_hi, total_rows=header.total_rows,
        )  # fmt: skip
        self._callback = _HOST_FUNCTION(_ending(self._answer))

    def lookup(self, ids: np.ndarray, out: np.ndarray) -> None:
        """out[i] = row ids[i], zeros where another rank has it. int64 [n] and uint8 [n, row_bytes].

        Raises RowStoreError (`out` is then zero) for an id outside the table and for a row that cannot be read.
        """
        header = self._header
        out[:] = 0
        outside = (ids < 0) | (ids >= header.total_rows)
        if outside.any():
            raise RowStoreError(
                Status.BAD_ID,
                f"Engram rows: layer={header.layer} rank={header.rank} of {header.tp}: "
                f"id {int(ids[outside][0])} is outside the table of {header.total_rows} rows",
            )
        mine = np.flatnonzero((ids >= header.row_lo) & (ids < header.row_hi))
        wanted, place = np.unique(ids[mine], return_inverse=True)
        rows = np.empty((len(wanted), header.row_bytes), dtype=np.uint8)
        list(self._pool.map(self._read, wanted.tolist(), rows))
        out[mine] = rows[place]

    def lookup_at(self, ids: int, count: int, out: int) -> None:
        """The same by address. Raises RowStoreError."""
        row_bytes = self._header.row_bytes
        asked = np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(ids))
        answer = np.ctypeslib.as_array((ctypes.c_uint8 * (count * row_bytes)).from_address(out))
        self.lookup(asked, answer.reshape(count, row_bytes))

    @property
    def host_function(self) -> int:
        return ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def request(self, ids: int, count: int, out: int) -> Request:
        return Request(None, ids, count, out, -1, 0)

    def _read(self, row: int, out: np.ndarray) -> None:
        weight, scale, split = self._source.weight, self._source.scale, self._header.weight_bytes
        for handle, place, into in ((self._weights, weight, out[:split]), (self._scales, scale, out[split:])):
            offset = place.offset + row * place.row_bytes
            why = _read_twice(handle, into, offset)
            if why:
                raise RowStoreError(
                    Status.READ_FAILED,
                    f"Engram rows: {place.path} at byte {offset}, row {row}: {why}. Next: dmesg on this node and, with "
                    "a share, on the head; sparktui download compares the checkpoint's sizes; `sparktui pack` makes "
                    "the rows' own file",
                )

    def _answer(self, address: int) -> None:
        request = Request.from_address(address)
        self.lookup_at(request.ids, request.count, request.out)
        request.status = Status.OK


def _read_twice(handle: int, into: np.ndarray, offset: int) -> str:
    """Fills `into`; a read that fails or is cut short is done once more, as in the row store. Else why not."""
    why = ""
    for _ in range(2):
        try:
            count = os.preadv(handle, [into.data], offset)
        except OSError as error:
            why = f"read failed twice: {error.strerror} (errno {error.errno})"
            continue
        if count == into.nbytes:
            return ""
        why = f"read cut short twice: {count} of {into.nbytes} bytes" if count else "the file ends"
    return why


class _Collector:
    """Keeps the garbage collector off while any callback runs: its switch is the process's, callbacks of several
    layers may overlap, and only the last one to end may put it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._was_on:
                gc.enable()


_COLLECTOR = _Collector()
"""One, as the collector is."""


def _ending(answer: Callable[[int], None]) -> Callable[[int], None]:
    """A host function cannot raise: whatever goes wrong ends the process. It must free no GPU memory either, which
    the garbage collector may do.
    """

    def called(address: int) -> None:
        with _COLLECTOR:
            try:
                answer(address)
            except RowStoreError as error:
                print(f"[spark] ERROR {error}", file=sys.stderr, flush=True)
                os._exit(FAILED)
            except BaseException:
                traceback.print_exc()
                os._exit(FAILED)

    return called
