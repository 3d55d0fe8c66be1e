"""Which GID index a rank's NCCL is given: read from the node, decided per rank, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparktui.cluster.fabric import PortView
from sparktui.events import State

ROCE_V2 = "RoCE v2"


@dataclass(frozen=True, slots=True)
class GidDecision:
    """The answer for one rank.

    Attributes:
        index: what NCCL_IB_GID_INDEX is set to on this rank; None where no index is right, then serve refuses.
        by_device: the RoCE v2, IPv4-mapped indexes of each device that counts, for the table.
    """

    rank: int
    index: int | None
    state: State
    what: str
    fix: str = ""
    by_device: Mapping[str, tuple[int, ...]] | None = None


def parse_pin(text: str) -> int | None:
    """NCCL_IB_GID_INDEX as somebody wrote it: an index, -1 where NCCL shall choose.

    None where it is empty (then each node is read) and where it is no index (the settings refuse that).
    """
    return int(text) if re.fullmatch(r"-1|[0-9]{1,3}", text.strip(), re.ASCII) else None


def _usable(port: PortView) -> tuple[int, ...]:
    return tuple(gid.index for gid in port.gids if gid.kind == ROCE_V2 and gid.address is not None)


def decide_gid(
    rank: int,
    ports: Sequence[PortView] | None,
    devices: Sequence[str],
    *,
    wanted_address: str | None = None,
    wanted_name: str = "",
    pinned: int | None = None,
) -> GidDecision:
    """One index that is RoCE v2 and IPv4-mapped on every listed device with a link.

    Args:
        ports: None when the node could not be read.
        devices: NCCL_IB_HCA's.
        wanted_address: the node's fabric address, where one is set: it must have a GID.
        wanted_name: the setting that it comes from, for messages.
        pinned: `parse_pin` of the setting. A pin is held against the node's table, never used unread.
    """
    if ports is None:
        return GidDecision(rank, None, State.UNKNOWN, "the GID table could not be read")
    known = {port.device: port for port in ports}
    missing = [name for name in devices if name not in known]
    if missing:
        fix = (
            f"NCCL_IB_HCA names it; this node has: {', '.join(sorted(known)) or 'no RDMA device (is a cable plugged?)'}"
        )
        return GidDecision(rank, None, State.FAIL, f"no RDMA device {missing[0]} on this node", fix)
    counted = [known[name] for name in devices if known[name].active]
    if not counted:
        return GidDecision(
            rank,
            None,
            State.FAIL,
            "none of the devices in NCCL_IB_HCA has a link",
            "check the cables: see the link rows",
        )
    table = {port.device: _usable(port) for port in counted}
    addresses = list(dict.fromkeys(address for port in ports if port.active for address in port.addresses))
    if wanted_address and wanted_address not in addresses:
        name = wanted_name or wanted_address
        hint = f"; did you mean {' or '.join(addresses)}?" if addresses else ""
        text = f"no RoCE v2 GID for {name}" + (f" ({wanted_address})" if wanted_name else "") + hint
        return GidDecision(rank, None, State.FAIL, text, "set it to the address of a ConnectX interface", table)
    empty = [device for device, indexes in table.items() if not indexes]
    if empty:
        text = f"{empty[0]} has a link and no IPv4-mapped RoCE v2 GID"
        return GidDecision(rank, None, State.FAIL, text, "its interface has no IPv4 address: add one (netplan)", table)
    if pinned == -1:
        return GidDecision(rank, pinned, State.OK, "NCCL chooses the GID itself (NCCL_IB_GID_INDEX=-1)", "", table)
    if pinned is not None:
        wrong = {device: indexes for device, indexes in table.items() if pinned not in indexes}
        if wrong:
            text = f"pin {pinned} is wrong on " + ", ".join(
                f"{device} (is {' or '.join(map(str, indexes))})" for device, indexes in wrong.items()
            )
            return GidDecision(
                rank, None, State.FAIL, text, "leave NCCL_IB_GID_INDEX empty: it is read at every serve", table
            )
        return GidDecision(rank, pinned, State.OK, f"GID index {pinned} (pinned)", "", table)
    common = set.intersection(*(set(indexes) for indexes in table.values()))
    if not common:
        text = "no GID index is right on every device: " + ", ".join(
            f"{device} {'/'.join(map(str, indexes))}" for device, indexes in table.items()
        )
        fix = "take the interfaces down and up (or reboot) so that their tables agree, or name fewer devices"
        return GidDecision(rank, None, State.FAIL, text, fix, table)
    index = _preferred(common, counted, wanted_address)
    return GidDecision(rank, index, State.OK, f"GID index {index}", "", table)


def _preferred(common: set[int], ports: Iterable[PortView], address: str | None) -> int:
    """The index of the wanted address where it is common, else the lowest."""
    if address:
        for port in ports:
            for gid in port.gids:
                if gid.address == address and gid.kind == ROCE_V2 and gid.index in common:
                    return gid.index
    return min(common)


def index_by_rank(decisions: Iterable[GidDecision]) -> dict[int, int]:
    """What the launch specs take; ranks without a right index are absent and serve refuses them by name."""
    return {decision.rank: decision.index for decision in decisions if decision.index is not None}
