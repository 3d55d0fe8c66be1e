"""SGLang's /metrics text. Gauges repeat once per rank: the largest of the tp ranks, summed over dp ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_PREFIXES = ("sglang:", "sglang_")


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    """Without the `sglang:` prefix."""
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Metrics:
    samples: tuple[Sample, ...]

    def gauge(self, name: str) -> float | None:
        """A gauge of the whole server; None when it is not exported (or only NaN)."""
        by_dp: dict[str, float] = {}
        for sample in self._of(name):
            dp = sample.labels.get("dp_rank", "")
            by_dp[dp] = max(by_dp.get(dp, -math.inf), sample.value)
        return sum(by_dp.values()) if by_dp else None

    def counter(self, name: str, **labels: str) -> float | None:
        """A counter: the largest of its tp ranks, summed over everything else. Labels select, e.g. mode="decode"."""
        groups: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in self._of(name):
            if any(sample.labels.get(key) != value for key, value in labels.items()):
                continue
            rest = {key: value for key, value in sample.labels.items() if not key.endswith("_rank") or key == "dp_rank"}
            key = tuple(sorted(rest.items()))
            groups[key] = max(groups.get(key, -math.inf), sample.value)
        return sum(groups.values()) if groups else None

    @property
    def process_start_time_seconds(self) -> float | None:
        """Changes when the server restarted."""
        return next((s.value for s in self.samples if s.name == "process_start_time_seconds"), None)

    def _of(self, name: str) -> Iterator[Sample]:
        found = [sample for sample in self.samples if sample.name == name]
        # with priorities on, priority="" is the total and the other rows are parts of it
        totals = [sample for sample in found if sample.labels.get("priority") == ""]
        yield from totals or found


def parse_metrics(text: str) -> Metrics:
    """NaN and infinite samples are skipped; a last line without its newline may be cut off and is skipped too."""
    samples = []
    for line in text.split("\n")[:-1]:
        if line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line.strip())
        if not match:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        name = match["name"]
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        samples.append(Sample(name, dict(_LABEL.findall(match["labels"] or "")), value))
    return Metrics(tuple(samples))
