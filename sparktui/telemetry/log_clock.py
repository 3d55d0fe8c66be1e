"""When an engine's line was said, by the viewer's clock: a log that is read late, in one go, keeps its times."""

from __future__ import annotations

from datetime import UTC, datetime

from sparktui.readings.sglang_log import split_prefix

_LEEWAY_SECONDS = 2.0
"""Stamps are whole seconds, and the node's clock is not the head's."""


class LogClock:
    """For one container from its start on.

    Args:
        started_at: RFC 3339 UTC, as the Docker Engine says it.
        now: the viewer's clock.
        wall: seconds since the epoch at that moment.
    """

    def __init__(self, started_at: str, now: float, wall: float) -> None:
        began = _epoch(started_at[:19].replace("T", " "))
        self._shift = now - wall
        self.began = now if began is None else min(now, began + self._shift)

    def at(self, line: str, now: float) -> float:
        """Now, for a line without a stamp or with one that cannot be (an engine in another time zone)."""
        stamp = split_prefix(line).at
        said = _epoch(stamp) if stamp else None
        if said is None or not self.began - _LEEWAY_SECONDS <= said + self._shift <= now + _LEEWAY_SECONDS:
            return now
        return min(now, max(self.began, said + self._shift))


def _epoch(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
