"""What reading a .env file yields: assignments, lines that could not be read, problems with their fixes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    """Good to know; there is nothing to put right."""
    NOTE = "note"
    """Worth a look while editing; a check of its own judges it on the nodes."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to put right in the file.

    Attributes:
        line: 1 for the first line, 0 where no line is to blame (a missing name, a command-line value).
        reason: one sentence, holding no value of a secret.
        fixed: the line (or lines) to write instead; empty where only a person knows.
        name: the setting it is about, empty where it is none.
    """

    line: int
    reason: str
    fixed: str = ""
    name: str = ""
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `NAME=value`. `start` and `end` bound the value's own text in `EnvFile.text`.

    Attributes:
        line, last_line: where the statement begins and ends, counted from 1.
        uses: the names that the value refers to.
    """

    name: str
    value: str
    line: int
    last_line: int
    start: int
    end: int
    uses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that could not be read; `name` is empty where it is no assignment."""

    name: str
    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class EnvFile:
    """A file as read. `text` is what was read, without byte-order mark and carriage returns at line ends."""

    text: str
    assignments: tuple[Assignment, ...]
    broken: tuple[BrokenLine, ...]
    problems: tuple[Problem, ...]

    @property
    def values(self) -> dict[str, str]:
        """Name to value; the last line of a name wins, as in bash."""
        return {each.name: each.value for each in self.assignments}

    @property
    def lines(self) -> dict[str, int]:
        """Name to the line that its value comes from."""
        return {each.name: each.line for each in self.assignments}

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(each for each in self.problems if each.severity is Severity.ERROR)
