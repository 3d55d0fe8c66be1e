"""The environment of an engine container: an allow-list, so that nothing reaches the engine that nobody asked for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparktui.cluster.node import Node
from sparktui.engine.folders import CACHE_PATH, KEY_PATH, MODEL_PATH, STATE_PATH
from sparktui.errors import SettingsError

if TYPE_CHECKING:
    from sparktui.settings import Settings

PASSED_ON = (
    # memory and batch
    "offload_mode",
    "context_length",
    "max_total_tokens",
    "max_running_requests",
    "chunked_prefill_size",
    "prefill_empty_cache_tokens",
    "dsv41_indexer_score_budget_mib",
    "dsv41_memguard_mib",
    "pytorch_cuda_alloc_conf",
    "dsv41_serial_weight_load",
    "dsv41_tp_pad",
    "dsv41_mxfp8_backend",
    "spark_sm12x_paths",
    # Engram rows
    "dsv41_cache_gib",
    "dsv41_cache_ways",
    "dsv41_io_threads",
    "dsv41_stats_seconds",
    "dsv41_packed_dir",
    "dsv41_engram_prefetch",
    "dsv41_engram_prefetch_check",
    "dsv41_engram_fallback",
    "spark_engram_rows",
    # speculation
    "spec_algo",
    "dspark_block_size",
    "dsv41_verify_cap",
    "dsv41_block_verify",
    "dspark_sps_table",
    "dspark_sts_table",
    # caps and loops
    "dsv41_max_new_tokens",
    "dsv41_max_new_tokens_hard",
    "dsv41_loop_abort",
    "dsv41_loop_named_exit",
    "dsv41_loop_ngram",
    "dsv41_loop_repeats",
    "dsv41_loop_line_repeats",
    "dsv41_loop_identical",
    # answers
    "served_model_name",
    "sglang_dsv41_reasoning_effort",
    "spark_enable_thinking_alias",
    "spark_integer_effort",
    "spark_anthropic_thinking",
    "spark_mask_server_info",
    "sglang_flashinfer_moe_fused_finalize",
    # topology and boot
    "nnodes",
    "tp_size",
    "ep_size",
    "host",
    "warmup",
    "ready_timeout_s",
    # fabric
    "nccl_socket_ifname",
    "gloo_socket_ifname",
    "nccl_ib_hca",
    "nccl_net",
    "nccl_ib_disable",
    "nccl_p2p_disable",
    "nccl_shm_disable",
    "nccl_buffsize",
    "nccl_ll128_buffsize",
    "nccl_proto",
    "nccl_max_nchannels",
    "nccl_debug",
    "nccl_debug_subsys",
)
"""Settings that go to every rank under their own name (upper case); an empty value is left out."""

FIXED = {
    "MODEL_PATH": MODEL_PATH,
    "STATE_PATH": STATE_PATH,
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "NCCL_CROSS_NIC": "1",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_IB_MERGE_NICS": "0",
    "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
    # a host's /etc/nccl.conf can turn inlining on, which froze small all-reduces
    "NCCL_IB_USE_INLINE": "0",
    "SGLANG_ENABLE_DSV41_ENGRAM_HOST_TABLE": "0",
    # any other mode breaks this model's graph capture
    "SGLANG_RAGGED_VERIFY_MODE": "static",
    # compiled kernels stay on the node, beside the other caches
    "TRITON_CACHE_DIR": f"{CACHE_PATH}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE_PATH}/inductor",
}

RING = {
    "NCCL_SWITCHLESS_RING_ONLY": "1",
    "NCCL_ALGO": "Ring",
    "NCCL_SKIP_TREE_CONNECT": "1",
    "NCCL_IB_SUBNET_PREFIX_LEN": "24",
    "NCCL_MIN_NCHANNELS": "4",
    "NCCL_P2P_LEVEL": "SYS",
}
RING_MANY_DEVICES = {
    "NCCL_IB_EXTENDED_IPV4_GIDS": "1",
    "NCCL_IB_PRESERVE_PCI_DOMAIN": "1",
    "NCCL_IB_ROUTE_DIAGNOSTICS": "1",
    "NCCL_IB_QPS_PER_CONNECTION": "1",
}
"""Without these a ring advertises two listener GIDs only."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"API_?KEY|TOKEN$|SECRET|PASSW|_PASS$|CREDENTIAL", re.IGNORECASE)
_OURS_ALONE = frozenset(
    {
        "NODE_RANK",
        "NNODES",
        "TP_SIZE",
        "EP_SIZE",
        "DIST_INIT_ADDR",
        "MODEL_PATH",
        "STATE_PATH",
        "DSV41_PACKED_DIR",
        "SERVER_PORT",
        "API_KEY_FILE",
        "HOST_IP",
        "SGLANG_HOST_IP",
        "VLLM_HOST_IP",
        "NCCL_IB_GID_INDEX",
        "OFFLOAD_MODE",
        "HF_REVISION",
    }
)
"""Names that another setting decides, per rank or for all; EXTRA_CONTAINER_ENV cannot."""


def text_of(value: object) -> str:
    """A setting's value as the container reads it: switches 1 or 0, numbers without a needless `.0`."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return shlex.join(map(str, value))
    return str(value)


def extra_environment(pairs: Iterable[str]) -> dict[str, str]:
    """EXTRA_CONTAINER_ENV, already split into `NAME=value`.

    Raises:
        SettingsError: all that is wrong in one go: no name, a secret's name, a name that another setting
            decides, a value that is known to break the engine.
    """
    found: dict[str, str] = {}
    problems: list[str] = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _NAME.fullmatch(name):
            problems.append(f"{pair.split('=')[0][:40]!r} is not NAME=value")
        elif _SECRET.search(name):
            problems.append(f"{name} looks like a secret, and `docker inspect` shows a container's environment")
        elif name in _OURS_ALONE:
            problems.append(f"{name} has a setting of its own")
        elif name == "PYTORCH_CUDA_ALLOC_CONF" and "expandable_segments:true" in value.lower().replace(" ", ""):
            problems.append("expandable_segments:True gives NaN logits on long prefills")
        elif name == "SGLANG_RAGGED_VERIFY_MODE" and value != "static":
            problems.append(f"SGLANG_RAGGED_VERIFY_MODE={value} breaks this model's graph capture")
        else:
            found[name] = value
    if problems:
        raise SettingsError(
            "EXTRA_CONTAINER_ENV: " + "; ".join(problems), fix="correct EXTRA_CONTAINER_ENV in the settings file"
        )
    return found


def uses_rdma(settings: Settings) -> bool:
    return settings.nccl_net == "IB" and not settings.nccl_ib_disable


def engine_environment(
    settings: Settings, node: Node, gid_index: int | None, revision: str | None = None
) -> dict[str, str]:
    """Everything the engine container of one rank is told; never a secret.

    Args:
        revision: the checkpoint's full commit, which packed rows of another commit are refused by.
    """
    environment = {}
    for field in PASSED_ON:
        value = text_of(getattr(settings, field))
        if value:
            environment[field.upper()] = value
    environment |= FIXED
    environment |= {
        "NODE_RANK": str(node.rank),
        "SERVER_PORT": str(settings.port),
        "DIST_INIT_ADDR": f"{settings.head_ip}:{settings.dist_port}",
        "MEM_FRACTION_STATIC": text_of(
            settings.head_mem_fraction_static if node.is_head else settings.mem_fraction_static
        ),
        "CUDA_GRAPH_MAX_BS_DECODE": text_of(settings.max_running_requests),
        "VLLM_HOST_IP": node.address,
        "HOST_IP": node.address,
        "SGLANG_HOST_IP": node.address,
    }
    if settings.extra_sglang_args:
        environment["EXTRA_SGLANG_ARGS"] = shlex.join(settings.extra_sglang_args)
    if revision is not None:
        environment["HF_REVISION"] = revision
    if gid_index is not None and uses_rdma(settings):
        environment["NCCL_IB_GID_INDEX"] = str(gid_index)
    if settings.profile.is_ring:
        environment |= RING
        if len(settings.rdma_devices) > 2:
            environment |= RING_MANY_DEVICES
    elif settings.nccl_host_dir:
        environment["LD_LIBRARY_PATH"] = settings.nccl_container_dir
    environment |= extra_environment(settings.extra_container_env)
    if node.is_head and settings.api_key is not None:
        environment["API_KEY_FILE"] = KEY_PATH
    return environment
