"""How figures are written on the screens: one form for each quantity, and `?` for what is unknown."""

from __future__ import annotations

from sparktui.telemetry.sample import Freshness, NodeSample

GIB = 1024**3
UNKNOWN = "?"


def gib(value_bytes: float | None) -> str:
    """Binary gigabytes with one digit, without the unit."""
    return UNKNOWN if value_bytes is None else f"{value_bytes / GIB:.1f}"


def gbit(bytes_per_second: float | None) -> str:
    """Decimal gigabits a second, as cables are sold, without the unit. What is there but tiny is not shown as 0.0."""
    if bytes_per_second is None:
        return UNKNOWN
    value = bytes_per_second * 8 / 1e9
    return "0" if value == 0 else "<0.1" if value < 0.1 else f"{value:.1f}"


def number(value: float | None, digits: int = 0, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}{unit}"


def percent(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else f"{fraction * 100:.0f} %"


def duration(seconds: float | None) -> str:
    """`41 s`, `3 min 05 s`, `2 h 10 min`, `4 d 3 h`."""
    if seconds is None:
        return UNKNOWN
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def freshness_text(sample: NodeSample) -> str:
    """Empty while samples come; else the word and how old the last one is."""
    if sample.freshness is Freshness.LIVE:
        return ""
    if sample.age_seconds is None:
        # It cannot be gone that was never there: its host key may only be unconfirmed yet.
        return "not reached" if sample.freshness is Freshness.GONE else sample.freshness.value
    return f"{sample.freshness.value} {duration(sample.age_seconds)}"
