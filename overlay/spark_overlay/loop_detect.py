"""Is a text going round in circles? Pure, deterministic, and of constant cost a token whatever came before.

Three detectors, fed with the tokens that a request accepted, in order:

- identical: the same token `identical` times in a row;
- ngram: a piece of at least `ngram` tokens (at most `MAX_PERIOD`) `repeats` times in a row;
- lines: the same line of at least `line_characters` characters `line_repeats` times in a row.

What repeats for good reasons must do so `PATIENCE` times as long: a piece shorter than `ngram` (an array of zeros) and
a line of mostly marks (an empty table row).

Every rank of an engine sees the same tokens, so every rank finds the same loop at the same token.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MAX_PERIOD = 1024
PATIENCE = 4
_KEPT_TOKENS = 2048
"""The last so many tokens are kept, and up to as many more: more than the longest period and n-gram together."""
_ID_MASK = 0xFFFF_FFFF
_CONTINUING = bytes(range(0x80, 0xC0))
_MARKS = bytes(byte for byte in range(0x80) if not chr(byte).isalnum())
LINE_PIECES = 4096
"""A line of more tokens is compared by its first so many and its length."""


@dataclass(frozen=True)
class LoopRules:
    """When a repetition counts as a loop. 0 switches a detector off.

    Attributes:
        identical: equal tokens in a row.
        ngram: least length in tokens of the repeated piece.
        repeats: how many copies of it.
        line_repeats: equal lines in a row.
        line_characters: shorter lines (after stripping blanks) repeat for good reasons: brackets, table rules, blanks.
    """

    identical: int = 64
    ngram: int = 32
    repeats: int = 4
    line_repeats: int = 8
    line_characters: int = 16


@dataclass(frozen=True)
class Loop:
    """A loop that was found.

    Attributes:
        detector: `identical`, `ngram` or `lines`.
        end: tokens of output up to and with the one that completed it.
        keep: tokens of output up to the end of the first copy.
        what: one sentence.
    """

    detector: str
    end: int
    keep: int
    what: str


class LoopDetector:
    """One request's detector.

    Args:
        piece: the bytes of a token; None where there is no tokenizer: then lines are not watched.
    """

    __slots__ = (
        *("_count", "_last", "_line", "_lines", "_look_every"),
        *("_period", "_piece", "_rules", "_run", "_same", "_tokens"),
    )

    def __init__(self, rules: LoopRules, piece: Callable[[int], bytes] | None = None) -> None:
        self._rules = rules
        self._piece = piece if rules.line_repeats else None
        self._count = 0
        # identical
        self._last, self._run = -1, 0
        # ngram: how many tokens up to the last one equal those a period before; no period, no count
        self._tokens = array("I")
        # A period shows once it was there for `ngram` tokens more: long before its third copy is complete.
        self._look_every = max(1, min(16, rules.ngram // 2))
        self._period, self._same = 0, 0
        # lines
        self._line: list[bytes] = []
        self._lines = _LineRun()

    @property
    def count(self) -> int:
        """Tokens seen so far."""
        return self._count

    def feed(self, tokens: Iterable[int]) -> Loop | None:
        """The first loop that these tokens complete. Feed nothing more after one was found."""
        rules, piece_of, kept = self._rules, self._piece, self._tokens
        found: Loop | None = None
        for token in tokens:
            self._count += 1
            if token != self._last:
                self._last, self._run = token, 1
            else:
                self._run += 1
                if self._run >= rules.identical > 0:
                    return self._identical()
            if rules.ngram:
                kept.append(token & _ID_MASK)
                if self._period:
                    if kept[-1] == kept[-1 - self._period]:
                        self._same += 1
                    else:
                        self._period = 0
                if not self._period and not self._count % self._look_every:
                    self._look()
                if self._period and (found := self._ngram()):
                    return found
            if piece_of is not None:
                piece = piece_of(token)
                if b"\n" in piece:
                    if found := self._line_end(piece):
                        return found
                elif len(self._line) < LINE_PIECES:
                    self._line.append(piece)
                else:
                    self._lines.overlong += len(piece)
        return None

    def _identical(self) -> Loop:
        keep = self._count - self._run + 1
        return Loop("identical", self._count, keep, f"token {self._last} came {self._run} times in a row")

    def _look(self) -> None:
        """Where did the last `ngram` tokens stand before? That distance is the period to watch."""
        kept, size = self._tokens, self._rules.ngram
        if len(kept) > 2 * _KEPT_TOKENS:
            del kept[:-_KEPT_TOKENS]
        # A search in bytes is C; a place inside a token is none.
        window, wide = kept[-(size + MAX_PERIOD) :].tobytes(), kept.itemsize
        tail, end = window[-size * wide :], len(window)
        at = end - len(tail)
        while True:
            at = window.rfind(tail, 0, at + len(tail) - 1)
            if at < 0:
                return
            if not at % wide:
                break
        self._period = period = (end - len(tail) - at) // wide
        self._same = size
        # The loop may have begun before the last look.
        while self._same + period < len(kept) and kept[-1 - self._same] == kept[-1 - self._same - period]:
            self._same += 1

    def _ngram(self) -> Loop | None:
        rules, period = self._rules, self._period
        length, copies = period, rules.repeats
        if period < rules.ngram:
            length = -(-rules.ngram // period) * period
            copies = -(-PATIENCE * rules.repeats * rules.ngram // length)
        # So many tokens equal those a period before: with the first period, all of them go round.
        if self._same + period < copies * length:
            return None
        keep = self._count - (copies - 1) * length
        return Loop("ngram", self._count, keep, f"a piece of {length} tokens came {copies} times in a row")

    def _line_end(self, piece: bytes) -> Loop | None:
        *ended, rest = piece.split(b"\n")
        for part in ended:
            self._line.append(part)
            run = self._lines.ended(b"".join(self._line), self._count, self._rules.line_characters)
            self._line.clear()
            if run >= self._rules.line_repeats * (PATIENCE if self._lines.of_marks else 1):
                text = self._lines.text.decode("utf-8", "replace")
                shown = text if len(text) <= 60 else f"{text[:57]}..."
                what = f"the line {shown!r} came {run} times in a row"
                return Loop("lines", self._count, self._lines.first_end, what)
        self._line.append(rest)
        return None


class _LineRun:
    """How often the last line came in a row."""

    __slots__ = ("first_end", "of_marks", "overlong", "run", "text")

    def __init__(self) -> None:
        self.text = b""
        self.run = 0
        self.first_end = 0
        """Tokens of output when the first copy ended."""
        self.overlong = 0
        self.of_marks = False
        """Fewer than half of its characters are letters or digits."""

    def ended(self, line: bytes, count: int, least_characters: int) -> int:
        """A line came to its end; how often it came in a row now, 0 for one too short to count."""
        text = line.strip() + (f" +{self.overlong}".encode() if self.overlong else b"")
        self.overlong = 0
        if text != self.text:
            self.text, self.run, self.first_end = text, 1, count
            return 1
        self.run += 1
        characters = _characters(text)
        self.of_marks = 2 * _characters(text.translate(None, _MARKS)) < characters
        return self.run if characters >= least_characters else 0


def _characters(text: bytes) -> int:
    """Characters of UTF-8, fragments included: every byte that does not continue another."""
    return len(text.translate(None, _CONTINUING))
