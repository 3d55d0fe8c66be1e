"""Registers the adapters' hooks with SGLang, applies them, and proves that each one holds.

SGLang's registry logs a hook that fails to apply and goes on; here every such failure is an ArmingError that names
adapter, target and reason, so that a process either has all of its armed adapters or does not run.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_overlay import signatures, switches
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Values


class ArmingError(Exception):
    """An armed adapter does not hold.

    Attributes:
        adapter, target: whose and where.
        reason: what was found instead.
    """

    def __init__(self, adapter: str, target: str, reason: str) -> None:
        super().__init__(f"adapter {adapter}: {target}: {reason}")
        self.adapter, self.target, self.reason = adapter, target, reason


@dataclass(frozen=True)
class Stated:
    """What a process says of one adapter; the same on all ranks."""

    adapter: str
    state: str
    """`armed`, `off` or `not needed`."""
    why: str = ""

    @property
    def line(self) -> str:
        return f"adapter {self.adapter}: {self.state}{f' ({self.why})' if self.why else ''}"


def values_of(ledger: Iterable[Adapter], environment: Mapping[str, str]) -> Values:
    """Raises switches.SwitchError."""
    return switches.read((switch for adapter in ledger for switch in adapter.settings), environment)


def check_points(ledger: Iterable[Adapter], look: Callable[[str], str]) -> None:
    """Compare every hook point with the engine. `look` gives a target's signature. Raises ArmingError."""
    for adapter in ledger:
        for hook in adapter.hooks:
            try:
                found = look(hook.target)
            except signatures.NoTarget as error:
                raise ArmingError(adapter.name, hook.target, f"missing in this engine: {error}") from error
            if found != hook.signature:
                raise ArmingError(adapter.name, hook.target, f"has {found}, expected {hook.signature}")


def signature_now(target: str) -> str:
    return signatures.of(signatures.find(target)[2])


def arm(
    ledger: Iterable[Adapter],
    values: Values,
    processes: Iterable[Process],
    environment: Mapping[str, str] | None = None,
) -> list[Stated]:
    """Arm what the settings ask for in this process, prove it, and say so.

    Args:
        environment: leaves out what its model does not need; without one everything counts as needed.

    Raises:
        ArmingError: an armed adapter's hook point is missing, looks otherwise, did not apply, or its own check failed.
    """
    here = frozenset(processes)
    stated, armed = [], []
    for adapter in ledger:
        why = adapter.off(values)
        if why:
            stated.append(Stated(adapter.name, "off", why))
            continue
        if environment is not None and (why := adapter.not_needed(environment)):
            stated.append(Stated(adapter.name, "not needed", why))
            continue
        if Process.SERVER in here:
            # The first process looks at all points: a scheduler would find its own too late. It imports none of them.
            others = tuple(hook for hook in adapter.hooks if hook.process not in here)
            check_points([replace(adapter, hooks=others)], signatures.in_source)
        elsewhere = sorted({hook.process for hook in adapter.hooks} - here)
        if elsewhere and not any(hook.process in here for hook in adapter.hooks):
            stated.append(Stated(adapter.name, "not needed", f"works in the {' and '.join(elsewhere)}"))
            continue
        stated.append(Stated(adapter.name, "armed"))
        armed.append(adapter)
    done = [_install(adapter, values, here) for adapter in armed]
    if armed:
        _apply()
    for adapter, functions in zip(armed, done, strict=True):
        for hook, function in functions:
            _prove(adapter, hook, function)
        try:
            adapter.check(values)
        except AssertionError as error:
            raise ArmingError(adapter.name, "its own check", str(error) or "failed") from error
    return stated


def _install(adapter: Adapter, values: Values, here: frozenset[Process]) -> list[tuple[HookPoint, Callable[..., Any]]]:
    hooks = [hook for hook in adapter.hooks if hook.process in here]
    check_points([replace(adapter, hooks=tuple(hooks))], signature_now)
    functions = adapter.functions(values)
    installed = []
    for hook in hooks:
        function = functions[hook.target]
        if hook.kind is Kind.VALIDATOR:
            _set_validator(adapter, hook, function)
        else:
            from sglang.srt.plugins.hook_registry import HookRegistry, HookType

            HookRegistry.register(hook.target, function, HookType[hook.kind.name])
        installed.append((hook, function))
    return installed


def _apply() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry

    HookRegistry.apply_hooks()


def _set_validator(adapter: Adapter, hook: HookPoint, function: Callable[..., Any]) -> None:
    """pydantic keeps a model's validators in `__pydantic_decorators__`; it compiles them at a rebuild."""
    holder, name, _ = signatures.find(hook.target)
    decorators = getattr(holder, "__pydantic_decorators__", None)
    entry = decorators.model_validators.get(name) if decorators is not None else None
    if entry is None:
        raise ArmingError(adapter.name, hook.target, "is no model validator of pydantic's here")
    original = entry.func

    def chained(value: Any) -> Any:
        return function(original, value)

    chained.__wrapped__ = original  # type: ignore[attr-defined]
    entry.func = chained
    for path in hook.rebuild:
        pkgutil.resolve_name(path).model_rebuild(force=True)


def _prove(adapter: Adapter, hook: HookPoint, function: Callable[..., Any]) -> None:
    """The function that the engine calls now leads to ours."""
    holder, name, found = signatures.find(hook.target)
    if hook.kind is Kind.VALIDATOR:
        found = holder.__pydantic_decorators__.model_validators[name].func
    step: Any = found
    while step is not None:
        if step is function or _calls(step, function):
            return
        wrapped = getattr(step, "__wrapped__", None)
        # A replacement names what it replaced and never calls it: what stands behind it does not run.
        step = wrapped if _calls(step, wrapped) else None
    raise ArmingError(adapter.name, hook.target, "the hook was registered and did not apply")


def _calls(step: Any, function: Any) -> bool:
    """Whether a wrapper has `function` at hand; one that it only names in `__wrapped__` it cannot call."""
    return function is not None and any(_holds(cell, function) for cell in getattr(step, "__closure__", None) or ())


def _holds(cell: Any, function: Callable[..., Any]) -> bool:
    try:
        return cell.cell_contents is function
    except ValueError:
        return False
