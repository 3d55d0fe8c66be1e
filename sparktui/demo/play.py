"""What a container does over time: the same for whoever looks, computed from when it started."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

_WARM_UP_SECONDS = 1.8


class Mark(IntEnum):
    """Moments of a boot, in order."""

    STARTED = 0
    IMPORTS = 1
    RENDEZVOUS = 2
    NCCL = 3
    LOAD_BEGIN = 4
    LOAD_END = 5
    DRAFT_BEGIN = 6
    DRAFT_END = 7
    POOL = 8
    GRAPHS_BEGIN = 9
    GRAPHS_END = 10
    SERVER = 11
    FIRED_UP = 12
    READY = 13


@dataclass
class Play:
    """A container's past and, as long as nothing disturbs it, its future. Times are seconds since the epoch.

    Attributes:
        lines: what it prints, in order of time.
        ends_at: when it ends by itself; None for never.
        rows: packed Engram file to its whole size; `row_times` to when its packing begins and ends.
        marks: how far a boot is when; a mark that is missing will not come.
        reads: when it reads the checkpoint, and how many bytes a second.
    """

    lines: list[tuple[float, str]] = field(default_factory=list)
    ends_at: float | None = None
    exit_code: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    row_times: dict[str, tuple[float, float]] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    marks: dict[Mark, float] = field(default_factory=dict)
    reads: list[tuple[float, float, float]] = field(default_factory=list)

    def say(self, at: float, *texts: str) -> None:
        self.lines += [(at, text) for text in texts]

    def until(self, at: float) -> list[tuple[float, str]]:
        """The lines that are printed by then."""
        return self.lines[: bisect_right(self.lines, at, key=lambda each: each[0])]

    def reached(self, mark: Mark, at: float) -> bool:
        return mark in self.marks and self.marks[mark] <= at

    def is_up(self, at: float) -> bool:
        return self.reached(Mark.FIRED_UP, at)

    def share(self, begin: Mark, end: Mark, at: float) -> float:
        """How far between two marks, 0 to 1."""
        if not self.reached(begin, at):
            return 0.0
        first, last = self.marks[begin], self.marks.get(end)
        if last is None or last <= first:
            return 1.0 if last is not None else 0.0
        return min((at - first) / (last - first), 1.0)

    def reading_at(self, at: float) -> float:
        """Bytes a second from the checkpoint."""
        return sum(rate for begin, end, rate in self.reads if begin <= at < end)

    def traffic_at(self, at: float) -> float:
        """RDMA bytes a second between ranks, a device: connecting, graphs and warm-up."""
        if self.reached(Mark.NCCL, at) and not self.reached(Mark.LOAD_BEGIN, at):
            return 310e6
        if self.reached(Mark.GRAPHS_BEGIN, at) and not self.reached(Mark.GRAPHS_END, at):
            return 140e6
        # A worker has no ready line of its own; it warms up as long as the head does.
        if self.reached(Mark.SERVER, at) and at < self.marks.get(Mark.FIRED_UP, at) + _WARM_UP_SECONDS:
            return 95e6
        return 0.0

    def rows_at(self, at: float) -> dict[str, int]:
        """Packed bytes by file."""
        found = {}
        for name, size in self.rows.items():
            begin, end = self.row_times[name]
            before = self.kept.get(name, 0)
            share = 1.0 if end <= begin else min(max((at - begin) / (end - begin), 0.0), 1.0)
            found[name] = int(before + (size - before) * share)
        return found
