"""Between the chunks of a long prompt PyTorch gives back what it keeps for later: each chunk asks for other sizes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Switch, Values

TOKENS = Switch(
    "PREFILL_EMPTY_CACHE_TOKENS",
    8192,
    "after a prefill step of a prompt that is read this far, unused memory is given back; 0 gives none back",
    0,
    1_048_576,
)
_FORWARD = "sglang.srt.model_executor.model_runner.ModelRunner.forward"


def read_so_far(batch: Any) -> int:
    """Tokens of the batch's longest prompt up to the end of this step, without asking the GPU; 0 for other steps.

    A verify step and a draft's own extension are no steps of a prompt.
    """
    mode = batch.forward_mode
    if not mode.is_extend_or_draft_extend_or_mixed() or mode.is_split_prefill():
        return 0
    before, new = batch.extend_prefix_lens_cpu, batch.extend_seq_lens_cpu
    if not before or not new:
        return 0
    return max(int(one) + int(other) for one, other in zip(before, new, strict=True))


def _functions(values: Values) -> dict[str, Callable[..., Any]]:
    import torch
    from sglang.srt.model_executor.runner_utils.capture_mode import get_is_capture_mode

    least = values[TOKENS.name]

    def given_back(result: Any, runner: Any, forward_batch: Any, *_: Any, **__: Any) -> None:
        if runner.is_draft_worker or read_so_far(forward_batch) < least:
            return
        # A graph keeps the addresses that it was captured with.
        if get_is_capture_mode() or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            return
        torch.cuda.empty_cache()

    return {_FORWARD: given_back}


def check(values: Values) -> None:
    """A chunk is told from every other step by the engine's own modes."""
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    def far(mode: Any) -> int:
        return read_so_far(
            SimpleNamespace(forward_mode=mode, extend_prefix_lens_cpu=[8000, 1], extend_seq_lens_cpu=[768, 1])
        )

    found = {mode.name: far(mode) for mode in ForwardMode}
    assert {name for name, tokens in found.items() if tokens} == {"EXTEND", "MIXED"}, f"prefill steps: {found}"
    assert found["EXTEND"] == 8768, f"a step up to token 8768 counts as {found['EXTEND']}"


ADAPTER = Adapter(
    name="prefill_empty_cache",
    problem="While a long prompt is read, each chunk needs buffers of other sizes, and PyTorch keeps the earlier ones: "
    "on a Spark that memory is the host's.",
    settings=(TOKENS,),
    hooks=(
        HookPoint(
            _FORWARD,
            Kind.AFTER,
            "(self, forward_batch, skip_attn_backend_init=None, pp_proxy_tensors=None, reinit_attn_backend=False, "
            "split_forward_count=1)",
            Process.SCHEDULER,
        ),
    ),
    engines=("0.5.23",),
    remove_when="SGLang gives memory back between the chunks of a prompt.",
    off=lambda values: "" if values[TOKENS.name] else f"{TOKENS.name}=0",
    functions=_functions,
    check=check,
)
