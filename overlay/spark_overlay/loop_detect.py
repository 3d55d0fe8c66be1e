"""Is a text going round in circles? Pure, deterministic, and of constant cost a token whatever came before.

Three detectors, fed with the tokens that a request accepted, in order:

- identical: the same token `identical` times in a row;
- ngram: a piece of at least `ngram` tokens (at most `MAX_PERIOD`) `repeats` times in a row;
- lines: the same line of at least `line_characters` characters `line_repeats` times in a row.

Every rank of an engine sees the same tokens, so every rank finds the same loop at the same token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

MAX_PERIOD = 256
_RING = 1024
"""Places in the ring of the last tokens: a power of two, more than the longest period and n-gram together."""
_BASE, _MODULUS = 1_000_003, (1 << 61) - 1
LINE_BYTES = 4096
"""A longer line is compared by its first so many bytes and its length."""


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
        *("_count", "_hash", "_last", "_line", "_lines", "_period", "_piece"),
        *("_places", "_power", "_ring", "_rules", "_run", "_same"),
    )

    def __init__(self, rules: LoopRules, piece: Callable[[int], bytes] | None = None) -> None:
        self._rules = rules
        self._piece = piece if rules.line_repeats else None
        self._count = 0
        # identical
        self._last, self._run = -1, 0
        # ngram: a rolling hash of the last `ngram` tokens finds a period, then tokens are compared one by one
        self._ring = [0] * _RING
        self._places: dict[int, int] = {}
        self._hash = 0
        self._power = pow(_BASE, max(rules.ngram - 1, 0), _MODULUS)
        self._period, self._same = 0, 0
        # lines
        self._line = bytearray()
        self._lines = _LineRun()

    @property
    def count(self) -> int:
        """Tokens seen so far."""
        return self._count

    def feed(self, tokens: Iterable[int]) -> Loop | None:
        """The first loop that these tokens complete. Feed nothing more after one was found."""
        for token in tokens:
            self._count += 1
            found = self._identical(token) or self._ngram(token) or (self._piece and self._line_end(token))
            if found:
                return found
        return None

    def _identical(self, token: int) -> Loop | None:
        if token != self._last:
            self._last, self._run = token, 1
            return None
        self._run += 1
        if self._rules.identical and self._run >= self._rules.identical:
            keep = self._count - self._run + 1
            return Loop("identical", self._count, keep, f"token {token} came {self._run} times in a row")
        return None

    def _ngram(self, token: int) -> Loop | None:
        rules, ring, count = self._rules, self._ring, self._count
        size = rules.ngram
        if not size or not rules.repeats:
            return None
        oldest = ring[(count - size) & (_RING - 1)] if count > size else 0
        rolled = self._hash = ((self._hash - oldest * self._power) * _BASE + token) % _MODULUS
        ring[count & (_RING - 1)] = token
        if self._period:
            if token == ring[(count - self._period) & (_RING - 1)]:
                self._same += 1
            else:
                self._period = 0
        if count < size:
            return None
        places = self._places
        before = places.pop(rolled, 0)
        # The newest place of a hash stands last, so the oldest places can be dropped in order.
        places[rolled] = count
        if len(places) > 4 * MAX_PERIOD:
            self._forget()
        if not self._period and before and count - before <= MAX_PERIOD:
            self._take(count - before)
        if not self._period:
            return None
        length = -(-size // self._period) * self._period
        # So many tokens equal those a period before: with the first period, all of them go round.
        if self._same + self._period < rules.repeats * length:
            return None
        keep = count - (rules.repeats - 1) * length
        return Loop("ngram", count, keep, f"a piece of {length} tokens came {rules.repeats} times in a row")

    def _take(self, period: int) -> None:
        """Begin to count a period when its last `ngram` tokens really are equal, not only their hashes."""
        size, ring, mask, count = self._rules.ngram, self._ring, _RING - 1, self._count
        if all(ring[(count - i) & mask] == ring[(count - i - period) & mask] for i in range(size)):
            self._period, self._same = period, size

    def _forget(self) -> None:
        for place in list(self._places)[: 3 * MAX_PERIOD]:
            del self._places[place]

    def _line_end(self, token: int) -> Loop | None:
        assert self._piece is not None
        piece = self._piece(token)
        if b"\n" not in piece:
            if len(self._line) < LINE_BYTES:
                self._line += piece
            else:
                self._lines.overlong += len(piece)
            return None
        *ended, rest = piece.split(b"\n")
        for part in ended:
            self._line += part
            run = self._lines.ended(bytes(self._line), self._count, self._rules.line_characters)
            self._line.clear()
            if run >= self._rules.line_repeats:
                text = self._lines.text.decode("utf-8", "replace")
                shown = text if len(text) <= 60 else f"{text[:57]}..."
                return Loop(
                    "lines", self._count, self._lines.first_end, f"the line {shown!r} came {run} times in a row"
                )
        self._line += rest
        return None


class _LineRun:
    """How often the last line came in a row."""

    __slots__ = ("first_end", "overlong", "run", "text")

    def __init__(self) -> None:
        self.text = b""
        self.run = 0
        self.first_end = 0
        """Tokens of output when the first copy ended."""
        self.overlong = 0

    def ended(self, line: bytes, count: int, least_characters: int) -> int:
        """A line came to its end; how often it came in a row now, 0 for one too short to count."""
        text = line.strip() + (f" +{self.overlong}".encode() if self.overlong else b"")
        self.overlong = 0
        if text == self.text and self.run:
            self.run += 1
        elif _characters(text) >= least_characters:
            self.text, self.run, self.first_end = text, 1, count
        else:
            self.run = 0
        return self.run


def _characters(text: bytes) -> int:
    """Characters of UTF-8, fragments included: every byte that does not continue another."""
    return sum(byte & 0xC0 != 0x80 for byte in text)
