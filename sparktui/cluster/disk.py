"""The disk sheet: what each node's disks need, one filesystem counted once (case U19)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

GIB = 1024**3
CHECKPOINT_BYTES = 510_310_549_975
"""All files of the pinned checkpoint's predecessor (same config and shard count)."""
BASE_IMAGE_BYTES = 33_200_000_000
IMAGE_BYTES = 36_000_000_000
"""Base and overlay with the engine lock; an estimate until an image is there to measure."""
SPOOL_BYTES = BASE_IMAGE_BYTES
"""What a pull or load unpacks beside the layers it keeps."""
PAGE_BYTES = 4096
ROWS_PER_PAGE = 15
HEADER_BYTES = 4096
ENGRAM_ROWS = {1: 384_006_168, 14: 384_016_682}
ENGRAM_BOUNDS = {
    (3, 1): (0, 128_000_880, 256_002_934, 384_006_168),
    (3, 14): (0, 128_004_290, 256_009_984, 384_016_682),
    (4, 1): (0, 96_000_564, 192_001_740, 288_003_654, 384_006_168),
    (4, 14): (0, 96_003_054, 192_007_016, 288_011_564, 384_016_682),
}
"""Row bounds by (ranks, layer) as SGLang 0.5.23's shard_range gives them: whole hash columns a rank."""


def engram_file_bytes(rows: int) -> int:
    """A packed file, version 2: a header page, then pages of fifteen rows."""
    return HEADER_BYTES + -(-rows // ROWS_PER_PAGE) * PAGE_BYTES


def engram_bytes(rank: int, ranks: int) -> int:
    """Both layers' packed files of one rank; for other counts than three and four an equal share of rows."""
    total = 0
    for layer, rows in ENGRAM_ROWS.items():
        bounds = ENGRAM_BOUNDS.get((ranks, layer))
        total += engram_file_bytes(bounds[rank + 1] - bounds[rank] if bounds else -(-rows // max(1, ranks)))
    return total


class FilesystemView(Protocol):
    """What `readings.df.Filesystem` offers."""

    @property
    def source(self) -> str: ...
    @property
    def mount(self) -> str: ...
    @property
    def available_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """Something that has to be on a node.

    Attributes:
        have_bytes: what of it is there already; None for unknown, which counts as nothing.
    """

    what: str
    path: str
    need_bytes: int
    have_bytes: int | None = 0

    @property
    def missing_bytes(self) -> int:
        return max(0, self.need_bytes - (self.have_bytes or 0))


@dataclass(frozen=True, slots=True)
class DiskRow:
    """One filesystem of a node with all that has to go there. `short_bytes` is None where the space is unknown."""

    mount: str
    needs: tuple[DiskNeed, ...]
    available_bytes: int | None
    short_bytes: int | None

    @property
    def missing_bytes(self) -> int:
        return sum(need.missing_bytes for need in self.needs)

    @property
    def text(self) -> str:
        """`needs 476 GiB checkpoint + 65 GiB Engram rows, has 300 GiB: short by 241 GiB`."""
        parts = [f"{need_text(need.missing_bytes)} {need.what}" for need in self.needs if need.missing_bytes]
        if not parts:
            return "needs nothing more"
        needs = "needs " + " + ".join(parts)
        if self.available_bytes is None:
            return f"{needs}, free space unknown"
        has = f"has {gib_text(self.available_bytes)}"
        if self.short_bytes:
            return f"{needs}, {has}: short by {gib_text(self.short_bytes)}"
        return f"{needs}, {has}"


def gib_text(size_bytes: int) -> str:
    """A size that is there or missing, from 10 GiB in whole GiB."""
    gib = size_bytes / GIB
    return f"{gib:.0f} GiB" if gib >= 10 else f"{gib:.1f} GiB"


def need_text(size_bytes: int) -> str:
    """A size that has to fit; from 100 GiB rounded up: the checkpoint's 475.3 GiB are 476, as in every text."""
    return f"{math.ceil(size_bytes / GIB)} GiB" if size_bytes >= 100 * GIB else gib_text(size_bytes)


def disk_sheet(needs: Sequence[DiskNeed], filesystems: Mapping[str, FilesystemView | None]) -> tuple[DiskRow, ...]:
    """Needs grouped by the filesystem that each path is on.

    Args:
        filesystems: by the needs' paths; None or absent where df did not answer.
    """
    grouped: dict[str, tuple[FilesystemView | None, list[DiskNeed]]] = {}
    for need in needs:
        found = filesystems.get(need.path)
        # bind mounts show one source under several mount points
        key = need.path if found is None else found.source if found.source.startswith("/") else found.mount
        grouped.setdefault(key, (found, []))[1].append(need)
    rows = []
    for found, group in grouped.values():
        missing = sum(need.missing_bytes for need in group)
        available = None if found is None else found.available_bytes
        short = None if available is None else max(0, missing - available)
        rows.append(DiskRow(found.mount if found else group[0].path, tuple(group), available, short))
    return tuple(rows)
