"""Packing: one layer's rows of one rank from the checkpoint into a version 2 file.

Pages are written in order into `NAME.partial`, made durable every 128 MiB; complete, the file gets its name. How
far an interrupted packing came is read from the partial file itself: its length, less whatever of the last 512 MiB does
not verify. Only the holder of the partial file's lock writes, and a file under the final name is never written to.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spark_overlay.direct_file import GO_ON, DirectFile, aligned_bytes
from spark_overlay.engram_copy import NOT_DURABLE_BYTES, SYNC_BYTES, Report, copy_rows
from spark_overlay.engram_file import HEADER_BYTES, PAGE_BYTES, FileError, Header, file_name, parse_header
from spark_overlay.engram_layout import EngramLayout, shard_range
from spark_overlay.page_maker import page_maker
from spark_overlay.safetensors_source import EngramSource, find_engram, fingerprint, read_exactly, read_up_to

RECHECK_BYTES = NOT_DURABLE_BYTES + SYNC_BYTES
RECHECK_PART_PAGES = 2048
SAMPLE_PAGES = 64
SPACE_RESERVE_BYTES = 256 * 1024 * 1024


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
    """True for a good file in place, False for none. A file that is not the wanted one, or cannot be read, is a
    FileError: it is never overwritten.
    """
    fix = f"pack again after moving {job.path} away"
    unread = f"see its owner, dmesg and the drive's health (nvme smart-log) on this node; then {fix}"
    try:
        handle = os.open(job.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise FileError(f"{job.path} cannot be opened: {error.strerror} (errno {error.errno})", unread) from error
    try:
        found = parse_header(read_up_to(handle, 0, HEADER_BYTES, job.path, unread), str(job.path))
        difference = job.header.difference(found)
        if difference:
            raise FileError(f"{job.path} is another file: {difference}", fix)
        size = os.fstat(handle).st_size
        if size != job.header.file_bytes:
            raise FileError(f"{job.path} has {size} bytes, wanted {job.header.file_bytes}", fix)
        last = job.header.pages - 1
        for page in sorted({last * step // SAMPLE_PAGES for step in range(SAMPLE_PAGES + 1)}):
            data = read_exactly(handle, HEADER_BYTES + page * PAGE_BYTES, PAGE_BYTES, job.path, unread, fix)
            if not page_maker().verify(job.header, page, data)[0]:
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
        needed += max(0, job.header.file_bytes - _bytes_on_disk(job.partial))
    return needed, room.f_bavail * room.f_frsize


def _bytes_on_disk(path: Path) -> int:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return min(found.st_size, 512 * found.st_blocks)


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


def pack(job: Job, report: Report) -> None:
    """Makes `job.path`. Resumes, reports progress about once a second, ends with the durable file under its name.

    Raises FileError (another packer at work, another file in place, a full disk) or OSError that names a file; the
    partial file stays.
    """
    try:
        _pack(job, report)
    except OSError as error:
        if error.filename is not None:
            raise
        raise FileError(f"{job.partial}: {error.strerror} (errno {error.errno})", GO_ON) from error


def _pack(job: Job, report: Report) -> None:
    with _partial_file(job) as file:
        if is_done(job):  # by another packer, between our look and our lock
            job.partial.unlink(missing_ok=True)
            return
        kept, reason = pages_kept(job, file)
        if reason:
            report({"event": "note", "state": "warn", "text": f"{job.partial} is written anew: {reason}"})
        _cut(file, HEADER_BYTES + kept * PAGE_BYTES if kept else 0)
        if not kept:
            file.write([_header_block(job.header)], 0)
        copy_rows(job.source, job.header, file, kept, report)
        _put_in_place(job)
        _sync_folder(job.path.parent)


# vfat, exFAT, some network and FUSE file systems have no hard links; each says so in its own way.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def _put_in_place(job: Job) -> None:
    """Gives the finished partial file its name. A second name, because a rename would replace what has come there
    meanwhile; where there are no hard links, a rename after a look. Raises FileError for a file in place.
    """
    try:
        os.link(job.partial, job.path)
        job.partial.unlink()
        return
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if not os.path.lexists(job.path):
            job.partial.rename(job.path)
            return
    raise FileError(
        f"{job.path} came there while this rank's rows were packed; it is left alone, they are in {job.partial}",
        f"move {job.path} away, then pack again: the finished rows are taken",
    )


def drop_second_name(job: Job) -> bool:
    """Whether the partial name was the finished file's own, left by a power loss between its two names; it is gone."""
    try:
        same = job.partial.samefile(job.path)
    except FileNotFoundError:
        return False
    if same:
        job.partial.unlink()
        _sync_folder(job.path.parent)
    return same


def pages_kept(job: Job, file: DirectFile) -> tuple[int, str]:
    """How many leading pages of the open partial file are good, and why none, where there is something else in it.

    Raises FileError where it cannot be read.
    """
    size = os.fstat(file.handle).st_size
    if size < HEADER_BYTES:
        return 0, ""
    file.sync()  # what is verified is then the disk's, and all of it counts as durable
    buffer = aligned_bytes(RECHECK_PART_PAGES * PAGE_BYTES + PAGE_BYTES)
    beginning = file.read(buffer, 0, HEADER_BYTES).tobytes()  # a read that fails says nothing of what is there
    try:
        found = parse_header(beginning, "it")
    except FileError as error:
        return 0, error.what
    if difference := job.header.difference(found):
        return 0, f"it is another file's beginning: {difference}"
    written = min((size - HEADER_BYTES) // PAGE_BYTES, job.header.pages)
    page = max(0, written - RECHECK_BYTES // PAGE_BYTES)
    while page < written:
        count = min(RECHECK_PART_PAGES, written - page)
        data = file.read(buffer, HEADER_BYTES + page * PAGE_BYTES, count * PAGE_BYTES)
        good = page_maker().verify(job.header, page, data)
        if not good.all():
            return page + int(good.argmin()), ""
        page += count
    return page, ""


@contextmanager
def _partial_file(job: Job) -> Iterator[DirectFile]:
    """The partial file, locked, and still the one under that name: a finished packer may have renamed it meanwhile."""
    while True:
        file = DirectFile(job.partial, write=True, fix=f"{GO_ON}; where it fails there again, remove {job.partial}")
        try:
            try:
                fcntl.flock(file.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FileError(
                    f"{job.partial} is being written by another packer", "wait for it, or stop it"
                ) from None
            if _is_still(job.partial, file):
                if os.fstat(file.handle).st_nlink == 1 or _is_still(job.path, file):
                    yield file
                    return
                job.partial.unlink()  # its bytes are also a file's that somebody moved away: those stay as they are
        finally:
            file.close()


def _is_still(path: Path, file: DirectFile) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.handle))
    except FileNotFoundError:
        return False


def _cut(file: DirectFile, size: int) -> None:
    if os.fstat(file.handle).st_size != size:
        os.ftruncate(file.handle, size)


def _header_block(header: Header) -> np.ndarray:
    block = aligned_bytes(HEADER_BYTES)
    block[:] = np.frombuffer(header.packed(), np.uint8)
    return block


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
