"""The engine's containers as data: one for each rank, the same value that is shown, hashed and started."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparktui.cluster.container import (
    OWNER_LABEL,
    PROFILE_LABEL,
    RANK_LABEL,
    ROLE_LABEL,
    SPEC_LABEL,
    ContainerSpec,
    HealthCheck,
    Mount,
)
from sparktui.cluster.node import Node
from sparktui.engine.environment import engine_environment, uses_rdma
from sparktui.engine.folders import (
    CACHE_PATH,
    ENGRAM_PATH,
    KEY_PATH,
    MODEL_PATH,
    STATE_PATH,
    key_file,
    node_folders,
)
from sparktui.errors import StepFailed

if TYPE_CHECKING:
    from sparktui.settings import Settings

HEAD_CONTAINER = "dsv41-head"
WORKER_CONTAINER = "dsv41-worker"
PACK_CONTAINER = "dsv41-pack"
VIEW_CONTAINER = "dsv41-view"
CHECK_CONTAINER = "dsv41-check"
CHECK_ROLE = "check"
CHECK_LIMIT_BYTES = 3 * 1024**3
"""Twice what a rank's load over headers takes: past it the kernel ends the check and not a serving engine."""
INFINIBAND = "/dev/infiniband"
STACK_BYTES = 64 * 1024 * 1024
HEALTH = HealthCheck(
    # -S: without it the probe imports torch, takes ten seconds and fails during long prefills
    command=("python3", "-S", "-m", "spark_overlay.health"),
    interval_seconds=30,
    timeout_seconds=30,
    start_period_seconds=1800,
    retries=3,
)


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A rank's container and the node it starts on."""

    node: Node
    container: ContainerSpec


def container_name(node: Node) -> str:
    return HEAD_CONTAINER if node.is_head else WORKER_CONTAINER


def spec_hash(spec: ContainerSpec) -> str:
    """16 hex digits over everything the Engine is told, except the label that carries this hash."""
    labels = {key: value for key, value in spec.labels.items() if key != SPEC_LABEL}
    body = dataclasses.replace(spec, labels=labels).create_body()
    return hashlib.sha256(json.dumps([spec.name, body], sort_keys=True).encode()).hexdigest()[:16]


def with_spec_label(spec: ContainerSpec) -> ContainerSpec:
    return dataclasses.replace(spec, labels={**spec.labels, SPEC_LABEL: spec_hash(spec)})


def owner_labels(settings: Settings, role: str, rank: int | None = None) -> dict[str, str]:
    labels = {OWNER_LABEL: "sparktui", PROFILE_LABEL: settings.profile.name, ROLE_LABEL: role}
    return labels if rank is None else {**labels, RANK_LABEL: str(rank)}


def model_mount(settings: Settings, node: Node) -> Mount:
    """The checkpoint, always read-only: a bind where it is a folder, the NFS volume on workers that share it."""
    return Mount(node_folders(settings, node).model, MODEL_PATH, read_only=True)


def _nccl_mounts(settings: Settings, node: Node) -> tuple[Mount, ...]:
    folder = settings.nccl_host_dir if node.is_head else settings.nccl_worker_path
    if not folder:
        return ()
    if settings.profile.is_ring:
        # torch finds NCCL beside itself, so the patched library has to lie over the image's own file
        return (Mount(f"{folder.rstrip('/')}/libnccl.so.2", settings.nccl_pip_so, read_only=True),)
    return (Mount(folder, settings.nccl_container_dir, read_only=True),)


def engine_spec(
    settings: Settings, node: Node, gid_index: int | None, image: str, revision: str | None = None
) -> ContainerSpec:
    """The container of one rank.

    Args:
        revision: the checkpoint's full commit, as the download recorded it; None where that is not known.

    Raises:
        StepFailed: RoCE is asked for and no GID index is known: a guessed one connects wrongly or not at all.
        SettingsError: EXTRA_CONTAINER_ENV holds what it must not.
    """
    rdma = uses_rdma(settings)
    if rdma and gid_index is None:
        raise StepFailed(
            "no RoCE v2 GID is known for this node's fabric address",
            fix="sparktui doctor shows the GID table; the ConnectX interface needs an IPv4 address and a link",
            node=node.name,
        )
    folders = node_folders(settings, node)
    mounts = [
        model_mount(settings, node),
        Mount(folders.engram, settings.dsv41_packed_dir or ENGRAM_PATH),
        Mount(folders.state, STATE_PATH),
        Mount(folders.cache, CACHE_PATH),
        *_nccl_mounts(settings, node),
    ]
    if node.is_head and settings.api_key is not None:
        mounts.append(Mount(key_file(settings), KEY_PATH, read_only=True))
    return with_spec_label(
        ContainerSpec(
            name=container_name(node),
            image=image,
            labels=owner_labels(settings, "head" if node.is_head else "worker", node.rank),
            command=("run",),
            environment=engine_environment(settings, node, gid_index, revision),
            mounts=tuple(mounts),
            devices=(INFINIBAND,) if rdma else (),
            gpus_all=True,
            network="host",
            ipc="host",
            privileged=True,
            shm_bytes=settings.shm_bytes,
            memlock_unlimited=True,
            stack_bytes=STACK_BYTES,
            restart="no",
            stop_timeout_seconds=30,
            health=HEALTH,
        )
    )


def launch_specs(
    settings: Settings,
    gid_index_by_rank: Mapping[int, int],
    image: str | None = None,
    *,
    revision: str | None = None,
) -> tuple[LaunchSpec, ...]:
    """All ranks in rank order, head first; the serve step starts the workers before the head.

    Args:
        gid_index_by_rank: what was decided for each node just now (cluster/gid.py, the pin included). Not needed
            when RoCE is off.
        image: SETTINGS' image when not given.
        revision: the checkpoint's full commit, as the download recorded it; None where that is not known.
    """
    return tuple(
        LaunchSpec(
            node, engine_spec(settings, node, gid_index_by_rank.get(node.rank), image or settings.image, revision)
        )
        for node in settings.nodes
    )


def must_exist(spec: ContainerSpec) -> tuple[str, ...]:
    """Host paths that the container only reads: Docker would make a missing one as an empty folder and start."""
    return tuple(mount.source for mount in spec.mounts if mount.read_only and mount.source.startswith("/"))


def packer_spec(settings: Settings, node: Node, revision: str, image: str | None = None) -> ContainerSpec:
    """One node's packing run: reads the checkpoint, writes this rank's Engram rows; no GPU, no network.

    Args:
        revision: the checkpoint's full commit, kept in the packed files' headers.
    """
    folders = node_folders(settings, node)
    command = (
        *("-u", "-m", "spark_overlay.engram", "pack", "--source", MODEL_PATH, "--out", ENGRAM_PATH),
        *("--rank", str(node.rank), "--tp", str(settings.tp_size), "--revision", revision),
    )
    return with_spec_label(
        ContainerSpec(
            name=PACK_CONTAINER,
            image=image or settings.image,
            labels=owner_labels(settings, "pack", node.rank),
            entrypoint=("python3",),
            command=command,
            mounts=(model_mount(settings, node), Mount(folders.engram, ENGRAM_PATH)),
            network="none",
            init=True,
            no_health=True,
            stop_timeout_seconds=30,
        )
    )


def view_spec(settings: Settings, node: Node, revision: str | None = None) -> ContainerSpec:
    """A short look from inside a container: what it sees of the checkpoint and, with a revision, of its packed rows."""
    folders = node_folders(settings, node)
    mounts = [model_mount(settings, node)]
    command = ["-m", "spark_overlay.node_view", MODEL_PATH]
    if revision is not None:
        mounts.append(Mount(folders.engram, ENGRAM_PATH, read_only=True))
        command += ["--engram", ENGRAM_PATH, "--rank", str(node.rank), "--tp", str(settings.tp_size)]
        command += ["--revision", revision]
    return with_spec_label(
        ContainerSpec(
            name=VIEW_CONTAINER,
            image=settings.image,
            labels=owner_labels(settings, "view", node.rank),
            entrypoint=("python3",),
            command=tuple(command),
            mounts=tuple(mounts),
            network="none",
            init=True,
            no_health=True,
        )
    )


def check_spec(settings: Settings, node: Node) -> ContainerSpec:
    """The load of a rank's model over the checkpoint's headers, before a boot: no weights read, GPU untouched.

    The head checks all ranks, one after the other; where each node holds the checkpoint itself, each its own rank.
    """
    command = ["-u", "-m", "spark_overlay", "check-model", "--model-path", MODEL_PATH]
    command += ["--tp-size", str(settings.tp_size), "--ep-size", str(settings.ep_size)]
    command += [] if settings.nfs_share else ["--rank", str(node.rank)]
    return with_spec_label(
        ContainerSpec(
            name=CHECK_CONTAINER,
            image=settings.image,
            labels=owner_labels(settings, CHECK_ROLE, node.rank),
            entrypoint=("python3",),
            command=tuple(command),
            mounts=(model_mount(settings, node),),
            # The engine's modules load the driver's library when they are imported; no kernel runs.
            gpus_all=True,
            network="none",
            memory_bytes=CHECK_LIMIT_BYTES,
            init=True,
            no_health=True,
            stop_timeout_seconds=5,
        )
    )
