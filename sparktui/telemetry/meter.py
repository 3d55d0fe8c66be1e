"""Two records of a node -> one sample: rates by the node's own clock, growth of error counters, the memory split."""

from __future__ import annotations

from collections.abc import Mapping

from sparktui.cluster.node import Node
from sparktui.readings.meminfo import Memory
from sparktui.readings.sampler_stream import PortRecord, Record
from sparktui.telemetry.sample import Freshness, GpuReading, MemorySplit, NodeSample, PortReading

SHORTEST_SECONDS = 0.2
"""Records that lie closer together by the node's clock (it has 10 ms steps) give no rate."""


class Meter:
    """Holds what a rate needs of one node; its memory does not grow."""

    def __init__(self, node: Node, floor_bytes: int | None = None) -> None:
        self.node, self.floor_bytes = node, floor_bytes
        self._before: Record | None = None
        self._swapped: tuple[float, int] | None = None
        self._swap_rate: float | None = None
        self._errors_from: dict[str, dict[str, int]] = {}
        self._grown: dict[str, dict[str, int]] = {}

    def restarted(self) -> None:
        """A new stream: no rate across the gap; the error counts go on from the same beginning."""
        self._before = self._swapped = self._swap_rate = None

    def take(self, record: Record, at: float, gpu: GpuReading | None = None) -> NodeSample:
        """The sample of `record`, which came at `at` by the head's clock."""
        before, self._before = self._before, record
        seconds = _between(before, record)
        if before is not None and seconds is None:
            before = None
        return NodeSample(
            node=self.node.name,
            rank=self.node.rank,
            freshness=Freshness.LIVE,
            age_seconds=0.0,
            taken_at=at,
            memory=record.memory,
            split=split_of(record.memory, self.floor_bytes),
            stalled_percent=record.pressure.full_avg10,
            cpu_busy_percent=_busy(before, record),
            ports=self._ports(before, record, seconds),
            gpu=gpu,
            nvme_read_bytes_per_second=_rate(
                before.disk_read_bytes if before else None, record.disk_read_bytes, seconds
            ),
            nvme_free_bytes=record.free_bytes,
            uptime_seconds=record.uptime_seconds,
            swapped_pages_per_second=self._swapping(record),
        )

    def _swapping(self, record: Record) -> float | None:
        """It is read less often: the last rate stays until the next."""
        pages = _swapped(record)
        if pages is not None and record.uptime_seconds is not None:
            before, self._swapped = self._swapped, (record.uptime_seconds, pages)
            if before is not None:
                seconds = record.uptime_seconds - before[0]
                self._swap_rate = _rate(before[1], pages, seconds if seconds >= SHORTEST_SECONDS else None)
        return self._swap_rate

    def _ports(self, before: Record | None, record: Record, seconds: float | None) -> tuple[PortReading, ...] | None:
        if record.ports is None:
            return None
        old = {port.device: port for port in (before.ports if before else None) or ()}
        return tuple(self._port(old.get(port.device), port, seconds) for port in record.ports)

    def _port(self, old: PortRecord | None, port: PortRecord, seconds: float | None) -> PortReading:
        active = None if port.state is None else port.state == "ACTIVE"
        return PortReading(
            device=port.device,
            netdev=port.netdev,
            cage=port.cage,
            active=active,
            state=port.state,
            # A down port still prints a rate, which means nothing.
            rate_gbit=port.rate_gbit if active else None,
            sent_bytes_per_second=_rate(old.sent_bytes if old else None, port.sent_bytes, seconds),
            received_bytes_per_second=_rate(old.received_bytes if old else None, port.received_bytes, seconds),
            errors=self._growth(port.device, port.errors),
            growing=tuple(sorted(name for name, count in self._grown.get(port.device, {}).items() if count)),
        )

    def _growth(self, device: str, counters: Mapping[str, int]) -> int | None:
        """Since the watch began, whatever the card had counted before; a reset (driver, reboot) is a new base."""
        if not counters:
            return None
        last = self._errors_from.setdefault(device, {})
        grown = self._grown.setdefault(device, {})
        for name, value in counters.items():
            known = last.get(name)
            if known is not None:
                grown[name] = grown.get(name, 0) + max(0, value - known)
            last[name] = value
        return sum(grown.values())


def split_of(memory: Memory | None, floor_bytes: int | None) -> MemorySplit:
    """The pool's parts; what no line of meminfo accounts for is held by the GPU driver (weights, KV pool, contexts)."""
    if memory is None:
        return MemorySplit(floor_bytes=floor_bytes)
    cache, processes, held = memory.page_cache_bytes, _processes(memory), None
    total, free = memory.total_bytes, memory.free_bytes
    if total is not None and free is not None and cache is not None and processes is not None:
        held = total - free - cache - processes
        if held < 0:
            # The lines are not read at one instant: a page that moved in between was counted twice.
            cache, held = max(0, cache + held), 0
            processes = total - free - cache
    return MemorySplit(
        total_bytes=total,
        held_bytes=held,
        processes_bytes=processes,
        page_cache_bytes=cache,
        free_bytes=free,
        available_bytes=memory.available_bytes,
        floor_bytes=floor_bytes,
        swap_used_bytes=memory.swap_used_bytes,
    )


def _processes(memory: Memory) -> int | None:
    fixed = memory.slab_unreclaimable_bytes
    if fixed is None and memory.slab_bytes is not None and memory.slab_reclaimable_bytes is not None:
        fixed = max(0, memory.slab_bytes - memory.slab_reclaimable_bytes)
    if memory.anon_bytes is None or memory.shmem_bytes is None or fixed is None:
        return None
    small = (memory.page_tables_bytes or 0) + (memory.kernel_stack_bytes or 0) + (memory.percpu_bytes or 0)
    return memory.anon_bytes + memory.shmem_bytes + fixed + small


def _between(before: Record | None, record: Record) -> float | None:
    """Seconds of the node's clock; None across a reboot and for records too close to each other."""
    if before is None or before.uptime_seconds is None or record.uptime_seconds is None:
        return None
    seconds = record.uptime_seconds - before.uptime_seconds
    return seconds if seconds >= SHORTEST_SECONDS else None


def _rate(before: int | None, now: int | None, seconds: float | None) -> float | None:
    """None when a counter went back: it was reset."""
    if before is None or now is None or seconds is None or now < before:
        return None
    return (now - before) / seconds


def _swapped(record: Record) -> int | None:
    if record.swapped_in_pages is None or record.swapped_out_pages is None:
        return None
    return record.swapped_in_pages + record.swapped_out_pages


def _busy(before: Record | None, record: Record) -> float | None:
    if before is None or None in (before.cpu_all_ticks, before.cpu_busy_ticks, record.cpu_all_ticks):
        return None
    ticks = (record.cpu_all_ticks or 0) - (before.cpu_all_ticks or 0)
    busy = (record.cpu_busy_ticks or 0) - (before.cpu_busy_ticks or 0)
    return min(100.0, max(0.0, 100.0 * busy / ticks)) if ticks > 0 else None
