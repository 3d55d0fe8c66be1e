"""Run by the engine's Python: `python -m spark_overlay verify` in one changed engine after the other.

Every case is a fork of this process, which imported the engine once: a change in one is seen in no other. Prints one
JSON object: the case -> verify's exit status and what it printed. Cases are `nothing changed` and, of each hook point,
`adapter target change`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from spark_overlay import arming, signatures
from spark_overlay.adapter import Adapter, HookPoint, Kind
from spark_overlay.ledger import LEDGER

CHANGES = ("removed", "renamed", "re-signed", "not applied")
"""The engine's function is gone, has another name or other parameters; or our hook on it does not take effect."""


def other_parameters(self: Any, something_new: int) -> None:
    """Stands where the engine's function was."""


def change(hook: HookPoint, how: str) -> None:
    if how == "not applied":
        return leave_out(hook)
    if how == "replaced by another":
        return replace_last(hook)
    holder, name, _ = signatures.find(hook.target)
    kept = vars(holder)[name] if isinstance(holder, type) else getattr(holder, name)
    delattr(holder, name)
    if how == "renamed":
        setattr(holder, f"{name}_renamed", kept)
    elif how == "re-signed":
        setattr(holder, name, other_parameters)
    return None


def leave_out(hook: HookPoint) -> None:
    """Make the registry fail at this target: it logs that and goes on, as with any other failure."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    if hook.kind is Kind.VALIDATOR:
        set_validator = arming._set_validator

        def unless_it(adapter: Adapter, each: HookPoint, function: Callable[..., Any]) -> None:
            if each.target != hook.target:
                set_validator(adapter, each, function)

        arming._set_validator = unless_it
        return
    apply = HookRegistry._apply_target

    def failing(target: str, hooks: Any) -> None:
        if target == hook.target:
            raise RuntimeError("made to fail")
        apply(target, hooks)

    HookRegistry._apply_target = failing


def replace_last(hook: HookPoint) -> None:
    """Another plugin replaces the function too, and is asked after us."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    register = HookRegistry.register

    def and_another(target: str, function: Callable[..., Any], kind: HookType, **more: Any) -> None:
        register(target, function, kind, **more)
        if target == hook.target:
            register(target, other_parameters, HookType.REPLACE)

    HookRegistry.register = and_another


def verified(prepare: Callable[[], None]) -> tuple[int, str]:
    """The exit status and the output of `verify` in a fork that `prepare` changes."""
    with tempfile.TemporaryFile("w+b") as file:
        pid = os.fork()
        if not pid:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            status: Any = 99
            try:
                prepare()
                sys.argv = ["spark_overlay", "verify"]
                runpy.run_module("spark_overlay", run_name="__main__", alter_sys=True)
            except SystemExit as end:
                status = end.code
            finally:
                sys.stdout.flush()
                os._exit(status if isinstance(status, int) else 98)
        _, ended = os.waitpid(pid, 0)
        file.seek(0)
        return os.waitstatus_to_exitcode(ended), file.read().decode(errors="replace")


def main() -> None:
    for adapter in LEDGER:
        for hook in adapter.hooks:
            signatures.find(hook.target)  # imports what the forks then share
    answers = {"nothing changed": verified(lambda: None)}
    for adapter in LEDGER:
        for hook in adapter.hooks:
            changes = [*CHANGES, *(["replaced by another"] if hook.kind is Kind.REPLACE else [])]
            for how in changes:
                case = f"{adapter.name} {hook.target} {how}"
                answers[case] = verified(lambda hook=hook, how=how: change(hook, how))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
