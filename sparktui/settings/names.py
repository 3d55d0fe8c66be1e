"""Names in a file that are not settings themselves: older spellings, and what is set in another place."""

from __future__ import annotations

import re
from collections.abc import Collection

ALIASES = {"IB_HCA": "NCCL_IB_HCA", "NFS_SERVER_IP": "NFS_SERVER_IPS", "NCCL_IB_GID_INDEX_FORCE": "NCCL_IB_GID_INDEX"}
"""Older name to today's; today's wins where both are given."""

ELSEWHERE = {
    "VLLM_HOST_IP": "each node gets its own address from HEAD_IP and WORKER_IPS",
    "HOST_IP": "each node gets its own address from HEAD_IP and WORKER_IPS",
    "DIST_INIT_ADDR": "it is HEAD_IP and DIST_PORT",
    "NODE_RANK": "the order of WORKER_IPS is the rank",
    "SERVER_PORT": "the port is PORT",
    "MODEL_PATH": "the path inside the container is fixed; the folder is MODEL_DIR",
    "STATE_PATH": "the path inside the container is fixed",
    "CUDA_GRAPH_MAX_BS_DECODE": "it is MAX_RUNNING_REQUESTS",
    "NCCL_CROSS_NIC": "it is always 1",
    "NCCL_IB_MERGE_NICS": "it is always 0",
    "NCCL_IB_SUBNET_AWARE_ROUTING": "it is always 1",
    "NCCL_CUMEM_ENABLE": "it is always 0",
    "WEIGHTS_MODE": "NFS_SHARE=1 shares the weights, NFS_SHARE=0 takes local copies",
    "STATE_DIR": "the profile names it, beside the env file",
    "LOG_DIR": "the profile names it, beside the env file",
    "SERVE_LOG": "the logs lie beside the env file",
    "ENV_FILE": "use --env-file",
    "DSV41_LAUNCHER": "use --profile",
    "EXTRA_DOCKER_ENV": "use EXTRA_CONTAINER_ENV",
}
"""Names of the recipe and its forks that a file may hold, and what to use instead."""

NO_EFFECT = frozenset({
    # of the recipe's launcher
    "NFS_EXPORT_NAME", "REMOTE_TIMEOUT", "RM_TIMEOUT", "SKIP_PREPARE", "SKIP_VERIFY",
    # of adapters that this overlay does not have
    "DSV41_AUTOTUNE_KEEP", "DSV41_DRAFT_HEAD_FP8", "DSV41_DRAFT_HEAD_FP8_IMPL", "DSV41_DRAFT_MAIN_PROJ_SPLIT",
    "DSV41_DRAFT_TAU", "DSV41_EAGER_GLUE", "DSV41_FAST_LOAD", "DSV41_FAST_LOAD_EP_SIZE",
    "DSV41_FAST_LOAD_INFLIGHT_GB", "DSV41_FAST_LOAD_N_EXPERTS", "DSV41_FAST_LOAD_TP_SLICE", "DSV41_FOLDED_FENCE",
    "DSV41_HC_FUSED", "DSV41_L2_PREFETCH", "DSV41_L2_PREFETCH_WOA", "DSV41_MOE_B12X_NEXT",
    "DSV41_MOE_B12X_NEXT_DETERMINISTIC", "DSV41_PREFILL_SP", "DSV41_PREFILL_SP_FP8", "DSV41_REPLICATED_SPLIT",
    "DSV41_RESIDENT_SCALES", "DSV41_ROCE_GATHER", "DSV41_ROUTER_LIVE", "DSV41_SPEC_SYNC_FREE",
    "DSV41_SPLIT_COMPACT_GATHER", "DSV41_WO_A_W8", "DSV41_WO_A_W8_DRAFT", "DSV41_WO_A_W8_DROP", "DSV41_WO_A_W8_MID",
    "SPARK_PREFILL_TP_MIN_CONTEXT", "SPARK_PREFILL_TP_MIN_ROWS", "SPARK_PREFILL_TP_SPLIT",
    # of the recipe's own SGLang tree
    "B12X_ROCE_CACHE_DIR", "B12X_ROCE_HCA", "SGLANG_DSPARK_FOLDED_SAMPLING", "SGLANG_ROCE_ALLREDUCE",
    "SGLANG_ROCE_MAX_SIZE",
    # this image has no import hooks to switch on
    "DSV41_SOURCE",
    # always on here: by the engine's indexer, and by the padding of the shared expert
    "DSV41_INDEXER_CHUNKED", "DSV41_SHARED_PAD_K",
})  # fmt: skip
"""Settings of the recipe that nothing here acts on: a file that still has them is right, and hears it in one line."""

ENGINE_PREFIXES = ("DSV41_", "SGLANG_", "SPARK_", "B12X_", "NCCL_", "DSPARK_")
"""Beginnings of the engine's own variables, of which a file may hold more than are settings here."""

_NUMBERED = (
    (re.compile(r"WORKER_?([1-9][0-9]?)_IP"), "WORKER_IPS"),
    (re.compile(r"WORKER_?([1-9][0-9]?)_HOST"), "WORKER_HOSTS"),
    (re.compile(r"WORKER_?([1-9][0-9]?)_FABRIC_IP"), "WORKER_FABRIC_IPS"),
    (re.compile(r"NFS_SERVER_IP_([1-9][0-9]?)"), "NFS_SERVER_IPS"),
)


def numbered(name: str) -> tuple[str, int] | None:
    """`WORKER2_IP` -> (`WORKER_IPS`, 2): the list that an older numbered name belongs to, or None."""
    for pattern, target in _NUMBERED:
        if match := pattern.fullmatch(name):
            return target, int(match[1])
    return None


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that `name` was probably meant to be, or None."""
    import difflib

    close = difflib.get_close_matches(name.upper(), sorted(known), n=1, cutoff=0.75)
    return close[0] if close else None
