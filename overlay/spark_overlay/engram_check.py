"""Looking at a packed file: its header, its pages, and (with the checkpoint at hand) its rows."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

from spark_overlay.direct_file import DirectFile, aligned_bytes, span_bytes
from spark_overlay.engram_file import HEADER_BYTES, PAGE_BYTES, FileError, Header, parse_header
from spark_overlay.engram_layout import layout_from_config, shard_range
from spark_overlay.page_maker import page_maker
from spark_overlay.safetensors_source import (
    READ_FIX,
    EngramSource,
    find_engram,
    fingerprint,
    read_config,
    read_up_to,
)

BLOCK_PAGES = 2048
PROGRESS_SECONDS = 1.0
_NAME = re.compile(r"engram-l(\d+)-r(\d+)of(\d+)\.bin")

Report = Callable[[dict[str, Any]], None]


def describe(path: Path) -> dict[str, Any]:
    """The header of `path` as plain values, with the file's length. Raises FileError or OSError."""
    with path.open("rb") as file:
        header = parse_header(read_up_to(file.fileno(), 0, HEADER_BYTES, path, _unread(path)), str(path))
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


def check(
    path: Path,
    source: Path | None = None,
    rows: int | None = None,
    *,
    pages: int | None = None,
    revision: str = "",
    seed: int | None = None,
    report: Report = lambda _: None,
) -> dict[str, Any]:
    """Verifies header, length and every page (or `pages` random ones) of `path`; with `source`, a checkpoint's folder,
    also that the header is right for it and that rows (all, or `rows` random ones) are its rows, byte for byte.

    What is random comes from `seed`; None takes a fresh one, so that every check looks elsewhere.

    Returns {"file", "pages", "bad_pages", "rows", "bad_rows", "first_bad", "source", "seed"}. Raises FileError for a
    wrong length, header, name or checkpoint, and what reading raises.
    """
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    with ExitStack() as stack:
        file = stack.enter_context(closing(DirectFile(path, fix=_unread(path))))
        buffer = aligned_bytes(span_bytes(BLOCK_PAGES * PAGE_BYTES))
        size = path.stat().st_size
        header = parse_header(file.read(buffer, 0, min(size, HEADER_BYTES)).tobytes(), str(path))
        _is_meant(path, header, revision)
        if size != header.file_bytes:
            raise FileError(f"{path} has {size} bytes, its header promises {header.file_bytes}", _anew(path))
        found = _source_of(path, header, source) if source is not None else None
        bad: list[int] = []
        looked = 0
        said = time.monotonic()
        for first, count in _page_ranges(header, pages, seed):
            data = file.read(buffer, HEADER_BYTES + first * PAGE_BYTES, count * PAGE_BYTES)
            bad += [first + int(at) for at in (~page_maker().verify(header, first, data)).nonzero()[0]]
            file.drop(HEADER_BYTES + first * PAGE_BYTES, count * PAGE_BYTES)
            looked += count
            if time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                report({"event": "progress", "layer": header.layer, "done_bytes": looked * PAGE_BYTES,
                        "total_bytes": (header.pages if pages is None else pages) * PAGE_BYTES})  # fmt: skip
        compared, bad_rows = _compare_rows(header, file, found, rows, seed) if found is not None else (0, [])
    first_bad = f"page {bad[0]}" if bad else f"row {bad_rows[0]}" if bad_rows else None
    return {
        "file": str(path), "pages": looked, "bad_pages": len(bad), "rows": compared, "bad_rows": len(bad_rows),
        "first_bad": first_bad, "source": str(source) if source else None, "seed": seed,
    }  # fmt: skip


def _anew(path: Path) -> str:
    return f"move {path} away, then sparktui pack (it replaces no file)"


def _unread(path: Path) -> str:
    return f"see dmesg and the drive's health (nvme smart-log) on this node, then {_anew(path)}"


def _is_meant(path: Path, header: Header, revision: str) -> None:
    """The file's name and the wanted revision are what its header says. Raises FileError."""
    fix = _anew(path)
    named = _NAME.fullmatch(path.name)
    inside = (header.layer, header.rank, header.tp)
    if named and tuple(int(each) for each in named.groups()) != inside:
        layer, rank, tp = inside
        raise FileError(f"{path} is another file: inside are layer {layer}, rank {rank} of {tp}", fix)
    if revision and header.revision != revision:
        raise FileError(f"{path} is another file: checkpoint revision {header.revision}, wanted {revision}", fix)


def _source_of(path: Path, header: Header, folder: Path) -> EngramSource:
    """The table that `header` was made from, its rows being those that the checkpoint gives this rank."""
    fix = f"check it with its own checkpoint, or move {path} away and pack again from this one"
    layout = layout_from_config(read_config(folder))
    if layout is None or header.layer not in layout.layer_ids:
        raise FileError(f"{folder} has no Engram layer {header.layer}", fix)
    bounds = layout.bounds[layout.layer_ids.index(header.layer)]
    mine = shard_range(bounds, header.rank, header.tp)
    if bounds != header.bounds or (mine.lo, mine.hi) != (header.row_lo, header.row_hi):
        rows = f"rows [{header.row_lo}, {header.row_hi}) of {header.total_rows}"
        raise FileError(f"{path} has {rows}, {folder} wants [{mine.lo}, {mine.hi}) of {bounds[-1]}", fix)
    found = find_engram(folder, header.layer, header.total_rows, header.weight_bytes, header.scale_bytes)
    if fingerprint(found) != header.fingerprint:
        raise FileError(f"{folder} is not the checkpoint that {path} was packed from: other contents", fix)
    return found


def _page_ranges(header: Header, pages: int | None, seed: int) -> Iterator[tuple[int, int]]:
    if pages is None:
        yield from ((at, min(BLOCK_PAGES, header.pages - at)) for at in range(0, header.pages, BLOCK_PAGES))
    else:
        chosen = random.Random(f"pages {seed}").sample(range(header.pages), min(pages, header.pages))
        yield from ((page, 1) for page in sorted(chosen))


def _compare_rows(
    header: Header, file: DirectFile, found: EngramSource, rows: int | None, seed: int
) -> tuple[int, list[int]]:
    """How many rows were compared with the checkpoint's, and which differ."""
    most = BLOCK_PAGES * header.rows_per_page
    if rows is None:
        ranges = [(lo, min(lo + most, header.row_hi)) for lo in range(header.row_lo, header.row_hi, most)]
    else:
        chosen = random.Random(f"rows {seed}").sample(range(header.row_lo, header.row_hi), min(rows, header.rows))
        ranges = [(row, row + 1) for row in sorted(chosen)]
        most = 1
    bad: list[int] = []
    with ExitStack() as stack:
        parts = [
            (
                stack.enter_context(closing(DirectFile(each.path, fix=READ_FIX))),
                each,
                aligned_bytes(span_bytes(most * each.row_bytes)),
            )
            for each in (found.weight, found.scale)
        ]
        packed = aligned_bytes(span_bytes((most // header.rows_per_page + 1) * PAGE_BYTES))
        for lo, hi in ranges:
            mine = _packed_rows(header, file, packed, lo, hi)
            theirs = []
            for opened, tensor, buffer in parts:
                offset, count = tensor.offset + lo * tensor.row_bytes, (hi - lo) * tensor.row_bytes
                theirs.append(opened.read(buffer, offset, count).reshape(hi - lo, tensor.row_bytes))
                opened.drop(offset, count)
            bad += [lo + int(at) for at in (mine != np.hstack(theirs)).any(axis=1).nonzero()[0]]
    return sum(hi - lo for lo, hi in ranges), bad


def _packed_rows(header: Header, file: DirectFile, buffer: np.ndarray, lo: int, hi: int) -> np.ndarray:
    """uint8 [hi - lo, row bytes]: rows [lo, hi) as the file has them."""
    first, last = (lo - header.row_lo) // header.rows_per_page, (hi - 1 - header.row_lo) // header.rows_per_page
    place, count = HEADER_BYTES + first * PAGE_BYTES, (last + 1 - first) * PAGE_BYTES
    data = file.read(buffer, place, count)
    file.drop(place, count)
    slots = data.reshape(-1, PAGE_BYTES)[:, : header.number_offset].reshape(-1, header.row_bytes)
    start = lo - header.row_lo - first * header.rows_per_page
    return slots[start : start + hi - lo]
