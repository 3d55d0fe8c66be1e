"""What the published speeds were measured with and this program lacks: one sentence for every place that shows them.

docs/production-extras.md says of each what it needs, what it is published to bring, and how far it is here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extra:
    """Something of the published lines that is not here; `sparks` are the lines that have it."""

    name: str
    sparks: frozenset[int]


EXTRAS = (
    Extra("all-reduce over RoCE", frozenset({4})),
    Extra("fused MoE at width 576", frozenset({4})),
    Extra("sequence-parallel prefill", frozenset({4})),
    Extra("FP8 copies of wo_a and draft head", frozenset({3, 4})),
)


def published_with(sparks: int) -> str:
    """For figures of that many Sparks (fewer than four: the three-Spark line, more: the four-Spark line)."""
    line = 3 if sparks < 4 else 4
    lacking = ", ".join(extra.name for extra in EXTRAS if line in extra.sparks)
    return f"published with another engine build and adapters that we lack: {lacking}"
