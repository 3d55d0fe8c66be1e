"""Run by test_sm12x_paths.py with the engine's Python: which planner the indexer takes, which kernel attention takes.

Prints one JSON object. Kernels and planners are recorders: none of them runs without the GPU.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch

planned: list[str] = []


def planner(name: str) -> Any:
    def plan(lens: torch.Tensor, page: int, sms: int) -> torch.Tensor:
        planned.append(name)
        return torch.zeros(1)

    return plan


sys.modules["deep_gemm"] = SimpleNamespace(  # type: ignore[assignment]
    get_paged_mqa_logits_metadata=planner("deep_gemm"), get_num_sms=lambda: 48
)


def plan_of(ratio: int, sm120: bool) -> str:
    from sglang.srt.layers.attention.dsv4.metadata import PagedIndexerMetadata
    from sglang.srt.runtime_context import override_platform

    planned.clear()
    with override_platform(is_sm120=sm120):
        PagedIndexerMetadata(
            page_size=256,
            compressed_page_size=64,
            page_table=torch.zeros(2, 4, dtype=torch.int32),
            compressed_seq_lens=torch.tensor([70, 100], dtype=torch.int32),
            use_topk_v2=False,
            compress_ratio=ratio,
        )
    return ",".join(sorted(set(planned)))


def kernel_of(tokens: int) -> str:
    from sglang.kernels.ops.attention import flash_mla_sm120

    seen: list[str] = []
    for name in ("_flash_mla_sm120_prefill", "_flash_mla_flashinfer", "_sm120_sparse_decode_fwd"):
        setattr(flash_mla_sm120, name, lambda *_, name=name: seen.append(name))
    flash_mla_sm120.flash_mla_with_kvcache_sm120(
        q=torch.zeros(tokens, 1, 1, 8), k_cache=None, indices=None, head_dim_v=8, softmax_scale=1.0
    )
    return ",".join(seen)


def main() -> None:
    import sglang.kernels.ops.attention.dsv4 as dsv4
    from sglang.srt.environ import envs
    from sglang.srt.layers.attention.dsv4 import metadata
    from spark_overlay import arming
    from spark_overlay.adapter import Process
    from spark_overlay.adapters import sm12x_paths

    dsv4.get_paged_mqa_logits_metadata = planner("jit")
    metadata.PagedIndexerMetadata._mqa_logits_budget = lambda self, *, num_rows: None
    envs.SGLANG_OPT_USE_JIT_INDEXER_METADATA.set(True)
    cases = [(ratio, sm120) for ratio in (1, 2, 4, 128) for sm120 in (True, False)]
    found: dict[str, Any] = {"plain": {f"{r} {s}": plan_of(r, s) for r, s in cases}}
    ledger = (sm12x_paths.ADAPTER,)
    arming.arm(ledger, arming.values_of(ledger, {}), [Process.SCHEDULER])
    found["armed"] = {f"{r} {s}": plan_of(r, s) for r, s in cases}
    found["kernels"] = {str(tokens): kernel_of(tokens) for tokens in (1, 64, 65, 768)}
    found["statement"] = sm12x_paths.statement()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
