"""What can be known of a cluster before there are settings: asked of the head in one script, nothing is changed.

Every answer keeps where it comes from, so that a default can say it. What is ambiguous stays a list of candidates.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sparktui.cluster.fabric import PORT_NAMES, cage_of
from sparktui.readings.rdma import Fabric, RdmaPort, parse_fabric
from sparktui.readings.sections import sections
from sparktui.steps.fabric_probe import FABRIC_SCRIPT

DISCOVERY_SECONDS = 20.0
DISCOVERY_SCRIPT = f"""\
limit() {{ s=$1; shift; if command -v timeout >/dev/null; then timeout -k 1 "$s" "$@"; else "$@"; fi; }}
echo @hostname; uname -n
echo @addresses; ip -o -4 addr show
echo @route; ip -4 route show default
echo @neighbours; ip -4 neigh show
echo @hosts; cat /etc/hosts 2>/dev/null
echo @known; cat "$HOME/.ssh/known_hosts" 2>/dev/null
echo @aliases
own=$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f6)
set --
[ -n "$own" ] && [ "$own" != "$HOME" ] && set -- -F "$HOME/.ssh/config"
for f in "$HOME/.ssh/config" "$HOME"/.ssh/config.d/*; do
  [ -f "$f" ] && sed -n 's/^[[:space:]]*[Hh][Oo][Ss][Tt][[:space:]=][[:space:]]*//p' "$f"
done | tr -s ' \\t\\r' '\\n\\n\\n' | grep -v '[]*?!"[]' | head -n 40 | while read -r h; do
  printf '%s\\t' "$h"
  limit 2 ssh -G "$@" -- "$h" 2>/dev/null </dev/null | sed -n 's/^hostname /hostname=/p;s/^user /user=/p' | tr '\\n' ' '
  echo
done
echo @announced
command -v avahi-browse >/dev/null && limit 4 avahi-browse -p -r -t _ssh._tcp 2>/dev/null </dev/null
echo @fabric
{FABRIC_SCRIPT}"""
"""Answers in sections; the product's own fabric script comes last, as it is."""
NODE_SCRIPT = f"""\
echo @addresses; ip -o -4 addr show
echo @fabric
{FABRIC_SCRIPT}"""
"""What a worker is asked after its first login."""

_ADDRESS = re.compile(r"\d+:\s+(\S+)\s+inet\s+(\d{1,3}(?:\.\d{1,3}){3})(?:/(\d{1,2}))?(?:\s.*)?")
_NOT_A_LAN = re.compile(r"(lo|docker\d*|br-|veth|virbr|tailscale|tun|wg|cni|flannel|podman)")
_GONE = ("FAILED", "INCOMPLETE")


class Way(StrEnum):
    """How a machine was found, the most telling first."""

    CONFIG = "ssh config"
    ANNOUNCED = "mDNS"
    CABLE = "cable"
    KNOWN = "known_hosts"


@dataclass(frozen=True, slots=True)
class Place:
    """An IPv4 address of this machine."""

    interface: str
    address: str
    bits: int

    @property
    def network(self) -> ipaddress.IPv4Network:
        return ipaddress.ip_network(f"{self.address}/{self.bits}", strict=False)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A machine that may be a worker.

    Attributes:
        host: what ssh would be given.
        address: its IPv4 address where one is known.
        source: where this was read, in words.
        user: the ssh configuration's user where it names one.
    """

    host: str
    address: str | None
    way: Way
    source: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What the head said.

    Attributes:
        places: its addresses, loopback left out, in the order of `ip`.
        default_interface: where its default route leaves; empty where it has none.
        candidates: machines that may be workers; most telling first, each address once.
        trouble: why nothing could be asked; empty when it could.
    """

    hostname: str = ""
    places: tuple[Place, ...] = ()
    default_interface: str = ""
    fabric: Fabric = field(default_factory=lambda: Fabric((), ()))
    candidates: tuple[Candidate, ...] = ()
    trouble: str = ""

    @property
    def rdma_interfaces(self) -> frozenset[str]:
        return frozenset(port.netdev for port in self.fabric.ports if port.netdev)

    @property
    def lan_places(self) -> tuple[Place, ...]:
        """Addresses that other machines may reach this one by over the house network, the likeliest first."""
        lan = [
            each
            for each in self.places
            if each.interface not in self.rdma_interfaces and not _NOT_A_LAN.match(each.interface)
        ]
        lan.sort(key=lambda each: (each.interface != "enP7s7", each.interface != self.default_interface))
        return tuple(lan)

    @property
    def fabric_places(self) -> tuple[Place, ...]:
        return tuple(each for each in self.places if each.interface in self.rdma_interfaces)

    @property
    def active_ports(self) -> tuple[RdmaPort, ...]:
        """The first half of the card before the second, which shows the same cables again."""
        return tuple(sorted((port for port in self.fabric.ports if port.active), key=_is_second_half))

    def place_in_net_of(self, address: str) -> Place | None:
        """This machine's own address in the network of another one."""
        try:
            wanted = ipaddress.ip_address(address)
        except ValueError:
            return None
        return next((each for each in self.places if wanted in each.network), None)


def parse_node(stdout: str) -> tuple[tuple[Place, ...], Fabric | None]:
    """A worker's answer to NODE_SCRIPT: its addresses, and its fabric where it was read."""
    parts = sections(stdout)
    return parse_places(parts.get("addresses", "")), parse_fabric(parts["fabric"]) if "fabric" in parts else None


def parse_places(text: str) -> tuple[Place, ...]:
    """`ip -o -4 addr show`, loopback left out; an address without a prefix counts as alone in its network."""
    found = []
    for line in text.split("\n"):
        match = _ADDRESS.fullmatch(line.rstrip("\r\\ "))
        if match is None or match[1] == "lo":
            continue
        try:
            place = Place(match[1], str(ipaddress.IPv4Address(match[2])), int(match[3] or 32))
            _ = place.network
        except ValueError:
            continue
        found.append(place)
    return tuple(found)


def _is_second_half(port: RdmaPort) -> bool:
    return any(name.half == "B" for name in PORT_NAMES if port.device in (name.device, name.plain_device))


def parse_discovery(stdout: str) -> Found:
    """The script's answer; a section that is missing is an empty one."""
    parts = sections(stdout)
    places = parse_places(parts.get("addresses", ""))
    route = re.search(r"^default\b.*?\bdev\s+(\S+)", parts.get("route", ""), re.MULTILINE)
    found = Found(
        hostname=parts.get("hostname", "").strip(),
        places=places,
        default_interface=route[1] if route else "",
        fabric=parse_fabric(parts.get("fabric", "")),
    )
    named = parse_hosts(parts.get("hosts", ""))
    every = [
        *_from_aliases(parts.get("aliases", ""), named),
        *_from_announced(parts.get("announced", "")),
        *_from_neighbours(parts.get("neighbours", ""), found),
        *_from_known_hosts(parts.get("known", ""), named),
    ]
    own = {each.address for each in places} | {"127.0.0.1", "127.0.1.1"}
    kept: dict[str, Candidate] = {}
    for each in every:
        if each.address in own or each.host.partition(".")[0] == found.hostname.partition(".")[0]:
            continue
        kept.setdefault(each.address or each.host, each)
    return replace(found, candidates=tuple(kept.values()))


def parse_hosts(text: str) -> dict[str, str]:
    """/etc/hosts: name to IPv4 address; the first line of a name wins, as in the resolver."""
    named: dict[str, str] = {}
    for line in text.split("\n"):
        words = line.partition("#")[0].split()
        if len(words) > 1 and is_ipv4(words[0]):
            for name in words[1:]:
                named.setdefault(name.lower(), words[0])
    return named


def is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _address_of(name: str, named: dict[str, str]) -> str | None:
    return name if is_ipv4(name) else named.get(name.lower())


def _from_aliases(text: str, named: dict[str, str]) -> Iterable[Candidate]:
    for line in text.split("\n"):
        alias, tab, rest = line.partition("\t")
        if not tab or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*", alias):
            continue
        said = dict(word.split("=", 1) for word in rest.split() if "=" in word)
        name = said.get("hostname", alias)
        address = _address_of(name, named)
        source = f"Host {alias} of your ssh config" + (f", which is {name}" if name not in (alias, address) else "")
        yield Candidate(alias, address, Way.CONFIG, source, said.get("user", ""))


def _from_announced(text: str) -> Iterable[Candidate]:
    for line in text.split("\n"):
        words = line.split(";")
        if len(words) > 7 and words[0] == "=" and words[2] == "IPv4" and is_ipv4(words[7]):
            yield Candidate(words[6] or words[7], words[7], Way.ANNOUNCED, f"announces ssh on {words[1]} (mDNS)")


def _from_neighbours(text: str, found: Found) -> Iterable[Candidate]:
    """Who answers on a ConnectX cable. Each cable is two devices: only the first device of a cage counts."""
    cages: dict[str, str] = {}
    for port in found.active_ports:
        if port.netdev:
            cages.setdefault(cage_of(port) or port.netdev, port.netdev)
    by_interface = {interface: cage for cage, interface in cages.items()}
    for line in text.split("\n"):
        words = line.split()
        if len(words) < 4 or words[1] != "dev" or not is_ipv4(words[0]) or words[-1] in _GONE:
            continue
        interface = words[2]
        if interface in by_interface:
            cage = by_interface[interface]
            source = f"answers on {interface}, the cable at port {cage.removeprefix('p')}"
            yield Candidate(words[0], words[0], Way.CABLE, source)


def _from_known_hosts(text: str, named: dict[str, str]) -> Iterable[Candidate]:
    for line in text.split("\n"):
        words = line.split()
        if len(words) < 3 or words[0].startswith(("#", "|", "@", "[")):
            continue
        names = [each for each in words[0].split(",") if not re.search(r"[*?!\[]", each)]
        address = next((found for each in names if (found := _address_of(each, named))), None)
        name = next((each for each in names if not is_ipv4(each)), address)
        if name:
            yield Candidate(name, address, Way.KNOWN, "known_hosts: somebody logged in there before")
