"""The overlay's settings: read from the environment only, each with its range; an unknown name gets a warning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

PREFIXES = ("DSV41_", "SPARK_", "PREFILL_")
"""How the names begin that nothing but this overlay reads; PREFILL_EMPTY_CACHE_TOKENS keeps its recipe's name."""


class SwitchError(Exception):
    """A value that cannot be meant: the text names it and what is allowed."""


@dataclass(frozen=True)
class Switch:
    """One whole-number setting; a switch is one from 0 to 1. `zero_is_off` allows 0 below `least` as well."""

    name: str
    default: int
    meaning: str
    least: int = 0
    most: int = 1
    zero_is_off: bool = False

    @property
    def range(self) -> str:
        return f"{'0 or ' if self.zero_is_off else ''}from {self.least} to {self.most}"

    @property
    def on(self) -> int:
        """The value with which `verify` proves its adapter: what somebody may switch on is switched on."""
        return 1 if (self.least, self.most) == (0, 1) else self.default

    def read(self, environment: Mapping[str, str]) -> int:
        """Raises SwitchError."""
        text = environment.get(self.name, "").strip()
        if not text:
            return self.default
        try:
            value = int(text)
        except ValueError:
            raise SwitchError(f"{self.name}={text} is no whole number {self.range}") from None
        if not self.least <= value <= self.most and not (self.zero_is_off and value == 0):
            raise SwitchError(f"{self.name}={value} is not {self.range}")
        return value


@dataclass(frozen=True)
class Word:
    """One setting that is a word; `pattern` matches every allowed one whole, `range` says them in words.

    Attributes:
        on: the value with which `verify` proves its adapter.
    """

    name: str
    default: str
    meaning: str
    pattern: str
    range: str
    on: str

    def read(self, environment: Mapping[str, str]) -> str:
        """In small letters. Raises SwitchError."""
        text = environment.get(self.name, "").strip().lower() or self.default
        if not re.fullmatch(self.pattern, text):
            raise SwitchError(f"{self.name}={text} is not {self.range}")
        return text


Values = Mapping[str, Any]
"""Settings by name, all of them: whole numbers of a Switch, text of a Word."""


def read(switches: Iterable[Switch | Word], environment: Mapping[str, str]) -> Values:
    """All values. Raises SwitchError with all problems, one a line."""
    values: dict[str, Any] = {}
    problems = []
    for switch in switches:
        try:
            values[switch.name] = switch.read(environment)
        except SwitchError as error:
            problems.append(str(error))
    if problems:
        raise SwitchError("\n".join(problems))
    return values


def unknown(environment: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """A sentence for each name of ours (PREFIXES) that nothing reads, with the nearest one that something does."""
    names = sorted(known)
    sentences = []
    for name in sorted(environment):
        if name.startswith(PREFIXES) and name not in names:
            near = get_close_matches(name, names, n=1, cutoff=0.6)
            sentences.append(f"{name} is read by nothing" + (f"; {near[0]} is" if near else ""))
    return sentences
