"""Reading and writing past the page cache: on a Spark the cache is the GPU's memory.

O_DIRECT where the file system takes it; where not, or for an end that fills no block, plain reads and writes whose
pages `drop` gives back. Buffers are uint8 arrays from `aligned_bytes`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spark_overlay.engram_file import FileError

if TYPE_CHECKING:
    import numpy as np

BLOCK = 4096
"""Offsets, lengths and addresses of direct transfers are multiples of it: no device asks for more."""
FOLIO = 2 * 1024 * 1024
"""What the cache may hold in one piece: a piece that is only partly in a dropped range would stay."""
GO_ON = "check the disk and the share of this node (dmesg), then pack again: it goes on where it stopped"


def aligned_bytes(count: int) -> np.ndarray:
    """uint8 [count rounded up to blocks], at a block's border, touched only where it is used."""
    import numpy as np

    # Private: shared memory is not made of huge pages. Of those a transfer is few large requests to the drive, of
    # scattered pages many small ones, which here took twice the time.
    area = mmap.mmap(-1, _up(max(1, count)) + FOLIO, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(area, dtype=np.uint8)
    first = -whole.ctypes.data % FOLIO if count >= FOLIO else 0
    return whole[first : first + _up(max(1, count))]


def span_bytes(count: int) -> int:
    """What a buffer needs to hold any `count` bytes of a file, read in whole blocks."""
    return _up(count) + BLOCK


class DirectFile:
    """One file, open for reading, or for both with `write`. Several threads may read at once."""

    def __init__(self, path: Path, *, write: bool = False, fix: str = GO_ON) -> None:
        """`fix`: the next step of a transfer that fails. Raises OSError when it cannot be opened (with `write` it is
        made where it is missing).
        """
        self.path, self._fix = path, fix
        flags = (os.O_RDWR | os.O_CREAT if write else os.O_RDONLY) | os.O_CLOEXEC
        try:
            self.handle = os.open(path, flags | os.O_DIRECT, 0o644)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self.handle = os.open(path, flags, 0o644)

    @property
    def direct(self) -> bool:
        return bool(fcntl.fcntl(self.handle, fcntl.F_GETFL) & os.O_DIRECT)

    def read(self, buffer: np.ndarray, offset: int, count: int) -> np.ndarray:
        """Bytes [offset, offset + count) as a part of `buffer`. Short reads are continued. Raises FileError."""
        first = offset // BLOCK * BLOCK
        wanted, room = offset + count - first, _up(offset + count) - first
        got, stuck = 0, 0
        while got < wanted:
            direct = self.direct
            try:
                part = os.preadv(self.handle, [buffer[got:room]], first + got)
            except OSError as error:
                if error.errno == errno.EINVAL and direct:
                    self._go_through_the_cache()
                    continue
                raise self._failed("read", first + got, error) from error
            if part == 0 or stuck > 16:
                size = os.fstat(self.handle).st_size
                raise FileError(
                    f"{self.path} ends at byte {size}, {offset + count - size} more were expected", self._fix
                )
            # Direct reads go on at a block's border; one that never gets over it is not repeated for ever.
            now = (got + part) if not direct or got + part >= wanted else (got + part) // BLOCK * BLOCK
            stuck = stuck + 1 if now == got else 0
            got = now
        return buffer[offset - first : offset - first + count]

    def write(self, parts: Sequence[np.ndarray], offset: int) -> None:
        """All of `parts`, one after the other, at `offset`. Raises FileError, for a full disk with what to do."""
        left = list(parts)
        while left:
            direct = self.direct
            try:
                written = os.pwritev(self.handle, left, offset)
            except OSError as error:
                if error.errno == errno.EINVAL and direct:
                    self._go_through_the_cache()
                    continue
                raise self._failed("write", offset, error) from error
            offset += written
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]

    def sync(self) -> None:
        """What is written is on the disk, and none of it stays in memory. Raises FileError."""
        try:
            os.fdatasync(self.handle)
        except OSError as error:
            raise self._failed("sync", os.fstat(self.handle).st_size, error) from error
        self.drop()

    def drop(self, offset: int = 0, count: int = 0) -> None:
        """Gives the clean cached pages of these bytes back; 0 means up to the end."""
        first = offset // FOLIO * FOLIO
        last = -(-(offset + count) // FOLIO) * FOLIO
        os.posix_fadvise(self.handle, first, last - first if count else 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        os.close(self.handle)

    def _go_through_the_cache(self) -> None:
        fcntl.fcntl(self.handle, fcntl.F_SETFL, fcntl.fcntl(self.handle, fcntl.F_GETFL) & ~os.O_DIRECT)

    def _failed(self, verb: str, offset: int, error: OSError) -> FileError:
        reason = f"{error.strerror} (errno {error.errno})"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return FileError(
                f"{self.path}: the disk is full at byte {offset}: {reason}",
                "free space on this node's disk, then pack again: it goes on where it stopped",
            )
        return FileError(f"{self.path}: {verb} at byte {offset} failed: {reason}", self._fix)


def _up(count: int) -> int:
    return -(-count // BLOCK) * BLOCK
