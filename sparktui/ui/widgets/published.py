"""The published decode speeds and the preview's text, from assets/."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sparktui.shipped import shipped


@dataclass(frozen=True, slots=True)
class PublishedSpeed:
    """One published decode speed. `others` are other published figures for the same thing."""

    requests: int
    each_tokens_per_second: float
    combined_tokens_per_second: float
    source: str
    others: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """What the preview plays: one request, then four at once."""

    text: str
    characters_per_token: float
    speeds: tuple[PublishedSpeed, ...]


def read_preview(sparks: int = 3) -> Preview:
    """The figures for that many Sparks; for a count without published ones, those for four (or three) Sparks."""
    listed = json.loads(shipped("assets").joinpath("published-figures.json").read_text(encoding="utf-8"))
    counts = {row["sparks"] for row in listed["decode"]}
    count = sparks if sparks in counts else max(counts) if sparks > max(counts) else min(counts)
    rows = [row for row in listed["decode"] if row["sparks"] == count]
    speeds = tuple(
        PublishedSpeed(
            row["requests"],
            row["each_tokens_per_second"],
            row["combined_tokens_per_second"],
            row["source"],
            tuple(
                other["each_tokens_per_second"]
                for other in rows
                if other is not row and other["requests"] == row["requests"]
            ),
        )
        for row in rows
        if row.get("played")
    )
    text = shipped("assets").joinpath("preview-text.txt").read_text(encoding="utf-8").strip()
    return Preview(text, listed["characters_per_token"], speeds)
