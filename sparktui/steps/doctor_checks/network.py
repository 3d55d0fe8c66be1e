"""Addresses, interfaces and RDMA of a node. What is read here can drift: serve reads it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktui.cluster.fabric import check_cable_addresses, check_links, check_mtu, check_subnets, fabric_plan
from sparktui.engine.environment import uses_rdma
from sparktui.events import Finding, State
from sparktui.readings.ip_addr import parse_addresses
from sparktui.readings.rdma import Fabric, parse_fabric
from sparktui.steps.doctor_checks.report import NodeReport
from sparktui.steps.fabric_probe import decide_for

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
    """rdma.devices, rdma.gid: of this node alone."""
    fabric = fabric_of(report)
    if fabric is None:
        for check in ("rdma.devices", "rdma.gid"):
            yield report.unknown(check, "fabric", "the RDMA devices")
        return
    settings = report.settings
    absent = [name for name in settings.rdma_devices if fabric.port(name) is None]
    there = ", ".join(port.device for port in fabric.ports)
    off = not uses_rdma(settings)
    bad, why = (State.INFO, "RoCE is turned off in the settings") if off else (State.FAIL, "")
    if not fabric.ports:
        yield report.finding("rdma.devices", bad, "no RDMA device", cause=why, fix="" if off else EMPTY_FIX)
        return
    if absent:
        what = f"NCCL_IB_HCA names {', '.join(absent)}, which this node does not have"
        yield report.finding("rdma.devices", bad, what, cause=why, fix=f"its devices: {there}")
    else:
        yield report.finding("rdma.devices", State.OK, there, devices=[port.device for port in fabric.ports])
    decision = decide_for(settings, report.node, fabric.ports)
    table = [
        {"device": port.device, "index": gid.index, "type": gid.kind, "address": gid.address, "netdev": gid.netdev}
        for port in fabric.ports
        for gid in port.gids
    ]
    state = State.INFO if off and decision.state is State.FAIL else decision.state
    what = f"rank {report.node.rank}: {decision.what}"
    yield report.finding("rdma.gid", state, what, cause=why, fix=decision.fix, index=decision.index, table=table)


def check_fabric(reports: Sequence[NodeReport]) -> Iterator[Finding]:
    """rdma.link and its kin, over all nodes: a cable has two ends."""
    settings = reports[0].settings
    names = [node.name for node in settings.nodes]
    plan = fabric_plan(settings.profile.fabric, names, settings.rdma_devices)
    readings = {each.node.rank: fabric.ports if (fabric := fabric_of(each)) else None for each in reports}
    by_rank = {each.node.rank: each for each in reports}
    off = not uses_rdma(settings)
    for check in (check_links, check_cable_addresses, check_subnets, check_mtu):
        for row in check(plan, readings):
            report = by_rank.get(row.rank)
            if report is None or report.failure is not None:
                continue  # a dead node has its own row
            state = State.INFO if off and row.state in (State.FAIL, State.WARN) else row.state
            cause = "RoCE is turned off in the settings" if off else ""
            yield report.finding(f"rdma.{row.check}", state, row.what, cause=cause, fix=row.fix)


def fabric_of(report: NodeReport) -> Fabric | None:
    text = report.probe.text("fabric")
    return None if text is None else parse_fabric(text)


def _names(text: str) -> list[str]:
    """NCCL's spelling: a list with commas, `=` for exact; `^` leaves interfaces out and names none."""
    if text.startswith("^"):
        return []
    return [part for part in text.lstrip("=").split(",") if part]


def _addresses(report: NodeReport) -> dict[str, tuple[str, ...]] | None:
    text = report.probe.text("addresses")
    return None if text is None else parse_addresses(text)
