"""Packing: one layer's rows of one rank from the checkpoint into a version 2 file.

Pages are written in order into `NAME.partial`, made durable every 256 MiB, and the file is renamed when complete. How
far an interrupted packing came is read from the partial file itself: its length, less whatever of the last 512 MiB does
not verify. The page cache is dropped behind reads and writes: on a Spark it is the GPU's memory. Blocks of 8 MiB, at
most six in flight: under 300 MB.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_overlay.engram_file import HEADER_BYTES, PAGE_BYTES, FileError, Header, file_name, parse_header
from spark_overlay.engram_layout import EngramLayout, shard_range
from spark_overlay.engram_pages import build_pages, good_pages
from spark_overlay.safetensors_source import EngramSource, find_engram, fingerprint, read_exactly

BLOCK_PAGES = 2048
SYNC_BYTES = 256 * 1024 * 1024
RECHECK_PAGES = 2 * SYNC_BYTES // PAGE_BYTES
SAMPLE_PAGES = 64
SPACE_RESERVE_BYTES = 256 * 1024 * 1024
PROGRESS_SECONDS = 1.0
WORKERS = max(1, min(4, os.cpu_count() or 1))

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Job:
    """One file to make."""

    source: EngramSource
    header: Header
    path: Path

    @property
    def partial(self) -> Path:
        return self.path.with_name(self.path.name + ".partial")


def plan(folder: Path, out: Path, layout: EngramLayout, rank: int, tp: int, revision: str) -> list[Job]:
    """The files of rank `rank` of `tp`, in layer order. Raises FileError or LayoutError; writes nothing."""
    jobs = []
    for layer, bounds in zip(layout.layer_ids, layout.bounds, strict=True):
        rows = shard_range(bounds, rank, tp)
        source = find_engram(folder, layer, bounds[-1], layout.weight_bytes, layout.scale_bytes)
        header = Header(
            layer=layer, rank=rank, tp=tp, weight_bytes=layout.weight_bytes, scale_bytes=layout.scale_bytes,
            row_lo=rows.lo, row_hi=rows.hi, total_rows=bounds[-1],
            column_lo=rows.column_lo, column_hi=rows.column_hi, by_columns=rows.by_columns,
            revision=revision, fingerprint=fingerprint(source), bounds=bounds,
        )  # fmt: skip
        jobs.append(Job(source, header, out / file_name(layer, rank, tp)))
    return jobs


def is_done(job: Job) -> bool:
    """True for a good file in place, False for none. A file that is not the wanted one is a FileError: it is never
    overwritten.
    """
    try:
        handle = os.open(job.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = parse_header(os.pread(handle, HEADER_BYTES, 0), str(job.path))
        fix = f"pack again after moving {job.path} away"
        difference = job.header.difference(found)
        if difference:
            raise FileError(f"{job.path} is another file: {difference}", fix)
        size = os.fstat(handle).st_size
        if size != job.header.file_bytes:
            raise FileError(f"{job.path} has {size} bytes, wanted {job.header.file_bytes}", fix)
        last = job.header.pages - 1
        for page in sorted({last * step // SAMPLE_PAGES for step in range(SAMPLE_PAGES + 1)}):
            data = read_exactly(handle, HEADER_BYTES + page * PAGE_BYTES, PAGE_BYTES)
            if not good_pages(job.header, page, data)[0]:
                raise FileError(f"{job.path}: page {page} does not verify (checksum or page number)", fix)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return True
    finally:
        os.close(handle)


def space(jobs: list[Job], out: Path) -> tuple[int, int]:
    """Bytes that packing `jobs` still needs, with 256 MiB to spare, and bytes that are free where `out` is."""
    room = os.statvfs(out)
    needed = SPACE_RESERVE_BYTES
    for job in jobs:
        present = job.partial.stat().st_size if job.partial.exists() else 0
        needed += max(0, job.header.file_bytes - present)
    return needed, room.f_bavail * room.f_frsize


def check_space(jobs: list[Job], out: Path) -> None:
    """Raises FileError unless what is still to be written fits the file system of `out`."""
    needed, free = space(jobs, out)
    if free < needed:
        gib = 1 << 30
        raise FileError(
            f"{(needed - free) / gib:.2f} GiB short: packing needs {needed / gib:.2f} GiB, "
            f"{out} has {free / gib:.2f} GiB free",
            "free that much on the node's disk, or point ENGRAM_DIR to a larger one",
        )


def pages_kept(job: Job, handle: int) -> int:
    """How many leading pages of the open partial file are good; 0 when it belongs to another checkpoint, rank or
    layout.
    """
    try:
        found = parse_header(os.pread(handle, HEADER_BYTES, 0), str(job.partial))
    except FileError:
        return 0
    if job.header.difference(found):
        return 0
    written = min((os.fstat(handle).st_size - HEADER_BYTES) // PAGE_BYTES, job.header.pages)
    page = max(0, written - RECHECK_PAGES)
    while page < written:
        count = min(BLOCK_PAGES, written - page)
        data = read_exactly(handle, HEADER_BYTES + page * PAGE_BYTES, count * PAGE_BYTES)
        good = good_pages(job.header, page, data)
        if not good.all():
            return page + int(good.argmin())
        page += count
    return page


@contextmanager
def _partial_file(job: Job) -> Iterator[int]:
    handle = os.open(job.partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileError(f"{job.partial} is being written by another packer", "wait for it, or stop it") from None
        yield handle
    finally:
        os.close(handle)


def pack(job: Job, report: Report) -> None:
    """Makes `job.path`. Resumes, reports progress about once a second, ends with the durable, renamed file.

    Raises FileError (another packer at work) or OSError (a read or write that failed); the partial file then stays.
    """
    header = job.header
    with _partial_file(job) as handle:
        kept = pages_kept(job, handle)
        if kept == 0:
            os.ftruncate(handle, 0)
            _write(handle, 0, header.packed())
        else:
            os.ftruncate(handle, HEADER_BYTES + kept * PAGE_BYTES)
        _copy(job, handle, kept, report)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        job.partial.rename(job.path)
        folder = os.open(job.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _write(handle: int, offset: int, data: Any) -> None:
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(handle, view, offset)
        offset += written
        view = view[written:]


def _copy(job: Job, handle: int, kept: int, report: Report) -> None:
    header = job.header
    started, first = time.monotonic(), kept
    said = started
    synced = done = kept
    weights = os.open(job.source.weight.path, os.O_RDONLY | os.O_CLOEXEC)
    scales = os.open(job.source.scale.path, os.O_RDONLY | os.O_CLOEXEC)

    def block(page: int) -> Any:
        lo = header.row_lo + page * header.rows_per_page
        hi = min(header.row_hi, lo + BLOCK_PAGES * header.rows_per_page)
        parts = []
        for opened, place in ((weights, job.source.weight), (scales, job.source.scale)):
            offset, length = place.offset + lo * place.row_bytes, (hi - lo) * place.row_bytes
            parts.append(read_exactly(opened, offset, length))
            os.posix_fadvise(opened, offset, length, os.POSIX_FADV_DONTNEED)
        return build_pages(header, page, parts[0], parts[1])

    def say() -> None:
        seconds = max(time.monotonic() - started, 1e-6)
        report({
            "event": "progress", "layer": header.layer,
            "done_bytes": HEADER_BYTES + done * PAGE_BYTES, "total_bytes": header.file_bytes,
            "rate_bytes_per_second": round((done - first) * PAGE_BYTES / seconds),
        })  # fmt: skip

    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="pack")
    try:
        say()
        waiting: deque[Future[Any]] = deque()
        pages = iter(range(kept, header.pages, BLOCK_PAGES))
        for page in pages:
            waiting.append(pool.submit(block, page))
            if len(waiting) > WORKERS + 1:
                break
        while waiting:
            data = waiting.popleft().result()
            page = next(pages, None)  # type: ignore[assignment]
            if page is not None:
                waiting.append(pool.submit(block, page))
            _write(handle, HEADER_BYTES + done * PAGE_BYTES, data)
            done += len(data)
            if (done - synced) * PAGE_BYTES >= SYNC_BYTES:
                os.fdatasync(handle)
                os.posix_fadvise(handle, 0, HEADER_BYTES + done * PAGE_BYTES, os.POSIX_FADV_DONTNEED)
                synced = done
            if time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                say()
        say()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        os.close(weights)
        os.close(scales)
