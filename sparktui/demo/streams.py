"""Commands that are followed line by line: the sampler, nvidia-smi, a pull, a build."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from sparktui.cluster.fabric import PORT_NAMES
from sparktui.demo.faults import OFF, SLOW
from sparktui.demo.images import NO_SPACE, DiskFull, build_lines, pull_lines
from sparktui.demo.machine import Machine
from sparktui.demo.memory import apps_text, gpu_row, meminfo_text, memory_of
from sparktui.demo.network import counter_lines, fabric_lines
from sparktui.demo.play import Mark
from sparktui.demo.scripts import UnknownOnDemo, df_text
from sparktui.readings.nvidia_smi import GPU_FIELDS_SHORT
from sparktui.telemetry.sampler import ERROR_COUNTERS

if TYPE_CHECKING:
    from sparktui.demo.world import World

SAMPLER, GPU = "sparktui-sampler", "sparktui-gpu"
"""How the sampler's two scripts name themselves in their argv."""
_LIST_EVERY, _SLOW_EVERY = 30, 5
_GPU_EVERY_SECONDS, _APPS_EVERY = 5.0, 6
_REASONS = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
_GPU_FIELDS = (*GPU_FIELDS_SHORT, *(f"clocks_event_reasons.{reason}" for reason in _REASONS))
_CORES = 20
_TRAFFIC = ("counters/port_xmit_data", "counters/port_rcv_data")


class CommandEnded(Exception):
    """The command ended with a status other than 0."""

    def __init__(self, status: int, stderr: str) -> None:
        super().__init__(stderr)
        self.status, self.stderr = status, stderr


class NodeGone(Exception):
    """The node went off under way."""


async def command_lines(world: World, machine: Machine, argv: list[str]) -> AsyncIterator[str]:
    """What the command prints, as it comes.

    Raises:
        UnknownOnDemo: none that the demo knows.
        CommandEnded: it failed.
        NodeGone: the node is off now.
    """
    words = [word for word in argv if not word.startswith("unix://")]
    if SAMPLER in argv:
        async for line in _samples(world, machine):
            yield line
    elif GPU in argv:
        async for line in _gpu(world, machine):
            yield line
    elif "docker" in words and "pull" in words:
        async for line in _paced(world, machine, pull_lines(world, machine, words[-1])):
            yield line
    elif "docker" in words and "build" in words:
        async for line in _paced(world, machine, build_lines(world, machine, argv)):
            yield line
    else:
        raise UnknownOnDemo(f"the simulated cluster cannot follow this command: {' '.join(argv)[:300]}")


async def _paced(world: World, machine: Machine, lines: object) -> AsyncIterator[str]:
    iterator = iter(lines)  # type: ignore[call-overload]
    while True:
        try:
            pause, line = next(iterator)
        except StopIteration:
            return
        except DiskFull:
            raise CommandEnded(1, f"write /var/lib/docker: {NO_SPACE}") from None
        await asyncio.sleep(pause)
        _gone(world, machine)
        yield line


def _gone(world: World, machine: Machine) -> None:
    if OFF in world.faults(machine.name):
        raise NodeGone


async def _samples(world: World, machine: Machine) -> AsyncIterator[str]:
    """A record a second, of the shape that `readings.sampler_stream` reads."""
    tick, busy, idle, at = 0, 1e6, 9e6, time.monotonic()
    while True:
        _gone(world, machine)
        world.settle()
        now = time.monotonic()
        used = _cpu_share(world, machine) * (now - at) * 100 * _CORES
        busy, idle, at = busy + used, idle + (now - at) * 100 * _CORES - used, now
        if tick % _LIST_EVERY == 0:
            yield "@devices"
            for port in PORT_NAMES:
                yield f"@device {port.device} {port.netdev} {port.cage}"
            yield "@listed"
            yield "@df"
            for row in df_text(world, machine).splitlines():
                yield row
            yield "@read"
        for line in _record(world, machine, int(busy), int(idle), slow=tick % _SLOW_EVERY == 0):
            yield line
        yield "@end"
        tick += 1
        await asyncio.sleep(3.0 if SLOW in world.faults(machine.name) else 1.0)


def _record(world: World, machine: Machine, busy: int, idle: int, *, slow: bool) -> list[str]:
    rows = [f"uptime:{time.time() - machine.started_at:.2f} 1.0"]
    rows += [f"meminfo:{line}" for line in meminfo_text(memory_of(world, machine)).splitlines()]
    rows += [f"pressure/memory:{kind} avg10=0.00 avg60=0.00 avg300=0.00 total=0" for kind in ("some", "full")]
    rows += [f"stat:cpu  {busy} 0 0 {idle} 0 0 0 0 0 0", "vmstat:pswpin 0", "vmstat:pswpout 0"]
    for path, value in fabric_lines(world, machine):
        fast = path.endswith("/ports/1/state")
        if fast or (slow and path.endswith("/ports/1/rate")):
            rows.append(f"..{path}:{value}")
    wanted = (*ERROR_COUNTERS, *_TRAFFIC) if slow else _TRAFFIC
    rows += [f"..{path}:{value}" for path, value in counter_lines(world, machine) if path.endswith(wanted)]
    if slow:
        rows += [f"../sys/class/net/{port.netdev}/carrier_changes:2" for port in PORT_NAMES]
    rows.append(f"../sys/block/nvme0n1/stat: 1000 0 {int(machine.disk_read) // 512} 0 0 0 0 0 0 0 0")
    return rows


def _cpu_share(world: World, machine: Machine) -> float:
    """Of all cores, 0 to 1."""
    now = time.time()
    wave = 0.01 * math.sin(now / 2.0 + machine.rank)
    if machine.running("pack") is not None:
        return 0.38 + wave
    engine = machine.engine()
    if engine is None:
        return 0.02 + abs(wave)
    told = world.play(machine, engine)
    if told.is_up(now):
        return 0.09 + wave + 0.02 * world.requests_running
    return (0.31 if told.reached(Mark.LOAD_BEGIN, now) else 0.12) + wave


async def _gpu(world: World, machine: Machine) -> AsyncIterator[str]:
    tick = 0
    while True:
        _gone(world, machine)
        if tick % _APPS_EVERY == 0:
            yield "@apps 0"
            for line in apps_text(world, machine).splitlines():
                yield line
            yield "@end"
        yield gpu_row(world, machine, _GPU_FIELDS).strip()
        tick += 1
        await asyncio.sleep(_GPU_EVERY_SECONDS)
