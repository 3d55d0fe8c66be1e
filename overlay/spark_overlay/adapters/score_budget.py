"""The index scores of a prefill chunk are worked through in smaller blocks: same scores, less memory at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_overlay import checkpoint_config
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Switch, Values

BUDGET = Switch(
    "DSV41_INDEXER_SCORE_BUDGET_MIB",
    256,
    "MiB for a block of index scores while a prompt is read; 0 leaves SGLang's own budget of 2048",
    16,
    2048,
    zero_is_off=True,
)
MIB = 1024**2
_SCORING = "sglang.srt.layers.attention.dsv4.v41_indexer.scoring"
_TILES = f"{_SCORING}.flat_index_logits_tiles"
_CHUNKS = f"{_SCORING}._score_chunks"


def _functions(values: Values) -> dict[str, Callable[..., Any]]:
    from sglang.srt.layers.attention.dsv4.v41_indexer import scoring

    budget = values[BUDGET.name] * MIB
    said: list[str] = []

    def tiles(original: Callable[..., Any], **named: Any) -> Any:
        given = named["budget_bytes"]
        if not said:
            said.append(f"score_budget: blocks of {min(given, budget) // MIB} MiB instead of {given // MIB}")
            print(f"[spark] {said[0]}", flush=True)
        return original(**(named | {"budget_bytes": min(given, budget)}))

    def chunks(**_: Any) -> None:
        # Without DeepGEMM the budget is a constant of the module.
        scoring._TORCH_SCORE_BUDGET_BYTES = min(scoring._TORCH_SCORE_BUDGET_BYTES, budget)

    return {_TILES: tiles, _CHUNKS: chunks}


def check(values: Values) -> None:
    """The engine's own plan keeps a block of a long prompt's scores in the budget."""
    from sglang.kernels.ops.attention.dsv4.index_logits import flat_index_logits_rows_per_tile

    budget, width = values[BUDGET.name] * MIB, 262_144
    rows = flat_index_logits_rows_per_tile(4096, width, heads=64, budget_bytes=budget)
    assert 0 < rows * width * 4 <= budget, f"{rows} rows of {width} scores are planned for {budget} bytes"


ADAPTER = Adapter(
    name="score_budget",
    problem="SGLang scores a prompt chunk in blocks of up to 2 GiB, fit for a GPU with memory of its own; on a Spark "
    "that memory is the host's.",
    settings=(BUDGET,),
    hooks=(
        HookPoint(
            _TILES,
            Kind.AROUND,
            "(*, q, kv, weights, starts, lengths, context_lengths, budget_bytes)",
            Process.SCHEDULER,
        ),
        HookPoint(_CHUNKS, Kind.BEFORE, "(*, indexer, q, weights, index_k, request)", Process.SCHEDULER),
    ),
    engines=("0.5.23",),
    remove_when="SGLang sizes these blocks by the memory that is free.",
    off=lambda values: "" if values[BUDGET.name] else f"{BUDGET.name}=0",
    not_needed=checkpoint_config.not_for_this_model,
    functions=_functions,
    check=check,
)
