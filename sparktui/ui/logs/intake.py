"""From the ranks' stream into the book: cleaned, judged, in the order of the engine's own clock where it tells one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktui.telemetry.rank_log_stream import LogBatch, RankLine
from sparktui.ui.logs.book import LogBook
from sparktui.ui.logs.first_error import FirstErrorFinder
from sparktui.ui.logs.lines import LogRow, Severity, clean, severity_of, suspicious

PART_LINES = 100
"""Taken in at a time; about a millisecond."""
ALIVE_SECONDS = 1.0
"""A line that comes this long after a remark on its node ends what the remark said. A saved log comes at once."""


class Intake:
    """Attributes:
    errors: what failed first.
    silent: why nothing comes from a node, by node name.
    dropped: lines that came faster than they could be taken.
    """

    def __init__(self, book: LogBook) -> None:
        self.book = book
        self.errors = FirstErrorFinder()
        self.silent: dict[str, str] = {}
        self.dropped = 0
        self._remarked_at: dict[str, float] = {}
        self._clock: dict[str, str] = {}

    def take(self, batch: LogBatch) -> Iterator[None]:
        """Take the batch in, in parts; something else may happen at each yield."""
        if batch.dropped > self.dropped:
            self._say(f"{batch.dropped - self.dropped:,} lines dropped: they came faster than they can be shown")
            self.dropped = batch.dropped
        timed = [(self._clock_of(line), line) for line in batch.lines]
        timed.sort(key=lambda each: each[0])
        for start in range(0, len(timed), PART_LINES):
            self.book.append(self._rows(timed[start : start + PART_LINES]))
            yield

    def _clock_of(self, line: RankLine) -> str:
        """`2026-09-11 23:34:02` of the line, or of the rank's last line that told it."""
        if line.text.startswith("[20"):
            self._clock[line.node] = line.text[1:20]
        return self._clock.get(line.node, "")

    def _rows(self, timed: list[tuple[str, RankLine]]) -> list[LogRow]:
        rows: list[LogRow] = []
        for clock, line in timed:
            if line.ours:
                self.silent[line.node] = line.text
                self._remarked_at[line.node] = line.at
                rows.append(LogRow(None, line.node, " ".join(clean(line.text)), Severity.NOTE, clock))
                continue
            if self.silent and line.at - self._remarked_at.get(line.node, 0.0) > ALIVE_SECONDS:
                self.silent.pop(line.node, None)
            for text in clean(line.text):
                rows.append(LogRow(line.rank, line.node, text, Severity.PLAIN, clock))
        for at in suspicious([row.text for row in rows]):
            row = rows[at]
            if row.severity is not Severity.NOTE:
                rows[at] = row = replace(row, severity=severity_of(row.text))
                self.errors.feed(self.book.end + at, row)
        return rows

    def _say(self, text: str) -> None:
        self.book.append([LogRow(None, "", text, Severity.NOTE)])

    def say_all(self, text: str) -> None:
        """A line of our own, about no node."""
        self._say(text)


def as_text(row: LogRow) -> str:
    """As it is copied: who said it, then the line as it came."""
    return row.text if row.rank is None else f"rank {row.rank} {row.node} {row.text}"
