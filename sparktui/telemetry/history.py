"""What has been: bounded rings of numbers a node and quantity. A gap is a gap (None), never a flat line.

Two rings each: FINE slots of a second for a quarter of an hour, COARSE slots of a minute for a day. All memory is taken
at once (about 19 KiB a ring pair) and stays so for as long as the monitor runs.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from enum import StrEnum

from sparktui.telemetry.sample import ClusterSnapshot, EndpointState, Freshness, NodeSample, Serving

FINE_SECONDS, FINE_SLOTS = 1.0, 900
COARSE_SECONDS, COARSE_SLOTS = 60.0, 1440
_NAN = math.nan


class Quantity(StrEnum):
    """What is kept; of a node, or (the last five) of the endpoint."""

    AVAILABLE_BYTES = "available_bytes"
    FREE_BYTES = "free_bytes"
    HELD_BYTES = "held_bytes"
    STALLED_PERCENT = "stalled_percent"
    CPU_PERCENT = "cpu_percent"
    SENT_BYTES_PER_SECOND = "sent_bytes_per_second"
    RECEIVED_BYTES_PER_SECOND = "received_bytes_per_second"
    NVME_READ_BYTES_PER_SECOND = "nvme_read_bytes_per_second"
    GPU_PERCENT = "gpu_percent"
    GPU_CELSIUS = "gpu_celsius"
    GPU_WATTS = "gpu_watts"
    GPU_CLOCK_MHZ = "gpu_clock_mhz"
    DECODE_TOKENS_PER_SECOND = "decode_tokens_per_second"
    PREFILL_TOKENS_PER_SECOND = "prefill_tokens_per_second"
    RUNNING_REQUESTS = "running_requests"
    QUEUED_REQUESTS = "queued_requests"
    KV_USED_FRACTION = "kv_used_fraction"


LOWEST = frozenset({Quantity.AVAILABLE_BYTES, Quantity.FREE_BYTES})
"""Where several moments become one point, the lowest is kept: a dip must not vanish. Elsewhere it is the mean."""


def _sum_over_ports(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


_OF_NODE: dict[Quantity, Callable[[NodeSample], float | None]] = {
    Quantity.AVAILABLE_BYTES: lambda node: node.split.available_bytes,
    Quantity.FREE_BYTES: lambda node: node.split.free_bytes,
    Quantity.HELD_BYTES: lambda node: node.split.held_bytes,
    Quantity.STALLED_PERCENT: lambda node: node.stalled_percent,
    Quantity.CPU_PERCENT: lambda node: node.cpu_busy_percent,
    Quantity.SENT_BYTES_PER_SECOND: lambda node: _sum_over_ports([p.sent_bytes_per_second for p in node.ports or ()]),
    Quantity.RECEIVED_BYTES_PER_SECOND: lambda node: _sum_over_ports(
        [p.received_bytes_per_second for p in node.ports or ()]
    ),
    Quantity.NVME_READ_BYTES_PER_SECOND: lambda node: node.nvme_read_bytes_per_second,
    Quantity.GPU_PERCENT: lambda node: node.gpu.utilization_percent if node.gpu else None,
    Quantity.GPU_CELSIUS: lambda node: node.gpu.temperature_celsius if node.gpu else None,
    Quantity.GPU_WATTS: lambda node: node.gpu.power_watts if node.gpu else None,
    Quantity.GPU_CLOCK_MHZ: lambda node: node.gpu.clock_mhz if node.gpu else None,
}
_OF_SERVING: dict[Quantity, Callable[[Serving], float | None]] = {
    Quantity.DECODE_TOKENS_PER_SECOND: lambda serving: serving.decode_tokens_per_second,
    Quantity.PREFILL_TOKENS_PER_SECOND: lambda serving: serving.prefill_tokens_per_second,
    Quantity.RUNNING_REQUESTS: lambda serving: serving.running_requests,
    Quantity.QUEUED_REQUESTS: lambda serving: serving.queued_requests,
    Quantity.KV_USED_FRACTION: lambda serving: serving.kv_used_fraction,
}


class Ring:
    """One number a slot of time; slots that nothing was put into are None.

    Args:
        lowest: several values of one slot become their lowest, not their mean.
    """

    def __init__(self, slots: int, seconds: float, *, lowest: bool = False) -> None:
        self._values = array("d", [_NAN]) * slots
        self._slots, self._seconds, self._lowest = slots, seconds, lowest
        self._newest: int | None = None
        self._taken = 0

    def put(self, at: float, value: float | None) -> None:
        """Time goes forward only: a value older than the newest slot is dropped."""
        slot = int(at // self._seconds)
        if self._newest is None or slot > self._newest:
            first = slot if self._newest is None else max(self._newest + 1, slot - self._slots + 1)
            for passed in range(first, slot + 1):
                self._values[passed % self._slots] = _NAN
            self._newest, self._taken = slot, 0
        elif slot < self._newest:
            return
        if value is None or not math.isfinite(value):
            return
        where = slot % self._slots
        if not self._taken:
            self._values[where] = value
        elif self._lowest:
            self._values[where] = min(self._values[where], value)
        else:
            self._values[where] += (value - self._values[where]) / (self._taken + 1)
        self._taken += 1

    def values(self, count: int, until: float | None = None) -> list[float | None]:
        """The last `count` slots, oldest first; `until` (a time) ends them there even if nothing came since."""
        count = min(count, self._slots)
        if self._newest is None:
            return [None] * count
        end = self._newest if until is None else max(self._newest, int(until // self._seconds))
        found: list[float | None] = []
        for slot in range(end - count + 1, end + 1):
            kept = self._newest - self._slots < slot <= self._newest
            value = self._values[slot % self._slots] if kept else _NAN
            found.append(None if math.isnan(value) else value)
        return found


class History:
    """The rings of a cluster. `take` each snapshot; ask for `values` or `points`."""

    def __init__(self) -> None:
        self._rings: dict[tuple[str, Quantity], tuple[Ring, Ring]] = {}
        self._at = 0.0

    def take(self, snapshot: ClusterSnapshot) -> None:
        """A node that is not LIVE leaves a gap: its last values are not the present."""
        self._at = snapshot.at
        for node in snapshot.nodes:
            live = node.freshness is Freshness.LIVE
            for quantity, of in _OF_NODE.items():
                self._put(node.node, quantity, of(node) if live else None)
        ready = snapshot.serving.state is EndpointState.READY
        for quantity, of_serving in _OF_SERVING.items():
            self._put("", quantity, of_serving(snapshot.serving) if ready else None)

    def _put(self, node: str, quantity: Quantity, value: float | None) -> None:
        rings = self._rings.get((node, quantity))
        if rings is None:
            if value is None:
                return  # what never had a value needs no memory
            lowest = quantity in LOWEST
            fine = Ring(FINE_SLOTS, FINE_SECONDS, lowest=lowest)
            rings = fine, Ring(COARSE_SLOTS, COARSE_SECONDS, lowest=lowest)
            self._rings[node, quantity] = rings
        for ring in rings:
            ring.put(self._at, value)

    def values(self, node: str, quantity: Quantity, *, seconds: float) -> list[float | None]:
        """One value a slot, oldest first, up to now; `node` is "" for what is the endpoint's.

        Slots are seconds up to a quarter of an hour, minutes beyond.
        """
        fine = seconds <= FINE_SECONDS * FINE_SLOTS
        count = max(1, round(seconds / (FINE_SECONDS if fine else COARSE_SECONDS)))
        rings = self._rings.get((node, quantity))
        if rings is None:
            return [None] * min(count, FINE_SLOTS if fine else COARSE_SLOTS)
        return rings[0 if fine else 1].values(count, self._at)

    def points(self, node: str, quantity: Quantity, *, seconds: float, points: int) -> list[float | None]:
        """The same drawn together to at most `points` values, for a chart that is so wide."""
        found = self.values(node, quantity, seconds=seconds)
        if len(found) <= points or points < 1:
            return found
        drawn: list[float | None] = []
        for number in range(points):
            part = found[number * len(found) // points : (number + 1) * len(found) // points]
            known = [value for value in part if value is not None]
            worst = min(known) if known and quantity in LOWEST else None
            drawn.append(worst if worst is not None else sum(known) / len(known) if known else None)
        return drawn
