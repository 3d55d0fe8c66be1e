"""Which trends each page shows, read from the history; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparktui.telemetry.history import History, Quantity
from sparktui.telemetry.sample import NodeSample
from sparktui.ui.widgets.figures import GIB
from sparktui.ui.widgets.trend_chart import Trend, ceiling_of


@dataclass(frozen=True, slots=True)
class Span:
    """How far back."""

    seconds: float
    text: str


SPANS = (Span(300.0, "5 min"), Span(900.0, "15 min"), Span(86_400.0, "24 h"))


def _values(
    history: History, node: str, quantity: Quantity, span: Span, of: Callable[[float], float]
) -> tuple[float | None, ...]:
    found = history.values(node, quantity, seconds=span.seconds)
    return tuple(None if value is None else of(value) for value in found)


def _same_scale(
    names: Sequence[str], lines: Sequence[tuple[float | None, ...]], least: float
) -> list[tuple[str, tuple[float | None, ...], float]]:
    """What is compared with the eye has one scale."""
    high = ceiling_of([value for line in lines for value in line], least)
    return [(name, line, high) for name, line in zip(names, lines, strict=True)]


def memory_trends(history: History, nodes: Sequence[NodeSample], span: Span) -> tuple[Trend, ...]:
    """Available memory of each node."""
    lines = [_values(history, node.node, Quantity.AVAILABLE_BYTES, span, lambda value: value / GIB) for node in nodes]
    scaled = _same_scale([node.node for node in nodes], lines, 10.0)
    floors = {node.node: node.split.floor_bytes for node in nodes}
    return tuple(
        Trend(
            f"{name} available",
            line,
            high,
            unit="GiB",
            digits=1,
            style="$held",
            floor=None if floors[name] is None else (floors[name] or 0) / GIB,
            lowest=True,
        )
        for name, line, high in scaled
    )


def link_trends(history: History, nodes: Sequence[NodeSample], span: Span) -> tuple[Trend, ...]:
    """What each node sends over all its ports."""
    lines = [
        _values(history, node.node, Quantity.SENT_BYTES_PER_SECOND, span, lambda value: value * 8 / 1e9)
        for node in nodes
    ]
    scaled = _same_scale([node.node for node in nodes], lines, 1.0)
    return tuple(
        Trend(f"{name} sends", line, high, unit="Gb/s", digits=1, style="$success") for name, line, high in scaled
    )


def speed_trends(history: History, span: Span) -> tuple[Trend, ...]:
    decode = _values(history, "", Quantity.DECODE_TOKENS_PER_SECOND, span, float)
    prefill = _values(history, "", Quantity.PREFILL_TOKENS_PER_SECOND, span, float)
    return (
        Trend("decode", decode, ceiling_of(decode, 10.0), unit="tok/s", digits=1, style="$accent"),
        Trend("prefill", prefill, ceiling_of(prefill, 100.0), unit="tok/s", style="$processes"),
    )


def node_trends(history: History, node: NodeSample, span: Span) -> tuple[Trend, ...]:
    """Of the node that is chosen."""
    watts = _values(history, node.node, Quantity.GPU_WATTS, span, float)
    clock = _values(history, node.node, Quantity.GPU_CLOCK_MHZ, span, float)
    nvme = _values(history, node.node, Quantity.NVME_READ_BYTES_PER_SECOND, span, lambda value: value / 1e9)
    return (
        Trend("GPU power", watts, ceiling_of(watts, 100.0), unit="W", style="$warning"),
        Trend("GPU clock", clock, ceiling_of(clock, 2500.0), unit="MHz", style="$held"),
        Trend("NVMe read", nvme, ceiling_of(nvme, 1.0), unit="GB/s", digits=2, style="$processes"),
    )
