"""What steps say: the one vocabulary that screens, command line and journal understand.

An event is a frozen dataclass. In a journal it is one JSON line: the fields below, `kind` (the class in
snake case), and the envelope that `runs/journal.py` adds (`v`, `seq`, `at`).
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """A finding's state; always shown as this word, never only as a colour."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    INFO = "INFO"


class Outcome(StrEnum):
    """How a step (or its part on one node) ended."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Unit(StrEnum):
    BYTES = "bytes"
    ITEMS = "items"
    SECONDS = "seconds"
    PHASES = "phases"


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    run_id: str
    verbs: tuple[str, ...]
    profile: str
    env_file: str
    pid: int
    pid_started_ticks: int
    """Field 22 of /proc/PID/stat: with the pid it names one process for ever."""
    version: str


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    step: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandShown(Event):
    """A command exactly as a person would type it, secrets masked; it runs now (or would, in a dry run)."""

    step: str
    node: str
    command: str


@dataclass(frozen=True, slots=True)
class Finding(Event):
    """One check's answer on one node. `check` is a stable id such as `ssh.login`."""

    step: str
    check: str
    node: str
    state: State
    what: str
    cause: str = ""
    fix: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """How far a step is on a node. None means unknown: never 0, never a guess."""

    step: str
    node: str
    phase: str
    amount: float | None = None
    total: float | None = None
    unit: Unit = Unit.BYTES
    rate_per_second: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Note(Event):
    step: str
    node: str
    text: str
    state: State = State.INFO


@dataclass(frozen=True, slots=True)
class LogLine(Event):
    """A line of an engine's or tool's own output, cleaned of control bytes, secrets masked."""

    step: str
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class Question(Event):
    """A step needs a person's answer; `runs/` carries it to the viewer and back."""

    step: str
    question: str
    """Stable id, such as `hostkey.worker1`."""
    text: str
    choices: tuple[str, ...] = ("yes", "no")
    assume_yes: str = "yes"
    """The answer that `--yes` gives."""


@dataclass(frozen=True, slots=True)
class Answered(Event):
    step: str
    question: str
    answer: str
    by: str
    """`viewer` or `--yes`."""


@dataclass(frozen=True, slots=True)
class NodeOutcome(Event):
    step: str
    node: str
    outcome: Outcome
    text: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    """The figures of the text, such as `sent_bytes`."""


@dataclass(frozen=True, slots=True)
class StepFinished(Event):
    step: str
    outcome: Outcome
    seconds: float
    text: str = ""
    fix: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    exit_status: int
    text: str
    fix: str = ""
    node: str = ""


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


EVENT_KINDS: dict[str, type[Event]] = {_snake(kind.__name__): kind for kind in Event.__subclasses__()}
_ENUM_FIELDS = {"state": State, "outcome": Outcome, "unit": Unit}


def to_plain(event: Event) -> dict[str, Any]:
    """The event as JSON-ready values, `kind` first."""
    return {"kind": _snake(type(event).__name__), **dataclasses.asdict(event)}


def from_plain(plain: dict[str, Any]) -> Event | None:
    """Rebuild an event; None for a kind this version does not know. Unknown fields are ignored."""
    kind = EVENT_KINDS.get(str(plain.get("kind")))
    if kind is None:
        return None
    values: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        if each.name in plain:
            value = plain[each.name]
            if each.name in _ENUM_FIELDS:
                value = _ENUM_FIELDS[each.name](value)
            values[each.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
