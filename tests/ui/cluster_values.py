"""Three Sparks as telemetry would show them, in the three states that every picture is taken in.

CALM: the endpoint is ready and answers one request. WORKING: a boot, the workers ahead of the head. PACKING: before
the first boot, nothing serves and the packer's writes are in the page cache.
FAILING: worker2's card lost a link, worker1 is gone, the head is below its floor.
"""

from __future__ import annotations

from dataclasses import replace

from sparktui.cluster.fabric import PORT_NAMES
from sparktui.engine.ladder import RankBoot
from sparktui.telemetry.sample import (
    Alarm,
    ClusterSnapshot,
    EndpointState,
    Freshness,
    GpuReading,
    MemorySplit,
    NodeSample,
    PortReading,
    Serving,
)

GIB = 1024**3
TOTAL_BYTES = 127_600_748 * 1024
"""MemTotal of a Spark."""


def split(held: float, processes: float, cache: float) -> MemorySplit:
    """GiB; what is left is free."""
    parts = [round(each * GIB) for each in (held, processes, cache)]
    free = TOTAL_BYTES - sum(parts)
    return MemorySplit(TOTAL_BYTES, *parts, free, free + parts[2] - GIB // 4, 2 * GIB, 0)


def ports(mega_bytes_per_second: float = 0.0, *, down: tuple[str, ...] = ()) -> tuple[PortReading, ...]:
    """The four devices of a card; both directions carry the same."""
    rate = mega_bytes_per_second * 1e6
    return tuple(
        PortReading(
            device=name.device,
            netdev=name.netdev,
            cage=name.cage,
            active=name.cage not in down,
            state="DOWN" if name.cage in down else "ACTIVE",
            rate_gbit=None if name.cage in down else 200.0,
            sent_bytes_per_second=0.0 if name.cage in down else rate,
            received_bytes_per_second=0.0 if name.cage in down else rate,
            errors=0,
        )
        for name in PORT_NAMES
    )


def node(name: str, rank: int, memory: MemorySplit, *, busy: float = 3.0, traffic: float = 0.0) -> NodeSample:
    return NodeSample(
        node=name,
        rank=rank,
        freshness=Freshness.LIVE,
        age_seconds=0.4,
        taken_at=100.0,
        split=memory,
        stalled_percent=0.0,
        cpu_busy_percent=busy,
        ports=ports(traffic),
        gpu=GpuReading(
            99.0, utilization_percent=busy * 2, temperature_celsius=54.0, power_watts=38.0, clock_mhz=2411.0
        ),
        nvme_read_bytes_per_second=0.0,
        nvme_free_bytes=1_400 * GIB,
        uptime_seconds=86_400.0,
        swapped_pages_per_second=0.0,
    )


CALM = ClusterSnapshot(
    at=100.0,
    nodes=(
        node("head", 0, split(104.6, 4.1, 5.2), busy=22.0, traffic=840.0),
        node("worker1", 1, split(101.9, 2.2, 8.4), busy=20.0, traffic=840.0),
        node("worker2", 2, split(101.9, 2.1, 8.6), busy=20.0, traffic=840.0),
    ),
    serving=Serving(
        state=EndpointState.READY,
        url="http://10.0.0.1:8888",
        running_requests=1,
        queued_requests=0,
        decode_tokens_per_second=50.4,
        prefill_tokens_per_second=0.0,
        kv_used_fraction=0.04,
        accept_length=3.1,
        ttft_seconds=0.223,
        taken_at=100.0,
        models=("deepseek-v4.1-flash",),
        was_ready=True,
    ),
)
WORKING = ClusterSnapshot(
    at=100.0,
    nodes=(
        node("head", 0, split(61.2, 9.8, 41.0), busy=48.0, traffic=2_100.0),
        node("worker1", 1, split(70.4, 7.9, 36.2), busy=44.0, traffic=2_100.0),
        node("worker2", 2, split(69.8, 7.9, 36.0), busy=45.0, traffic=2_100.0),
    ),
    serving=Serving(state=EndpointState.STARTING, url="http://10.0.0.1:8888"),
)
PACKING = ClusterSnapshot(
    at=100.0,
    nodes=(
        node("head", 0, split(0.4, 6.3, 58.0), busy=17.0, traffic=310.0),
        node("worker1", 1, split(0.4, 4.1, 41.2), busy=15.0, traffic=310.0),
        node("worker2", 2, split(0.4, 4.2, 40.8), busy=15.0, traffic=310.0),
    ),
    serving=Serving(state=EndpointState.DOWN, url="http://10.0.0.1:8888", problem="connection refused"),
)
FAILING = ClusterSnapshot(
    at=100.0,
    nodes=(
        node("head", 0, split(116.8, 3.6, 0.3), busy=91.0, traffic=0.0),
        NodeSample(
            node="worker1",
            rank=1,
            freshness=Freshness.GONE,
            age_seconds=41.0,
            problem="no answer on port 22",
            split=split(101.9, 2.2, 8.4),
            ports=ports(0.0),
        ),
        replace(node("worker2", 2, split(101.9, 2.1, 8.6)), ports=ports(0.0, down=("p1",))),
    ),
    serving=Serving(state=EndpointState.DOWN, url="http://10.0.0.1:8888", problem="connection refused", was_ready=True),
    alarms=(
        Alarm("gone.worker1", "worker1", True, "no answer on port 22 for 41 s", "is it on? sparktui doctor", 59.0),
        Alarm("floor.head", "head", True, "1.0 GiB available, the floor is 2.0 GiB", "end other programs on it", 80.0),
        Alarm("link.worker2.p1", "worker2", False, "cage p1 is down", "check the cable to worker1", 60.0),
    ),
)

_BOOT_LINES = (
    "[2026-11-29 11:55:02 TP{rank}] Init parallel begin.",
    "[2026-11-29 11:55:09 TP{rank}] sglang is using nccl==2.30.7",
    "[2026-11-29 11:55:12 TP{rank}] Load weight begin. avail mem=118.40 GB",
    "[2026-11-29 11:57:40 TP{rank}] Multi-thread loading shards: {percent}% Completed | {done}/48 [02:28<03:10]",
)


def loading(rank: int, shards: int) -> RankBoot:
    """A rank's boot in the middle of its weights, read from lines as the engine writes them."""
    boot = RankBoot(rank, "head" if rank == 0 else f"worker{rank}").container_started(0.0)
    for at, line in zip((12.0, 19.0, 22.0, 170.0), _BOOT_LINES, strict=True):
        boot = boot.feed(line.format(rank=rank, done=shards, percent=shards * 100 // 48), at)
    return boot


BOOTS_WORKING = (loading(0, 21), loading(1, 27), loading(2, 26))
BOOTS_FAILING = (loading(0, 21), loading(1, 22).container_exited(175.0, 137, True), loading(2, 26))
