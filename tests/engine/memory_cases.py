"""The engine's own indexer plan and prefill steps under our adapters, by the engine's Python; prints one JSON object.

DeepGEMM's kernel is a stand-in that scores row by row; what is asked of it is the engine's own.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from spark_overlay import arming
from spark_overlay.adapter import Process
from spark_overlay.adapters import prefill_empty_cache, score_budget
from spark_overlay.ledger import LEDGER

ROWS, HEADS, WIDTH, DIM, TOPK = 4096, 64, 65_536, 16, 32
FEW_ROWS, FEW_HEADS, FEW_WIDTH = 512, 16, 8192


def arm(adapter: Any, **settings: str) -> None:
    arming.arm([adapter], arming.values_of(LEDGER, settings), [Process.SCHEDULER])


def asked_rows() -> dict[str, Any]:
    """Rows of each block that the engine asks DeepGEMM for, at a real chunk's size; no memory is taken for it."""
    from sglang.srt.layers.attention.dsv4.v41_indexer import scoring

    def kernel(q: Any, kv: Any, weights: Any, starts: Any, ends: Any, clean: bool, width: int, **_: Any) -> Any:
        return torch.zeros(()).expand(len(weights), width)

    sys.modules["deep_gemm"] = module = ModuleType("deep_gemm")
    module.fp8_fp4_mqa_logits = kernel  # type: ignore[attr-defined]
    data = scoring.DeepGEMMPrefillData(
        k_slots=torch.arange(WIDTH),
        request_starts=torch.zeros(ROWS, dtype=torch.int32),
        lens_per_request=[WIDTH],
        rows_per_request=[ROWS],
        compress_lens=torch.arange(ROWS, dtype=torch.int32),
        q_fp4=torch.zeros(ROWS, HEADS, 1, dtype=torch.int8),
        q_sf=torch.zeros(ROWS, HEADS, dtype=torch.int32),
        weights=torch.zeros(ROWS, HEADS),
    )
    seen = list(scoring.score_tiles(data, (torch.zeros(1), torch.zeros(1))))
    covered = [row for rows, _ in seen for row in range(rows.start, rows.stop)]
    return {
        "rows": [rows.stop - rows.start for rows, _ in seen],
        "mib": max(rows.stop - rows.start for rows, _ in seen) * WIDTH * 4 / 2**20,
        "each row once": covered == list(range(ROWS)),
    }


def torch_scores() -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """Rows of each block, the scores, and the positions chosen, where DeepGEMM is absent."""
    from sglang.srt.layers.attention.dsv4.dsv41_sparse import DeepseekV41Indexer
    from sglang.srt.layers.attention.dsv4.v41_indexer import scoring

    torch.manual_seed(1)
    indexer = SimpleNamespace(scores=lambda *given: DeepseekV41Indexer.scores(None, *given))
    request = scoring.RequestScores(
        lc=FEW_WIDTH,
        k=TOPK,
        columns=torch.arange(FEW_WIDTH),
        tok=torch.arange(FEW_ROWS),
        lens=torch.arange(FEW_WIDTH - FEW_ROWS, FEW_WIDTH),
        slots=torch.arange(FEW_WIDTH),
    )
    q, k = torch.randn(FEW_ROWS, FEW_HEADS, DIM), torch.randn(FEW_WIDTH, DIM)
    weights = torch.rand(FEW_ROWS, FEW_HEADS)
    blocks = list(scoring._score_chunks(indexer=indexer, q=q, weights=weights, index_k=k, request=request))
    scores = torch.cat([block.scores for block in blocks])
    return [len(block.tok) for block in blocks], scores, scores.topk(TOPK).indices.sort().values


def scores_with_and_without() -> dict[str, Any]:
    found: dict[str, Any] = {"without": asked_rows()}
    rows, scores, chosen = torch_scores()
    arm(score_budget.ADAPTER, DSV41_INDEXER_SCORE_BUDGET_MIB="16")
    found["torch"] = {"without": rows, "with 16": (few := torch_scores())[0]}
    found["torch"]["largest difference"] = float((few[1] - scores).nan_to_num(0.0).abs().max())
    found["torch"]["same positions"] = bool((few[2] == chosen).all())
    found["with 16"] = asked_rows()
    return found


def prefill_steps() -> dict[str, int]:
    """How often unused memory is given back after a step of each of the engine's kinds."""
    from sglang.srt.model_executor.forward_batch_info import ForwardMode
    from sglang.srt.model_executor.runner_utils.capture_mode import model_capture_mode

    given_back: list[int] = []
    torch.cuda.empty_cache = lambda: given_back.append(1)
    hook = prefill_empty_cache.ADAPTER.functions(arming.values_of(LEDGER, {}))[prefill_empty_cache._FORWARD]

    def count(mode: Any, before: int, new: int, draft: bool = False) -> int:
        given_back.clear()
        batch = SimpleNamespace(forward_mode=mode, extend_prefix_lens_cpu=[before], extend_seq_lens_cpu=[new])
        hook("output", SimpleNamespace(is_draft_worker=draft), batch)
        return len(given_back)

    found = {
        "a short prompt": count(ForwardMode.EXTEND, 0, 768),
        "up to one below": count(ForwardMode.EXTEND, 7423, 768),
        "a long prompt": count(ForwardMode.EXTEND, 7424, 768),
        "with decodes": count(ForwardMode.MIXED, 7424, 768),
        "decode": count(ForwardMode.DECODE, 7424, 768),
        "verify": count(ForwardMode.TARGET_VERIFY, 9000, 6),
        "the draft": count(ForwardMode.EXTEND, 7424, 768, draft=True),
    }
    with model_capture_mode():
        found["capture"] = count(ForwardMode.EXTEND, 7424, 768)
    return found


if __name__ == "__main__":
    print(json.dumps({"scores": scores_with_and_without(), "steps": prefill_steps()}))
