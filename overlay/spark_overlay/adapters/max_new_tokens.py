"""A limit for the request that names none: one such request ran for hours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Switch, Values

CAP = Switch("DSV41_MAX_NEW_TOKENS", 32_768, "tokens for a request that names no limit; 0 names none either", 0, 2**30)
HARD = Switch("DSV41_MAX_NEW_TOKENS_HARD", 0, "1 holds requests that name a larger limit to it as well")
_TARGET = "sglang.srt.managers.scheduler.Scheduler.init_req_max_new_tokens"


def capped(values: Values, given: int | None) -> int | None:
    """The limit of a request that names `given`; a smaller one, the routes' own defaults too, stays as it is."""
    cap = values[CAP.name]
    if not cap or (given is not None and (given <= cap or not values[HARD.name])):
        return given
    return cap


def _before(values: Values) -> Any:
    def set_limit(scheduler: Any, req: Any) -> None:
        params = req.sampling_params
        params.max_new_tokens = capped(values, params.max_new_tokens)

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
    hooks=(HookPoint(_TARGET, Kind.BEFORE, "(self, req)", Process.SCHEDULER),),
    engines=("0.5.23",),
    remove_when="SGLang has a limit that spares requests which name a larger one.",
    off=lambda values: "" if values[CAP.name] else f"{CAP.name}=0",
    functions=lambda values: {_TARGET: _before(values)},
    check=check,
)
