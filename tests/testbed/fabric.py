"""Which netdev of which simulated Spark is joined to which: pure values, no I/O.

Names, cages and addresses are those of real Sparks: a cable lights two netdevs (one a PCIe path), p0 of a node goes
to p1 of the next, and every (cable, path) is a subnet of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fabric = Literal["triangle", "ring", "switch"]
LAN_NETDEV = "enP7s7"


@dataclass(frozen=True, slots=True)
class Netdev:
    """One of the four functions of a ConnectX-7. `cage` is p0 or p1, `path` the PCIe half, A or B."""

    name: str
    rdma: str
    pci: str
    cage: str
    path: str
    mac_offset: int
    guid_offset: int


NETDEVS = (
    Netdev("enp1s0f0np0", "rocep1s0f0", "0000:01:00.0", "p0", "A", 1, 0),
    Netdev("enp1s0f1np1", "rocep1s0f1", "0000:01:00.1", "p1", "A", 2, 1),
    Netdev("enP2p1s0f0np0", "roceP2p1s0f0", "0002:01:00.0", "p0", "B", 5, 4),
    Netdev("enP2p1s0f1np1", "roceP2p1s0f1", "0002:01:00.1", "p1", "B", 6, 5),
)


@dataclass(frozen=True, slots=True)
class Port:
    """A netdev of a node (`node` counts from 1) and its address; `cable` is None where nothing is plugged in."""

    node: int
    netdev: Netdev
    cable: int | None
    address: str | None


@dataclass(frozen=True, slots=True)
class FabricPlan:
    kind: Fabric
    nodes: int
    ports: tuple[Port, ...]

    def of(self, node: int) -> tuple[Port, ...]:
        return tuple(port for port in self.ports if port.node == node)

    @property
    def cables(self) -> tuple[int, ...]:
        return tuple(sorted({port.cable for port in self.ports if port.cable is not None}))

    def between(self, node: int, other: int) -> tuple[str, str] | None:
        """The two addresses (`node`'s, `other`'s) of the first path of a cable that joins them, or None."""
        for port in self.of(node):
            for peer in self.of(other):
                plugged = port.cable is not None and (self.kind == "switch" or port.cable == peer.cable)
                one_path = port.netdev.path == peer.netdev.path == "A"
                if plugged and one_path and port.address and peer.address:
                    return port.address, peer.address
        return None


def plan_fabric(kind: Fabric, nodes: int) -> FabricPlan:
    """A triangle (three), a ring (two or more) or a switch with one cable a node.

    Raises:
        ValueError: that number of nodes cannot have that fabric.
    """
    if kind == "triangle" and nodes != 3:
        raise ValueError(f"a triangle has three nodes, not {nodes}")
    if kind != "switch" and nodes == 2:
        raise ValueError("two nodes: use the switch")
    ports: list[Port] = []
    # Lower subnet of cable k; for three nodes the order is that of NVIDIA's three-Spark set-up.
    first_subnet = (0, 4, 2) if nodes == 3 else tuple(2 * cable for cable in range(nodes))
    for node in range(1, nodes + 1):
        for netdev in NETDEVS:
            half = 0 if netdev.path == "A" else 1
            if kind == "switch" or nodes == 1:
                plugged = netdev.cage == "p0"
                address = f"192.168.{100 + half}.{node}" if plugged else None
                ports.append(Port(node, netdev, node - 1 if plugged else None, address))
                continue
            cable = node - 1 if netdev.cage == "p0" else (node - 2) % nodes
            other = node % nodes + 1 if netdev.cage == "p0" else (node - 2) % nodes + 1
            host = 1 if node < other else 2
            ports.append(Port(node, netdev, cable, f"192.168.{first_subnet[cable] + half}.{host}"))
    return FabricPlan(kind, nodes, tuple(ports))


def lan_mac(node: int) -> str:
    return mac(node, 0)


def mac(node: int, offset: int) -> str:
    """Locally administered; the four functions follow the LAN's address by +1, +2, +5, +6 as on a Spark."""
    return f"02:00:00:00:{node:02x}:{1 + offset:02x}"
