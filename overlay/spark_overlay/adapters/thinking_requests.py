"""The ways in which clients ask for thinking and effort, brought to the one that this model's encoder reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Switch, Values

ALIAS = Switch(
    "SPARK_ENABLE_THINKING_ALIAS", 1, "1 reads chat_template_kwargs.enable_thinking where thinking is absent"
)
EFFORT = Switch("SPARK_INTEGER_EFFORT", 1, "1 accepts a whole number from 1 to 100 as reasoning_effort")
_REQUEST = "sglang.srt.entrypoints.openai.protocol.ChatCompletionRequest"
_TARGET = f"{_REQUEST}.normalize_reasoning_inputs"


def alias(original: Callable[[Any], Any], values: Any) -> Any:
    """`thinking` wins; both mean the same."""
    kwargs = values.get("chat_template_kwargs") if isinstance(values, dict) else None
    if isinstance(kwargs, dict) and "thinking" not in kwargs and "enable_thinking" in kwargs:
        values = {**values, "chat_template_kwargs": {**kwargs, "thinking": kwargs["enable_thinking"]}}
    return original(values)


def integer_effort(original: Callable[[Any], Any], values: Any) -> Any:
    """30 is a budget of 30 of 100, which the engine takes as 0.30; 100 is its `max`."""
    if isinstance(values, dict):
        values = {**values, "reasoning_effort": _effort(values["reasoning_effort"])} if _given(values) else values
        nested = values.get("reasoning")
        if isinstance(nested, dict) and "effort" in nested:
            values = {**values, "reasoning": {**nested, "effort": _effort(nested["effort"])}}
    return original(values)


def _given(values: dict[str, Any]) -> bool:
    return "reasoning_effort" in values


def _effort(given: Any) -> Any:
    if isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= 100:
        return "max" if given == 100 else given / 100
    return given


def _parsed(**more: Any) -> Any:
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    return ChatCompletionRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": "x"}], **more})


def check_alias(values: Values) -> None:
    for given, expected in (
        ({"enable_thinking": True}, True),
        ({"enable_thinking": False}, False),
        ({"enable_thinking": True, "thinking": False}, False),
    ):
        found = _parsed(chat_template_kwargs=given).chat_template_kwargs["thinking"]
        assert found is expected, f"{given} gives thinking={found}"
    assert not (_parsed().chat_template_kwargs or {}).get("thinking"), "thinking is on where nobody asked"


def check_effort(values: Values) -> None:
    for given, expected in ((30, 0.3), (1, 0.01), (99, 0.99), (100, "max"), ("low", "low")):
        found = _parsed(reasoning_effort=given).reasoning_effort
        assert found == expected, f"reasoning_effort={given} gives {found}"


def _point() -> HookPoint:
    return HookPoint(_TARGET, Kind.VALIDATOR, "(cls, values)", Process.SERVER, rebuild=(_REQUEST,))


ENABLE_THINKING = Adapter(
    name="enable_thinking",
    problem="chat_template_kwargs.enable_thinking, which clients of other models send, is ignored without a word.",
    settings=(ALIAS,),
    hooks=(_point(),),
    engines=("0.5.21", "0.5.23"),
    remove_when="SGLang reads enable_thinking for this model.",
    off=lambda values: "" if values[ALIAS.name] else f"{ALIAS.name}=0",
    functions=lambda values: {_TARGET: alias},
    check=check_alias,
)
INTEGER_EFFORT = Adapter(
    name="integer_effort",
    problem="reasoning_effort as a whole number from 1 to 100 is refused with 400, though the encoder has that scale.",
    settings=(EFFORT,),
    hooks=(_point(),),
    engines=("0.5.21", "0.5.23"),
    remove_when="SGLang accepts whole numbers itself.",
    off=lambda values: "" if values[EFFORT.name] else f"{EFFORT.name}=0",
    functions=lambda values: {_TARGET: integer_effort},
    check=check_effort,
)
