"""The RDMA tree of a node as `path<TAB>value` lines, and the GID index that each rank is given."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparktui.cluster.fabric import PortView
from sparktui.cluster.gid import GidDecision, decide_gid, parse_pin
from sparktui.cluster.node import Node
from sparktui.errors import SparktuiError
from sparktui.readings.rdma import parse_fabric
from sparktui.remote.link import NodeLink

if TYPE_CHECKING:
    from sparktui.settings import Settings

FABRIC_SCRIPT = """\
tab=$(printf '\\t')
for p in /sys/class/infiniband/*/device/net/*; do [ -e "$p" ] && printf '%s\\t-\\n' "$p"; done
grep -Hs '' /sys/class/infiniband/*/fw_ver /sys/class/infiniband/*/sys_image_guid \
 /sys/class/infiniband/*/ports/1/state /sys/class/infiniband/*/ports/1/phys_state \
 /sys/class/infiniband/*/ports/1/rate /sys/class/infiniband/*/ports/1/gids/* \
 /sys/class/infiniband/*/ports/1/gid_attrs/types/* /sys/class/infiniband/*/ports/1/gid_attrs/ndevs/* \
 /sys/class/net/*/mtu /sys/class/net/*/operstate /sys/class/net/*/carrier /sys/class/net/*/speed \
 /sys/class/net/*/phys_port_name | grep -v ':0000:0000:0000:0000:0000:0000:0000:0000$' | sed "s/:/$tab/"
:"""
PROBE_SECONDS = 15.0


async def decide_gids(settings: Settings, links: tuple[NodeLink, ...]) -> list[GidDecision | SparktuiError]:
    """Each rank's decision from what its node says now, in the order of `links`; a dead node costs its own row."""

    async def one(link: NodeLink) -> GidDecision | SparktuiError:
        try:
            answer = await link.script(FABRIC_SCRIPT, deadline_seconds=PROBE_SECONDS)
        except SparktuiError as error:
            return error
        ports = parse_fabric(answer.stdout).ports if answer.ok else None
        return decide_for(settings, link.node, ports)

    return list(await asyncio.gather(*map(one, links)))


def decide_for(settings: Settings, node: Node, ports: Sequence[PortView] | None) -> GidDecision:
    """One rank's decision under these settings; `ports` is None where the node could not be read."""
    return decide_gid(
        node.rank,
        ports,
        settings.rdma_devices,
        wanted_address=node.fabric_address,
        wanted_name="WORKER_FABRIC_IPS" if node.fabric_address else "",
        pinned=parse_pin(settings.nccl_ib_gid_index),
    )
