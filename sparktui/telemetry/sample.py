"""What telemetry hands out: frozen values. None is unknown, never zero; times are seconds of one monotonic clock.

Rates and states come ready to show: a screen needs no second reading and no clock of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparktui.readings.meminfo import Memory


@dataclass(frozen=True, slots=True)
class MemorySplit:
    """A node's unified memory, split into what can be told apart; the parts sum to `total_bytes` where all are known.

    Attributes:
        held_bytes: weights, KV pool and what the GPU driver holds: in no process and in no meminfo line but the total.
        processes_bytes: anonymous and shared memory of processes, slab and page tables.
        page_cache_bytes: files the kernel could give back.
        free_bytes: MemFree.
        available_bytes: MemAvailable, what the floors are compared with.
        floor_bytes: below this a rank is in danger; None where the profile names none.
    """

    total_bytes: int | None = None
    held_bytes: int | None = None
    processes_bytes: int | None = None
    page_cache_bytes: int | None = None
    free_bytes: int | None = None
    available_bytes: int | None = None
    floor_bytes: int | None = None
    swap_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PortReading:
    """One RDMA device with its traffic a direction. A Spark has four of them behind two cages (`p0`, `p1`)."""

    device: str
    netdev: str | None = None
    cage: str | None = None
    active: bool | None = None
    state: str | None = None
    rate_gbit: float | None = None
    sent_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    errors: int | None = None
    """Growth of the error counters since the watch began."""
    growing: tuple[str, ...] = ()
    """Names of the counters that have grown since then."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """From nvidia-smi, at its own slower interval. On a GB10 it knows no memory total."""

    taken_at: float
    utilization_percent: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    clock_mhz: float | None = None
    process_bytes: int | None = None
    throttled: bool | None = None


class Freshness(StrEnum):
    """Shown as this word."""

    WAITING = "waiting"
    LIVE = "live"
    STALE = "stale"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class NodeSample:
    """One node at one moment.

    Attributes:
        freshness: LIVE as long as samples come; the last values stay when they do not.
        age_seconds: since the last sample; None before the first.
        problem: why there is no newer one, in a sentence; empty when all is well.
        ports: None when the card could not be read, () when there is none.
    """

    node: str
    rank: int
    freshness: Freshness = Freshness.WAITING
    age_seconds: float | None = None
    problem: str = ""
    taken_at: float | None = None
    memory: Memory | None = None
    split: MemorySplit = MemorySplit()
    stalled_percent: float | None = None
    """PSI memory `full` avg10: the share of time in which everything waited for memory."""
    cpu_busy_percent: float | None = None
    """Of all cores together."""
    ports: tuple[PortReading, ...] | None = None
    gpu: GpuReading | None = None
    nvme_read_bytes_per_second: float | None = None
    nvme_free_bytes: int | None = None
    uptime_seconds: float | None = None
    swapped_pages_per_second: float | None = None
    """In and out together."""


class Life(StrEnum):
    """Of a rank's container, as its node's Docker Engine says."""

    UNKNOWN = "unknown"
    ABSENT = "absent"
    RUNS = "runs"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class RankLife:
    """Whether a rank's engine runs.

    Attributes:
        has_run: it was seen running in this watch.
        seen_at: when its Engine last said something.
        problem: why nothing newer is known, in a sentence; empty when all is well, or while it is first asked.
    """

    rank: int
    node: str
    life: Life = Life.UNKNOWN
    has_run: bool = False
    exit_code: int | None = None
    oom_killed: bool = False
    seen_at: float | None = None
    problem: str = ""


class EndpointState(StrEnum):
    """HANGS: it answers, and a rank is gone: no request will end."""

    UNKNOWN = "unknown"
    DOWN = "down"
    STARTING = "starting"
    READY = "ready"
    HANGS = "hangs"


@dataclass(frozen=True, slots=True)
class Serving:
    """The endpoint, from its /metrics. Rates are over the last interval."""

    state: EndpointState = EndpointState.UNKNOWN
    url: str = ""
    problem: str = ""
    running_requests: int | None = None
    queued_requests: int | None = None
    decode_tokens_per_second: float | None = None
    prefill_tokens_per_second: float | None = None
    kv_used_fraction: float | None = None
    accept_length: float | None = None
    """Tokens accepted a verify step."""
    ttft_seconds: float | None = None
    taken_at: float | None = None
    models: tuple[str, ...] = ()
    """Served names, from /v1/models."""
    was_ready: bool = False
    """It has been READY and is missed: not long ago, or while its container runs."""
    memory_guard_low: bool | None = None
    """The head refuses requests for want of memory; None where the engine does not say."""
    memory_guard_trips: int | None = None
    """How often it ended the running requests since it started."""
    rank_unknown: bool = False
    """It answers, and of a rank nobody knows whether it still runs; `problem` names it."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something a person should look at now. `id` is stable: the same trouble is the same alarm."""

    id: str
    node: str
    severe: bool
    what: str
    fix: str = ""
    since: float = 0.0
    """When its condition began, by the clock of the samples."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All nodes at one moment, head first."""

    at: float = 0.0
    nodes: tuple[NodeSample, ...] = ()
    serving: Serving = Serving()
    alarms: tuple[Alarm, ...] = ()
    ranks: tuple[RankLife, ...] = ()
    """In rank order; empty where nobody looks."""

    def node(self, name: str) -> NodeSample | None:
        return next((each for each in self.nodes if each.node == name), None)
