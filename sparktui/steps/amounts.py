"""Amounts as text. Bytes are binary units with their names; an unknown amount is the word unknown."""

from __future__ import annotations

_UNITS = ("KiB", "MiB", "GiB", "TiB")


def bytes_text(amount: float | None) -> str:
    """`475.3 GiB`; below 1 KiB whole bytes."""
    if amount is None:
        return "unknown"
    if abs(amount) < 1024:
        return f"{amount:.0f} bytes"
    value = float(amount)
    unit = ""
    for each in _UNITS:
        value, unit = value / 1024, each
        if abs(value) < 1024:
            break
    return f"{value:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """`45 s`, `2 min`, `2 min 5 s`, `1 h 30 min`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")
