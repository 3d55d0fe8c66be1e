"""Looking at a packed file: its header, its pages, and (with the checkpoint at hand) its rows."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from spark_overlay.engram_file import HEADER_BYTES, PAGE_BYTES, FileError, Header, parse_header
from spark_overlay.engram_pack import BLOCK_PAGES
from spark_overlay.engram_pages import good_pages, rows_of_page
from spark_overlay.safetensors_source import find_engram, fingerprint, read_exactly


def describe(path: Path) -> dict[str, Any]:
    """The header of `path` as plain values, with the file's length. Raises FileError or OSError."""
    with path.open("rb") as file:
        header = parse_header(file.read(HEADER_BYTES), str(path))
    return {
        "file": str(path), "version": 2, "layer": header.layer, "rank": header.rank, "tp": header.tp,
        "row_lo": header.row_lo, "row_hi": header.row_hi, "total_rows": header.total_rows,
        "row_bytes": header.row_bytes,
        "rows_per_page": header.rows_per_page, "pages": header.pages, "by_columns": header.by_columns,
        "column_lo": header.column_lo, "column_hi": header.column_hi, "column_bounds": list(header.bounds),
        "revision": header.revision, "fingerprint": header.fingerprint.hex(),
        "bytes": path.stat().st_size, "expected_bytes": header.file_bytes,
        "complete": path.stat().st_size == header.file_bytes,
    }  # fmt: skip


def check(path: Path, source: Path | None, sample: int | None) -> dict[str, Any]:
    """Verifies `path`: every page, or `sample` random ones; with `source`, also their rows byte for byte.

    Returns {"file", "pages", "bad_pages", "bad_rows", "first_bad", "source"}. Raises FileError for a wrong length,
    header or checkpoint.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        header = parse_header(os.pread(handle, HEADER_BYTES, 0), str(path))
        size = os.fstat(handle).st_size
        if size != header.file_bytes:
            raise FileError(f"{path} has {size} bytes, its header promises {header.file_bytes}", "pack it again")
        if sample is None:
            ranges = [(at, min(BLOCK_PAGES, header.pages - at)) for at in range(0, header.pages, BLOCK_PAGES)]
        else:
            chosen = random.Random(f"{path.name}").sample(range(header.pages), min(sample, header.pages))
            ranges = [(page, 1) for page in sorted(chosen)]
        bad: list[int] = []
        for first, count in ranges:
            data = read_exactly(handle, HEADER_BYTES + first * PAGE_BYTES, count * PAGE_BYTES)
            good = good_pages(header, first, data)
            bad += [first + int(at) for at in (~good).nonzero()[0]]
            os.posix_fadvise(handle, HEADER_BYTES + first * PAGE_BYTES, len(data), os.POSIX_FADV_DONTNEED)
        bad_rows = _rows_against(handle, header, source, ranges) if source else []
    finally:
        os.close(handle)
    first_bad = f"page {bad[0]}" if bad else f"row {bad_rows[0]}" if bad_rows else None
    return {
        "file": str(path), "pages": sum(count for _, count in ranges), "bad_pages": len(bad), "bad_rows": len(bad_rows),
        "first_bad": first_bad, "source": str(source) if source else None,
    }  # fmt: skip


def _rows_against(handle: int, header: Header, folder: Path, ranges: list[tuple[int, int]]) -> list[int]:
    found = find_engram(folder, header.layer, header.total_rows, header.weight_bytes, header.scale_bytes)
    if fingerprint(found) != header.fingerprint:
        raise FileError(f"{folder} is not the checkpoint that this file was packed from", "pack it again from this one")
    weights = os.open(found.weight.path, os.O_RDONLY | os.O_CLOEXEC)
    scales = os.open(found.scale.path, os.O_RDONLY | os.O_CLOEXEC)
    bad = []
    try:
        for page in (first + step for first, count in ranges for step in range(count)):
            slots = rows_of_page(header, read_exactly(handle, HEADER_BYTES + page * PAGE_BYTES, PAGE_BYTES))
            lo = header.row_lo + page * header.rows_per_page
            count = min(header.rows_per_page, header.row_hi - lo)
            weight = read_exactly(weights, found.weight.offset + lo * header.weight_bytes, count * header.weight_bytes)
            scale = read_exactly(scales, found.scale.offset + lo * header.scale_bytes, count * header.scale_bytes)
            for slot in range(count):
                expected = (
                    weight[slot * header.weight_bytes : (slot + 1) * header.weight_bytes]
                    + scale[slot * header.scale_bytes : (slot + 1) * header.scale_bytes]
                )
                if slots[slot].tobytes() != expected:
                    bad.append(lo + slot)
    finally:
        os.close(weights)
        os.close(scales)
    return bad
