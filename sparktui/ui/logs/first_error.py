"""Which line failed first, of all ranks, and why: the signatures' cause, or the exception that ended a traceback."""

from __future__ import annotations

from dataclasses import dataclass

from sparktui.engine.signatures import Explanation, explain, last_exception
from sparktui.readings.sglang_log import split_prefix
from sparktui.ui.logs.lines import LogRow, Severity

TRACEBACK_ROWS = 400
"""How far below its first line a traceback's end may be, other ranks' lines counted."""
READ_ON = "the lines below it say more; the other ranks may have failed because of it"


@dataclass(frozen=True, slots=True)
class FirstError:
    """Attributes:
    number: the row where it begins, a traceback's first.
    row: that row; it is kept here when the book has no room for it any longer.
    certain: a signature explains it; otherwise only an exception ended there.
    consequence: another rank failed first.
    """

    number: int
    row: LogRow
    cause: str
    fix: str
    certain: bool
    consequence: bool = False


class FirstErrorFinder:
    """Fed with the suspicious rows in the order in which they came; costs nothing on others."""

    def __init__(self) -> None:
        self.found: FirstError | None = None
        self._open: dict[int | None, tuple[int, LogRow]] = {}

    def feed(self, number: int, row: LogRow) -> None:
        text = row.text
        if "fired up and ready" in text or "[spark] READY" in text:
            self._recovered(row.rank)
            return
        said = split_prefix(text).text
        if "Traceback (most recent call last)" in said:
            self._open[row.rank] = (number, row)
            return
        if row.severity is not Severity.ERROR:
            return
        error = self._explained(number, row, said)
        if error is not None and self._is_earlier(error):
            self.found = error

    def _explained(self, number: int, row: LogRow, said: str) -> FirstError | None:
        start = (number, row)
        opened = self._open.get(row.rank)
        if opened is not None and number - opened[0] <= TRACEBACK_ROWS:
            start = opened
        known: Explanation | None = explain([row.text], None, None)
        if known is not None:
            self._open.pop(row.rank, None)
            return FirstError(*start, known.cause, known.fix, True, known.consequence)
        exception = last_exception([said])
        if exception is None:
            return None  # a level word alone: coloured, but nothing failed
        self._open.pop(row.rank, None)
        name, text = exception
        return FirstError(*start, f"{name}: {text}" if text else name, READ_ON, False)

    def _is_earlier(self, error: FirstError) -> bool:
        now = self.found
        if now is None:
            return True
        if error.number == now.number or (error.row.rank == now.row.rank and not now.certain and error.certain):
            return error.certain and not now.certain
        if now.consequence != error.consequence:
            return now.consequence
        if error.row.at and now.row.at:
            return error.row.at < now.row.at
        return error.number < now.number

    def _recovered(self, rank: int | None) -> None:
        """The rank came up: an exception that nobody explains ended nothing."""
        self._open.pop(rank, None)
        if self.found is not None and self.found.row.rank == rank and not self.found.certain:
            self.found = None
