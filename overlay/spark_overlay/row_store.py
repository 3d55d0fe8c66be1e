"""The row store's Python side: opens librow_store.so (overlay/row_store, C++) by ctypes and one packed file with it.

    store = RowStore(path, expected=header, options=Options.from_environment(os.environ))
    store.lookup(ids, out)          # int64 [n], uint8 [n, row_bytes]; the GIL is free meanwhile
    store.host_function, store.request(...)   # for cudaLaunchHostFunc: no Python and no CUDA inside

The library is sought as $SPARK_ROW_STORE, then lib/librow_store.so beside the package. An error raises RowStoreError;
with `strict` a failed lookup writes its text to stderr and ends the process instead, which is what an engine wants: a
host function cannot raise.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from spark_overlay.engram_file import Header

if TYPE_CHECKING:
    import numpy as np

LIBRARY = "librow_store.so"
ABI = 1
ANY_32, ANY_64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_TEXT_BYTES = 1024


class Status(IntEnum):
    OK = 0
    BAD_FILE = 1
    BAD_ID = 2
    READ_FAILED = 3
    BAD_CALL = 4


class Backend(IntEnum):
    AUTO = 0
    THREADS = 1
    IO_URING = 2


class RowStoreError(Exception):
    """What went wrong, in words, and which kind of thing it is."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Expected(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("layer", "rank", "tp", "weight_bytes", "scale_bytes", "unused")),
        *((name, ctypes.c_uint64) for name in ("row_lo", "row_hi", "total_rows")),
        ("revision", ctypes.c_char_p),
        ("fingerprint", ctypes.c_char_p),
    )


ReadHook = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int32
)
"""(context, page, attempt, address of its bytes, result) -> result; for tests."""


class _Options(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_uint32)
            for name in ("abi", "backend", "depth", "strict", "cache_ways", "stats_seconds", "block_ids", "quiet")
        ),
        ("cache_bytes", ctypes.c_uint64),
        ("hook", ctypes.c_void_p),
        ("hook_context", ctypes.c_void_p),
    )


class Info(ctypes.Structure):
    """What was opened; the fields are those of rs_info in row_store.h."""

    _fields_ = (
        *(
            (name, ctypes.c_uint32)
            for name in (
                "layer", "rank", "tp", "row_bytes", "weight_bytes", "scale_bytes",
                "backend", "direct", "fixed_memory", "hardware_crc",
            )
        ),
        *((name, ctypes.c_uint64) for name in ("row_lo", "row_hi", "total_rows", "cache_slots", "cache_bytes")),
    )  # fmt: skip


class Statistics(ctypes.Structure):
    """Counts since the store was opened; p50_ns and p99_ns are durations of calls."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "lookups", "ids", "owned", "cache_hits", "pages", "retries", "errors", "p50_ns", "p99_ns",
        )
    )  # fmt: skip


class Request(ctypes.Structure):
    """The argument of `host_function`; its addresses must stay valid as long as a captured graph may replay it."""

    _fields_ = (
        ("store", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("out", ctypes.c_void_p),
        ("status", ctypes.c_int32),
        ("unused", ctypes.c_int32),
    )


@dataclass(frozen=True, slots=True)
class Options:
    """How one file is read. `depth` page reads are in flight at most; `block_ids` are handled together."""

    backend: Backend = Backend.AUTO
    depth: int = 96
    strict: bool = False
    cache_bytes: int = 0
    cache_ways: int = 4
    stats_seconds: int = 0
    block_ids: int = 65536
    quiet: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], files: int = 2) -> Options:
        """DSV41_IO_THREADS, DSV41_CACHE_GIB (of all `files` of the process together), DSV41_CACHE_WAYS,
        DSV41_STATS_SECONDS. Strict. Raises ValueError that names the setting.
        """

        def number(name: str, default: str, least: int, most: int, kind: type[float] = int) -> float:
            text = environment.get(name, "").strip() or default
            try:
                value = kind(text)
            except ValueError:
                raise ValueError(f"{name}={text} is no {'whole ' if kind is int else ''}number") from None
            if not least <= value <= most:
                raise ValueError(f"{name}={text} is not from {least} to {most}")
            return value

        return cls(
            depth=int(number("DSV41_IO_THREADS", "96", 1, 4096)),
            strict=True,
            cache_bytes=int(number("DSV41_CACHE_GIB", "0", 0, 64, float) * 2**30) // max(1, files),
            cache_ways=int(number("DSV41_CACHE_WAYS", "4", 1, 16)),
            stats_seconds=int(number("DSV41_STATS_SECONDS", "60", 0, 86400)),
        )


def library_path(environment: Mapping[str, str] | None = None) -> Path:
    chosen = (os.environ if environment is None else environment).get("SPARK_ROW_STORE", "")
    return Path(chosen) if chosen else Path(__file__).resolve().parent.parent / "lib" / LIBRARY


def load(path: Path | None = None) -> ctypes.CDLL:
    """The library with its functions' types. Raises RowStoreError where it is missing or for another machine."""
    where = path or library_path()
    try:
        library = ctypes.CDLL(str(where))
    except OSError as error:
        raise RowStoreError(Status.BAD_CALL, f"the row store's library cannot be loaded: {error}") from error
    pointer, text, size, u32, u64 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64
    for name, result, arguments in (
        ("rs_open", ctypes.c_int, (text, pointer, pointer, pointer, text, size)),
        ("rs_lookup", ctypes.c_int, (pointer, pointer, ctypes.c_uint64, pointer, text, size)),
        ("rs_host_lookup", None, (pointer,)),
        ("rs_describe", None, (pointer, pointer)),
        ("rs_read_statistics", None, (pointer, pointer)),
        ("rs_close", None, (pointer,)),
        ("rs_probe_io_uring", ctypes.c_int, ()),
        ("rs_crc32c", ctypes.c_uint32, (text, size)),
        ("rs_crc32c_portable", ctypes.c_uint32, (text, size)),
        ("rs_build_pages", ctypes.c_int, (pointer, pointer, u64, u32, u32, u64, pointer)),
        ("rs_verify_pages", u64, (pointer, u64, u32, u32, u64, pointer)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class RowStore:
    """One open packed file. Any number of threads may look up; the process that opened it only."""

    def __init__(
        self,
        path: Path | str,
        *,
        expected: Header | None = None,
        options: Options | None = None,
        library: ctypes.CDLL | None = None,
        hook: Any = None,
    ) -> None:
        """`expected`: the header that the file must have (columns aside); None takes any sound file. `hook` is a
        ReadHook.

        Raises RowStoreError.
        """
        self._library = library or load()
        self._hook = hook
        chosen = options or Options()
        self.strict = chosen.strict
        wanted = _Expected(ANY_32, ANY_32, ANY_32, ANY_32, ANY_32, 0, ANY_64, ANY_64, ANY_64, None, None)
        if expected is not None:
            wanted = _Expected(
                expected.layer, expected.rank, expected.tp, expected.weight_bytes, expected.scale_bytes, 0,
                expected.row_lo, expected.row_hi, expected.total_rows,
                expected.revision.encode(), None,
            )  # fmt: skip
            # By address: a fingerprint may hold zero bytes.
            self._fingerprint = ctypes.create_string_buffer(expected.fingerprint, 32)
            wanted.fingerprint = ctypes.cast(self._fingerprint, ctypes.c_char_p)
        settings = _Options(
            ABI, chosen.backend, chosen.depth, chosen.strict, chosen.cache_ways, chosen.stats_seconds,
            chosen.block_ids, chosen.quiet, chosen.cache_bytes, ctypes.cast(hook, ctypes.c_void_p) if hook else None,
            None,
        )  # fmt: skip
        self._store = ctypes.c_void_p()
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        status = self._library.rs_open(
            os.fsencode(path), ctypes.byref(wanted), ctypes.byref(settings), ctypes.byref(self._store), text, len(text)
        )
        if status:
            raise RowStoreError(Status(status), text.value.decode("utf-8", "replace"))
        self.info = Info()
        self._library.rs_describe(self._store, ctypes.byref(self.info))

    @property
    def backend(self) -> Backend:
        return Backend(self.info.backend)

    def lookup(self, ids: np.ndarray, out: np.ndarray) -> None:
        """out[i] = row ids[i], zeros where another rank has it. int64 [n] and uint8 [n, row_bytes], both contiguous.

        Raises RowStoreError (`out` is then zero) for an id outside the table and for a page that cannot be read.
        """
        if ids.dtype != "int64" or ids.ndim != 1 or not ids.flags.c_contiguous:
            raise ValueError(f"ids must be a contiguous int64 vector, not {ids.dtype} {ids.shape}")
        if out.dtype != "uint8" or out.shape != (len(ids), self.info.row_bytes) or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be contiguous uint8 [{len(ids)}, {self.info.row_bytes}], not {out.dtype} {out.shape}"
            )
        if not out.flags.writeable:
            raise ValueError("out is read-only")
        self.lookup_at(ids.ctypes.data, len(ids), out.ctypes.data)

    def lookup_at(self, ids: int, count: int, out: int) -> None:
        """The same by address (pinned tensors). Raises RowStoreError."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        status = self._library.rs_lookup(self._open(), ids, count, out, text, len(text))
        if status:
            raise RowStoreError(Status(status), text.value.decode("utf-8", "replace"))

    @property
    def host_function(self) -> int:
        """Address of a `void (*)(void *)` that takes a Request's address."""
        return ctypes.cast(self._library.rs_host_lookup, ctypes.c_void_p).value or 0

    def request(self, ids: int, count: int, out: int) -> Request:
        """The host function's argument for fixed addresses; keep it alive as long as it may be called."""
        return Request(self._open(), ids, count, out, -1, 0)

    def statistics(self) -> Statistics:
        found = Statistics()
        self._library.rs_read_statistics(self._open(), ctypes.byref(found))
        return found

    def close(self) -> None:
        """Waits for its threads. No lookup may be under way."""
        if self._store:
            self._library.rs_close(self._store)
            self._store = ctypes.c_void_p()

    def _open(self) -> int:
        if not self._store.value:
            raise RowStoreError(Status.BAD_CALL, "the row store is closed")
        return self._store.value

    def __enter__(self) -> RowStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
