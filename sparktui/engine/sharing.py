"""Weights over NFS as data: the exporter's container, the workers' volumes, the address that each mounts from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktui.cluster.container import ContainerSpec, HealthCheck, Mount, VolumeSpec
from sparktui.cluster.nfs_clients import problem_of
from sparktui.cluster.node import Node
from sparktui.engine.folders import STATE_PATH, node_folders
from sparktui.engine.launch import owner_labels, with_spec_label
from sparktui.errors import SettingsError

if TYPE_CHECKING:
    from sparktui.settings import Settings

EXPORTER_CONTAINER = "dsv41-nfs"
EXPORT_PATH = "/export"
NFS_PORT = 2049
MOUNT_OPTIONS = "nfsvers=4.2,ro,nconnect=8,rsize=1048576,wsize=1048576,hard,timeo=600"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The head's address that one worker mounts from.

    Attributes:
        source: where the address comes from, for the user.
        warning: set when the weights would go over the control network.
    """

    address: str
    source: str
    warning: str = ""


def server_address(settings: Settings, worker: Node, route_source: str | None) -> ServerAddress:
    """NFS_SERVER_IPS first, then the head's own address on the route to the worker's fabric address.

    Args:
        route_source: the `src` of `ip route get <worker's fabric address>` on the head; None where not asked or
            not answered.

    Raises:
        SettingsError: neither is known; the control address is never taken in silence.
    """
    listed = settings.nfs_server_ips
    if len(listed) > 1 and len(listed) < worker.rank:
        raise SettingsError(
            f"NFS_SERVER_IPS has {len(listed)} addresses and none for {worker.name}",
            fix="give one address for all workers, or one a worker in rank order",
            node=worker.name,
        )
    if listed:
        address, source = listed[0] if len(listed) == 1 else listed[worker.rank - 1], "NFS_SERVER_IPS"
    elif route_source:
        towards = worker.fabric_address or worker.address
        address, source = route_source, f"the head's address on its route to {towards}"
    else:
        raise SettingsError(
            "no address is known that this worker could mount the weights from",
            fix="set NFS_SERVER_IPS to the head's ConnectX address on the worker's cable, or WORKER_FABRIC_IPS",
            node=worker.name,
        )
    warning = ""
    if address == settings.head_ip:
        warning = (
            f"{address} is HEAD_IP: if that is the ordinary LAN, 476 GiB go over it at every boot. "
            "Set NFS_SERVER_IPS to a ConnectX address of the head"
        )
    return ServerAddress(address, source, warning)


def export_clients(settings: Settings) -> tuple[str, ...]:
    """Who may mount: NFS_CLIENTS, else the workers' addresses.

    Raises:
        SettingsError: an entry is no address and no network, or means everybody.
    """
    clients = tuple(dict.fromkeys(settings.nfs_allowed))
    if wrong := problem_of(clients):
        raise SettingsError(
            f"NFS_CLIENTS: {wrong}",
            fix="write addresses such as 10.0.22.2 or networks such as 10.0.22.0/24, with commas",
        )
    if not clients:
        raise SettingsError(
            "nobody may mount the weights: there are no workers and no NFS_CLIENTS", fix="set WORKER_IPS or NFS_CLIENTS"
        )
    return clients


def exporter_spec(settings: Settings, image: str | None = None) -> ContainerSpec:
    """The exporter on the head. It outlives `stop`: a mounted server that goes away wedges the workers."""
    head = settings.nodes[0]
    return with_spec_label(
        ContainerSpec(
            name=EXPORTER_CONTAINER,
            image=image or settings.image,
            labels=owner_labels(settings, "nfs"),
            command=("nfs",),
            environment={
                "NFS_CLIENTS": ",".join(export_clients(settings)),
                "NFS_SERVER": settings.nfs_server,
                "NFS_EXPORT": EXPORT_PATH,
                "NFS_PORT": str(NFS_PORT),
                "STATE_PATH": STATE_PATH,
            },
            mounts=(
                Mount(settings.model_dir, EXPORT_PATH, read_only=True),
                # it notes there that the kernel's server of this boot is ours
                Mount(node_folders(settings, head).state, STATE_PATH),
            ),
            network="host",
            privileged=True,
            restart="unless-stopped",
            stop_timeout_seconds=15,
            # the image's own check asks an engine, which this container never runs
            health=HealthCheck(
                command=("python3", "-S", "-m", "spark_overlay.nfs_null"),
                interval_seconds=60,
                timeout_seconds=30,
                start_period_seconds=120,
                retries=3,
            ),
        )
    )


def nfs_volume_spec(settings: Settings, worker: Node, server: ServerAddress) -> VolumeSpec:
    """A worker's volume. Docker keeps an existing volume's old options: compare and re-create."""
    return VolumeSpec(
        name=settings.nfs_volume,
        options={"type": "nfs", "o": f"addr={server.address},{MOUNT_OPTIONS}", "device": ":/"},
        labels=owner_labels(settings, "weights", worker.rank),
    )


def local_volume_spec(settings: Settings, worker: Node) -> VolumeSpec:
    """NFS_SHARE=0 as a volume: a bind of the worker's own folder."""
    folder = settings.worker_model_path
    return VolumeSpec(
        name=settings.nfs_volume,
        options={"type": "none", "o": "bind", "device": folder},
        labels=owner_labels(settings, "weights", worker.rank),
    )


def parse_route_source(text: str) -> str | None:
    """The `src` of `ip route get ADDRESS`."""
    match = re.search(r"\bsrc ([0-9A-Fa-f.:]{2,45})\b", text)
    return match[1] if match else None
