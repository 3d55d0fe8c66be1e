"""SGLang's chain acceptance on many rows at once, in torch, and a comparison with its own kernel.

The kernel (`kernels/ops/speculative/reject_sampling.py`) exists in Triton only and decides a row a program: a million
rows want another form. `TRITON_INTERPRET=1 python -m tests.engine.chain_sampling` runs both on the same coins and
prints one JSON object; a process of its own, Triton reads the variable at import.
"""

from __future__ import annotations

import json
from typing import Any

import torch


def chain(
    predicts: torch.Tensor, accept_index: torch.Tensor, accept_token_num: torch.Tensor, candidates: torch.Tensor,
    retrive_index: torch.Tensor, retrive_next_token: Any, retrive_next_sibling: Any, uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor, target_probs: torch.Tensor, draft_probs: torch.Tensor,
    threshold_single: float, threshold_acc: float, deterministic: bool, *, block_verification: bool = False,
) -> None:  # fmt: skip
    """`chain_speculative_sampling_triton`, the same arguments; writes the first three."""
    rows, drafts = candidates.shape[0], candidates.shape[1] - 1
    tokens = candidates[:, 1:, None]
    p = target_probs[:, :drafts].gather(-1, tokens).squeeze(-1)
    q = draft_probs.gather(-1, tokens).squeeze(-1)
    accepted = torch.zeros(rows, dtype=torch.long)
    scale = torch.ones(rows)
    if block_verification:
        prefix = [torch.ones(rows)]
        for step in range(drafts):
            ratio = (prefix[-1] * p[:, step] / q[:, step]).clamp(max=1.0)
            prefix.append(torch.where((q[:, step] > 0) & (q[:, step] <= 1), ratio, 0.0))
        for step in range(drafts, 0, -1):
            held = chance = prefix[step]
            if step < drafts:
                left = (held[:, None] * target_probs[:, step] - draft_probs[:, step]).clamp(min=0).sum(-1)
                chance = torch.where((held > 0) & (held < 1), left / (left + 1 - held), held)
            coin = uniform_samples[:, step - 1]
            taken = (accepted == 0) & (coin < held) & (coin < chance)
            accepted = torch.where(taken, step, accepted)
            scale = torch.where(taken, held, scale)
    else:
        ok = (q > 0) & (q <= 1) & (uniform_samples[:, :drafts] * q < p)
        accepted = ok.long().cumprod(-1).sum(-1)
    each = torch.arange(rows)
    last = target_probs[each, accepted]
    proposed = torch.cat([draft_probs, torch.zeros_like(draft_probs[:, :1])], dim=1)[each, accepted]
    residual = torch.where((accepted == drafts)[:, None], last, (scale[:, None] * last - proposed).clamp(min=0))
    edges = residual.cumsum(-1)
    above = edges > (uniform_samples_for_final_sampling * residual.sum(-1))[:, None]
    final = torch.where(above.any(-1), above.int().argmax(-1), residual.shape[-1] - 1)
    said = torch.cat([candidates[:, 1:], torch.zeros_like(candidates[:, :1])], dim=1).scatter(
        1, accepted[:, None], final[:, None]
    )
    predicts[retrive_index.reshape(-1)] = said.reshape(-1).to(predicts.dtype)
    accept_index.copy_(retrive_index)
    accept_token_num.copy_(accepted)


def compare(rows: int, vocabulary: int, drafts: int, block_verification: bool) -> dict[str, Any]:
    """Random distributions, peaked and flat, on both forms; what counts of a row is what was accepted and its end."""
    from sglang.kernels.ops.speculative.reject_sampling import chain_speculative_sampling_triton

    dice = torch.Generator().manual_seed(5)
    slots = drafts + 1
    target = (torch.randn(rows, slots, vocabulary, generator=dice) * 1.5).softmax(-1)
    draft = (target[:, :drafts].log() + torch.randn(rows, drafts, vocabulary, generator=dice) * 0.7).softmax(-1)
    drawn = torch.multinomial(draft.view(-1, vocabulary), 1, generator=dice).view(rows, drafts)
    given = {
        "candidates": torch.cat([torch.zeros(rows, 1, dtype=torch.long), drawn], dim=1),
        "retrive_index": torch.arange(rows * slots).view(rows, slots),
        "retrive_next_token": None, "retrive_next_sibling": None,
        "uniform_samples": torch.rand(rows, drafts, generator=dice),
        "uniform_samples_for_final_sampling": torch.rand(rows, generator=dice),
        "target_probs": target, "draft_probs": draft, "threshold_single": 1.0, "threshold_acc": 1.0,
        "deterministic": True, "block_verification": block_verification,
    }  # fmt: skip
    said = []
    for form in (chain_speculative_sampling_triton, chain):
        predicts, index = torch.zeros(rows * slots, dtype=torch.int32), torch.zeros(rows, slots, dtype=torch.int32)
        count = torch.zeros(rows, dtype=torch.int32)
        form(predicts, index, count, **given)
        counted = torch.arange(slots) <= count[:, None]
        said.append((count, torch.where(counted, predicts.view(rows, slots), -1), torch.where(counted, index, -1)))
    differ = sum((ours != theirs).view(rows, -1).any(-1) for theirs, ours in zip(*said, strict=True))
    return {
        "rows": rows,
        "differ": int((differ > 0).sum()),
        "accepted": torch.bincount(said[0][0], minlength=slots).tolist(),
    }


if __name__ == "__main__":
    print(json.dumps({kind: compare(300, 7, 5, kind == "block") for kind in ("token", "block")}))
