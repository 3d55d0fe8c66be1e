"""/proc/meminfo and /proc/pressure/memory. On a Spark this is the GPU's memory as well: nvidia-smi reports none."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"([A-Za-z0-9_()]+):\s+(\d+)(?: (kB))?\s*")
_PRESSURE = re.compile(r"(some|full)\s+avg10=([0-9.]+)\s+avg60=([0-9.]+)\s+avg300=([0-9.]+)\s+total=(\d+)\s*")
_FIELDS = {
    "total_bytes": "MemTotal",
    "free_bytes": "MemFree",
    "available_bytes": "MemAvailable",
    "buffers_bytes": "Buffers",
    "cached_bytes": "Cached",
    "anon_bytes": "AnonPages",
    "mapped_bytes": "Mapped",
    "shmem_bytes": "Shmem",
    "slab_bytes": "Slab",
    "slab_reclaimable_bytes": "SReclaimable",
    "slab_unreclaimable_bytes": "SUnreclaim",
    "kernel_reclaimable_bytes": "KReclaimable",
    "page_tables_bytes": "PageTables",
    "kernel_stack_bytes": "KernelStack",
    "percpu_bytes": "Percpu",
    "swap_total_bytes": "SwapTotal",
    "swap_free_bytes": "SwapFree",
    "cma_total_bytes": "CmaTotal",
    "cma_free_bytes": "CmaFree",
}


@dataclass(frozen=True, slots=True)
class Memory:
    """A node's memory; None where the kernel printed no such line."""

    total_bytes: int | None = None
    free_bytes: int | None = None
    available_bytes: int | None = None
    buffers_bytes: int | None = None
    cached_bytes: int | None = None
    anon_bytes: int | None = None
    mapped_bytes: int | None = None
    shmem_bytes: int | None = None
    slab_bytes: int | None = None
    slab_reclaimable_bytes: int | None = None
    slab_unreclaimable_bytes: int | None = None
    kernel_reclaimable_bytes: int | None = None
    page_tables_bytes: int | None = None
    kernel_stack_bytes: int | None = None
    percpu_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    cma_total_bytes: int | None = None
    cma_free_bytes: int | None = None

    @property
    def used_bytes(self) -> int | None:
        """MemTotal - MemAvailable."""
        return _minus(self.total_bytes, self.available_bytes)

    @property
    def swap_used_bytes(self) -> int | None:
        return _minus(self.swap_total_bytes, self.swap_free_bytes)

    @property
    def page_cache_bytes(self) -> int | None:
        """Files that the kernel could give back: Cached - Shmem + Buffers + SReclaimable (or KReclaimable)."""
        reclaimable = self.slab_reclaimable_bytes
        reclaimable = self.kernel_reclaimable_bytes if reclaimable is None else reclaimable
        if self.cached_bytes is None or self.shmem_bytes is None or self.buffers_bytes is None or reclaimable is None:
            return None
        return max(0, self.cached_bytes - self.shmem_bytes + self.buffers_bytes + reclaimable)

    @property
    def kernel_slab_bytes(self) -> int | None:
        """Slab, or its two parts where the sum is not printed."""
        if self.slab_bytes is not None:
            return self.slab_bytes
        if self.kernel_reclaimable_bytes is None or self.slab_unreclaimable_bytes is None:
            return None
        return self.kernel_reclaimable_bytes + self.slab_unreclaimable_bytes

    def driver_held_bytes(self, gpu_process_bytes: int | None) -> int | None:
        """Memory in no meminfo line and no GPU process: what the GPU driver holds or nobody tracks.

        `gpu_process_bytes` is the sum over nvidia-smi's compute processes (0 for none, None for unknown). Small
        parts that the kernel did not print (page tables, stacks, percpu) count into the result.
        """
        slab = self.kernel_slab_bytes
        known = (self.total_bytes, self.free_bytes, self.anon_bytes, self.cached_bytes, self.buffers_bytes)
        if gpu_process_bytes is None or slab is None or None in known:
            return None
        total, free, anon, cached, buffers = (value or 0 for value in known)
        small = (self.page_tables_bytes or 0) + (self.kernel_stack_bytes or 0) + (self.percpu_bytes or 0)
        return max(0, total - free - anon - cached - buffers - slab - small - gpu_process_bytes)

    @property
    def cma_is_lost(self) -> bool | None:
        """The sign of the kernel whose RDMA registration fails: no CMA area, or more of it free than there is."""
        if self.cma_total_bytes is None or self.cma_free_bytes is None:
            return None
        return self.cma_total_bytes < self.cma_free_bytes


def _minus(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else max(0, whole - part)


def parse_meminfo(text: str) -> Memory | None:
    """None when the text has no MemTotal line, so is no meminfo at all."""
    read: dict[str, int] = {}
    for line in text.split("\n"):
        match = _LINE.fullmatch(line.rstrip("\r"))
        if match and len(match[2]) <= 18:
            read[match[1]] = int(match[2]) * (1024 if match[3] else 1)
    if "MemTotal" not in read:
        return None
    return Memory(**{field: read[name] for field, name in _FIELDS.items() if name in read})


@dataclass(frozen=True, slots=True)
class Pressure:
    """PSI of memory: share of time (percent) in which some or all tasks stalled."""

    some_avg10: float | None = None
    full_avg10: float | None = None
    full_avg60: float | None = None


def parse_pressure(text: str) -> Pressure:
    some = full = full60 = None
    for line in text.split("\n"):
        match = _PRESSURE.fullmatch(line)
        if match:
            try:
                if match[1] == "some":
                    some = float(match[2])
                else:
                    full, full60 = float(match[2]), float(match[3])
            except ValueError:
                continue
    return Pressure(some, full, full60)
