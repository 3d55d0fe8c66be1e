"""A rank's output as rows that are safe to draw: control bytes out, redrawn bars once, trouble marked."""

from __future__ import annotations

import re
from collections.abc import Sequence
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


_SIGNATURE_HINTS: dict[str, tuple[str, ...]] = {
    "own": ("[spark]",),
    "engram.drive": ("engram rows:",),
    "engram.read": ("engram rows:",),
    "engram.cut-short": ("engram rows:",),
    "engram.damaged": ("engram rows:",),
    "engram.ring": ("engram rows:",),
    "engram.bad-id": ("engram rows:",),
    "engram.forked": ("engram rows:",),
    "driver.no-memory": ("nv_err",),
    "kv.no-memory": ("no gpu memory",),
    "kv.no-room": ("no room",),
    "memory.unbalanced": ("unbalanced",),
    "rdma.no-registration": ("reg_mr",),
    "cuda.no-memory": ("outofmemory", "out of memory", "memoryallocation"),
    "spec.variable-verify": ("engram target",),
    "logits.nan": ("probability tensor",),
    "engram.wrong-shard": ("engram",),
    "engram.not-warm": ("engram",),
    "tp.not-divisible": ("not divisible",),
    "gloo.no-address": ("unable to find",),
    "nccl.no-interface": ("socket interface",),
    "rdma.peer": ("ibv_modify",),
    "nccl.system": ("system error", "systemerror"),
    "nccl.duplicate": ("duplicate",),
    "rendezvous.missing": ("timed out",),
    "rendezvous.no-head": ("client socket",),
    "port.in-use": ("already in use",),
    "image.architecture": ("exec format",),
    "docker.cdi": ("not supported", "cdi"),
    "docker.no-runtime": ("runtime name", "device driver"),
    "docker.no-infiniband": ("infiniband",),
    "docker.no-image": ("no such image",),
    "docker.name-taken": ("already in use",),
    "docker.volume-busy": ("volume is in use",),
    "nfs.mount": ("volume",),
    "nfs.stale": ("stale",),
    "gpu.no-driver": ("no cuda gpus", "driver version", "nvidia driver"),
    "rust.build": ("cargo",),
    "engine.option": ("launch_server.py", "unrecognized arg", "argument -"),
    "checkpoint.unseen": ("can't load", "cannot find", "not found", "no such file", "does not exist"),
    "checkpoint.damaged": ("safetensorerror", "headertoolarge", "invalidheader", "incompletebuffer"),
    "disk.full": ("no space left",),
    "module.missing": ("no module",),
    "library.missing": ("cannot open shared",),
    "memory.guard": ("memory_guard",),
    "watchdog": ("watchdog",),
    "peer.lost": ("by peer", "broken pipe", "process exited", "recvvalue", "likely closed"),
}
"""Lower case; a line that a signature matches has one of its words (a test compares): the dear patterns are tried on
few lines."""
_TRIED = [(_SIGNATURE_HINTS.get(signature.id, ("",)), signature.pattern) for signature in SIGNATURES]
_LEVEL_HINTS = (
    "error",
    "exception",
    "traceback",
    "fatal",
    "critical",
    "warn",
    "interrupt",
    "exit",
    "killed",
    "fired up",
)
HINTS = tuple(dict.fromkeys((*_LEVEL_HINTS, *(hint for hints, _ in _TRIED for hint in hints))))

_ENDS = ("Error", "Exception", "Interrupt", "Exit", "Killed")
_EXCEPTION = re.compile(rf"[A-Za-z_][\w.]*(?:{'|'.join(_ENDS)})(?:: .*)?")
_LEVEL_ERROR = re.compile(r"\b(?:ERROR|FATAL|CRITICAL)\b")
_LEVEL_WARN = re.compile(r"\bWARN(?:ING)?\b|Warning\b|^warning:")
_UNCAUGHT = ("Traceback (most recent call last)", "exception was never retrieved")


def suspicious(texts: Sequence[str]) -> list[int]:
    """The places of the lines that have to be judged at all. Costs about 1 µs a line when there are none."""
    joined = "\n".join(texts).lower()
    hints = [hint for hint in HINTS if hint in joined]
    if not hints:
        return []
    lowered = joined.split("\n")
    return [at for at, low in enumerate(lowered) if any(hint in low for hint in hints)]


def severity_of(text: str) -> Severity:
    """What kind of line this is, by the same signatures that explain a dead rank."""
    said = split_prefix(text[:MATCHED_CHARACTERS]).text
    if said.startswith("server_args=") or information(said):
        return Severity.PLAIN  # lists every option, also those whose names look like trouble
    if _says_error(said):
        return Severity.ERROR
    low = said.lower()
    for hints, pattern in _TRIED:
        for hint in hints:
            if hint in low:
                if pattern.search(said):
                    return Severity.ERROR
                break
    return Severity.WARN if "warn" in low and _LEVEL_WARN.search(said) else Severity.PLAIN


def _says_error(said: str) -> bool:
    """By the logger's level or Python's own words, whatever the reason."""
    if ("ERROR" in said or "FATAL" in said or "CRITICAL" in said) and _LEVEL_ERROR.search(said):
        return True
    if _UNCAUGHT[0] in said or _UNCAUGHT[1] in said:
        return True
    head = said.partition(": ")[0]
    return head.rstrip().endswith(_ENDS) and _EXCEPTION.fullmatch(said.strip()) is not None
