"""Rows from a checkpoint to pages of a file: several threads read and build, one writes in order, one syncs behind it.

Blocks of 4 MiB; 28 at most are in memory, with what five threads read: some 140 MiB, whatever the file's size. Reads
and writes pass by the page cache (direct_file); of the rows that were read, what a download left in it is given back.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np

from spark_overlay.direct_file import DirectFile, aligned_bytes, span_bytes
from spark_overlay.engram_file import HEADER_BYTES, PAGE_BYTES, Header
from spark_overlay.page_maker import page_maker
from spark_overlay.safetensors_source import EngramSource

BLOCK_PAGES = 1024
SYNC_BYTES = 128 * 1024 * 1024
NOT_DURABLE_BYTES = 3 * SYNC_BYTES
"""More than that is never written behind what is known to be on the disk."""
PROGRESS_SECONDS = 1.0
WORKERS = max(2, min(4, os.cpu_count() or 1))
PLACES = 28
"""Blocks that are being made or wait to be written."""
TOGETHER = 8
"""Blocks that one write takes, so that the drive has a deep queue."""

Report = Callable[[dict[str, Any]], None]


def copy_rows(source: EngramSource, header: Header, file: DirectFile, kept: int, report: Report) -> None:
    """Writes the pages from `kept` on to `file`, durable in the end. Raises FileError or OSError."""
    weights, scales = DirectFile(source.weight.path), DirectFile(source.scale.path)
    pool = ThreadPoolExecutor(WORKERS + 1, thread_name_prefix="pack")
    try:
        _Copy(source, header, file, (weights, scales), report).run(pool, kept)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for opened, tensor in ((weights, source.weight), (scales, source.scale)):
            # Once more as a whole: a block's read-ahead may come after its neighbour was given back.
            opened.drop(tensor.offset + header.row_lo * tensor.row_bytes, header.rows * tensor.row_bytes)
            opened.close()


class _Durable:
    """Syncs a growing file in another thread, so that the drive writes meanwhile."""

    def __init__(self, file: DirectFile, pool: ThreadPoolExecutor, pages: int) -> None:
        self._file, self._pool = file, pool
        self._known = self._asked = pages
        self._under_way: Future[None] | None = None

    def follow(self, written: int) -> None:
        """`written` pages are in the file. Waits where the disk is too far behind. Raises FileError."""
        if (written - self._known) * PAGE_BYTES > NOT_DURABLE_BYTES - SYNC_BYTES or (
            self._under_way is not None and self._under_way.done()
        ):
            self._end()
        if self._under_way is None and (written - self._known) * PAGE_BYTES >= SYNC_BYTES:
            self._asked = written
            self._under_way = self._pool.submit(self._file.sync)

    def finish(self) -> None:
        self._end()
        self._file.sync()

    def _end(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._known, self._under_way = self._asked, None


class _Copy:
    def __init__(
        self,
        source: EngramSource,
        header: Header,
        file: DirectFile,
        opened: tuple[DirectFile, DirectFile],
        report: Report,
    ) -> None:
        self._header, self._file, self._report = header, file, report
        self._parts = tuple(zip(opened, (source.weight, source.scale), strict=True))
        self._maker = page_maker()
        rows = BLOCK_PAGES * header.rows_per_page
        self._buffers: SimpleQueue[list[np.ndarray]] = SimpleQueue()
        for _ in range(WORKERS + 1):  # as many as the pool may build at once
            self._buffers.put([aligned_bytes(span_bytes(rows * tensor.row_bytes)) for _, tensor in self._parts])

    def run(self, pool: ThreadPoolExecutor, kept: int) -> None:
        header = self._header
        started = said = time.monotonic()
        done = kept
        durable = _Durable(self._file, pool, kept)
        self._say(done, 0)
        blocks = iter(range(kept, header.pages, BLOCK_PAGES))
        wanted = min(PLACES, -(-(header.pages - kept) // BLOCK_PAGES))
        free = deque(aligned_bytes(BLOCK_PAGES * PAGE_BYTES) for _ in range(wanted))
        waiting: deque[tuple[np.ndarray, Future[int]]] = deque()
        while True:
            while free and (page := next(blocks, None)) is not None:
                place = free.popleft()
                waiting.append((place, pool.submit(self._build, page, place)))
            if not waiting:
                break
            ready = [self._ended(waiting.popleft())]
            while waiting and len(ready) < TOGETHER and waiting[0][1].done():
                ready.append(self._ended(waiting.popleft()))
            parts = [place[: pages * PAGE_BYTES] for place, pages in ready]
            self._file.write(parts, HEADER_BYTES + done * PAGE_BYTES)
            free.extend(place for place, _ in ready)
            done += sum(pages for _, pages in ready)
            durable.follow(done)
            if time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                self._say(done, (done - kept) * PAGE_BYTES / (said - started))
        durable.finish()
        self._say(done, (done - kept) * PAGE_BYTES / max(time.monotonic() - started, 1e-6))

    @staticmethod
    def _ended(block: tuple[np.ndarray, Future[int]]) -> tuple[np.ndarray, int]:
        return block[0], block[1].result()

    def _build(self, page: int, place: np.ndarray) -> int:
        """The block that begins with `page`, read and built in `place`; how many pages it has."""
        header = self._header
        lo = header.row_lo + page * header.rows_per_page
        hi = min(header.row_hi, lo + BLOCK_PAGES * header.rows_per_page)
        pages = -(-(hi - lo) // header.rows_per_page)
        buffers = self._buffers.get()
        try:
            read = []
            for buffer, (file, tensor) in zip(buffers, self._parts, strict=True):
                offset, count = tensor.offset + lo * tensor.row_bytes, (hi - lo) * tensor.row_bytes
                read.append(file.read(buffer, offset, count))
                file.drop(offset, count)
            self._maker.build(header, page, read[0], read[1], place[: pages * PAGE_BYTES])
        finally:
            self._buffers.put(buffers)
        return pages

    def _say(self, done: int, rate: float) -> None:
        self._report({
            "event": "progress", "layer": self._header.layer,
            "done_bytes": HEADER_BYTES + done * PAGE_BYTES, "total_bytes": self._header.file_bytes,
            "rate_bytes_per_second": round(rate),
        })  # fmt: skip
