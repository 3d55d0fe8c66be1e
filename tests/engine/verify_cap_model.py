"""DSpark on the tiny V4.1 model, step by step as the worker does it, with the cap and without.

`python -m tests.engine.verify_cap_model FOLDER` prints one JSON object; run by the engine's Python. FOLDER is scratch
space.

The tiny model's own drafts hardly ever hit, so three of four drafted tokens are put right beforehand: the greedy
continuation is known. Confidence is the draft's own head, over those tokens.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from tests.engine.v41 import checkpoint, ranks
from tests.engine.v41.layout import TINY
from tests.engine.v41.ranks import Models, Setup

PADDED = {"num_attention_heads": 96, "o_groups": 12}
CAPPED = {"DSV41_VERIFY_CAP": "conf:0.1"}
SETUPS = (
    Setup("without", 1),
    Setup("capped", 1, armed=("verify_cap",), settings=CAPPED),
    Setup("capped, TP3", 3, override=PADDED, armed=("tp_padding", "verify_cap"), settings=CAPPED),
)
DRAFTS, WIDTH, SAID = TINY.draft_block, TINY.draft_block + 1, 14
REQUESTS = {1: 12, 2: 26}


def counted_experts(models: Models) -> list[int]:
    """Grows by the number of experts that each expert layer of the target is asked for."""
    from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE

    ours = {id(module) for module in models.target.modules() if isinstance(module, FusedMoE)}
    original, found = FusedMoE.forward_impl, []

    def counted(layer: Any, hidden_states: Any, topk_output: Any, *rest: Any, **named: Any) -> Any:
        if id(layer) in ours:
            found.append(len(topk_output.topk_ids.unique()))
        return original(layer, hidden_states, topk_output, *rest, **named)

    FusedMoE.forward_impl = counted
    return found


@dataclass
class Found:
    """What a run says and asks for.

    Attributes:
        lens: tokens that counted, of each block.
        experts, experts_whole: asked for by all verifications, as they were and with every row's own.
        counted, beyond: largest difference of logits between those two, of rows that count and of the others.
    """

    said: list[list[int]] = field(default_factory=list)
    lens: list[int] = field(default_factory=list)
    steps: int = 0
    experts: int = 0
    experts_whole: int = 0
    counted: float = 0.0
    beyond: float = 0.0


class Decoding:
    """One engine's steps for REQUESTS, greedy. `experts` grows with what the target asks for."""

    def __init__(self, models: Models, experts: list[int] | None = None) -> None:
        from sglang.srt.distributed import get_tp_group
        from sglang.srt.model_executor.forward_batch_info import ForwardMode
        from sglang.srt.speculative.dspark_components.dspark_planner import DSparkVerifyPlanner
        from sglang.srt.speculative.spec_tp_sync import SpecTpSync

        from tests.engine.v41 import forward

        self.models, self.modes, self.experts = models, ForwardMode, [] if experts is None else experts
        self.sync = SpecTpSync(get_tp_group())
        self.planner = DSparkVerifyPlanner(
            draft_model=models.draft, gamma=DRAFTS, model_runner=None, device="cpu", tp_rank=models.rank,
            verify_num_draft_tokens=WIDTH, tp_sync=self.sync,
        )  # fmt: skip
        models.target.model.engram_hasher.history.zero_()
        self.served = forward.Served(models)
        prompts = {request: forward.words(request, 0, count) for request, count in REQUESTS.items()}
        self.anchors = self.served.target(ForwardMode.EXTEND, prompts).argmax(-1)

    def plain(self) -> torch.Tensor:
        """SAID tokens a request, one a step: what every way has to say."""
        said = [self.anchors]
        for _ in range(SAID + WIDTH):
            rows = {request: [int(token)] for request, token in zip(REQUESTS, said[-1], strict=True)}
            said.append(self.served.target(self.modes.DECODE, rows).argmax(-1))
        return torch.stack(said, dim=1)

    def drafted(self, right: torch.Tensor, at: list[int]) -> tuple[torch.Tensor, Any]:
        """The draft's block with most tokens put right, and its confidence in them (None without a head)."""
        from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
        from sglang.srt.speculative.dspark_components.dspark_draft import DraftNoise, sample_draft_block

        model, count = self.models.draft, len(REQUESTS)
        rows = {
            request: [int(a)] + [TINY.noise_token] * (DRAFTS - 1)
            for request, a in zip(REQUESTS, self.anchors, strict=True)
        }
        batch = self.served.batch(self.modes.TARGET_VERIFY, rows)
        with forward_context(ForwardContext(attn_backend=self.served.draft_backend)), torch.no_grad():
            hidden = model(batch.input_ids, batch.positions, batch).hidden_states
            base, features = model.compute_base_logits(hidden)
            block = sample_draft_block(
                base_logits=base.view(count, DRAFTS, -1), anchor_tokens=self.anchors, draft_hidden=None,
                sampling_info=None, markov_head=model.markov_head, device=torch.device("cpu"), tp_sync=self.sync,
                noise=DraftNoise(1, torch.zeros(1, dtype=torch.long)), greedy_draft=True,
            )  # fmt: skip
            tokens = block.draft_tokens.clone()
            for row, start in enumerate(at):
                dice = torch.Generator().manual_seed(100 * row + start)
                truth = right[row, start + 1 : start + WIDTH]
                tokens[row] = torch.where(torch.rand(DRAFTS, generator=dice) < 0.75, truth, tokens[row])
            if model.confidence_head is None:
                return tokens, None
            return tokens, model.compute_confidence(
                anchor_tokens=self.anchors, draft_tokens=tokens, confidence_features=features
            )[0]

    def speculate(self, right: torch.Tensor, *, compare: bool) -> Found:
        """Until every request has said SAID tokens."""
        found = Found([[int(token)] for token in self.anchors])
        while min(map(len, found.said)) < SAID:
            self._step(right, found, compare)
        found.said = [line[:SAID] for line in found.said]
        return found

    def _step(self, right: torch.Tensor, found: Found, compare: bool) -> None:
        """One draft, one verification."""
        from sglang.srt.speculative.dspark_components.dspark_verify import accept_draft_tokens

        tokens, confidence = self.drafted(right, [min(len(line), SAID) - 1 for line in found.said])
        pool = torch.tensor(list(REQUESTS))
        layout = self.planner.schedule_layout(
            req_pool_indices=pool, prefix_lens=torch.tensor([self.served.lengths[each] for each in REQUESTS]),
            device=torch.device("cpu"), confidence=confidence, budget=None,
        )  # fmt: skip
        candidates = torch.cat([self.anchors[:, None], tokens], dim=1)
        rows = {request: line.tolist() for request, line in zip(REQUESTS, candidates, strict=True)}
        before, asked = dict(self.served.lengths), len(self.experts)
        logits = self.served.target(self.modes.TARGET_VERIFY, rows)
        found.experts += sum(self.experts[asked:])
        if layout is not None:
            found.lens += layout.verify_lens.tolist()
        if compare:
            self._compare(rows, before, logits, layout.verify_lens, found)
        length, bonus, _ = accept_draft_tokens(
            candidates=candidates, target_logits=logits, draft_block=SimpleNamespace(greedy_mask=None),
            sampling_info=None, draft_input=None, gamma=DRAFTS, verify_num_draft_tokens=WIDTH, cutoff_layout=layout,
        )  # fmt: skip
        self.models.target.model.engram_hasher.commit_after_verify(candidates, pool, length + 1)
        for row, request in enumerate(REQUESTS):
            self.served.lengths[request] = before[request] + int(length[row]) + 1
            found.said[row] += [*tokens[row, : int(length[row])].tolist(), int(bonus[row])]
        self.anchors = bonus
        found.steps += 1

    def _compare(
        self, rows: Any, before: dict[int, int], capped: torch.Tensor, lens: torch.Tensor, found: Found
    ) -> None:
        """The same verification once more with every row's own experts: rows that count are as they were."""
        kept, asked = STAGED[0].rows.clone(), len(self.experts)
        STAGED[0].rows.copy_(torch.arange(len(kept)))
        self.served.lengths = dict(before)
        whole = self.served.target(self.modes.TARGET_VERIFY, rows)
        found.experts_whole += sum(self.experts[asked:])
        STAGED[0].rows.copy_(kept)
        self.served.lengths = dict(before)
        self.served.target(self.modes.TARGET_VERIFY, rows)
        counts = (torch.arange(WIDTH) < lens[:, None]).view(-1)
        difference = (whole - capped).abs().amax(-1)
        found.counted = max(found.counted, float(difference[counts].max()))
        found.beyond = max([found.beyond, *difference[~counts].tolist()])


STAGED: list[Any] = []
"""The adapter's buffers, as its constructor makes them."""


def watch() -> None:
    from spark_overlay.adapters import verify_cap

    made = verify_cap.Staged.__init__

    def kept(self: Any, *rest: Any) -> None:
        made(self, *rest)
        STAGED[:] = [self]

    verify_cap.Staged.__init__ = kept


def leave_out_one_row_too_many() -> None:
    from spark_overlay.adapters import verify_cap

    put = verify_cap.Staged.put
    verify_cap.Staged.put = lambda self, lens: put(self, (lens - 1).clamp(min=1))


def work(setup: Setup, folder: Path, rank: int) -> dict[str, Any]:
    watch()
    models = ranks.load(folder, rank)
    head = models.draft.confidence_head
    name = "mtp.2.confidence_head.proj.weight"
    stored = checkpoint.tensor(name, checkpoint.tensors(TINY)[name])
    right, experts = Decoding(models).plain(), counted_experts(models)
    answer = {
        "head": head is not None and bool(torch.equal(head.proj.weight, stored)),
        "right": right[:, :SAID].tolist(),
        "found": vars(Decoding(models, experts).speculate(right, compare=setup.name == "capped")),
    }
    if setup.name == "capped":
        leave_out_one_row_too_many()
        answer["one row too many"] = vars(Decoding(models, experts).speculate(right, compare=False))
    return answer


if __name__ == "__main__":
    scratch = Path(sys.argv[1])
    checkpoint.write(scratch)
    print(json.dumps({setup.name: ranks.run(setup, scratch, work) for setup in SETUPS}))
