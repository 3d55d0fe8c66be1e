"""Values for the panes: a calm cluster, one that is starting, one in trouble. No clock, no randomness."""

from __future__ import annotations

from dataclasses import replace

from sparktui.cluster.fabric import PORT_NAMES, FabricPlan, fabric_plan
from sparktui.cluster.profile import FabricKind
from sparktui.engine.ladder import Boot, RankBoot
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
NAMES = ("head", "worker1", "worker2", "worker3")
STAMP = "[2026-11-29 12:00:{second:02d} TP{rank}] "


def split(held: float, processes: float, cache: float, free: float, *, floor: float | None = 4.0) -> MemorySplit:
    """In GiB."""
    return MemorySplit(
        total_bytes=int((held + processes + cache + free) * GIB),
        held_bytes=int(held * GIB),
        processes_bytes=int(processes * GIB),
        page_cache_bytes=int(cache * GIB),
        free_bytes=int(free * GIB),
        available_bytes=int((cache * 0.9 + free) * GIB),
        floor_bytes=None if floor is None else int(floor * GIB),
        swap_used_bytes=0,
    )


def ports(
    *, up: tuple[str, ...] = ("p0", "p1"), gbit: float = 12.3, down_devices: tuple[str, ...] = (), rate: float = 200.0
) -> tuple[PortReading, ...]:
    """All four devices; traffic is that of one direction, split over both halves of a cage."""
    readings = []
    for name in PORT_NAMES:
        active = name.cage in up and name.device not in down_devices
        readings.append(
            PortReading(
                device=name.device,
                netdev=name.netdev,
                cage=name.cage,
                active=active,
                state="ACTIVE" if active else "DOWN",
                rate_gbit=rate if active else None,
                sent_bytes_per_second=gbit / 8 * 1e9 / 2 if active else 0.0,
                received_bytes_per_second=gbit / 8 * 1e9 / 2.2 if active else 0.0,
                errors=0,
            )
        )
    return tuple(readings)


GPU = GpuReading(
    taken_at=100.0,
    utilization_percent=96.0,
    temperature_celsius=71.0,
    power_watts=58.0,
    clock_mhz=2405.0,
    process_bytes=int(98.2 * GIB),
    throttled=False,
)


def node(rank: int, memory: MemorySplit, **changes: object) -> NodeSample:
    sample = NodeSample(
        node=NAMES[rank],
        rank=rank,
        freshness=Freshness.LIVE,
        age_seconds=0.4,
        taken_at=100.0,
        split=memory,
        stalled_percent=0.0,
        cpu_busy_percent=8.0,
        ports=ports(),
        gpu=GPU,
        nvme_read_bytes_per_second=0.0,
        nvme_free_bytes=1800 * GIB,
        uptime_seconds=4.2 * 86_400,
        swapped_pages_per_second=0.0,
    )
    return replace(sample, **changes)  # type: ignore[arg-type]


SERVING = Serving(
    state=EndpointState.READY,
    url="http://192.168.1.10:8888",
    running_requests=3,
    queued_requests=1,
    decode_tokens_per_second=48.2,
    prefill_tokens_per_second=1910.0,
    kv_used_fraction=0.37,
    accept_length=3.12,
    ttft_seconds=0.223,
    taken_at=100.0,
    models=("deepseek-v4.1-flash",),
    was_ready=True,
)


def calm(count: int = 3) -> ClusterSnapshot:
    """Serving, nothing to look at."""
    nodes = [node(0, split(101.4, 8.9, 3.4, 5.9))]
    nodes += [node(rank, split(100.2, 5.1, 2.2, 12.1)) for rank in range(1, count)]
    return ClusterSnapshot(at=100.0, nodes=tuple(nodes), serving=SERVING)


def idle(count: int = 3) -> ClusterSnapshot:
    """Nothing is started."""
    nodes = tuple(node(rank, split(0.4, 4.2, 21.0, 94.0), ports=ports(gbit=0.0)) for rank in range(count))
    return ClusterSnapshot(at=100.0, nodes=nodes, serving=Serving(state=EndpointState.DOWN))


def working(count: int = 3) -> ClusterSnapshot:
    """Weights are being loaded over the links."""
    nodes = [
        node(rank, split(31.0 + rank, 6.0, 48.0, 34.6 - rank), nvme_read_bytes_per_second=5.1e9 if not rank else 2e6)
        for rank in range(count)
    ]
    return ClusterSnapshot(at=100.0, nodes=tuple(nodes), serving=Serving(state=EndpointState.STARTING))


ALARMS = (
    Alarm("gone.worker2", "worker2", True, "no answer for 41 s", "is it on? ping worker2; sparktui status", 60.0),
    Alarm(
        "link.worker1.p0",
        "worker1",
        True,
        "no link at port 0: the engine stalls",
        "plug or reseat the cable; then sparktui stop and serve",
        58.0,
    ),
    Alarm("swap.head", "head", False, "swapping: 812 pages/s", "fewer requests at once, or a smaller KV pin", 70.0),
)


def failing(count: int = 3) -> ClusterSnapshot:
    """The head short of memory, a cable out, a node gone."""
    low = replace(split(106.0, 10.9, 0.9, 1.8), swap_used_bytes=int(3.4 * GIB))
    nodes = [
        node(0, low, stalled_percent=23.0, ports=ports(gbit=0.0), swapped_pages_per_second=812.0),
        node(1, split(100.2, 5.1, 2.2, 12.1), ports=ports(up=("p1",), gbit=0.0)),
        node(
            2,
            split(100.2, 5.1, 2.2, 12.1),
            freshness=Freshness.GONE,
            age_seconds=41.0,
            problem="no answer within 5 s on ssh",
        ),
        NodeSample(node="worker3", rank=3),
    ]
    # As telemetry says it: of an endpoint that does not answer nothing is known.
    serving = Serving(
        state=EndpointState.DOWN,
        url=SERVING.url,
        problem="connection refused",
        taken_at=SERVING.taken_at,
        was_ready=True,
    )
    return ClusterSnapshot(at=100.0, nodes=tuple(nodes[:count]), serving=serving, alarms=ALARMS)


def plan(count: int = 3, *, switch: bool = False) -> FabricPlan:
    kind = FabricKind.SWITCH if switch else FabricKind.TRIANGLE if count == 3 else FabricKind.RING
    return fabric_plan(kind, NAMES[:count], ("rocep1s0f0", "roceP2p1s0f0"))


_TO_WEIGHTS = (
    "sglang starts",
    "Init torch distributed begin.",
    "sglang is using nccl==2.28.3",
    "Load weight begin. avail mem=113.20 GB",
    "Multi-thread loading shards:  16% Completed | 12/76 [00:30<02:40,  2.5s/it]",
)
_TO_SERVER = (
    "Load weight end. elapsed=190.2 s, type=DeepseekV4ForCausalLM, avail mem=18.31 GB, mem usage=94.89 GB.",
    "Load weight begin. avail mem=18.31 GB",
    "Load weight end. elapsed=9.8 s, type=DSparkForCausalLM, avail mem=13.02 GB, mem usage=5.29 GB.",
    "DSV4 memory calculation: bytes_per_full_token=1676.00, available_bytes=4.10 GB, full_token=750000",
    "Capture cuda graph begin. Capture target verify CUDA graph begin. avail mem=9.01 GB",
    "Capture target verify CUDA graph end. elapsed=21.40 s, mem usage=1.20 GB. avail mem=7.81 GB",
    "max_total_num_tokens=750080, chunked_prefill_size=4096, max_running_requests=4, context_len=262144, "
    "available_gpu_mem=6.12 GB",
    "INFO:     Started server process [41]",
)
_READY = (
    "The server is fired up and ready to roll!",
    "[spark] READY rank=0 port=8888 model=deepseek-v4.1-flash max_total_num_tokens=750080 warmup_batch=4 "
    "boot_seconds=412.0",
)


def fed(rank: int, lines: tuple[str, ...], began: float = 10.0) -> RankBoot:
    """A rank that said these lines, seven seconds apart."""
    boot = RankBoot(rank, NAMES[rank]).container_started(began)
    for number, line in enumerate(lines):
        boot = boot.feed(line, began + 7.0 * (number + 1))
    return boot


def boots_ready(count: int = 3) -> tuple[RankBoot, ...]:
    workers = tuple(fed(rank, _TO_WEIGHTS + _TO_SERVER) for rank in range(1, count))
    return (fed(0, _TO_WEIGHTS + _TO_SERVER + _READY), *workers)


def boots_loading(count: int = 3) -> tuple[RankBoot, ...]:
    """All load weights; the last one has just begun."""
    ranks = [fed(rank, _TO_WEIGHTS) for rank in range(count - 1)]
    return (*ranks, fed(count - 1, _TO_WEIGHTS[:4], 12.0))


def boots_late(count: int = 3) -> tuple[RankBoot, ...]:
    """The last rank never came to the rendezvous."""
    return (*(fed(rank, _TO_WEIGHTS[:2]) for rank in range(count - 1)), fed(count - 1, _TO_WEIGHTS[:1]))


def boots_dead(count: int = 3) -> tuple[RankBoot, ...]:
    """Worker1 was killed for memory."""
    ranks = list(boots_loading(count))
    ranks[1] = ranks[1].container_exited(60.0, 137, True)
    return tuple(ranks)


NOT_STARTED = Boot.of(NAMES[:3]).ranks
