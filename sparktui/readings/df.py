"""Free space: `df -PB1 PATH…` and the sizes that go with it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_ROW = re.compile(r"(.+?)\s+(\d{1,20})\s+(\d{1,20})\s+(-?\d{1,20})\s+(\S+)\s+(/.*)")


@dataclass(frozen=True, slots=True)
class Filesystem:
    """One mounted filesystem; `source` and `mount` together name it."""

    source: str
    total_bytes: int
    used_bytes: int
    available_bytes: int
    mount: str


def parse_df(text: str) -> tuple[Filesystem, ...]:
    """Rows in the order of the asked paths (a filesystem asked for twice appears twice)."""
    rows = []
    for line in text.split("\n"):
        match = _ROW.fullmatch(line.strip()) if len(line) < 4096 else None
        if match:
            rows.append(Filesystem(match[1], int(match[2]), int(match[3]), int(match[4]), match[6]))
    return tuple(rows)


def distinct(rows: Iterable[Filesystem]) -> tuple[Filesystem, ...]:
    """Each filesystem once: two folders on one disk share its space (bind mounts of one source too)."""
    seen: dict[tuple[str, int], Filesystem] = {}
    for row in rows:
        # tmpfs mounts all have the source `tmpfs`: there the mount point is the name
        key = (row.source if row.source.startswith("/") or ":" in row.source else row.mount, row.total_bytes)
        seen.setdefault(key, row)
    return tuple(seen.values())
