"""What is searched for: words or a regular expression, never one that can stop the screen."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparktui.ui.logs.lines import MATCHED_CHARACTERS

_NESTED = re.compile(r"\((?:[^()\\]|\\.)*(?:[*+]|\{\d+,\d*\})(?:[^()\\]|\\.)*\)(?:[*+]|\{\d+,\d*\})")
_UNBOUNDED = re.compile(r"(?<!\\)[*+]|\{\d+,\}")
MOST_REPEATS = 4


class PatternRefused(ValueError):
    """The text is no regular expression, or one whose time cannot be foreseen; says which in words."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Compiled; upper and lower case are the same unless the text has upper case."""

    text: str
    regex: bool
    compiled: re.Pattern[str]

    @classmethod
    def of(cls, text: str, *, regex: bool) -> Pattern | None:
        """None for an empty text.

        Raises:
            PatternRefused: with the reason.
        """
        if not text:
            return None
        flags = re.NOFLAG if any(each.isupper() for each in text) else re.IGNORECASE
        if not regex:
            return cls(text, False, re.compile(re.escape(text), flags))
        if _NESTED.search(text) or len(_UNBOUNDED.findall(text)) > MOST_REPEATS:
            raise PatternRefused("too slow: a repeat inside a repeat, or more than four")
        try:
            return cls(text, True, re.compile(text, flags))
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternRefused(f"no regex: {error}") from None

    def matches(self, text: str) -> bool:
        return self.compiled.search(text, 0, MATCHED_CHARACTERS) is not None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each match, empty ones left out."""
        found = self.compiled.finditer(text, 0, MATCHED_CHARACTERS)
        return [span for each in found if (span := each.span())[1] > span[0]]
