"""The kernels that attention and indexer take on a Spark's GPU (SM12x): stated at boot, one of them corrected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_overlay import checkpoint_config
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Switch, Values

PATHS = Switch("SPARK_SM12X_PATHS", 1, "1 plans the indexer of compression ratios 1 and 2 with DeepGEMM's own schedule")
LOW_RATIOS = (1, 2)
"""Of the V4.1 indexer's sources; they always use the FP4 kernel, which splits keys in 128 where the other planner
writes 256.
"""
_TARGET = "sglang.srt.layers.attention.dsv4.metadata.PagedIndexerMetadata.__post_init__"


def _functions(values: Values) -> dict[str, Callable[..., Any]]:
    for line in statement():
        print(f"[spark] {line}", flush=True)
    return {_TARGET: _before}


def _before(metadata: Any) -> None:
    from sglang.srt.runtime_context import get_platform

    if metadata.compress_ratio in LOW_RATIOS and get_platform().is_sm120:
        metadata.force_deep_gemm_metadata = True


def statement() -> list[str]:
    """Which kernels run, in words: the same on all ranks."""
    from sglang.kernels.ops.attention.flash_mla_sm120 import SM120_DECODE_MAX_TOKENS, _sm120_default_backend
    from sglang.srt.environ import envs

    fused = envs.SGLANG_FLASHINFER_MOE_FUSED_FINALIZE.get()
    return [
        f"attention ({_sm120_default_backend}): up to {SM120_DECODE_MAX_TOKENS} query tokens take the decode kernel, "
        "more take the sparse prefill kernel",
        f"fused MoE finalize: {'on, so the order of its sums varies' if fused else 'off'}; "
        "one request alone repeats itself on each side of that border, requests side by side may differ",
    ]


def check(values: Values) -> None:
    """Prompts take FlashInfer's sparse path, and the field that the hook sets exists."""
    import dataclasses

    from sglang.kernels.ops.attention import flash_mla_sm120
    from sglang.srt.layers.attention.dsv4.metadata import PagedIndexerMetadata

    found = flash_mla_sm120._sm120_default_backend
    assert found == "flashinfer", f"SGLANG_SM120_FLASHMLA_BACKEND={found}: remove it"
    assert hasattr(flash_mla_sm120, "_flash_mla_sm120_prefill"), "this engine has no sparse prefill for SM12x"
    fields = {each.name for each in dataclasses.fields(PagedIndexerMetadata)}
    assert fields >= {"compress_ratio", "force_deep_gemm_metadata"}, (
        f"the indexer's plan has the fields {sorted(fields)}"
    )


ADAPTER = Adapter(
    name="sm12x_paths",
    problem="On SM12x the indexer of compression ratios 1 and 2 gets a plan that its kernel does not split by.",
    settings=(PATHS,),
    hooks=(HookPoint(_TARGET, Kind.BEFORE, "(self)", Process.SCHEDULER),),
    engines=("0.5.23",),
    remove_when="SGLang forces DeepGEMM's metadata for every FP4 indexer on SM12x.",
    off=lambda values: "" if values[PATHS.name] else f"{PATHS.name}=0",
    not_needed=checkpoint_config.not_for_this_model,
    functions=_functions,
    check=check,
)
