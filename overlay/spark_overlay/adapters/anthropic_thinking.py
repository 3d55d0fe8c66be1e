"""Anthropic clients that turn thinking on without a budget: accepted, as the model thinks without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Switch, Values

SWITCH = Switch("SPARK_ANTHROPIC_THINKING", 1, "1 accepts Anthropic's thinking enabled without budget_tokens")
_PROTOCOL = "sglang.srt.entrypoints.anthropic.protocol"
_PARAM = f"{_PROTOCOL}.AnthropicThinkingParam"


def shape(original: Callable[[Any], Any], param: Any) -> Any:
    """A wrong shape is refused as before; only the absent budget passes."""
    if param.type == "enabled" and param.budget_tokens is None:
        return param
    return original(param)


def check(values: Values) -> None:
    from pydantic import ValidationError
    from sglang.srt.entrypoints.anthropic import protocol

    request = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    for model, body in ((protocol.AnthropicMessagesRequest, request), (protocol.AnthropicCountTokensRequest, request)):
        model.model_validate({**body, "thinking": {"type": "enabled"}})
        for wrong in ({"type": "enabled", "budget_tokens": 1}, {"type": "disabled", "budget_tokens": 2048}):
            try:
                model.model_validate({**body, "thinking": wrong})
            except ValidationError:
                continue
            raise AssertionError(f"{model.__name__} accepts {wrong}")


ADAPTER = Adapter(
    name="anthropic_thinking",
    problem="/v1/messages refuses thinking enabled without budget_tokens, which several agent clients send.",
    settings=(SWITCH,),
    hooks=(
        HookPoint(
            f"{_PARAM}._validate_thinking_shape",
            Kind.VALIDATOR,
            "(self)",
            Process.SERVER,
            rebuild=(_PARAM, f"{_PROTOCOL}.AnthropicMessagesRequest", f"{_PROTOCOL}.AnthropicCountTokensRequest"),
        ),
    ),
    engines=("0.5.21", "0.5.23"),
    remove_when="SGLang accepts it itself.",
    off=lambda values: "" if values[SWITCH.name] else f"{SWITCH.name}=0",
    functions=lambda values: {f"{_PARAM}._validate_thinking_shape": shape},
    check=check,
)
