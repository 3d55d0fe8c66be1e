"""Three ranks load a model whose 64 heads, 8 groups and 128 draft experts do not divide by three."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spark_overlay import checkpoint_config
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Switch, Values
from spark_overlay.tp_padding import OVERRIDES, Padded, PaddingError, Sizes, pad

PAD = Switch("DSV41_TP_PAD", 1, "1 pads heads, groups and draft experts where TP_SIZE or EP_SIZE does not divide them")
_TARGET = "sglang.srt.models.deepseek_v4.DeepseekV4ForCausalLM.load_weights"
_BUILT = "sglang.srt.models.deepseek_v4.DeepseekV4ForCausalLM.__init__"
_DRAFT_BUILT = "sglang.srt.models.deepseek_v4_dspark.DeepseekV4ForCausalLMDSpark.__init__"
_DRAFT = "sglang.srt.models.deepseek_v4_dspark.DeepseekV4ForCausalLMDSpark.load_weights"


def not_needed(environment: Mapping[str, str]) -> str:
    """Why the model at MODEL_PATH needs no padding on TP_SIZE ranks in EP_SIZE groups."""
    fields = checkpoint_config.of_environment(environment)
    if other := checkpoint_config.why_another_model(fields):
        return other
    real = Sizes.of(fields)
    tp, ep = (int(environment.get(name, "").strip() or 1) for name in ("TP_SIZE", "EP_SIZE"))
    if real.padded(tp, ep) != real:
        return ""
    return f"{real.heads} heads and {real.groups} groups divide by {tp}, {real.draft_experts} draft experts by {ep}"


def _functions(values: Values) -> dict[str, Callable[..., Any]]:
    def load(of: str, original: Callable[..., Any], model: Any, weights: Any, *rest: Any, **named: Any) -> Any:
        from sglang.srt.runtime_context import get_parallel

        parallel = get_parallel()
        tp, rank = parallel.attn_tp_size, parallel.attn_tp_rank
        real, wanted = _meet(model.config)
        counts = Padded()
        loaded = original(model, pad(weights, real, wanted, counts, of), *rest, **named)
        mine = range(wanted.heads // tp * rank, wanted.heads // tp * (rank + 1))
        empty = len(mine) - max(0, min(real.heads, mine.stop) - mine.start)
        print(
            f"[spark] tp_padding: {type(model).__name__} rank {rank} of {tp}: {wanted.said(real) or 'nothing padded'}; "
            f"{empty} of this rank's {len(mine)} heads are padding; {counts.tensors} tensors padded, "
            f"{counts.unit_scales} block scales of padding set to 1.0, {counts.untouched} tensors as they are",
            flush=True,
        )
        return loaded

    def built(model: Any, config: Any, *_: Any, **__: Any) -> None:
        """Before the model is built: with other sizes the engine would only say that a number does not divide."""
        _meet(config)

    return {
        _TARGET: lambda *given, **named: load("layers.", *given, **named),
        _DRAFT: lambda *given, **named: load("mtp.", *given, **named),
        _BUILT: built,
        _DRAFT_BUILT: built,
    }


def _meet(config: Any) -> tuple[Sizes, Sizes]:
    """The checkpoint's sizes and those that this rank loads; the model's `config` has them. Raises PaddingError."""
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    real = Sizes.of(checkpoint_config.fields(checkpoint_config.folder_of_engine()))
    wanted = real.padded(parallel.attn_tp_size, parallel.moe_ep_size)
    built = Sizes.of({name: getattr(config, name, None) for name in OVERRIDES})
    check_model(built, real, wanted, parallel.attn_tp_size, parallel.moe_ep_size)
    return real, wanted


def check_model(built: Sizes, real: Sizes, wanted: Sizes, tp: int, ep: int) -> None:
    """The model was built with the sizes that the tensors will have. Raises PaddingError."""
    if built == wanted:
        return
    if wanted == real:
        what = f"the model was built with {built.said(real)}, which TP {tp} and EP {ep} do not need"
        raise PaddingError(what, "take these sizes out of --json-model-override-args")
    lacking = wanted.overrides(built)
    what = f"TP {tp} and EP {ep} need {wanted.said(built)}, and the model was built without"
    raise PaddingError(what, f"start it with --json-model-override-args {lacking}".replace("'", '"'))


def check(values: Values) -> None:
    """A tensor of each kind is padded as the rule says, and the rest is handed on as it is."""
    import torch

    real, wanted = Sizes(), Sizes().padded(3, 3)
    assert (wanted.heads, wanted.groups, wanted.draft_experts) == (96, 12, 129), f"TP 3 gives {wanted}"
    scale = torch.ones(64, 1).to(torch.float8_e8m0fnu)
    given = {"layers.0.attn.wq_b.scale": scale, "layers.0.attn.wkv.scale": scale}
    found = dict(pad(given.items(), real, wanted, Padded()))
    assert found["layers.0.attn.wkv.scale"] is scale, "a tensor that divides was touched"
    assert found["layers.0.attn.wq_b.scale"].float().tolist() == [[1.0]] * 96, "a padded scale is not 1.0"


ADAPTER = Adapter(
    name="tp_padding",
    problem="64 heads, 8 output groups and 128 draft experts do not divide by three: SGLang's own loader ends there.",
    settings=(PAD,),
    hooks=(
        HookPoint(_TARGET, Kind.AROUND, "(self, weights, is_nextn=False)", Process.SCHEDULER),
        HookPoint(_DRAFT, Kind.AROUND, "(self, weights)", Process.SCHEDULER),
        HookPoint(_BUILT, Kind.BEFORE, "(self, config, quant_config=None, prefix='')", Process.SCHEDULER),
        HookPoint(_DRAFT_BUILT, Kind.BEFORE, "(self, config, quant_config=None, prefix='')", Process.SCHEDULER),
    ),
    engines=("0.5.23",),
    remove_when="SGLang loads the model on three ranks by itself.",
    off=lambda values: "" if values[PAD.name] else f"{PAD.name}=0",
    not_needed=not_needed,
    functions=_functions,
    check=check,
)
