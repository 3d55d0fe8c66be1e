"""From settings to the memory and disk sheets; the check that refuses what cannot fit before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from sparktui.cluster.disk import CHECKPOINT_BYTES, IMAGE_BYTES, SPOOL_BYTES, DiskNeed, engram_bytes
from sparktui.cluster.node import Node
from sparktui.cluster.plan import INDEXER_BUDGET_MIB, MemoryInput, MemoryPlan, memory_plan
from sparktui.engine.folders import node_folders
from sparktui.envfile import Problem, Severity

if TYPE_CHECKING:
    from sparktui.settings import Settings

DOCKER_ROOT = "/var/lib/docker"


def memory_input(
    settings: Settings, total_bytes: Mapping[int, int | None] | None = None, weights_gib: float | None = None
) -> MemoryInput:
    """The sheet's input. Without `total_bytes` (MemTotal by rank) the sheet assumes 121.7 GiB and says so."""
    return MemoryInput(
        ranks=settings.tp_size,
        context_tokens=settings.context_length,
        pool_tokens=settings.max_total_tokens,
        max_running_requests=settings.max_running_requests,
        chunk_tokens=settings.chunked_prefill_size,
        head_fraction=settings.head_mem_fraction_static,
        worker_fraction=settings.mem_fraction_static,
        engram_cache_gib=settings.dsv41_cache_gib,
        expert_groups=settings.ep_size,
        nccl_buffer_bytes=settings.nccl_buffsize,
        nccl_ll128_bytes=settings.nccl_ll128_buffsize,
        nccl_protocols=settings.nccl_proto,
        nccl_channels=settings.nccl_max_nchannels,
        total_bytes=total_bytes or {},
        weights_gib=weights_gib,
        score_budget_mib=settings.dsv41_indexer_score_budget_mib or INDEXER_BUDGET_MIB,
    )


def runs_on_cpu(settings: Settings) -> bool:
    """A test of the engine without a GPU: another model and other memory, so the sheet says nothing about it."""
    arguments = settings.extra_sglang_args
    return ("--device", "cpu") in pairwise(arguments) or "--device=cpu" in arguments


def memory_sheet(
    settings: Settings, total_bytes: Mapping[int, int | None] | None = None, weights_gib: float | None = None
) -> MemoryPlan:
    return memory_plan(memory_input(settings, total_bytes, weights_gib))


def fit_problems(settings: Settings) -> list[Problem]:
    """For `load_settings(fit=…)`: a pin, fraction or window that cannot fit is an error, a tight one a warning."""
    if runs_on_cpu(settings):
        return []
    plan = memory_sheet(settings)
    return [
        *(Problem(line=0, reason=text, name=_named(text), severity=Severity.ERROR) for text in plan.refusals),
        *(Problem(line=0, reason=text, name=_named(text), severity=Severity.WARNING) for text in plan.warnings),
    ]


def _named(text: str) -> str:
    names = ("MAX_TOTAL_TOKENS", "CONTEXT_LENGTH", "CHUNKED_PREFILL_SIZE", "MEM_FRACTION_STATIC")
    found = [(text.find(name), name) for name in names if name in text]
    return min(found)[1] if found else "MEM_FRACTION_STATIC"


def disk_needs(
    settings: Settings,
    node: Node,
    *,
    checkpoint_have_bytes: int | None = 0,
    engram_have_bytes: int | None = 0,
    image_present: bool = False,
    docker_root: str = DOCKER_ROOT,
    checkpoint_bytes: int = CHECKPOINT_BYTES,
) -> tuple[DiskNeed, ...]:
    """What has to be on this node. A have of None (unknown) counts as nothing there."""
    folders = node_folders(settings, node)
    needs = []
    if node.is_head or not settings.nfs_share:
        needs.append(DiskNeed("checkpoint", folders.model, checkpoint_bytes, checkpoint_have_bytes))
    rows = engram_bytes(node.rank, settings.tp_size)
    needs.append(DiskNeed("Engram rows", folders.engram, rows, engram_have_bytes))
    if not image_present:
        needs += [
            DiskNeed("image", docker_root, IMAGE_BYTES),
            DiskNeed("spool while it is pulled or loaded", docker_root, SPOOL_BYTES),
        ]
    return tuple(needs)
