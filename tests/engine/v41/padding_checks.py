"""What the padding of a loaded model has to be, read off its parameters: two zero factors would hide it from logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.engine.v41.layout import BLOCK, TINY
from tests.engine.v41.ranks import Models


@dataclass
class Found:
    """One rank's padding.

    Attributes:
        faults: a sentence for each wrong tensor; none is right.
        padded: how many heads and groups of this rank are padding, in each layer or stage, and how many draft experts.
        converted: FP8 layers whose scales become MXFP8's e8m0 by SGLang's own function.
    """

    faults: list[str] = field(default_factory=list)
    padded: dict[str, int] = field(default_factory=dict)
    converted: int = 0


def attentions(models: Models) -> Iterator[tuple[str, Any]]:
    """Name and module of each attention, target and draft."""
    for number, layer in enumerate(models.target.model.layers):
        yield f"layers.{number}.attn", layer.self_attn
    for number, stage in enumerate(models.draft.stages):
        yield f"mtp.{number}.attn", stage.self_attn


def _behind(total: int, local: int, rank: int) -> int:
    """Where the padding begins in a rank's `local` parts, when the first `total` of all are real."""
    return min(local, max(0, total - rank * local))


def look(models: Models, ep_rank: int) -> Found:
    """All checks on this rank's shard."""
    found = Found()
    for name, attention in attentions(models):
        _attention(name, attention, models.rank, found)
    for number, stage in enumerate(models.draft.stages):
        _experts(f"mtp.{number}.ffn", stage.mlp, ep_rank, found)
    _conversions(models, found)
    return found


def _zero(found: Found, name: str, part: torch.Tensor) -> None:
    if part.numel() and bool(part.float().ne(0).any() | part.float().isnan().any()):
        found.faults.append(f"{name}: its padding is not zero")


def _one(found: Found, name: str, part: torch.Tensor) -> None:
    if part.numel() and not bool(part.float().eq(1).all()):
        found.faults.append(f"{name}: a scale of its padding is {part.float()[part.float() != 1][0].item()}, not 1.0")


def _attention(name: str, attention: Any, rank: int, found: Found) -> None:
    heads = _behind(TINY.heads, attention.n_local_heads, rank)
    groups = _behind(TINY.groups, attention.n_local_groups, rank)
    # Rows of a head, rows and columns of a group.
    row, lora = heads * attention.head_dim, groups * attention.o_lora_rank
    found.padded |= {"heads": attention.n_local_heads - heads, "groups": attention.n_local_groups - groups}
    _zero(found, f"{name}.attn_sink", attention.attn_sink[TINY.heads :])
    _zero(found, f"{name}.wq_b.weight", attention.wq_b.weight[row:])
    _one(found, f"{name}.wq_b.scale", attention.wq_b.weight_scale_inv[row // BLOCK :])
    _zero(found, f"{name}.wo_a.weight", attention.wo_a.weight[lora:])
    _zero(found, f"{name}.wo_b.weight", attention.wo_b.weight[:, lora:])
    _one(found, f"{name}.wo_b.scale", attention.wo_b.weight_scale_inv[:, lora // BLOCK :])


def _experts(name: str, moe: Any, ep_rank: int, found: Found) -> None:
    experts = moe.experts
    local = experts.w13_weight.shape[0]
    real = _behind(TINY.draft_experts, local, ep_rank)
    found.padded["draft experts"] = local - real
    for part in ("w13", "w2"):
        _zero(found, f"{name}.experts.{part}", getattr(experts, f"{part}_weight")[real:])
        _one(found, f"{name}.experts.{part}.scale", getattr(experts, f"{part}_weight_scale_inv")[real:])
    _zero(found, f"{name}.gate.weight", moe.gate.weight[TINY.draft_experts :])
    bias = moe.gate.e_score_correction_bias[TINY.draft_experts :]
    if bias.numel() and not bool((bias < -1e20).all()):
        found.faults.append(f"{name}.gate.bias: {bias.max().item():g} of a padded expert can win")


def _conversions(models: Models, found: Found) -> None:
    from sglang.srt.layers.quantization.fp8_utils import block_fp8_scale_to_mxfp8_e8m0

    for model in (models.target, models.draft):
        for name, module in model.named_modules():
            scale = getattr(module, "weight_scale_inv", None)
            if scale is None or getattr(module, "weight", None) is None:
                continue
            try:
                block_fp8_scale_to_mxfp8_e8m0(scale.data, tuple(module.weight.shape), [BLOCK, BLOCK])
                found.converted += 1
            except ValueError as error:
                found.faults.append(f"{name}: {error}")
