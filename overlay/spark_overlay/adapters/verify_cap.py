"""DSpark verifies only the drafts that its confidence head expects to survive, in a block that keeps its shape.

What that saves are experts: a row beyond the cap stays in the batch and takes the experts of its block's first row, so
that it reads no weights of its own. Its result is never used: acceptance ends at the cap.

Why sampled output stays exact, also with block verification: whether position i is capped depends on the tokens drafted
before it alone (the head sees the anchor and drafts 1 to i-1, and hidden states that no draft reaches). Given drafts 1
to k, what verification gives for position k + 1 has the target's distribution, whatever rows behind it hold. At the
cap that token is kept, accepted draft or resampled, and what follows is drawn anew: a sequence cut at a time that its
past decides. A token drawn afresh there from the target, where the draft itself decides the cap, would be biased.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from spark_overlay import checkpoint_config
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Values, Word

CAP = Word(
    "DSV41_VERIFY_CAP",
    "conf:0.1",
    "conf:T leaves out the drafts of a block that survive with less than T, by the draft's own confidence; "
    "off verifies all",
    r"off|0|conf:0\.(?!0+$)[0-9]{1,3}",
    "off, or conf:T with T from 0.001 to 0.999",
    "conf:0.1",
)
MOST = 512
"""Requests of a step; more are verified whole."""
_DSPARK = "sglang.srt.speculative.dspark_components"
_HEAD = "sglang.srt.models.deepseek_v4_dspark.build_dspark_v4_confidence_head"
_PLANNER = f"{_DSPARK}.dspark_planner.DSparkVerifyPlanner.__init__"
_LAYOUT = f"{_DSPARK}.dspark_planner.DSparkVerifyPlanner.schedule_layout"
_GREEDY = f"{_DSPARK}.dspark_verify.DsparkVerifyEpilogue._accept"
_SAMPLED = f"{_DSPARK}.dspark_verify.accept_draft_tokens"
_TARGET = "sglang.srt.models.deepseek_v4.DeepseekV4ForCausalLM.forward"
_EXPERTS = "sglang.srt.layers.moe.fused_moe_triton.layer.FusedMoE.forward"


def verify_lens(confidence: Any, threshold: float) -> Any:
    """How many tokens of each block count, its anchor among them.

    Args:
        confidence: float [requests, drafts], each draft's chance once those before it were accepted; NaN ends a block.

    Returns:
        int32 [requests], from 1 to drafts + 1. No value of it is read by the host.
    """
    return (confidence.cumprod(dim=1) >= threshold).sum(dim=1).add(1).int()


class Staged:
    """What the captured graphs read of a step, at addresses that stay.

    Attributes:
        lens: int32 [MOST], as `verify_lens` gives them; whole blocks until the first step.
        rows: int64 [MOST * width], the row whose experts each row takes.
    """

    def __init__(self, torch: Any, width: int, device: Any) -> None:
        self.lens = torch.full((MOST,), width, dtype=torch.int32, device=device)
        self.rows = torch.arange(MOST * width, device=device)
        self._steps = torch.arange(width, device=device)
        self._anchors = self.rows[::width, None].clone()

    def put(self, lens: Any) -> None:
        """Rows behind those of `lens` keep what they had: any row of their own block."""
        count, width = len(lens), len(self._steps)
        self.lens[:count].copy_(lens)
        counted = self._steps < lens[:, None]
        self.rows[: count * width].copy_((self._anchors[:count] + self._steps * counted).view(-1))


def shared(topk: Any, rows: Any) -> Any:
    """The router's choice with the experts of `rows`; weights stay. Unchanged where the choice is made in the kernel or
    holds other rows than this step's.
    """
    ids = {name: getattr(topk, name, None) for name in ("topk_ids", "packed_topk_ids")}
    taken = {name: each[rows] for name, each in ids.items() if each is not None and len(each) == len(rows)}
    return topk._replace(**taken) if taken else topk


def not_needed(environment: Mapping[str, str]) -> str:
    if environment.get("SPEC_ALGO", "").lower() in ("off", "none", "0"):
        return "SPEC_ALGO is off: nothing is drafted"
    fields = checkpoint_config.of_environment(environment)
    if other := checkpoint_config.why_another_model(fields):
        return other
    return "" if not fields or fields.get("dspark_block_size") else "the checkpoint has no draft"


def _functions(values: Values) -> dict[str, Callable[..., Any]]:
    import torch
    from sglang.srt.models import deepseek_v4_dspark
    from sglang.srt.speculative.ragged_verify import RaggedVerifyLayout, RaggedVerifyMode
    from sglang.srt.speculative.spec_tp_sync import SpecTpSyncSite

    threshold = float(values[CAP.name].removeprefix("conf:"))
    staged: list[Staged] = []  # of this process's one worker
    forwards: list[Any] = []  # the target's forward that is running: its rows, None where nothing is capped
    warned: list[str] = []

    def lens_of(count: int) -> Any:
        return staged[0].lens[:count] if staged and count <= MOST else None

    def head(original: Callable[..., Any], *, config: Any, markov_rank: int) -> Any:
        made = original(config=config, markov_rank=markov_rank)
        if made is not None:
            return made
        read, mode = deepseek_v4_dspark.read_ragged_verify_mode, RaggedVerifyMode.CAP_ACCEPT
        deepseek_v4_dspark.read_ragged_verify_mode = lambda: mode
        try:
            return original(config=config, markov_rank=markov_rank)
        finally:
            deepseek_v4_dspark.read_ragged_verify_mode = read

    def planned(result: None, planner: Any, **_: Any) -> None:
        if planner.mode_value != "static" or not planner.carries_confidence:
            why = "the draft has no confidence" if planner.mode_value == "static" else f"mode {planner.mode_value}"
            print(f"[spark] WARNING verify_cap: nothing is capped: {why}", flush=True)
            return
        staged[:] = [Staged(torch, planner.verify_num_draft_tokens, planner.device)]
        print(f"[spark] verify_cap: of {planner.gamma} drafts, those that survive with {threshold} or more", flush=True)

    def layout(original: Callable[..., Any], planner: Any, **named: Any) -> Any:
        found, count = original(planner, **named), len(named["req_pool_indices"])
        if found is not None or lens_of(count) is None:
            return found
        lens = verify_lens(named["confidence"], threshold)
        planner._tp_sync.sync(SpecTpSyncSite.DSPARK_PLAN, lens)  # a row counts on all ranks or on none
        staged[0].put(lens)
        tokens = count * planner.verify_num_draft_tokens
        return RaggedVerifyLayout.from_verify_lens_device(verify_lens=lens, graph_num_tokens=tokens)

    def accepted_in_graph(original: Callable[..., Any], epilogue: Any, **named: Any) -> Any:
        if named.get("cutoff_verify_lens") is None:
            named["cutoff_verify_lens"] = lens_of(len(named["candidates"]))
        return original(epilogue, **named)

    def accepted(original: Callable[..., Any], **named: Any) -> Any:
        lens = lens_of(len(named["candidates"]))
        if named.get("cutoff_layout") is None and lens is not None:
            named["cutoff_layout"] = SimpleNamespace(verify_lens=lens)  # in the graph of the sampled acceptance
        return original(**named)

    def target(original: Callable[..., Any], model: Any, input_ids: Any, positions: Any, forward_batch: Any,
               *rest: Any, **named: Any) -> Any:  # fmt: skip
        capped = staged and forward_batch.forward_mode.is_target_verify() and len(input_ids) <= len(staged[0].rows)
        forwards.append(staged[0].rows[: len(input_ids)] if capped else None)
        try:
            return original(model, input_ids, positions, forward_batch, *rest, **named)
        finally:
            forwards.pop()

    def experts(original: Callable[..., Any], layer: Any, hidden_states: Any, topk_output: Any,
                *rest: Any, **named: Any) -> Any:  # fmt: skip
        if forwards and forwards[-1] is not None:
            given, topk_output = topk_output, shared(topk_output, forwards[-1])
            if given is topk_output and not warned:
                warned.append(
                    "no experts are saved: the choice of experts is no tensor of a step's rows in this engine"
                )
                print(f"[spark] WARNING verify_cap: {warned[0]}; write {CAP.name}=off", flush=True)
        return original(layer, hidden_states, topk_output, *rest, **named)

    return {
        _HEAD: head, _PLANNER: planned, _LAYOUT: layout, _GREEDY: accepted_in_graph, _SAMPLED: accepted,
        _TARGET: target, _EXPERTS: experts,
    }  # fmt: skip


def check(values: Values) -> None:
    """The cap reaches acceptance in this engine, and nothing that was switched on goes past it."""
    import torch
    from sglang.kernels.ops.speculative.dspark.dspark_accept import AcceptGreedy
    from sglang.srt.environ import envs

    assert not envs.SGLANG_DSPARK_FUSED_ACCEPT_TAIL.get(), (
        f"SGLANG_DSPARK_FUSED_ACCEPT_TAIL=1 accepts past the cap; remove it, or write {CAP.name}=off"
    )
    lens = verify_lens(torch.tensor([[0.9, 0.2, 0.5], [0.9, 0.9, 0.9]]), 0.1)
    tokens = torch.tensor([[7, 1, 2, 3], [7, 1, 2, 3]])
    choice = torch.nn.functional.one_hot(torch.tensor([1, 2, 3, 4] * 2), 8).float()
    found = AcceptGreedy.execute(
        candidates=tokens, target_logits=choice, verify_num_draft_tokens=4, cutoff_verify_lens=lens
    )
    assert [each.tolist() for each in found] == [[2, 3], [3, 4], [1, 0]], f"capped acceptance gives {found}"


ADAPTER = Adapter(
    name="verify_cap",
    problem="A verify step reads experts for every drafted token, also for those that have no chance, and on a Spark "
    "those weights are most of its time. Here a draft beyond the cap reads none: its row stays (Engram verifies equal "
    "blocks) and takes the experts of its block's first row. The rest of its row is still computed, and accepting less "
    "by itself would only lose tokens: the gain is the experts. Greedy output is the same; sampled output is exact in "
    "distribution, also with block verification.",
    settings=(CAP,),
    hooks=(
        HookPoint(_HEAD, Kind.AROUND, "(*, config, markov_rank)", Process.SCHEDULER),
        HookPoint(
            _PLANNER,
            Kind.AFTER,
            "(self, *, draft_model, gamma, model_runner, device, tp_rank, verify_num_draft_tokens, tp_sync)",
            Process.SCHEDULER,
        ),
        HookPoint(
            _LAYOUT,
            Kind.AROUND,
            "(self, *, req_pool_indices, prefix_lens, device, confidence, budget, global_num_reqs=None, "
            "dp_tier_num_tokens=None)",
            Process.SCHEDULER,
        ),
        HookPoint(
            _GREEDY,
            Kind.AROUND,
            "(self, *, candidates, logits, draft_tokens, seq_lens, cutoff_verify_lens=None)",
            Process.SCHEDULER,
        ),
        HookPoint(
            _SAMPLED,
            Kind.AROUND,
            "(*, candidates, target_logits, draft_block, sampling_info, draft_input, gamma, verify_num_draft_tokens, "
            "cutoff_layout=None, fused_argmax=False, block_verification=False, rejection_noise=None)",
            Process.SCHEDULER,
        ),
        HookPoint(
            _TARGET,
            Kind.AROUND,
            "(self, input_ids, positions, forward_batch, input_embeds=None, pp_proxy_tensors=None)",
            Process.SCHEDULER,
        ),
        HookPoint(_EXPERTS, Kind.AROUND, "(self, hidden_states, topk_output, pre_quant_input=None)", Process.SCHEDULER),
    ),
    engines=("0.5.23",),
    remove_when="SGLang's cap-accept mode keeps static verify and leaves capped rows without experts of their own.",
    off=lambda values: "" if str(values[CAP.name]).startswith("conf:") else f"{CAP.name}={values[CAP.name]}",
    not_needed=not_needed,
    functions=_functions,
    check=check,
)
