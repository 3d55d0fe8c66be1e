"""Rate and time left from amounts that grow: measured over the last seconds, unknown until it is known."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sparktui.events import Progress, Unit

WINDOW_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class _Mark:
    at: float
    amount: float


class Pace:
    """Turns amounts into Progress events.

    Args:
        total: None where it is not known; then neither is the time left.
    """

    def __init__(
        self,
        step: str,
        node: str,
        phase: str,
        *,
        total: float | None,
        unit: Unit = Unit.BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._step, self._node, self._phase, self._unit = step, node, phase, unit
        self.total = total
        self._clock = clock
        self._marks: deque[_Mark] = deque()
        self._last_event = float("-inf")

    def at(self, amount: float) -> Progress:
        """The event for the amount reached now."""
        now = self._clock()
        self._marks.append(_Mark(now, amount))
        while len(self._marks) > 2 and now - self._marks[0].at > WINDOW_SECONDS:
            self._marks.popleft()
        first = self._marks[0]
        rate = (amount - first.amount) / (now - first.at) if now > first.at else None
        left = None
        if rate and rate > 0 and self.total is not None:
            left = max(0.0, self.total - amount) / rate
        self._last_event = now
        return Progress(self._step, self._node, self._phase, amount, self.total, self._unit, rate, left)

    def due(self, every_seconds: float = 0.5) -> bool:
        """Whether it is time for another event."""
        return self._clock() - self._last_event >= every_seconds
