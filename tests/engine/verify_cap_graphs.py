"""What a captured graph reads of the cap, with the engine's own planner and acceptance and the adapter armed.

`python -m tests.engine.verify_cap_graphs`, by the engine's Python, prints one JSON object: case -> what is wrong, ''
where nothing is. A CPU cannot capture; it can show that a graph's inputs are written at addresses that stay, that what
reads them cuts there, and that no value is needed on the host: the step runs on tensors that have none (`meta`).
"""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from sglang.kernels.ops.speculative.dspark.blockwise_rejection import make_rejection_noise
from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.layers.moe.topk import StandardTopKOutput, StandardTopKOutputPacked
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.models.deepseek_v4 import DeepseekV4ForCausalLM
from sglang.srt.runtime_context import SpawnRanks, publish, reset_context
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.dspark_components import dspark_planner, dspark_sampling_accept_graph, dspark_verify
from sglang.srt.speculative.spec_tp_sync import SpecTpSync
from spark_overlay import arming
from spark_overlay.adapter import Process
from spark_overlay.adapters import verify_cap

DRAFTS, WIDTH, VOCABULARY, THRESHOLD = 5, 6, 11, 0.1
LIVE, CAPTURED = 3, 4
"""Requests of the step, and of the graph that it is padded to."""
SYNC = SpecTpSync(SimpleNamespace(world_size=1, rank_in_group=0))
MADE: list[verify_cap.Staged] = []


def planner(device: str = "cpu", head: Any = "a head") -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        made = dspark_planner.DSparkVerifyPlanner(
            draft_model=SimpleNamespace(confidence_head=head), gamma=DRAFTS, model_runner=None, device=device,
            tp_rank=0, verify_num_draft_tokens=WIDTH, tp_sync=SYNC,
        )  # fmt: skip
    made.said = said.getvalue()
    return made


def layout(of: Any, confidence: torch.Tensor) -> Any:
    pool = torch.zeros(len(confidence), dtype=torch.long, device=confidence.device)
    return of.schedule_layout(
        req_pool_indices=pool, prefix_lens=pool, device=confidence.device, confidence=confidence, budget=None
    )


def confidences(count: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, DRAFTS, generator=torch.Generator().manual_seed(seed))


def block(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Candidates, logits and lengths of CAPTURED requests, most drafts right."""
    dice = torch.Generator().manual_seed(seed)
    logits = torch.randn(CAPTURED * WIDTH, VOCABULARY, generator=dice)
    right = logits.argmax(-1).view(CAPTURED, WIDTH)
    drafts = torch.where(torch.rand(CAPTURED, DRAFTS, generator=dice) < 0.8, right[:, :-1], 0)
    return torch.cat([torch.full((CAPTURED, 1), 7), drafts], dim=1), logits, torch.arange(CAPTURED) + 20


def lens_are_the_prefix_that_survives() -> str:
    """Against plain Python, with the values that a float can trip over."""
    dice = random.Random(1)
    for _ in range(500):
        row = [dice.choice([0.0, 0.1, 0.32, 0.5, 0.99, 1.0, float("nan"), dice.random()]) for _ in range(DRAFTS)]
        wanted, survives = 1, torch.tensor(1.0)
        for each in row:
            survives = survives * torch.tensor(each)
            if not float(survives) >= THRESHOLD:
                break
            wanted += 1
        found = verify_cap.verify_lens(torch.tensor([row]), THRESHOLD)
        if found.tolist() != [wanted] or found.dtype is not torch.int32:
            return f"{row} gives {found}, wanted {wanted}"
    return ""


def rows_take_their_blocks_first() -> str:
    of, lens = planner(), None
    if "drafts, those that survive with 0.1 or more" not in of.said:
        return of.said
    addresses = MADE[-1].lens.data_ptr(), MADE[-1].rows.data_ptr()
    for seed, count in enumerate((LIVE, 1, 8)):
        lens = layout(of, confidences(count, seed)).verify_lens.tolist()
        wanted = [r * WIDTH + (s if s < lens[r] else 0) for r in range(count) for s in range(WIDTH)]
        if MADE[-1].rows[: count * WIDTH].tolist() != wanted or MADE[-1].lens[:count].tolist() != lens:
            return f"{lens}: {MADE[-1].rows[: count * WIDTH].tolist()}"
    moved = addresses != (MADE[-1].lens.data_ptr(), MADE[-1].rows.data_ptr())
    return "the buffers moved" if moved or len(set(lens or ())) < 3 else ""


def the_greedy_graph_cuts_as_the_eager_way() -> str:
    candidates, logits, lengths = block()
    made = layout(planner(), confidences(LIVE, 2))
    epilogue = dspark_verify.DsparkVerifyEpilogue(
        max_bs=CAPTURED, verify_num_draft_tokens=WIDTH, device="cpu", tp_sync=SYNC
    )
    epilogue.begin_static_step(LIVE, True)
    epilogue._accept_static_greedy(
        SimpleNamespace(candidates=candidates, logits=logits, seq_lens=lengths),
        verify_lens=epilogue.verify_lens_buf[:CAPTURED], gate=epilogue.inject_gate_buf, gated=True,
    )  # fmt: skip
    eager = dspark_verify.accept_draft_tokens(
        candidates=candidates[:LIVE], target_logits=logits[: LIVE * WIDTH],
        draft_block=SimpleNamespace(greedy_mask=None), sampling_info=None, draft_input=None, gamma=DRAFTS,
        verify_num_draft_tokens=WIDTH, cutoff_layout=made,
    )  # fmt: skip
    graph = epilogue.read_accept(LIVE)
    same = [graph.correct_len, graph.bonus, graph.cap_trim_lens]
    if any(a.tolist() != b.tolist() for a, b in zip(same, eager, strict=True)):
        return f"{same} and {eager}"
    return "" if int(eager[2].sum()) else "nothing was cut"


def the_sampled_graph_cuts_as_the_eager_way() -> str:
    candidates, logits, lengths = block(3)
    logits = 8 * logits  # a draft that was the likeliest token is mostly accepted
    made = layout(planner(), confidences(CAPTURED, 2))
    epilogue = dspark_verify.DsparkVerifyEpilogue(
        max_bs=CAPTURED, verify_num_draft_tokens=WIDTH, device="cpu", tp_sync=SYNC
    )
    ones = torch.ones(CAPTURED)
    sampler = SimpleNamespace(
        params=SimpleNamespace(greedy_mask=ones.bool(), temperatures=ones), greedy_draft=True, step_logits=None
    )
    dspark_sampling_accept_graph.sampling_accept_commit_lens(
        SimpleNamespace(candidates=candidates, logits=logits, seq_lens=lengths),
        verify_lens=torch.full((CAPTURED,), WIDTH), gate=epilogue.inject_gate_buf, gated=False, draft_sampler=sampler,
        epilogue=epilogue, tp_sync=SYNC, fused_argmax=False, block_verification=False,
        rejection_noise=make_rejection_noise(5, "cpu"),
    )  # fmt: skip
    eager = dspark_verify.accept_draft_tokens(
        candidates=candidates, target_logits=logits,
        draft_block=dspark_verify.DraftBlockResult(candidates[:, 1:], None, ones.bool(), ones, True),
        sampling_info=dspark_sampling_accept_graph.GraphSamplingInfo(temperatures=ones), draft_input=None, gamma=DRAFTS,
        verify_num_draft_tokens=WIDTH, cutoff_layout=made, rejection_noise=make_rejection_noise(5, "cpu"),
    )  # fmt: skip
    graph = epilogue.read_accept(CAPTURED)
    if [graph.correct_len.tolist(), graph.bonus.tolist()] != [eager[0].tolist(), eager[1].tolist()]:
        return f"{graph.correct_len} {graph.bonus} and {eager}"
    return "" if int(eager[2].sum()) else "nothing was cut"


def experts_are_shared_in_both_forms_of_a_choice() -> str:
    rows = torch.tensor([0, 0, 2, 2])
    ids, weights = torch.tensor([[1, 2], [3, 4], [5, 6], [-1, -1]], dtype=torch.int32), torch.rand(4, 2)
    plain = verify_cap.shared(StandardTopKOutput(weights, ids, weights), rows)
    packed = verify_cap.shared(StandardTopKOutputPacked(weights, ids, weights, ids * 9), rows)
    other = StandardTopKOutput(weights[:3], ids[:3], weights)
    wanted = [[1, 2], [1, 2], [5, 6], [5, 6]]
    if plain.topk_ids.tolist() != wanted or plain.topk_weights is not weights or plain.topk_ids.dtype is not ids.dtype:
        return f"{plain}"
    if packed.topk_ids.tolist() != wanted or packed.packed_topk_ids.tolist() != [[9 * a, 9 * b] for a, b in wanted]:
        return f"{packed}"
    kept = verify_cap.shared(other, rows) is other and verify_cap.shared("in the kernel", rows) == "in the kernel"
    return "" if kept else "a choice for other rows was changed"


def asked(topk: list[Any], mode: ForwardMode) -> tuple[list[Any], str]:
    """What the experts of a target's forward get of each choice, and what is printed; the model itself is left out."""
    got: list[Any] = []
    layer = SimpleNamespace(_use_ascend_fuseep=False)
    layer.forward_impl = lambda hidden_states, topk_output, **_: got.append(topk_output)

    def instead_of_layers(*_: Any) -> Any:
        for each in topk:
            FusedMoE.forward(layer, None, each)
        raise InterruptedError

    model = SimpleNamespace(prepare_language_model_inputs=instead_of_layers)
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(InterruptedError):
        DeepseekV4ForCausalLM.forward(model, torch.zeros(WIDTH), None, SimpleNamespace(forward_mode=mode))
    return got, said.getvalue()


def a_targets_verification_alone_shares_experts() -> str:
    layout(planner(), torch.zeros(1, DRAFTS))
    ids = torch.arange(2 * WIDTH, dtype=torch.int32).view(WIDTH, 2)
    choice = StandardTopKOutput(ids.float(), ids, None)
    for mode in (ForwardMode.EXTEND, ForwardMode.DECODE):
        if asked([choice], mode)[0][0] is not choice:
            return f"{mode} shares"
    layer = SimpleNamespace(_use_ascend_fuseep=False, forward_impl=lambda hidden_states, topk_output, **_: topk_output)
    if FusedMoE.forward(layer, None, choice) is not choice:
        return "the draft shares"
    got, said = asked([choice, "in the kernel", "in the kernel"], ForwardMode.TARGET_VERIFY)
    if got[0].topk_ids.tolist() != [[0, 1]] * WIDTH or got[1:] != ["in the kernel"] * 2:
        return f"{got}"
    once = said.count("WARNING verify_cap: no experts are saved") == 1 and "write DSV41_VERIFY_CAP=off" in said
    return "" if once else said


def no_value_is_needed_on_the_host() -> str:
    """`meta` tensors have none: a .item(), .tolist() or an index by a mask raises."""
    of = planner("meta")
    made = layout(of, torch.rand(LIVE, DRAFTS, device="meta"))
    ids = torch.zeros(LIVE * WIDTH, 6, dtype=torch.int32, device="meta")
    topk = verify_cap.shared(StandardTopKOutput(ids.float(), ids, None), MADE[-1].rows[: LIVE * WIDTH])
    shapes = made.verify_lens.shape, topk.topk_ids.shape
    try:
        made.verify_lens.sum().item()
    except (RuntimeError, NotImplementedError):
        return "" if shapes == ((LIVE,), ids.shape) else f"{shapes}"
    return "a meta tensor gave a value: this case cannot fail"


def more_requests_than_the_buffers_hold_are_verified_whole() -> str:
    of = planner()
    if layout(of, confidences(verify_cap.MOST)) is None:
        return f"{verify_cap.MOST} are not capped"
    return "" if layout(of, confidences(verify_cap.MOST + 1)) is None else "capped without a row to say so"


def a_draft_without_a_head_is_said() -> str:
    of = planner(head=None)
    made = layout(of, confidences(LIVE)) if MADE else None
    return (
        "" if "WARNING verify_cap: nothing is capped: the draft has no confidence" in of.said else f"{of.said} {made}"
    )


def recorded() -> None:
    made = verify_cap.Staged.__init__

    def kept(self: Any, *rest: Any) -> None:
        made(self, *rest)
        MADE.append(self)

    verify_cap.Staged.__init__ = kept


def cases() -> Iterator[Callable[[], str]]:
    yield lens_are_the_prefix_that_survives
    yield rows_take_their_blocks_first
    yield the_greedy_graph_cuts_as_the_eager_way
    yield the_sampled_graph_cuts_as_the_eager_way
    yield experts_are_shared_in_both_forms_of_a_choice
    yield a_targets_verification_alone_shares_experts
    yield no_value_is_needed_on_the_host
    yield more_requests_than_the_buffers_hold_are_verified_whole
    yield a_draft_without_a_head_is_said


def main() -> None:
    recorded()
    reset_context()
    arguments = ServerArgs(model_path="dummy", tp_size=1, device="cpu")
    publish(arguments, role="test", ranks=SpawnRanks(world_rank=0, dp_rank=None))
    values = arming.values_of([verify_cap.ADAPTER], {"DSV41_VERIFY_CAP": f"conf:{THRESHOLD}"})
    arming.arm([verify_cap.ADAPTER], values, [Process.SCHEDULER])
    print(json.dumps({case.__name__: case() for case in cases()}))


if __name__ == "__main__":
    main()
