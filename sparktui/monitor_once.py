"""The verb `monitor --once`: one picture of the cluster as rows, for scripts, agents and terminals of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sparktui.events import Event, Finding, Note, RunFinished, State

if TYPE_CHECKING:
    from sparktui.remote.link import NodeLink
    from sparktui.settings import Settings
    from sparktui.telemetry.sample import ClusterSnapshot, NodeSample, PortReading

STEP = "monitor"
WAIT_SECONDS = 12.0
"""For two samples of every node; one that gave none by then is shown as it is."""
_GIB = 1024**3


async def picture(settings: Settings, links: Sequence[NodeLink]) -> ClusterSnapshot:
    """The cluster after two samples of each node (a rate needs two)."""
    from sparktui.telemetry.of_settings import endpoint_of, fleet_of

    fleet = fleet_of(settings, links, endpoint=endpoint_of(settings), keep=False)
    last: ClusterSnapshot | None = None
    loop = asyncio.get_running_loop()
    end = loop.time() + WAIT_SECONDS
    pictures: Any = fleet.snapshots()
    async with aclosing(pictures):
        async for snapshot in pictures:
            last = snapshot
            if fleet.complete() or loop.time() > end:
                break
    assert last is not None
    return last


def rows(snapshot: ClusterSnapshot) -> list[Event]:
    """A node's rows under each other, then the endpoint, then what needs a look, then the closing line."""
    from sparktui.telemetry.sample import EndpointState, Freshness

    events: list[Event] = []
    for node in snapshot.nodes:
        events += _node_rows(node)
    serving = snapshot.serving
    states = {EndpointState.READY: State.OK, EndpointState.UNKNOWN: State.UNKNOWN, EndpointState.HANGS: State.FAIL}
    events.append(
        Finding(
            STEP,
            "endpoint",
            "head",
            states.get(serving.state, State.INFO),
            _sentence(
                f"{serving.state}",
                serving.problem or serving.url,
                _said(serving.running_requests, "{:.0f} running"),
                _said(serving.queued_requests, "{:.0f} queued"),
                _said(serving.decode_tokens_per_second, "{:.1f} tok/s"),
                _said(None if serving.kv_used_fraction is None else 100 * serving.kv_used_fraction, "KV {:.1f} % used"),
                _said(serving.accept_length, "{:.2f} tokens a step"),
            ),
            data=asdict(serving),
        )
    )
    for alarm in snapshot.alarms:
        state = State.FAIL if alarm.severe else State.WARN
        events.append(Finding(STEP, f"alarm.{alarm.id}", alarm.node, state, alarm.what, fix=alarm.fix))
    silent = [node for node in snapshot.nodes if node.freshness is not Freshness.LIVE]
    if silent:
        names = ", ".join(node.node for node in silent)
        return [*events, RunFinished(3, f"no sample of {names}", "sparktui doctor", silent[0].node)]
    return [*events, RunFinished(0, f"{len(snapshot.nodes)} nodes, {len(snapshot.alarms)} alarms")]


def _node_rows(node: NodeSample) -> list[Event]:
    from sparktui.telemetry.sample import Freshness

    if node.freshness is not Freshness.LIVE:
        state = State.FAIL if node.freshness is Freshness.GONE else State.UNKNOWN
        return [Finding(STEP, "sample", node.node, state, node.problem or str(node.freshness))]
    split = node.split
    memory = _sentence(
        _gib(split.available_bytes, "{} available"),
        _gib(split.free_bytes, "{} free"),
        _gib(split.total_bytes, "of {}"),
        _gib(split.held_bytes, "held by weights and driver {}"),
        _gib(split.processes_bytes, "processes {}"),
        _gib(split.page_cache_bytes, "page cache {}"),
        _gib(split.swap_used_bytes, "swap {}") if split.swap_used_bytes else "",
    )
    below = None not in (split.available_bytes, split.floor_bytes) and (split.available_bytes or 0) < (
        split.floor_bytes or 0
    )
    plain = asdict(node)
    rows: list[Event] = [
        Finding(
            STEP,
            "memory",
            node.node,
            State.UNKNOWN if split.available_bytes is None else State.WARN if below else State.OK,
            memory or "unknown",
            data=plain["split"],
        ),
        Finding(
            STEP,
            "load",
            node.node,
            State.INFO,
            _sentence(
                _said(node.cpu_busy_percent, "CPU {:.0f} %"),
                _said(node.stalled_percent, "stalled {:.0f} %"),
                _said(_mib(node.nvme_read_bytes_per_second), "NVMe reads {:.1f} MiB/s"),
                _gib(node.nvme_free_bytes, "{} of disk free"),
                _said(node.uptime_seconds, "up {:.0f} s"),
            )
            or "unknown",
            data={key: plain[key] for key in ("cpu_busy_percent", "stalled_percent", "nvme_read_bytes_per_second")},
        ),
    ]
    if node.ports is None:
        rows.append(Finding(STEP, "links", node.node, State.UNKNOWN, "the RDMA devices could not be read"))
    elif not node.ports:
        rows.append(Finding(STEP, "links", node.node, State.INFO, "no RDMA device (no cable, or no card)"))
    for number, port in enumerate(node.ports or ()):
        state = State.UNKNOWN if port.active is None else State.OK if port.active else State.INFO
        rows.append(Finding(STEP, f"link.{port.device}", node.node, state, _port(port), data=plain["ports"][number]))
    if node.gpu is not None:
        gpu = node.gpu
        what = _sentence(
            _said(gpu.utilization_percent, "{:.0f} % busy"),
            _said(gpu.clock_mhz, "{:.0f} MHz"),
            _said(gpu.power_watts, "{:.0f} W"),
            _said(gpu.temperature_celsius, "{:.0f} C"),
            _gib(gpu.process_bytes, "{} in processes"),
            "throttled" if gpu.throttled else "",
        )
        rows.append(Finding(STEP, "gpu", node.node, State.WARN if gpu.throttled else State.OK, what, data=plain["gpu"]))
    return rows


def _port(port: PortReading) -> str:
    name = f"port {port.cage.removeprefix('p')}" if port.cage else "port unknown"
    return _sentence(
        f"{name} {port.state or 'state unknown'}",
        _said(port.rate_gbit, "{:.0f} Gb/s"),
        _said(_mib(port.sent_bytes_per_second), "out {:.1f} MiB/s") if port.active else "",
        _said(_mib(port.received_bytes_per_second), "in {:.1f} MiB/s") if port.active else "",
        f"{port.errors} errors ({', '.join(port.growing)})" if port.errors else "",
    )


def _sentence(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _said(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _gib(value: int | None, form: str) -> str:
    return "" if value is None else form.format(f"{value / _GIB:.1f} GiB")


def _mib(value: float | None) -> float | None:
    return None if value is None else value / 1024**2


async def show(settings: Settings, links: Sequence[NodeLink]) -> list[Event]:
    """The rows, with a note before them where only some nodes are asked for."""
    found = rows(await picture(settings, links))
    asked = [link.node.name for link in links]
    if len(asked) < len(settings.nodes):
        found.insert(0, Note(STEP, asked[0] if asked else "head", f"only {', '.join(asked)}"))
    return found
