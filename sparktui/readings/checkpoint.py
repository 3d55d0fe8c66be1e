"""A safetensors checkpoint: what its index asks for, what is there, what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

INDEX_NAME = "model.safetensors.index.json"
_SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")


@dataclass(frozen=True, slots=True)
class CheckpointIndex:
    """`model.safetensors.index.json`.

    Attributes:
        files: shard file names that hold a tensor, sorted.
        total_bytes: the index's own sum over tensors (a little less than the files, which have headers).
    """

    files: tuple[str, ...]
    total_bytes: int | None
    tensors: int


def parse_index(text: str) -> CheckpointIndex | None:
    """None when the text is no index with a weight map of plain file names."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    weights = answer.get("weight_map") if isinstance(answer, dict) else None
    if not isinstance(weights, dict) or not weights:
        return None
    names = set(weights.values()) if all(isinstance(name, str) for name in weights.values()) else set()
    if not names or any("/" in name or name in ("", ".", "..") for name in names):
        return None
    metadata = answer.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return CheckpointIndex(tuple(sorted(names)), total if isinstance(total, int) else None, len(weights))


@dataclass(frozen=True, slots=True)
class Completeness:
    """A folder against what it should hold.

    Attributes:
        missing: files that are not there.
        short: files that are there with another size than they should have.
        have_bytes: sum over the wanted files that are right (or, where their size is unknown, that are there).
        want_bytes: sum of the wanted sizes; None where a size is unknown.
    """

    files: int
    missing: tuple[str, ...]
    short: tuple[str, ...]
    have_bytes: int
    want_bytes: int | None

    @property
    def complete(self) -> bool:
        return not self.missing and not self.short and self.files > 0

    @property
    def remaining_bytes(self) -> int | None:
        return None if self.want_bytes is None else max(0, self.want_bytes - self.have_bytes)


def completeness(wanted: Mapping[str, int | None], present: Mapping[str, int]) -> Completeness:
    """Compare by name and size; `wanted` has None for a size nobody knows (then an empty file is short)."""
    missing = tuple(sorted(name for name in wanted if name not in present))
    short = tuple(
        sorted(
            name
            for name, size in wanted.items()
            if name in present and (present[name] != size if size is not None else present[name] <= 0)
        )
    )
    bad = {*missing, *short}
    sizes = list(wanted.values())
    return Completeness(
        files=len(wanted),
        missing=missing,
        short=short,
        have_bytes=sum(present[name] for name in wanted if name not in bad),
        want_bytes=None if None in sizes else sum(size or 0 for size in sizes),
    )


def shard_count(names: list[str]) -> tuple[int, int | None]:
    """How many `model-NNNNN-of-MMMMM` files there are, and the MMMMM they agree on (else None)."""
    matches = [match for name in names if (match := _SHARD.fullmatch(name))]
    totals = {int(match[2]) for match in matches}
    return len({match[1] for match in matches}), totals.pop() if len(totals) == 1 else None


def parse_sizes(text: str) -> dict[str, int]:
    """`bytes<TAB>name` lines (`find DIR -maxdepth 1 -type f -printf '%s\\t%f\\n'`); links count by their target."""
    found = {}
    for line in text.split("\n"):
        size, tab, name = line.rstrip("\r").partition("\t")
        if tab and name and re.fullmatch(r"\d{1,18}", size):
            found[name] = int(size)
    return found
