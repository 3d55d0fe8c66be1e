"""A node's memory as its kernel and its GPU driver tell it, following what the node does."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktui.demo.machine import GIB, Machine
from sparktui.demo.play import Mark

if TYPE_CHECKING:
    from sparktui.demo.world import World

TOTAL_KIB = (127_600_748, 127_605_116, 127_600_524, 127_622_144)
"""MemTotal of four Sparks; no two are quite the same."""
_FREE_FLOOR = 1.6 * GIB
"""The kernel takes page cache back before less than this is free."""
_SLAB, _BUFFERS, _SHMEM, _SMALL = 1.2 * GIB, 0.2 * GIB, 0.06 * GIB, 0.1 * GIB
_DRIVER = 0.7 * GIB
"""What the driver holds with nothing running."""
_APP_PID = 4711


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """Bytes."""

    total: int
    free: int
    available: int
    cached: int
    processes: int
    gpu: int
    """What nvidia-smi says of the engine's process."""


def memory_of(world: World, machine: Machine, now: float | None = None) -> NodeMemory:
    """Now; the page cache shrinks for good where the engine needs the room."""
    at = time.time() if now is None else now
    total = TOTAL_KIB[machine.rank % len(TOTAL_KIB)] * 1024
    gpu, processes = _engine(world, machine, at)
    processes += (2.7 if machine.is_head else 2.0) * GIB
    if machine.running("pack") is not None:
        processes += 1.4 * GIB
    # The figures of a machine that works are never quite still.
    processes += 0.03 * GIB * math.sin(at / 3.0 + machine.rank)
    fixed = _SLAB + _BUFFERS + _SHMEM + _SMALL + _DRIVER
    room = max(total - gpu - processes - fixed - _FREE_FLOOR, 0.3 * GIB)
    machine.cache_bytes = min(machine.cache_bytes, room)
    cached = int(machine.cache_bytes)
    free = max(int(total - gpu - processes - fixed - cached), 200 * 1024 * 1024)
    return NodeMemory(total, free, int(free + cached * 0.92), cached, int(processes), int(gpu))


def _engine(world: World, machine: Machine, at: float) -> tuple[float, float]:
    """Bytes that the engine holds: by the GPU, and as ordinary memory."""
    engine = machine.engine()
    if engine is None:
        return 0.0, 0.0
    told, sheet = world.play(machine, engine), world.sheet(machine.rank)
    gpu = 0.0
    if told.reached(Mark.RENDEZVOUS, at):
        gpu += 0.6
    gpu += sheet["nccl"] * told.share(Mark.NCCL, Mark.LOAD_BEGIN, at)
    gpu += (sheet["weights"] - 2.6 + sheet["adapters"]) * told.share(Mark.LOAD_BEGIN, Mark.LOAD_END, at)
    gpu += 2.6 * told.share(Mark.DRAFT_BEGIN, Mark.DRAFT_END, at)
    gpu += sheet["kv"] if told.reached(Mark.POOL, at) else 0.0
    gpu += sheet["graphs"] * told.share(Mark.GRAPHS_BEGIN, Mark.GRAPHS_END, at)
    ordinary = 2.7 * told.share(Mark.STARTED, Mark.RENDEZVOUS, at) + (1.3 if machine.is_head else 0.0)
    if world.requests_running and told.is_up(at):
        gpu += 0.1 * min(world.requests_running, 4)
    return gpu * GIB, ordinary * GIB


def meminfo_text(memory: NodeMemory) -> str:
    """/proc/meminfo; what the driver holds is in no line of it."""
    slab = int(_SLAB)
    rows = {
        "MemTotal": memory.total,
        "MemFree": memory.free,
        "MemAvailable": memory.available,
        "Buffers": int(_BUFFERS),
        "Cached": memory.cached + int(_SHMEM),
        "SwapCached": 0,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Dirty": 512 * 1024,
        "AnonPages": memory.processes,
        "Mapped": 640 * 1024 * 1024,
        "Shmem": int(_SHMEM),
        "KReclaimable": int(slab * 0.3),
        "Slab": slab,
        "SReclaimable": int(slab * 0.3),
        "SUnreclaim": slab - int(slab * 0.3),
        "KernelStack": 18_000 * 1024,
        "PageTables": 52_000 * 1024,
        "Percpu": 28_000 * 1024,
        "CmaTotal": 131_072 * 1024,
        "CmaFree": 70_000 * 1024,
    }
    return "".join(f"{name + ':':<16}{size // 1024:>9} kB\n" for name, size in rows.items())


def gpu_row(world: World, machine: Machine, fields: tuple[str, ...]) -> str:
    """One row of nvidia-smi's csv without units. A GB10 knows no memory."""
    now = time.time()
    engine = machine.engine()
    told = None if engine is None else world.play(machine, engine)
    serving = told is not None and told.is_up(now) and world.requests_running > 0
    loading = told is not None and told.reached(Mark.LOAD_BEGIN, now) and not told.is_up(now)
    wave = math.sin(now / 4.0 + machine.rank)
    busy = 92 + 4 * wave if serving else 34 + 9 * wave if loading else 0.0
    power = 46.0 + 3 * wave if serving else 24.0 + 2 * wave if loading else 11.4 + 0.4 * wave
    heat = 63 + 2 * wave if serving else 49 + wave if loading else 41 + machine.rank
    values = {
        "name": "NVIDIA GB10",
        "driver_version": "580.95.05",
        "compute_cap": "12.1",
        "temperature.gpu": f"{heat:.0f}",
        "utilization.gpu": f"{busy:.0f}",
        "power.draw": f"{power:.2f}",
        "clocks.sm": "2411" if serving or loading else "208",
        "clocks.current.sm": "2411" if serving or loading else "208",
        "clocks.max.sm": "3003",
        "clocks_event_reasons.hw_thermal_slowdown": "Not Active",
        "clocks_event_reasons.sw_thermal_slowdown": "Not Active",
        "clocks_event_reasons.hw_power_brake_slowdown": "Not Active",
    }
    return ", ".join(values.get(name, "[N/A]") for name in fields) + "\n"


def apps_text(world: World, machine: Machine) -> str:
    """nvidia-smi's compute processes: pid, name, MiB."""
    gpu = memory_of(world, machine).gpu
    if not gpu:
        return ""
    return f"{_APP_PID + machine.rank}, sglang::scheduler_TP{machine.rank}, {gpu // (1024 * 1024)}\n"
