"""The key in what the server tells about itself: masked, so that a copied /server_info gives nothing away."""

from __future__ import annotations

from typing import Any

from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.key_file import masked_key
from spark_overlay.switches import Switch, Values

SWITCH = Switch("SPARK_MASK_SERVER_INFO", 1, "1 masks the API key in /server_info")
_TARGET = "sglang.srt.utils.common.build_server_info"
_STATE = "sglang.srt.managers.scheduler.Scheduler.get_internal_state"
_FIELDS = ("api_key", "admin_api_key")


def masked(result: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
    return {**result, **{name: masked_key(result[name]) for name in _FIELDS if result.get(name)}}


def masked_state(result: Any, *_: Any, **__: Any) -> Any:
    """A scheduler's answer holds the arguments once more."""
    result.internal_state = masked(result.internal_state)
    return result


def check(values: Values) -> None:
    shown = masked({"api_key": "sk-something-long", "port": 1})
    assert shown == {"api_key": masked_key("sk-something-long"), "port": 1}, "/server_info would show the key"


ADAPTER = Adapter(
    name="server_info_key",
    problem="/server_info answers with all arguments, the API key in plain text among them, and people paste it.",
    settings=(SWITCH,),
    hooks=(
        HookPoint(_TARGET, Kind.AFTER, "(server_args, scheduler_info)", Process.SERVER),
        HookPoint(_STATE, Kind.AFTER, "(self, recv_req)", Process.SCHEDULER),
    ),
    engines=("0.5.23",),
    remove_when="SGLang leaves the key out.",
    off=lambda values: "" if values[SWITCH.name] else f"{SWITCH.name}=0",
    functions=lambda values: {_TARGET: masked, _STATE: masked_state},
    check=check,
)
