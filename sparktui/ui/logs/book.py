"""The last lines of all ranks, bounded in number and size, with what a rank choice and a pattern leave of them."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparktui.ui.logs.lines import LogRow
from sparktui.ui.logs.pattern import Pattern

CAPACITY_ROWS = 20_000
CAPACITY_CHARACTERS = 8_000_000
BLOCK_ROWS = 250
SLICE_SECONDS = 0.004
"""A long search is done in slices of this length, keys in between."""


class _Chosen:
    """The numbers of the rows that a test holds for, in order; found in slices."""

    def __init__(self, holds: Callable[[LogRow], bool]) -> None:
        self.holds = holds
        self.numbers: list[int] = []
        self.gone = 0
        """How many at the front of `numbers` are out of the book."""
        self.next = 0

    def forget_before(self, first: int) -> None:
        numbers = self.numbers
        while self.gone < len(numbers) and numbers[self.gone] < first:
            self.gone += 1
        if self.gone > 4096 and 2 * self.gone > len(numbers):
            del numbers[: self.gone]
            self.gone = 0

    def __len__(self) -> int:
        return len(self.numbers) - self.gone


@dataclass(slots=True)
class _Block:
    """Rows that came one after the other and go together."""

    rows: list[LogRow]
    characters: int = 0


class LogBook:
    """Rows have numbers that never change: 0 is the first that ever came, `first` the oldest that is kept."""

    def __init__(self, rows: int = CAPACITY_ROWS, characters: int = CAPACITY_CHARACTERS) -> None:
        self._most_rows, self._most_characters = rows, characters
        self._block_rows = max(1, min(BLOCK_ROWS, rows // 8))
        self._blocks: deque[_Block] = deque()
        self._characters = 0
        self.first = 0
        self.end = 0
        self.rank: int | None = None
        self.pattern: Pattern | None = None
        self.only_matches = True
        self._of_rank: _Chosen | None = None
        self._matching: _Chosen | None = None

    def append(self, rows: Sequence[LogRow]) -> None:
        """Take the rows in; a block of the oldest goes where there are too many."""
        at = 0
        while at < len(rows):
            if not self._blocks or len(self._blocks[-1].rows) == self._block_rows:
                self._blocks.append(_Block([]))
            block = self._blocks[-1]
            part = rows[at : at + self._block_rows - len(block.rows)]
            characters = sum([len(row.text) for row in part])
            block.rows.extend(part)
            block.characters += characters
            self._characters += characters
            self.end += len(part)
            at += len(part)
            while len(self._blocks) > 1 and (
                self.end - self.first > self._most_rows or self._characters > self._most_characters
            ):
                gone = self._blocks.popleft()
                self._characters -= gone.characters
                self.first += len(gone.rows)
        for chosen in (self._of_rank, self._matching):
            if chosen is not None:
                chosen.forget_before(self.first)

    def row(self, number: int) -> LogRow | None:
        """None where it is no longer, or not yet, there."""
        if not self.first <= number < self.end:
            return None
        block, at = divmod(number - self.first, self._block_rows)
        return self._blocks[block].rows[at]

    # what is shown

    def choose(self, *, rank: int | None, pattern: Pattern | None, only_matches: bool) -> None:
        """Of which rank, and what is searched for; `only_matches` hides the rest. `advance` finds the rows."""
        if rank != self.rank:
            self._of_rank = None if rank is None else _Chosen(lambda row: row.rank == rank or row.rank is None)
        if rank != self.rank or pattern != self.pattern:
            self._matching = None
            if pattern is not None:
                self._matching = _Chosen(lambda row: (rank is None or row.rank == rank) and pattern.matches(row.text))
        self.rank, self.pattern, self.only_matches = rank, pattern, only_matches

    def advance(self, seconds: float = SLICE_SECONDS) -> bool:
        """Look at rows that were not looked at yet, for this long; whether all are done."""
        until = time.perf_counter() + seconds
        for chosen in (self._of_rank, self._matching):
            if chosen is None:
                continue
            number = max(chosen.next, self.first)
            while number < self.end:
                row = self.row(number)
                if row is not None and chosen.holds(row):
                    chosen.numbers.append(number)
                number += 1
                if time.perf_counter() > until:
                    break
            if number < self.end:
                chosen.next = number
                return False
            chosen.next = number
        return True

    @property
    def _shown(self) -> _Chosen | None:
        return self._matching if self._matching is not None and self.only_matches else self._of_rank

    @property
    def count(self) -> int:
        """How many rows are shown."""
        shown = self._shown
        return self.end - self.first if shown is None else len(shown)

    @property
    def matches(self) -> int:
        return 0 if self._matching is None else len(self._matching)

    def number_at(self, index: int) -> int:
        """The number of the shown row at this place, 0 the oldest."""
        shown = self._shown
        return self.first + index if shown is None else shown.numbers[shown.gone + index]

    def index_of(self, number: int) -> int:
        """The place of the first shown row with this number or a later one; `count` when there is none."""
        shown = self._shown
        if shown is None:
            return min(max(number - self.first, 0), self.end - self.first)
        return bisect_left(shown.numbers, number, lo=shown.gone) - shown.gone

    def shown_between(self, start: int, stop: int) -> list[tuple[int, LogRow]]:
        """(number, row) of the shown rows at places start to stop."""
        found = []
        for index in range(max(start, 0), min(stop, self.count)):
            number = self.number_at(index)
            row = self.row(number)
            if row is not None:
                found.append((number, row))
        return found

    def match_from(self, number: int, step: int) -> int | None:
        """The number of the next match after (step 1) or before (step -1) this row."""
        chosen = self._matching
        if chosen is None or not len(chosen):
            return None
        if step > 0:
            at = bisect_left(chosen.numbers, number + 1, lo=chosen.gone)
        else:
            at = bisect_left(chosen.numbers, number, lo=chosen.gone) - 1
        return chosen.numbers[at] if chosen.gone <= at < len(chosen.numbers) else None
