"""SGLang's own log lines (0.5.23 and its neighbours): prefix, batches, memory and time figures."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_PREFIX = re.compile(
    r"\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)(?P<ranks>(?: [A-Z]{2,4}\d{1,4})*)\] ?(?P<text>.*)", re.DOTALL
)
_TP = re.compile(r"\bTP(\d{1,4})\b")
_BATCH = re.compile(r"(Prefill|Decode) batch(?: \[\d{1,18}\])?[,.] ?(.*)", re.DOTALL)
_FIELD = re.compile(r"(?P<name>[#A-Za-z][^:,]{0,60}?): (?P<value>[^,]{1,60}?)\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class Line:
    """A log line without its prefix; `at` is the engine's own clock (`2026-09-11 23:34:02`, node time)."""

    text: str
    at: str | None = None
    tp_rank: int | None = None


def split_prefix(line: str) -> Line:
    line = line.rstrip("\r\n")
    match = _PREFIX.fullmatch(line)
    if not match:
        return Line(line)
    rank = _TP.search(match["ranks"])
    return Line(match["text"], match["at"], int(rank[1]) if rank else None)


@dataclass(frozen=True, slots=True)
class Batch:
    """A `Prefill batch` or `Decode batch` line; None where the line has no such field."""

    decode: bool
    running: int | None = None
    queued: int | None = None
    tokens: int | None = None
    """New tokens of a prefill, tokens in the pool of a decode."""
    cached_tokens: int | None = None
    pending_tokens: int | None = None
    pool_usage: float | None = None
    """Share of the full-attention KV pool, 0 to 1."""
    accept_length: float | None = None
    accept_rate: float | None = None
    tokens_per_second: float | None = None
    cuda_graph: bool | None = None


def parse_batch(line: str) -> Batch | None:
    """Fields are taken by name, in any order; None when this is no batch line."""
    match = _BATCH.fullmatch(split_prefix(line).text)
    if not match:
        return None
    fields = {each["name"].strip(): each["value"].strip() for each in _FIELD.finditer(match[2])}
    decode = match[1] == "Decode"
    rate = fields.get("gen throughput (token/s)" if decode else "input throughput (token/s)")
    return Batch(
        decode=decode,
        running=_whole(fields.get("#running-req")),
        queued=_whole(fields.get("#queue-req")),
        tokens=_whole(fields.get("#new-token") if not decode else fields.get("#full token", fields.get("#token"))),
        cached_tokens=_whole(fields.get("#cached-token")),
        pending_tokens=_whole(fields.get("#pending-token")),
        pool_usage=real(fields.get("full token usage", fields.get("token usage"))),
        accept_length=real(fields.get("accept len")),
        accept_rate=real(fields.get("accept rate")),
        tokens_per_second=real(rate),
        cuda_graph={"True": True, "False": False}.get(fields.get("cuda graph", "")),
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,18}", text) else None


def real(text: str | None) -> float | None:
    """A finite number, or None."""
    if text is None or not re.fullmatch(r"-?\d{1,15}(?:\.\d{1,9})?", text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def figure(text: str, name: str, unit: str = "") -> float | None:
    """The number after `name=` (`avail mem=17.47 GB` -> 17.47 with unit "GB").

    None when it is absent, or when the unit does not follow: the line was cut off inside the number.
    """
    ends = rf" {re.escape(unit)}\b" if unit else r"(?=[,;\s)}]|\.(?!\d)|$)"
    match = re.search(rf"(?<![\w#]){re.escape(name)}=(-?\d{{1,15}}(?:\.\d{{1,9}})?){ends}", text)
    return real(match[1]) if match else None


_BAR_END = re.compile(r"(?<=it/s\])(?=\S)|(?<=s/it\])(?=\S)")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def pieces(raw: str) -> tuple[str, ...]:
    """One line of a container's log -> the lines that were meant: progress bars redraw with a carriage return and
    leave the next message glued to their end; colours are removed."""
    plain = _COLOUR.sub("", raw)
    return tuple(piece for part in re.split(r"[\r\n]", plain) for piece in _BAR_END.split(part) if piece.strip())
