"""A limit for the request that names none: one such request ran for hours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Switch, Values

CAP = Switch(
    "DSV41_MAX_NEW_TOKENS", 32_768, "tokens for a request that names no limit; 0 names none either", 0, 1_048_576
)
HARD = Switch("DSV41_MAX_NEW_TOKENS_HARD", 0, "1 holds requests that name a larger limit to it as well")
_TARGET = "sglang.srt.managers.scheduler.Scheduler.init_req_max_new_tokens"
_COMPLETIONS = "sglang.srt.entrypoints.openai.serving_completions.OpenAIServingCompletion._build_sampling_params"
_GENERATE = "sglang.srt.managers.io_struct.GenerateReqInput.normalize_batch_and_arguments"
GENERATE_DEFAULT = 128
"""What SGLang gives a /generate request without a limit; /v1/completions gives 16. Both are no limit that was named."""


def capped(values: Values, given: int | None) -> int | None:
    """The limit of a request that names `given`."""
    cap = values[CAP.name]
    if not cap or (given is not None and (given <= cap or not values[HARD.name])):
        return given
    return cap


def _before(values: Values) -> Any:
    def set_limit(scheduler: Any, req: Any) -> None:
        params = req.sampling_params
        params.max_new_tokens = capped(values, params.max_new_tokens)

    return set_limit


def _after_completions(values: Values) -> Any:
    def smaller(result: dict[str, Any], serving: Any, request: Any) -> dict[str, Any]:
        cap = values[CAP.name]
        if "max_tokens" in request.model_fields_set or not cap:
            return result
        return {**result, "max_new_tokens": min(cap, result["max_new_tokens"])}

    return smaller


def _before_generate(values: Values) -> Any:
    def limited(params: Any) -> Any:
        if isinstance(params, dict) and "max_new_tokens" not in params:
            return {**params, "max_new_tokens": min(values[CAP.name], GENERATE_DEFAULT)}
        return params

    def set_limit(request: Any) -> None:
        # The default limit is well below the default cap: nothing to do then.
        if not 0 < values[CAP.name] < GENERATE_DEFAULT:
            return
        given = request.sampling_params
        request.sampling_params = [limited(each) for each in given] if isinstance(given, list) else limited(given or {})

    return set_limit


def check(values: Values) -> None:
    req = SimpleNamespace(sampling_params=SimpleNamespace(max_new_tokens=None))
    _before(values)(None, req)
    found = req.sampling_params.max_new_tokens
    assert found == values[CAP.name], f"a request without a limit gets {found}"


ADAPTER = Adapter(
    name="max_new_tokens",
    problem="A request without max_tokens may write until the context is full, for hours.",
    settings=(CAP, HARD),
    hooks=(
        HookPoint(_TARGET, Kind.BEFORE, "(self, req)", Process.SCHEDULER),
        HookPoint(_COMPLETIONS, Kind.AFTER, "(self, request)", Process.SERVER),
        HookPoint(_GENERATE, Kind.BEFORE, "(self)", Process.SERVER),
    ),
    engines=("0.5.21", "0.5.23"),
    remove_when="SGLang has a limit that spares requests which name a larger one.",
    off=lambda values: "" if values[CAP.name] else f"{CAP.name}=0",
    functions=lambda values: {
        _TARGET: _before(values),
        _COMPLETIONS: _after_completions(values),
        _GENERATE: _before_generate(values),
    },
    check=check,
)
