"""The ConnectX fabric: sockets, cables, and what readings of all nodes say about the planned ones.

A Spark has one card with two QSFP sockets (cages). The card is reached over two PCIe halves, so each cage shows up
as two network devices and two RDMA devices. Source: facts/hardware.md §2.1.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparktui.cluster.profile import FabricKind
from sparktui.events import State

FULL_RATE_GBIT = 200.0
FULL_RDMA_MTU = 4096
SUBNET_BITS = 24


@dataclass(frozen=True, slots=True)
class PortName:
    """The names of one device. `half` is the PCIe path (`A` domain 0000, `B` domain 0002)."""

    pci: str
    netdev: str
    device: str
    plain_device: str
    cage: str
    half: str


PORT_NAMES = (
    PortName("0000:01:00.0", "enp1s0f0np0", "rocep1s0f0", "mlx5_0", "p0", "A"),
    PortName("0000:01:00.1", "enp1s0f1np1", "rocep1s0f1", "mlx5_1", "p1", "A"),
    PortName("0002:01:00.0", "enP2p1s0f0np0", "roceP2p1s0f0", "mlx5_2", "p0", "B"),
    PortName("0002:01:00.1", "enP2p1s0f1np1", "roceP2p1s0f1", "mlx5_3", "p1", "B"),
)
_CAGE_BY_DEVICE = {name: port.cage for port in PORT_NAMES for name in (port.device, port.plain_device, port.netdev)}


class GidView(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def address(self) -> str | None: ...


class PortView(Protocol):
    """What `readings.rdma.RdmaPort` offers; all of it may be None for unknown."""

    @property
    def device(self) -> str: ...
    @property
    def netdev(self) -> str | None: ...
    @property
    def active(self) -> bool | None: ...
    @property
    def cage(self) -> str | None: ...
    @property
    def mtu(self) -> int | None: ...
    @property
    def active_mtu(self) -> int | None: ...
    @property
    def rate_gbit(self) -> float | None: ...
    @property
    def gids(self) -> Sequence[GidView]: ...
    @property
    def addresses(self) -> Sequence[str]: ...


def cage_of(port: PortView) -> str | None:
    """phys_port_name where it could be read, else what the usual names say."""
    return port.cage or _CAGE_BY_DEVICE.get(port.device) or _CAGE_BY_DEVICE.get(port.netdev or "")


def cages_of(devices: Sequence[str]) -> tuple[str, ...]:
    """The cages that a list of device names uses, sorted; unknown names are left out."""
    return tuple(sorted({_CAGE_BY_DEVICE[name] for name in devices if name in _CAGE_BY_DEVICE}))


@dataclass(frozen=True, slots=True)
class End:
    rank: int
    cage: str

    @property
    def port_text(self) -> str:
        return f"port {self.cage.removeprefix('p')}"


@dataclass(frozen=True, slots=True)
class Cable:
    """One planned cable between two Sparks."""

    a: End
    b: End


@dataclass(frozen=True, slots=True)
class FabricPlan:
    """The cables that should be there.

    Attributes:
        names: node names by rank, for messages.
        cables: Spark to Spark; empty with a switch.
        to_switch: the ends that go to a switch.
    """

    kind: FabricKind
    names: tuple[str, ...]
    cables: tuple[Cable, ...] = ()
    to_switch: tuple[End, ...] = ()

    @property
    def ends(self) -> frozenset[End]:
        return frozenset(end for cable in self.cables for end in (cable.a, cable.b)) | frozenset(self.to_switch)

    def text(self, cable: Cable) -> str:
        """`worker1 port 0 to worker2 port 1`."""
        return f"{self.end_text(cable.a)} to {self.end_text(cable.b)}"

    def end_text(self, end: End) -> str:
        return f"{self.names[end.rank]} {end.port_text}"


def fabric_plan(kind: FabricKind, names: Sequence[str], devices: Sequence[str]) -> FabricPlan:
    """The cables of a cluster: port 0 of each Spark to port 1 of the next, round in a circle; or one to a switch.

    Args:
        names: node names in rank order.
        devices: NCCL_IB_HCA's; with a switch they say which cage is cabled.
    """
    listed = tuple(names)
    if kind is FabricKind.SWITCH:
        cages = cages_of(devices) or ("p0",)
        return FabricPlan(kind, listed, to_switch=tuple(End(rank, c) for rank in range(len(listed)) for c in cages))
    count = len(listed)
    cables = tuple(Cable(End(rank, "p0"), End((rank + 1) % count, "p1")) for rank in range(count)) if count > 1 else ()
    return FabricPlan(kind, listed, cables)


@dataclass(frozen=True, slots=True)
class FabricFinding:
    """One answer; `check` is a stable id, `rank` the node it is shown at."""

    check: str
    rank: int
    state: State
    what: str
    fix: str = ""


Readings = Mapping[int, Sequence[PortView] | None]
"""Ports by rank; None for a node that could not be read, () for a card that is not there."""


def ports_at(readings: Readings, end: End) -> tuple[PortView, ...] | None:
    ports = readings.get(end.rank)
    return None if ports is None else tuple(port for port in ports if cage_of(port) == end.cage)


def _up(ports: Sequence[PortView] | None) -> bool | None:
    """Is there a link at this end? Unknown where nothing was read; a card that is absent has none."""
    if ports is None:
        return None
    states = [port.active for port in ports]
    if any(states):
        return True
    return None if None in states else False


def check_links(plan: FabricPlan, readings: Readings) -> list[FabricFinding]:
    """A planned port without link fails and says on how many ends; an unplanned one is information (case U41)."""
    found: list[FabricFinding] = []
    for cable in plan.cables:
        a, b = _up(ports_at(readings, cable.a)), _up(ports_at(readings, cable.b))
        text = plan.text(cable)
        if a is None or b is None:
            silent = plan.names[cable.a.rank if a is None else cable.b.rank]
            found.append(FabricFinding("link", cable.a.rank, State.UNKNOWN, f"{text}: cannot read {silent}"))
        elif a and b:
            found.append(FabricFinding("link", cable.a.rank, State.OK, f"{text}: link"))
        elif not a and not b:
            found.append(
                FabricFinding(
                    "link",
                    cable.a.rank,
                    State.FAIL,
                    f"{text}: no link on both ends (cable)",
                    "plug or reseat the cable; give a Spark that had none 20 seconds",
                )
            )
        else:
            down = cable.b if a else cable.a
            found.append(
                FabricFinding(
                    "link",
                    down.rank,
                    State.FAIL,
                    f"{text}: no link on one end only, at {plan.end_text(down)} (port or netplan)",
                    f"ip -br link on {plan.names[down.rank]}; is the cable in the other socket?",
                )
            )
    for end in plan.to_switch:
        up = _up(ports_at(readings, end))
        if up is None:
            found.append(FabricFinding("link", end.rank, State.UNKNOWN, f"{plan.end_text(end)}: cannot be read"))
        elif up:
            found.append(FabricFinding("link", end.rank, State.OK, f"{plan.end_text(end)}: link"))
        else:
            fix = "plug or reseat the cable to the switch; is the switch's port on?"
            found.append(FabricFinding("link", end.rank, State.FAIL, f"{plan.end_text(end)}: no link", fix))
    return [*found, *_halves_and_rates(plan, readings), *_unplanned(plan, readings)]


def _halves_and_rates(plan: FabricPlan, readings: Readings) -> Iterator[FabricFinding]:
    for end in sorted(plan.ends, key=lambda each: (each.rank, each.cage)):
        ports = ports_at(readings, end) or ()
        down = [port.device for port in ports if port.active is False]
        if down and any(port.active for port in ports):
            text = f"{plan.end_text(end)}: only one of its two halves is up ({', '.join(down)} is down)"
            yield FabricFinding(
                "halves", end.rank, State.WARN, text, "half speed: bring the other interface up (netplan)"
            )
        slow = [
            port for port in ports if port.active and port.rate_gbit is not None and port.rate_gbit < FULL_RATE_GBIT
        ]
        if slow:
            text = f"{plan.end_text(end)}: {slow[0].rate_gbit:g} Gb/s instead of {FULL_RATE_GBIT:g}"
            fix = "a QSFP56 200G cable; on a switch set the port to 200G instead of auto-negotiation"
            yield FabricFinding("rate", end.rank, State.WARN, text, fix)


def _unplanned(plan: FabricPlan, readings: Readings) -> Iterator[FabricFinding]:
    for rank, ports in sorted(readings.items()):
        for cage in sorted({cage for port in ports or () if (cage := cage_of(port))}):
            end = End(rank, cage)
            if end in plan.ends:
                continue
            linked = _up(ports_at(readings, end))
            text = "linked, but not in the plan" if linked else "not used"
            yield FabricFinding("unused", rank, State.INFO, f"{plan.end_text(end)}: {text}")


def _network(address: str) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(f"{address}/{SUBNET_BITS}", strict=False)


def check_subnets(plan: FabricPlan, readings: Readings) -> list[FabricFinding]:
    """Two halves of one cage in a subnet work with a caveat; two cages in one do not (case U33)."""
    found = []
    for rank, ports in sorted(readings.items()):
        seen: dict[ipaddress.IPv4Network, list[PortView]] = {}
        for port in ports or ():
            if port.active:
                for network in {_network(address) for address in port.addresses}:
                    seen.setdefault(network, []).append(port)
        for network, sharing in seen.items():
            if len(sharing) < 2:
                continue
            names = " and ".join(port.netdev or port.device for port in sharing)
            if len({cage_of(port) for port in sharing}) == 1:
                text = f"{plan.names[rank]}: {names}, the halves of one port, share {network}"
                fix = "ARP may answer on the wrong half: arp_ignore=1 and arp_announce=2, or a subnet for each half"
                found.append(FabricFinding("subnet", rank, State.WARN, text, fix))
            else:
                text = f"{plan.names[rank]}: {names} are different cables and share {network}"
                found.append(FabricFinding("subnet", rank, State.FAIL, text, "give each cable a subnet of its own"))
    return found


def check_cable_addresses(plan: FabricPlan, readings: Readings) -> list[FabricFinding]:
    """Both ends of a cable need addresses in one subnet; else the ports are crossed or the plan is."""
    found = []
    for cable in plan.cables:
        a, b = ports_at(readings, cable.a), ports_at(readings, cable.b)
        if not _up(a) or not _up(b):
            continue
        ours = {_network(address) for port in a or () for address in port.addresses}
        theirs = {_network(address) for port in b or () for address in port.addresses}
        for end, networks in ((cable.a, ours), (cable.b, theirs)):
            if not networks:
                text = f"{plan.end_text(end)} has a link and no IPv4 address"
                found.append(
                    FabricFinding("address", end.rank, State.FAIL, text, "give its interface an address (netplan)")
                )
        if ours and theirs and not ours & theirs:
            text = f"{plan.text(cable)}: linked, but the addresses of both ends are in different subnets"
            fix = "the cable is in another socket than planned, or the subnets are: move one of the two"
            found.append(FabricFinding("address", cable.a.rank, State.FAIL, text, fix))
    return found


def check_mtu(plan: FabricPlan, readings: Readings) -> list[FabricFinding]:
    """A low RDMA MTU warns, different ones across a cable fail with both ends named (case U30)."""
    found = []
    pairs = [(cable.a, cable.b) for cable in plan.cables]
    if plan.to_switch:
        first = plan.to_switch[0]
        pairs += [(first, end) for end in plan.to_switch if end.rank != first.rank and end.cage == first.cage]
    for a, b in pairs:
        ours, theirs = _mtus(ports_at(readings, a)), _mtus(ports_at(readings, b))
        if ours and theirs and ours != theirs:
            text = (
                f"RDMA MTU {_listed(ours)} at {plan.end_text(a)} and {_listed(theirs)} at {plan.end_text(b)}: "
                "both ends must agree"
            )
            found.append(FabricFinding("mtu", a.rank, State.FAIL, text, _MTU_FIX))
    for end in sorted(plan.ends, key=lambda each: (each.rank, each.cage)):
        mtus = _mtus(ports_at(readings, end))
        if mtus and min(mtus) < FULL_RDMA_MTU:
            text = f"{plan.end_text(end)}: RDMA MTU {_listed(mtus)}; owners run {FULL_RDMA_MTU}"
            found.append(FabricFinding("mtu", end.rank, State.WARN, text, _MTU_FIX))
    return found


def seen_kind(readings: Readings) -> FabricKind | None:
    """What the addresses say the fabric is: a subnet that more than two Sparks are in is a switch's (case U42).

    None where too little was read: a node without an answer, or no subnet with two Sparks in it.
    """
    if any(ports is None for ports in readings.values()):
        return None
    members: dict[ipaddress.IPv4Network, set[int]] = {}
    for rank, ports in readings.items():
        for port in ports or ():
            if port.active:
                for address in port.addresses:
                    members.setdefault(_network(address), set()).add(rank)
    sizes = [len(ranks) for ranks in members.values()]
    if any(size > 2 for size in sizes):
        return FabricKind.SWITCH
    if not any(size == 2 for size in sizes):
        return None
    return FabricKind.TRIANGLE if len(readings) == 3 else FabricKind.RING if len(readings) > 3 else None


_MTU_FIX = "MTU 9000 on the interface at every end and on the switch; proof: ping -M do -s 8972 to the other end"


def _mtus(ports: Sequence[PortView] | None) -> set[int]:
    return {port.active_mtu for port in ports or () if port.active and port.active_mtu is not None}


def _listed(values: set[int]) -> str:
    return " and ".join(map(str, sorted(values)))
