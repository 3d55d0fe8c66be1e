"""From what was found to what is proposed: a value for each question, where it comes from, and what else it may be."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparktui.cluster.fabric import cage_of
from sparktui.cluster.profile import FabricKind, Profile
from sparktui.readings.rdma import Fabric, RdmaPort
from sparktui.steps.discovery import Candidate, Found, Place, Way, is_ipv4

USUAL_LAN = "enP7s7"
USUAL_FABRIC = "enp1s0f1np1"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Attributes:
    value: what the field holds until somebody types; empty where nothing certain was found.
    source: where the value comes from, or why there is none.
    others: (value, source) of what it may be as well.
    """

    value: str
    source: str
    others: tuple[tuple[str, str], ...] = ()

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        own = ((self.value, self.source),) if self.value else ()
        return (*own, *(each for each in self.others if each[0] != self.value))


@dataclass(frozen=True, slots=True)
class NodeSaid:
    """What a worker told after its first login."""

    name: str
    places: tuple[Place, ...] = ()
    fabric: Fabric | None = None


def split_hosts(text: str) -> list[str]:
    """Names however they were pasted: lines, blanks, commas, semicolons."""
    return [word for word in re.split(r"[\s,;]+", text) if word]


def bare_host(written: str) -> str:
    return written.rpartition("@")[2]


def propose(
    profile: Profile, answers: Mapping[str, str], found: Found, said: Mapping[str, NodeSaid]
) -> dict[str, Proposal]:
    """A proposal for each question of the groups; `said` is keyed by what ssh was given, without the user."""
    proposed = {"HEAD_IP": _head(found)}
    head = answers.get("HEAD_IP", proposed["HEAD_IP"].value)
    proposed["WORKER_HOSTS"] = _hosts(profile, found)
    hosts = [bare_host(each) for each in split_hosts(answers.get("WORKER_HOSTS", proposed["WORKER_HOSTS"].value))]
    proposed["WORKER_USER"] = _user(hosts, found)
    proposed["SSH_IDENTITY"] = Proposal("", "empty: your agent, your ssh config, then the usual key files")
    proposed["WORKER_IPS"] = _addresses(head, hosts, found, said)
    proposed["NCCL_SOCKET_IFNAME"] = _contact(head, found)
    proposed["FABRIC_IFACE"] = _fabric_interface(found)
    proposed["NCCL_IB_HCA"] = _devices(profile, found)
    devices = split_hosts(answers.get("NCCL_IB_HCA", proposed["NCCL_IB_HCA"].value))
    proposed |= _shared_networks(hosts, devices, found, said)
    if profile.is_ring:
        proposed["NCCL_HOST_DIR"] = Proposal("", "the folder with the patched NCCL 2.30.7; stock NCCL fails on a ring")
    return proposed


def _head(found: Found) -> Proposal:
    lan = [(each.address, f"{each.interface} of this machine{_usual(each, found)}") for each in found.lan_places]
    cables = [(each.address, f"{each.interface} of this machine, a ConnectX port") for each in found.fabric_places]
    every = [*lan, *cables]
    if not every:
        return Proposal("", found.trouble or "this machine has no address that others could reach")
    return Proposal(*every[0], tuple(every[1:]))


def _usual(place: Place, found: Found) -> str:
    if place.interface == USUAL_LAN:
        return ", a Spark's 10 Gb/s port"
    return ", where its default route leaves" if place.interface == found.default_interface else ""


def _hosts(profile: Profile, found: Found) -> Proposal:
    """Exactly as many as are needed, from one source; anything else is left to a person."""
    needed = profile.nnodes - 1
    near = [each for each in found.candidates if each.address and found.place_in_net_of(each.address)]
    groups: list[tuple[str, list[Candidate]]] = []
    for way in Way:
        groups.append((f"{_WAY_WORDS[way]}, in this machine's networks", [each for each in near if each.way is way]))
    groups.append((_WAY_WORDS[Way.CONFIG], [each for each in found.candidates if each.way is Way.CONFIG]))
    exact = [(_joined(group), f"{words}: {_told(group)}") for words, group in groups if len(group) == needed]
    if exact:
        return Proposal(*exact[0], tuple(dict(exact[1:]).items()))
    if not found.candidates:
        return Proposal("", found.trouble or "nobody was found: write names or addresses, as ssh takes them")
    several = [each for each in (near or found.candidates) if each]
    names = ", ".join(each.host for each in several[:6]) + (", …" if len(several) > 6 else "")
    first = several[:needed]
    others = ((_joined(first), "the first of several: " + _told(first)),) if len(several) > needed else ()
    return Proposal("", f"found {len(several)} for {needed}, so this is yours to say: {names}", others)


_WAY_WORDS = {
    Way.CONFIG: "your ssh config",
    Way.ANNOUNCED: "announced by mDNS",
    Way.CABLE: "answers on a cable",
    Way.KNOWN: "known_hosts",
}


def _joined(group: Sequence[Candidate]) -> str:
    return " ".join(each.host for each in group)


def _told(group: Sequence[Candidate]) -> str:
    return ", ".join(
        f"{each.host} is {each.address}" if each.address not in (None, each.host) else each.host for each in group
    )


def _candidate(host: str, found: Found) -> Candidate | None:
    return next((each for each in found.candidates if host in (each.host, each.address)), None)


def _user(hosts: Sequence[str], found: Found) -> Proposal:
    users = {host: each.user for host in hosts if (each := _candidate(host, found)) and each.user}
    if users and len(set(users.values())) == 1 and len(users) == len(hosts):
        return Proposal("", f"empty: your ssh config says {next(iter(users.values()))}")
    if users:
        return Proposal(
            "", "empty: your ssh config says " + ", ".join(f"{user} on {host}" for host, user in users.items())
        )
    return Proposal("", "empty: what your ssh config says, else your own name")


def _addresses(head: str, hosts: Sequence[str], found: Found, said: Mapping[str, NodeSaid]) -> Proposal:
    """The workers' addresses: in the head's own network as they said, else as their names are written down."""
    values: list[str] = []
    sources: list[str] = []
    home = next((each.network for each in found.places if each.address == head), None)
    for host in hosts:
        told = said.get(host)
        near = [
            each.address
            for each in (told.places if told else ())
            if home is not None and ipaddress.ip_address(each.address) in home
        ]
        candidate = _candidate(host, found)
        if told and near:
            values.append(host if host in near else near[0])
            sources.append(_SAID)
        elif is_ipv4(host):
            values.append(host)
            sources.append("as written")
        elif candidate is not None and candidate.address:
            values.append(candidate.address)
            sources.append(candidate.source)
        else:
            return Proposal("", f"no address of {host} is known: write it, or let the key test ask it")
    if not values:
        return Proposal("", "known once there are workers")
    return Proposal(" ".join(values), "; ".join(dict.fromkeys(sources)))


_SAID = "what the workers themselves said"


def _contact(head: str, found: Found) -> Proposal:
    others = tuple((each.interface, f"has {each.address}") for each in found.lan_places)
    for place in found.places:
        if place.address == head:
            return Proposal(place.interface, "the interface that HEAD_IP is on", others)
    return Proposal(USUAL_LAN, "a Spark's usual name; not seen on this machine", others)


def _fabric_interface(found: Found) -> Proposal:
    with_address = {each.interface: each.address for each in found.fabric_places}
    here = [
        (port.netdev, f"active here, {with_address.get(port.netdev, 'without an address')}")
        for port in sorted(found.active_ports, key=lambda each: each.netdev != USUAL_FABRIC)
        if port.netdev
    ]
    here.sort(key=lambda each: each[0] not in with_address)
    if not here:
        return Proposal(USUAL_FABRIC, "a Spark's usual name; no active RDMA port was seen on this machine")
    return Proposal(*here[0], tuple(here[1:]))


_USUAL_DEVICES = {
    FabricKind.TRIANGLE: "rocep1s0f0,rocep1s0f1",
    FabricKind.SWITCH: "rocep1s0f0,roceP2p1s0f0",
    FabricKind.RING: "rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1",
}


def _devices(profile: Profile, found: Found) -> Proposal:
    """Triangle: one device a cable. Switch: both devices of the one cable. Ring: all four."""
    active = found.active_ports
    usual = _USUAL_DEVICES[profile.fabric]
    if not active:
        return Proposal(usual, "a Spark's usual names; no active RDMA port was seen on this machine")
    names = [port.device for port in active]
    every = (",".join(names), f"all {len(names)} that are active here")
    if set(usual.split(",")) <= set(names):
        return Proposal(usual, "active here, " + _CABLING[profile.fabric], (every,))
    chosen = _first_of_each_cage(active) if profile.fabric is FabricKind.TRIANGLE else list(active)
    return Proposal(
        ",".join(port.device for port in chosen),
        f"what is active here, {_CABLING[profile.fabric]}",
        (every, (usual, "a Spark's usual names")),
    )


_CABLING = {
    FabricKind.TRIANGLE: "one device a cable",
    FabricKind.SWITCH: "both devices of the cable to the switch",
    FabricKind.RING: "both devices of both cables",
}


def _first_of_each_cage(ports: Sequence[RdmaPort]) -> list[RdmaPort]:
    kept: dict[str, RdmaPort] = {}
    for port in ports:
        kept.setdefault(cage_of(port) or port.device, port)
    return list(kept.values())


def _shared_networks(
    hosts: Sequence[str], devices: Sequence[str], found: Found, said: Mapping[str, NodeSaid]
) -> dict[str, Proposal]:
    """The ConnectX addresses of each worker and the head's on the same cable."""
    interfaces = {port.netdev: port.device in devices for port in found.fabric.ports}
    ours = sorted(found.fabric_places, key=lambda each: not interfaces.get(each.interface))
    theirs: list[str] = []
    servers: list[str] = []
    for host in hosts:
        told = said.get(host)
        pair = _on_one_cable(ours, told) if told else None
        if told is None or pair is None:
            reason = "shares no ConnectX network with this machine" if told else "did not say its addresses"
            why = f"empty: {told.name if told else host} {reason}"
            return {
                "WORKER_FABRIC_IPS": Proposal("", why + "; workers then mount over their route to the head"),
                "NFS_SERVER_IPS": Proposal("", "empty: the head's address on the route to each worker"),
            }
        theirs.append(pair[1].address)
        servers.append(pair[0].address)
    source = "; ".join(f"{said[host].name} has {address}" for host, address in zip(hosts, theirs, strict=True))
    shown = servers[:1] if len(set(servers)) == 1 else servers
    return {
        "WORKER_FABRIC_IPS": Proposal(" ".join(theirs), source or "known once there are workers"),
        "NFS_SERVER_IPS": Proposal(" ".join(shown), "this machine's end of each worker's cable" if shown else "empty"),
    }


def _on_one_cable(ours: Sequence[Place], told: NodeSaid) -> tuple[Place, Place] | None:
    rdma = {port.netdev for port in told.fabric.ports} if told.fabric is not None else None
    for mine in ours:
        for other in told.places:
            if (rdma is None or other.interface in rdma) and ipaddress.ip_address(other.address) in mine.network:
                return mine, other
    return None
