"""A rank's output as rows that are safe to draw: control bytes out, redrawn bars once, trouble marked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from sparktui.engine.signature_table import SIGNATURES
from sparktui.engine.signatures import information
from sparktui.readings.sglang_log import pieces, split_prefix

LINE_CHARACTERS = 4_000
"""Kept of a line."""
MATCHED_CHARACTERS = 1_000
"""Looked at when a line is judged or searched; keeps an odd line from costing seconds."""


class Severity(IntEnum):
    PLAIN = 0
    WARN = 1
    ERROR = 2
    NOTE = 3
    """Our own word among the ranks' lines."""


@dataclass(frozen=True, slots=True)
class LogRow:
    """One line of one rank.

    Attributes:
        rank: the rank; None for a line of our own.
        at: the engine's clock, `2026-09-11 23:34:02`, of this line or the rank's last one that told it; else empty.
    """

    rank: int | None
    node: str
    text: str
    severity: Severity = Severity.PLAIN
    at: str = ""


_BAR = re.compile(r"\d{1,3}%\|")
_GLUED = ("it/s]", "s/it]")


def clean(raw: str) -> tuple[str, ...]:
    """One line of a container's log as the lines that were meant, each printable, none empty."""
    if raw.isprintable() and not (_GLUED[0] in raw or _GLUED[1] in raw):
        return (raw[:LINE_CHARACTERS],) if raw.strip() else ()
    meant: list[str] = []
    for piece in pieces(raw[: 8 * LINE_CHARACTERS]):
        text = "".join(each for each in piece.expandtabs(4) if each.isprintable()).rstrip()[:LINE_CHARACTERS]
        if meant and _BAR.search(text) and _BAR.search(meant[-1]):
            meant[-1] = text  # a bar that was drawn again over itself
        elif text:
            meant.append(text)
    return tuple(meant)


_HINTS = (
    "error", "exception", "traceback", "fatal", "fail", "warn", "out of memory", "no_memory", "no gpu memory",
    "no room", "unbalanced", "reg_mr", "cuda error", "equal block", "probability tensor", "engram", "divisible",
    "unable to find", "socket", "ibv_modify_qp", "duplicate", "timed out", "in use", "not supported", "cdi", "invalid",
    "could not", "no such", "stale", "no cuda", "insufficient", "no nvidia", "cargo", "unrecognized", "can't",
    "cannot", "not found", "does not", "toolarge", "incomplete", "no space", "no module", "watchdog", "by peer", "broken pipe", "exited",
    "likely closed", "fired up", "[spark]",
)  # fmt: skip
"""Lower case. Each signature's line has at least one of them (a test compares): the dear patterns are tried on few."""

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Killed)(?:: .*)?")
_LEVEL_ERROR = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL)\b|Traceback \(most recent call last\)|\bexception was never retrieved\b"
)
_LEVEL_WARN = re.compile(r"\b(?:WARN(?:ING)?|\w+Warning)\b|^[Ww]arning:")


def suspicious(text: str) -> bool:
    """Whether the line has to be judged at all. Costs about 3 µs."""
    low = text[:MATCHED_CHARACTERS].lower()
    return any(hint in low for hint in _HINTS)


def severity_of(text: str) -> Severity:
    """What kind of line this is, by the same signatures that explain a dead rank."""
    if not suspicious(text):
        return Severity.PLAIN
    said = split_prefix(text[:MATCHED_CHARACTERS]).text
    if said.startswith("server_args=") or information(said):
        return Severity.PLAIN  # lists every option, also those whose names look like trouble
    if (
        _LEVEL_ERROR.search(said)
        or _EXCEPTION.fullmatch(said.strip())
        or any(signature.pattern.search(said) for signature in SIGNATURES)
    ):
        return Severity.ERROR
    return Severity.WARN if _LEVEL_WARN.search(said) else Severity.PLAIN
