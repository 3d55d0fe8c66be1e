"""One node in full: GPU, disk, uptime, and each port with its error counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparktui.telemetry.sample import Freshness, NodeSample
from sparktui.ui.widgets.drawing import Piece, Row, fitted
from sparktui.ui.widgets.figures import GIB, UNKNOWN, duration, freshness_text, gbit, gib, number

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs

LABEL = 12


def node_rows(sample: NodeSample, width: int, glyphs: Glyphs) -> list[Row]:
    rows: list[Row] = []
    late = freshness_text(sample)
    if late:
        style = "$error bold" if sample.freshness is Freshness.GONE else "$warning"
        rows.append(((f"{late}; what follows is the last that was seen", style),))
        if sample.problem:
            rows.append(fitted(((sample.problem, ""),), width, glyphs.ellipsis))
    for label, value in _facts(sample, glyphs):
        rows.append(fitted(((label.ljust(LABEL), "$quiet"), *value), width, glyphs.ellipsis))
    return [*rows, *_ports(sample, width, glyphs)]


def _facts(sample: NodeSample, glyphs: Glyphs) -> list[tuple[str, list[Piece]]]:
    split, gpu = sample.split, sample.gpu
    stalled, swapped = sample.stalled_percent, sample.swapped_pages_per_second
    unrest = "$warning" if split.swap_used_bytes or swapped else ""
    facts: list[tuple[str, list[Piece]]] = [
        (
            "memory",
            [
                (f"{gib(split.available_bytes)} GiB available of {gib(split.total_bytes)}", ""),
                (f"; stalled {number(stalled)} %", "$warning" if stalled else ""),
            ],
        ),
        ("swap", [(f"{gib(split.swap_used_bytes)} GiB used, {number(swapped)} pages/s", unrest)]),
    ]
    if gpu is None:
        facts.append(("GPU", [("not read", "$quiet")]))
    else:
        throttled: Piece = {
            None: ("throttle unknown", "$quiet"),
            False: ("not throttled", ""),
            True: (f"{glyphs.warn} throttled", "$warning bold"),
        }[gpu.throttled]
        heat = f"{number(gpu.temperature_celsius)} {glyphs.degree}C, {number(gpu.power_watts)} W, "
        facts += [
            ("GPU", [(f"{number(gpu.utilization_percent)} % busy, {gib(gpu.process_bytes)} GiB in processes", "")]),
            ("", [(f"{heat}{number(gpu.clock_mhz)} MHz, ", ""), throttled]),
        ]
    nvme = f"{_gigabytes(sample.nvme_read_bytes_per_second)} GB/s read, {_free(sample.nvme_free_bytes)} free"
    return [
        *facts,
        ("processors", [(f"{number(sample.cpu_busy_percent)} % busy; up for {duration(sample.uptime_seconds)}", "")]),
        ("NVMe", [(nvme, "")]),
    ]


def _gigabytes(bytes_per_second: float | None) -> str:
    return UNKNOWN if bytes_per_second is None else f"{bytes_per_second / 1e9:.2f}"


def _free(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value / GIB:.0f} GiB"


def _ports(sample: NodeSample, width: int, glyphs: Glyphs) -> list[Row]:
    """A table: device, cage, state, rate, traffic, errors. Narrow, the network device's name goes first."""
    if sample.ports is None:
        return [(("the RoCE card cannot be read", "$warning"),)]
    if not sample.ports:
        return [(("no RoCE card", "$warning"),)]
    with_netdev = width >= 76
    header = f"{'port':<8}{'device':<14}"
    header += f"{'interface':<16}" if with_netdev else ""
    header += f"{'state':<8}{'Gb/s':>5} {glyphs.up + 'sent':>7} {glyphs.down + 'recv':>7}  errors"
    rows: list[Row] = [((header, "$quiet"),)]
    for port in sorted(sample.ports, key=lambda each: (each.cage or "", each.device)):
        word, style = (
            (UNKNOWN, "$quiet") if port.active is None else ("up", "$success") if port.active else ("down", "$quiet")
        )
        cage = f"port {port.cage.removeprefix('p')}" if port.cage else UNKNOWN
        pieces: list[Piece] = [(f"{cage:<8}", "bold"), (f"{port.device:<13} ", "")]
        if with_netdev:
            pieces.append((f"{port.netdev or UNKNOWN:<15} ", ""))
        rate = number(port.rate_gbit) if port.active else ""
        pieces += [(f"{word:<8}", style), (f"{rate:>5} ", "")]
        pieces.append((f"{gbit(port.sent_bytes_per_second):>7} {gbit(port.received_bytes_per_second):>7}  ", ""))
        errors = UNKNOWN if port.errors is None else str(port.errors)
        growing = f"{errors} {', '.join(port.growing)}" if port.growing else errors
        pieces.append((growing, "$warning" if port.errors else "$quiet"))
        rows.append(fitted(pieces, width, glyphs.ellipsis))
    return rows
