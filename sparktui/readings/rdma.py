"""RDMA devices, their GIDs and counters, from a flat dump of sysfs.

The dump is one `path<TAB>value` line a file. Understood are the class paths and the resolved device paths:

    /sys/class/infiniband/<device>/{fw_ver,board_id,sys_image_guid,…}
    /sys/class/infiniband/<device>/ports/1/{state,phys_state,rate,link_layer}
    /sys/class/infiniband/<device>/ports/1/gids/<N> and gid_attrs/{types,ndevs}/<N>
    /sys/class/infiniband/<device>/ports/1/{counters,hw_counters}/<name>
    /sys/class/infiniband/<device>/device/net/<netdev>          (value: anything; ties device and netdev)
    /sys/class/net/<netdev>/{mtu,operstate,carrier,speed,phys_port_name,address,carrier_changes,ifindex}

A file that could not be read has the value `!EINVAL` (or any `!…`): unknown. Empty GID slots may be left out.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

_INFINIBAND = re.compile(r"(?P<where>/.*)/infiniband/(?P<device>[^/\s]+)/(?P<rest>\S+)")
_NET = re.compile(r"(?P<where>/.*)/net/(?P<netdev>[^/\s]+)/(?P<rest>\S+)")
_TIE = re.compile(r"/.*/infiniband/(?P<device>[^/\s]+)/device/net/(?P<netdev>[^/\s]+)(?:/\S*)?")
_PORT = re.compile(r"ports/1/(?P<rest>\S+)")
_COUNTERS = ("counters/", "hw_counters/")
_GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}")
ROCE_V2 = "RoCE v2"
COUNTER_WORD_BYTES = 4
"""`port_xmit_data` and `port_rcv_data` count words of four bytes."""


@dataclass(frozen=True, slots=True)
class Gid:
    """One filled slot of a port's GID table."""

    index: int
    gid: str
    kind: str | None
    """`RoCE v2`, `IB/RoCE v1`, or None where sysfs refuses."""
    netdev: str | None = None

    @property
    def address(self) -> str | None:
        """The IPv4 address of an IPv4-mapped GID."""
        if not self.gid.startswith("0000:0000:0000:0000:0000:ffff:"):
            return None
        return str(ipaddress.IPv4Address(int(self.gid[-9:].replace(":", ""), 16)))


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """Port 1 of one RDMA device (these cards have one port a device) and its network device."""

    device: str
    netdev: str | None = None
    state: str | None = None
    """`ACTIVE`, `DOWN`, …"""
    physical_state: str | None = None
    rate_gbit: float | None = None
    """Only when ACTIVE: a down port still prints a rate that means nothing."""
    cage: str | None = None
    """`p0`, `p1`: phys_port_name, the authority for which socket this is."""
    mtu: int | None = None
    carrier: bool | None = None
    firmware: str | None = None
    card: str | None = None
    """sys_image_guid: the same for all devices of one card."""
    gids: tuple[Gid, ...] = ()
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def active(self) -> bool | None:
        return None if self.state is None else self.state == "ACTIVE"

    @property
    def addresses(self) -> tuple[str, ...]:
        """IPv4 addresses that have a RoCE v2 GID, in table order."""
        return tuple(dict.fromkeys(gid.address for gid in self.gids if gid.address and gid.kind == ROCE_V2))

    def gid_index(self, address: str) -> int | None:
        """The index of the RoCE v2, IPv4-mapped entry of this address; None when there is none."""
        for gid in self.gids:
            if gid.kind == ROCE_V2 and gid.address == address:
                return gid.index
        return None

    @property
    def sent_bytes(self) -> int | None:
        words = self.counters.get("port_xmit_data")
        return None if words is None else words * COUNTER_WORD_BYTES

    @property
    def received_bytes(self) -> int | None:
        words = self.counters.get("port_rcv_data")
        return None if words is None else words * COUNTER_WORD_BYTES

    @property
    def active_mtu(self) -> int | None:
        """RDMA MTU that follows from the netdev's: verbs alone know it, this is the driver's rule."""
        if self.mtu is None:
            return None
        return max((size for size in (256, 512, 1024, 2048, 4096) if size <= self.mtu - 58), default=None)


@dataclass(frozen=True, slots=True)
class NetDevice:
    """A network interface as sysfs shows it."""

    name: str
    mtu: int | None = None
    operstate: str | None = None
    carrier: bool | None = None
    speed_mbit: int | None = None
    cage: str | None = None
    carrier_changes: int | None = None


@dataclass(frozen=True, slots=True)
class Fabric:
    ports: tuple[RdmaPort, ...]
    netdevs: tuple[NetDevice, ...]

    def port(self, device: str) -> RdmaPort | None:
        return next((port for port in self.ports if port.device == device), None)

    def netdev(self, name: str) -> NetDevice | None:
        return next((each for each in self.netdevs if each.name == name), None)

    def port_with_address(self, address: str) -> RdmaPort | None:
        return next((port for port in self.ports if port.gid_index(address) is not None), None)


def _integer(value: str | None) -> int | None:
    return int(value) if value is not None and re.fullmatch(r"-?\d{1,20}", value) else None


def _after_colon(value: str | None) -> str | None:
    """`4: ACTIVE` -> `ACTIVE`."""
    if value is None:
        return None
    return value.partition(":")[2].strip() or None


def _rate(value: str | None) -> float | None:
    match = re.match(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec", value or "")
    return float(match[1]) if match else None


def parse_fabric(text: str) -> Fabric:
    """Devices in a stable order (by name). An empty dump gives no ports: with no cable the card may be absent."""
    devices: dict[str, dict[str, str]] = {}
    netdevs: dict[str, dict[str, str]] = {}
    ties: dict[str, str] = {}
    function_of: dict[str, str] = {}
    function_net: dict[str, str] = {}
    for line in text.split("\n"):
        path, tab, value = line.rstrip("\r").partition("\t")
        if not tab:
            continue
        value = value.strip()
        tie = _TIE.fullmatch(path)
        if tie:
            ties.setdefault(tie["device"], tie["netdev"])
            continue
        if value.startswith(("!", "-> ")):
            continue
        if match := _INFINIBAND.fullmatch(path):
            devices.setdefault(match["device"], {})[match["rest"]] = value
            if "/pci" in match["where"]:
                function_of[match["device"]] = match["where"]
        elif match := _NET.fullmatch(path):
            netdevs.setdefault(match["netdev"], {})[match["rest"]] = value
            if "/pci" in match["where"]:
                function_net.setdefault(match["where"], match["netdev"])
    nets = {name: _netdev(name, read) for name, read in netdevs.items()}
    ports = []
    for device, read in sorted(devices.items()):
        port = {m["rest"]: value for rest, value in read.items() if (m := _PORT.fullmatch(rest))}
        gids = _gids(port)
        name = ties.get(device) or function_net.get(function_of.get(device, "")) or _gid_netdev(port)
        net = nets.get(name or "")
        state = _after_colon(port.get("state"))
        ports.append(
            RdmaPort(
                device=device,
                netdev=name,
                state=state,
                physical_state=_after_colon(port.get("phys_state")),
                rate_gbit=_rate(port.get("rate")) if state == "ACTIVE" else None,
                cage=net.cage if net else None,
                mtu=net.mtu if net else None,
                carrier=net.carrier if net else None,
                firmware=read.get("fw_ver"),
                card=read.get("sys_image_guid"),
                gids=gids,
                counters=_counters(port),
            )
        )
    return Fabric(tuple(ports), tuple(nets[name] for name in sorted(nets)))


def _netdev(name: str, read: dict[str, str]) -> NetDevice:
    carrier = _integer(read.get("carrier"))
    speed = _integer(read.get("speed"))
    return NetDevice(
        name=name,
        mtu=_integer(read.get("mtu")),
        operstate=read.get("operstate") or None,
        carrier=None if carrier is None else carrier == 1,
        speed_mbit=speed if speed is not None and speed > 0 else None,
        cage=read.get("phys_port_name") or None,
        carrier_changes=_integer(read.get("carrier_changes")),
    )


def _gids(port: dict[str, str]) -> tuple[Gid, ...]:
    found = []
    for rest, value in port.items():
        index = _integer(rest.removeprefix("gids/")) if rest.startswith("gids/") else None
        gid = value.lower()
        if index is None or index < 0 or not _GID.fullmatch(gid) or not gid.strip("0:"):
            continue
        kind = port.get(f"gid_attrs/types/{index}")
        found.append(Gid(index, gid, kind, port.get(f"gid_attrs/ndevs/{index}")))
    return tuple(sorted(found, key=lambda each: each.index))


def _gid_netdev(port: dict[str, str]) -> str | None:
    names = [value for rest, value in sorted(port.items()) if rest.startswith("gid_attrs/ndevs/") and value]
    return names[0] if names else None


def _counters(port: dict[str, str]) -> dict[str, int]:
    found = {}
    for rest, value in port.items():
        if rest.startswith(_COUNTERS):
            count = _integer(value)
            if count is not None and count >= 0:
                found[rest.partition("/")[2]] = count
    return found
