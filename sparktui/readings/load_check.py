"""What `spark_overlay check-model` says, JSON lines: does every rank of the model load from this checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LoadFault:
    """A tensor that does not load.

    Attributes:
        kind: shape, missing, partial, unused, file or engine.
        tensor: its name; for `file` the file's; empty where the engine names none.
    """

    rank: int | None
    kind: str
    tensor: str
    text: str

    @property
    def sentence(self) -> str:
        """Rank, tensor and cause in one line."""
        rank = f"rank {self.rank}" if self.rank is not None else "the checkpoint"
        named = self.tensor and self.tensor not in self.text
        return f"{rank}: {self.tensor}: {self.text}" if named else f"{rank}: {self.text}"


@dataclass(frozen=True, slots=True)
class RankLoad:
    """One rank's pass. None means that it did not say.

    Attributes:
        parameter_bytes: what the rank's parameters take, padding included.
        pad_bytes: how much of that only padding adds.
        peak_bytes: resident memory of the check itself.
    """

    rank: int
    ok: bool
    tensors: int | None
    padded: int | None
    parameter_bytes: int | None
    pad_bytes: int | None
    seconds: float | None
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class LoadCheck:
    """All that was said so far.

    Attributes:
        ok: the verdict; None while there is none (a check that was cut off has none either).
        skipped: why nothing was checked, such as `the model is a llama`.
        fingerprint: of config.json, the index and all headers.
    """

    ranks: tuple[RankLoad, ...] = ()
    faults: tuple[LoadFault, ...] = ()
    ok: bool | None = None
    skipped: str = ""
    fingerprint: str = ""
    sglang: str = ""


def parse_load_line(line: str) -> dict[str, Any] | None:
    """One line of the container as its event; None for other text."""
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return plain if isinstance(plain, dict) and isinstance(plain.get("event"), str) else None


def load_check(events: Iterable[Mapping[str, Any]]) -> LoadCheck:
    """The events in their order. A verdict without faults that is not good is none: nobody could act on it."""
    ranks: list[RankLoad] = []
    faults: list[LoadFault] = []
    ended: Mapping[str, Any] = {}
    for each in events:
        match each.get("event"):
            case "fault":
                text = {key: str(each.get(key) or "") for key in ("kind", "tensor", "text")}
                faults.append(LoadFault(_whole(each.get("rank")), **text))
            case "rank" if (rank := _whole(each.get("rank"))) is not None:
                sizes = {key: _whole(each.get(key)) for key in ("tensors", "padded", "parameter_bytes", "pad_bytes")}
                peak, seconds = _whole(each.get("peak_bytes")), each.get("seconds")
                took = float(seconds) if isinstance(seconds, int | float) else None
                ranks.append(RankLoad(rank, each.get("ok") is True, **sizes, seconds=took, peak_bytes=peak))
            case "checked":
                ended = each
    said = ended.get("ok")
    good = said is True and not faults and all(each.ok for each in ranks)
    return LoadCheck(
        ranks=tuple(ranks),
        faults=tuple(faults),
        ok=True if good else False if faults and isinstance(said, bool) else None,
        skipped=str(ended.get("skipped") or ""),
        fingerprint=str(ended.get("fingerprint") or ""),
        sglang=str(ended.get("sglang") or ""),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
