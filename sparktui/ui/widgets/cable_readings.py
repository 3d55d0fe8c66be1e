"""What all nodes' ports say about each planned cable: a word, a sentence, a rate, and the traffic at both ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparktui.cluster.fabric import FULL_RATE_GBIT, End, FabricPlan, cages_of
from sparktui.telemetry.sample import Freshness, NodeSample, PortReading

HALVES = 2
"""Devices of a cage: the card is reached over two PCIe halves."""


class Link(StrEnum):
    """Shown as this word."""

    UP = "up"
    HALF = "half"
    SLOW = "slow"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EndReading:
    """One end of a cable: both halves of a cage together.

    Attributes:
        up: any half has a link; None where it was not read.
        devices: the halves as they were read, at most two.
        down_devices: halves without a link while the other has one.
        rate_gbit: the lowest rate of the halves with a link.
        sent_bytes_per_second: of both halves; None where one of them is unknown, as with `received_…` and `errors`.
        growing: error counters that have grown since the watch began.
        unread: why it, or one half of it, was not read, in a word or two.
    """

    end: End
    text: str
    up: bool | None = None
    devices: tuple[PortReading, ...] = ()
    down_devices: tuple[str, ...] = ()
    rate_gbit: float | None = None
    sent_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    errors: int | None = None
    growing: tuple[str, ...] = ()
    fresh: bool = True
    unread: str = ""


@dataclass(frozen=True, slots=True)
class CableReading:
    """A planned cable; `b` is None where it goes to a switch. `why` is empty while all is well."""

    a: EndReading
    b: EndReading | None
    link: Link
    why: str = ""

    @property
    def rate_gbit(self) -> float | None:
        rates = [end.rate_gbit for end in (self.a, self.b) if end is not None and end.rate_gbit is not None]
        return min(rates, default=None)

    @property
    def bad_counters(self) -> tuple[str, ...]:
        """`worker1 port 1: symbol_error`, for each end whose errors grow."""
        ends = [end for end in (self.a, self.b) if end is not None and end.growing]
        return tuple(f"{end.text}: {', '.join(end.growing)}" for end in ends)


def cage_of_port(port: PortReading) -> str | None:
    return port.cage or next(iter(cages_of((port.device, port.netdev or ""))), None)


def end_reading(plan: FabricPlan, end: End, node: NodeSample | None) -> EndReading:
    text = plan.end_text(end)
    name = plan.names[end.rank]
    if node is None or node.freshness is Freshness.WAITING:
        return EndReading(end, text, fresh=False, unread=f"waiting for {name}")
    if node.freshness is Freshness.GONE:
        why = f"{name} is not reached" if node.age_seconds is None else f"{name} is gone"
        return EndReading(end, text, fresh=False, unread=why)
    if node.ports is None:
        return EndReading(end, text, fresh=False, unread=f"the card of {name} cannot be read")
    ports = [port for port in node.ports if cage_of_port(port) == end.cage]
    states = [port.active for port in ports]
    read, halves = len(states) - states.count(None), max(HALVES, len(states))
    up = True if any(states) else False if read == halves else None
    whole = len(ports) == halves
    missing = f"no device of {text} is listed" if not ports else f"{text} cannot be read"
    rates = [port.rate_gbit for port in ports if port.active and port.rate_gbit is not None]
    return EndReading(
        end=end,
        text=text,
        up=up,
        devices=tuple(sorted(ports, key=lambda port: port.device.lower())),
        down_devices=tuple(port.device for port in ports if port.active is False) if up is not False else (),
        rate_gbit=min(rates, default=None),
        sent_bytes_per_second=_sum([port.sent_bytes_per_second for port in ports]) if whole else None,
        received_bytes_per_second=_sum([port.received_bytes_per_second for port in ports]) if whole else None,
        errors=_whole_sum([port.errors for port in ports]) if whole else None,
        growing=tuple(dict.fromkeys(counter for port in ports for counter in port.growing)),
        fresh=node.freshness is Freshness.LIVE,
        unread="" if read == halves else f"{read} of {halves} devices read at {text}" if read else missing,
    )


def _sum(values: Sequence[float | None]) -> float | None:
    """None where one of them is: half of it is not the whole."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _whole_sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def cable_readings(plan: FabricPlan, nodes: Sequence[NodeSample]) -> tuple[CableReading, ...]:
    """In the plan's order."""
    by_rank: Mapping[int, NodeSample] = {node.rank: node for node in nodes}

    def read(end: End) -> EndReading:
        return end_reading(plan, end, by_rank.get(end.rank))

    between = [_judged(read(cable.a), read(cable.b)) for cable in plan.cables]
    return (*between, *(_judged(read(end), None) for end in plan.to_switch))


def _judged(a: EndReading, b: EndReading | None) -> CableReading:
    """What is known to be wrong is said before what is unknown; up is only what was read whole."""
    ends = [a] if b is None else [a, b]
    down = [end for end in ends if end.up is False]
    silent = sorted((end for end in ends if end.unread), key=lambda end: end.up is not None)
    if down:
        where = "no link at both ends" if len(down) == 2 else "no link" if b is None else f"no link at {down[0].text}"
        return CableReading(a, b, Link.DOWN, where)
    halved = next((end for end in ends if end.down_devices), None)
    if halved is not None:
        return CableReading(a, b, Link.HALF, f"{', '.join(halved.down_devices)} is down at {halved.text}")
    slow = next((end for end in ends if end.rate_gbit is not None and end.rate_gbit < FULL_RATE_GBIT), None)
    if slow is not None:
        return CableReading(a, b, Link.SLOW, f"{slow.rate_gbit:g} instead of {FULL_RATE_GBIT:g} Gb/s at {slow.text}")
    if silent:
        return CableReading(a, b, Link.UNKNOWN, silent[0].unread)
    return CableReading(a, b, Link.UP)
