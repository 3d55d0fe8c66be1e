"""Addresses, interfaces and RDMA of a node. What is read here can drift: serve reads it again."""

from __future__ import annotations

from collections.abc import Iterator

from sparktui.events import Finding, State
from sparktui.readings.ip_addr import parse_addresses
from sparktui.readings.rdma import Fabric, RdmaPort, parse_fabric
from sparktui.steps.doctor_checks.report import NodeReport

FULL_RATE_GBIT = 200.0
EMPTY_FIX = "plug the ConnectX cable in and wait 20 s: without one the card is switched off"


def check_address(report: NodeReport) -> Iterator[Finding]:
    """address: what other nodes reach this one by must be one of its own addresses."""
    addresses = _addresses(report)
    if addresses is None:
        yield report.unknown("address", "addresses", "the node's addresses")
        return
    own = {address: name for name, each in addresses.items() for address in each}
    wanted = report.node.address
    setting = "HEAD_IP" if report.node.is_head else "WORKER_IPS"
    choices = [f"{address} ({name})" for address, name in own.items() if not address.startswith("127.")]
    if wanted in own and not wanted.startswith("127."):
        yield report.finding("address", State.OK, f"{wanted} on {own[wanted]}")
    else:
        yield report.finding(
            "address",
            State.FAIL,
            f"{setting} says {wanted or 'nothing'}, which is no address of this node that others can reach",
            fix=f"it has: {', '.join(choices) or 'none'}",
            choices=choices,
        )


def check_interfaces(report: NodeReport) -> Iterator[Finding]:
    """fabric.iface: the interfaces that the settings name exist here and have an IPv4 address."""
    addresses = _addresses(report)
    if addresses is None:
        yield report.unknown("fabric.iface", "addresses", "the node's interfaces")
        return
    settings = report.settings
    wanted = {"GLOO_SOCKET_IFNAME": settings.gloo_socket_ifname, "NCCL_SOCKET_IFNAME": settings.nccl_socket_ifname}
    if not settings.nccl_ib_disable:
        wanted["FABRIC_IFACE"] = settings.fabric_iface
    bad = []
    for setting, text in wanted.items():
        for name in _names(text):
            if not any(each.startswith(name) if setting.startswith("NCCL") else each == name for each in addresses):
                bad.append(f"{setting}={text}")
    having = ", ".join(f"{name} {'/'.join(each)}" for name, each in addresses.items() if name != "lo")
    if bad:
        yield report.finding(
            "fabric.iface",
            State.FAIL,
            f"{' and '.join(dict.fromkeys(bad))}: not on this node, or without an IPv4 address",
            cause="NCCL and Gloo look for this name on every node",
            fix=f"interfaces with an address here: {having or 'none'}",
            interfaces={name: list(each) for name, each in addresses.items()},
        )
    else:
        yield report.finding("fabric.iface", State.OK, ", ".join(f"{k}={v}" for k, v in wanted.items()))


def check_rdma(report: NodeReport) -> Iterator[Finding]:
    """rdma.devices, rdma.link, rdma.gid."""
    text = report.probe.text("fabric")
    if text is None:
        for check in ("rdma.devices", "rdma.link", "rdma.gid"):
            yield report.unknown(check, "fabric", "the RDMA devices")
        return
    fabric = parse_fabric(text)
    off = report.settings.nccl_ib_disable or report.settings.nccl_net != "IB"
    named = report.settings.rdma_devices
    wanted = [port for name in named if (port := fabric.port(name))]
    absent = [name for name in named if fabric.port(name) is None]
    there = ", ".join(port.device for port in fabric.ports)
    bad = State.INFO if off else State.FAIL
    note = "RoCE is turned off in the settings" if off else ""
    if not fabric.ports:
        yield report.finding("rdma.devices", bad, "no RDMA device", cause=note, fix="" if off else EMPTY_FIX)
        return
    if absent:
        yield report.finding(
            "rdma.devices",
            bad,
            f"NCCL_IB_HCA names {', '.join(absent)}, which this node does not have",
            cause=note,
            fix=f"its devices: {there}",
        )
    else:
        yield report.finding("rdma.devices", State.OK, there, devices=[port.device for port in fabric.ports])
    yield from _links(report, fabric, wanted, bad)
    yield from _gids(report, fabric, wanted, bad)


def _links(report: NodeReport, fabric: Fabric, wanted: list[RdmaPort], bad: State) -> Iterator[Finding]:
    down = [port for port in wanted if port.active is False]
    slow = [port for port in wanted if port.active and port.rate_gbit is not None and port.rate_gbit < FULL_RATE_GBIT]
    unread = [port for port in wanted if port.active is None]
    unused = [port.device for port in fabric.ports if port not in wanted and port.active is False]
    if down:
        names = ", ".join(f"{port.device} ({port.netdev or 'no interface'}, cage {port.cage or '?'})" for port in down)
        yield report.finding(
            "rdma.link",
            bad,
            f"no link: {names}",
            fix="check the cable at both ends; `ip link set IFACE up` if it is down",
        )
    elif unread:
        yield report.finding("rdma.link", State.UNKNOWN, f"state of {unread[0].device} cannot be read")
    elif slow:
        names = ", ".join(f"{port.device} {port.rate_gbit:g} Gb/s" for port in slow)
        yield report.finding(
            "rdma.link",
            State.WARN,
            f"linked below 200 Gb/s: {names}",
            fix="a QSFP28 cable, or a switch port left on auto-negotiation: set it to 200G",
        )
    elif wanted:
        yield report.finding("rdma.link", State.OK, ", ".join(f"{p.device} {p.rate_gbit or 0:g} Gb/s" for p in wanted))
    if unused:
        yield report.finding("rdma.unused", State.INFO, f"not used: {', '.join(unused)} (down, no cable in the plan)")


def _gids(report: NodeReport, fabric: Fabric, wanted: list[RdmaPort], bad: State) -> Iterator[Finding]:
    table = [
        {"device": port.device, "index": gid.index, "type": gid.kind, "address": gid.address, "netdev": gid.netdev}
        for port in fabric.ports
        for gid in port.gids
    ]
    indexes = {port.device: _index(port) for port in wanted if port.active is not False}
    without = [device for device, index in indexes.items() if index is None]
    text = ", ".join(f"{device}: {index}" for device, index in indexes.items() if index is not None)
    pin = report.settings.nccl_ib_gid_index
    wrong = [
        f"{device} (is {index})"
        for device, index in indexes.items()
        if index is not None and pin not in ("", "-1", str(index))
    ]
    if without:
        fabric_addresses = [f"{a} ({port.device})" for port in fabric.ports for a in port.addresses]
        yield report.finding(
            "rdma.gid",
            bad,
            f"no RoCE v2 GID with an IPv4 address on {', '.join(without)}",
            cause="the interface has no IPv4 address; no index is guessed",
            fix=f"did you mean {', '.join(fabric_addresses)}?"
            if fabric_addresses
            else "give the ConnectX interface an address",
            table=table,
        )
    elif wrong:
        yield report.finding(
            "rdma.gid",
            bad,
            f"pin {pin} is wrong on {', '.join(wrong)}",
            cause="the index moves when an interface changes",
            fix="leave NCCL_IB_GID_INDEX empty: it is then read on each node at every serve",
            table=table,
        )
    elif len(set(indexes.values())) > 1:
        yield report.finding(
            "rdma.gid",
            State.WARN,
            f"the index differs between devices of this rank: {text}",
            cause="NCCL takes one index a rank",
            table=table,
        )
    elif indexes:
        yield report.finding("rdma.gid", State.OK, f"rank {report.node.rank}: {text}", table=table)


def _index(port: RdmaPort) -> int | None:
    return next((index for address in port.addresses if (index := port.gid_index(address)) is not None), None)


def _names(text: str) -> list[str]:
    """NCCL's spelling: a list with commas, `=` for exact; `^` leaves interfaces out and names none."""
    if text.startswith("^"):
        return []
    return [part for part in text.lstrip("=").split(",") if part]


def _addresses(report: NodeReport) -> dict[str, tuple[str, ...]] | None:
    text = report.probe.text("addresses")
    return None if text is None else parse_addresses(text)
