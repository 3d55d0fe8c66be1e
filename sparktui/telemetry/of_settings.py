"""What is watched for given settings: every node's memory, links and disks, and the endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparktui.cluster.fabric import fabric_plan
from sparktui.engine.endpoint import local_url
from sparktui.engine.environment import uses_rdma
from sparktui.engine.folders import NodeFolders, node_folders
from sparktui.telemetry.fleet import Fleet
from sparktui.telemetry.kept_samples import KeptSamples
from sparktui.telemetry.serving import Endpoint

if TYPE_CHECKING:
    from sparktui.remote.link import NodeLink
    from sparktui.settings import Settings


def watched_folders(folders: NodeFolders) -> tuple[str, ...]:
    """Whose file systems' free space is shown: packed rows, and the checkpoint where it is a folder of the node's."""
    return (folders.engram,) if folders.model_is_volume else (folders.engram, folders.model)


def planned_ends(settings: Settings) -> frozenset[tuple[str, str]]:
    """Node name and cage of every end of a cable that should be there; none where the engine uses no RDMA."""
    if not uses_rdma(settings):
        return frozenset()
    names = [node.name for node in settings.nodes]
    plan = fabric_plan(settings.profile.fabric, names, settings.rdma_devices)
    return frozenset((names[end.rank], end.cage) for end in plan.ends)


def endpoint_of(settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> Endpoint:
    key = settings.api_key.get_secret_value() if settings.api_key else None
    return Endpoint(local_url(settings), api_key=key, model=settings.served_model, clock=clock)


def fleet_of(
    settings: Settings,
    links: Sequence[NodeLink],
    *,
    endpoint: Endpoint | None = None,
    gpu: bool = True,
    keep: bool = True,
    lives: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Fleet:
    """All nodes of `links`; with the endpoint where it is given.

    Args:
        lives: look at the ranks' containers, without which a dead rank is not noticed while the endpoint answers.
        keep: keep the last ten minutes in the cluster's state folder (case U52).
    """
    by_name = {link.node.name: link.node for link in links}
    folders = {name: watched_folders(node_folders(settings, node)) for name, node in by_name.items()}
    return Fleet(
        links,
        clock=clock,
        folders=folders,
        gpu=gpu,
        serving=endpoint,
        planned=planned_ends(settings),
        lives=lives,
        kept=KeptSamples(settings.state_dir / "samples") if keep else None,
    )
