"""Cables, addresses and RDMA devices of the simulated Sparks, as sysfs and `ip` tell them."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from sparktui.cluster.fabric import PORT_NAMES, PortName
from sparktui.demo.machine import Machine

if TYPE_CHECKING:
    from sparktui.demo.world import World

LAN = "enP7s7"
_MTU = 9000
_STAND_IN = "10.255.255."
"""What the first start gives to a node whose address it does not know yet."""


def fabric_address(world: World, machine: Machine, port: PortName) -> str | None:
    """The address of one device; None where no cable is.

    Cable N joins port 0 of rank N and port 1 of the next; each cable has a subnet for each half.
    """
    ranks = max(len(world.ranks), 3)
    half = 0 if port.half == "A" else 1
    if world.config.get("fabric") == "switch":
        return f"10.20.{half}.{machine.rank + 1}" if port.cage == "p0" else None
    cable = machine.rank if port.cage == "p0" else (machine.rank - 1) % ranks
    return f"10.10.{2 * cable + half}.{machine.rank + 1}"


def lan_address(world: World, machine: Machine) -> str:
    """What the settings say (a node's own address is always right here), else its own; never a stand-in."""
    for node in world.config.get("nodes", []):
        if node["name"] == machine.name and not str(node["address"]).startswith(_STAND_IN):
            return str(node["address"])
    return f"192.168.20.{11 + machine.rank}"


def addresses_of(world: World, machine: Machine) -> dict[str, str]:
    """Interface to IPv4 address."""
    found = {"lo": "127.0.0.1", LAN: lan_address(world, machine)}
    for port in PORT_NAMES:
        address = fabric_address(world, machine, port)
        if address is not None:
            found[port.netdev] = address
    return found


def addresses_text(world: World, machine: Machine) -> str:
    """`ip -o -4 addr show`."""
    rows = []
    for number, (name, address) in enumerate(addresses_of(world, machine).items(), 1):
        bits = 8 if name == "lo" else 24
        rows.append(f"{number}: {name}    inet {address}/{bits} scope global {name}\\       valid_lft forever\n")
    return "".join(rows)


def route_text(world: World, machine: Machine, wanted: str) -> str | None:
    """`ip route get ADDRESS`: from the interface in the same subnet, else over the LAN."""
    try:
        target = ipaddress.ip_address(wanted)
    except ValueError:
        return None
    own = addresses_of(world, machine)
    for name, address in own.items():
        if name != "lo" and target in ipaddress.ip_network(f"{address}/24", strict=False):
            return f"{wanted} dev {name} src {address} uid 1000\n    cache\n"
    return f"{wanted} via 192.168.20.1 dev {LAN} src {own[LAN]} uid 1000\n    cache\n"


def fabric_lines(world: World, machine: Machine) -> list[tuple[str, str]]:
    """(sysfs path, value) of everything that the fabric script reads."""
    rows: list[tuple[str, str]] = []
    for port in PORT_NAMES:
        base, address = f"/sys/class/infiniband/{port.device}", fabric_address(world, machine, port)
        up = address is not None
        rows += [
            (f"{base}/device/net/{port.netdev}", "-"),
            (f"{base}/fw_ver", "28.45.4028"),
            (f"{base}/sys_image_guid", f"4cbb:4700:000{machine.rank}:0000"),
            (f"{base}/ports/1/state", "4: ACTIVE" if up else "1: DOWN"),
            (f"{base}/ports/1/phys_state", "5: LinkUp" if up else "3: Disabled"),
            (f"{base}/ports/1/rate", "200 Gb/sec (4X HDR)" if up else "40 Gb/sec (4X QDR)"),
        ]
        local = f"fe80:0000:0000:0000:4ebb:47ff:fe00:0{machine.rank}{PORT_NAMES.index(port)}0"
        gids = [(local, "IB/RoCE v1"), (local, "RoCE v2")]
        if address is not None:
            word = int(ipaddress.IPv4Address(address))
            mapped = f"0000:0000:0000:0000:0000:ffff:{word >> 16:04x}:{word & 0xFFFF:04x}"
            gids += [(mapped, "IB/RoCE v1"), (mapped, "RoCE v2")]
        for index, (gid, kind) in enumerate(gids):
            rows += [
                (f"{base}/ports/1/gids/{index}", gid),
                (f"{base}/ports/1/gid_attrs/types/{index}", kind),
                (f"{base}/ports/1/gid_attrs/ndevs/{index}", port.netdev),
            ]
    for port in PORT_NAMES:
        up = fabric_address(world, machine, port) is not None
        net = f"/sys/class/net/{port.netdev}"
        rows += [
            (f"{net}/mtu", str(_MTU)),
            (f"{net}/operstate", "up" if up else "down"),
            (f"{net}/carrier", "1" if up else "0"),
            (f"{net}/speed", "200000" if up else "-1"),
            (f"{net}/phys_port_name", port.cage),
        ]
    rows += [(f"/sys/class/net/{LAN}/mtu", "1500"), (f"/sys/class/net/{LAN}/operstate", "up")]
    return rows


def said_text(world: World, machine: Machine) -> str:
    """What a node says after its first login."""
    return f"@addresses\n{addresses_text(world, machine)}@fabric\n{fabric_text(world, machine)}"


def discovery_text(world: World, machine: Machine) -> str:
    """What the head says before there are settings: nobody has given it an address yet, so it has its own."""
    own = addresses_text(world, machine).replace(
        f" {lan_address(world, machine)}/", f" 192.168.20.{11 + machine.rank}/"
    )
    aliases = "".join(f"spark-{'abcdefgh'[rank]}\thostname=192.168.20.{11 + rank} user=nvidia \n" for rank in (1, 2))
    return (
        f"@hostname\n{machine.hostname}\n@addresses\n{own}@route\ndefault via 192.168.20.1 dev {LAN}\n"
        f"@aliases\n{aliases}@fabric\n{fabric_text(world, machine)}"
    )


def fabric_text(world: World, machine: Machine) -> str:
    return "".join(f"{path}\t{value}\n" for path, value in fabric_lines(world, machine))


def counter_lines(world: World, machine: Machine) -> list[tuple[str, str]]:
    """(sysfs path, value) of the RDMA counters; data counts words of four bytes."""
    rows = []
    for port in PORT_NAMES:
        base = f"/sys/class/infiniband/{port.device}/ports/1"
        sent, received = machine.sent.get(port.device, 0.0), machine.received.get(port.device, 0.0)
        rows += [
            (f"{base}/counters/port_xmit_data", str(int(sent) // 4)),
            (f"{base}/counters/port_rcv_data", str(int(received) // 4)),
            (f"{base}/counters/port_xmit_packets", str(int(sent) // 4096)),
            (f"{base}/counters/port_rcv_packets", str(int(received) // 4096)),
        ]
        quiet = ("port_rcv_errors", "port_xmit_discards", "symbol_error", "link_downed", "link_error_recovery")
        rows += [(f"{base}/counters/{name}", "0") for name in quiet]
        quiet = ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "roce_adp_retrans")
        rows += [(f"{base}/hw_counters/{name}", "0") for name in quiet]
    return rows
