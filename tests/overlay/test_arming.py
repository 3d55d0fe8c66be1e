"""Arming proves that each hook holds: with a registry that fails and goes on, or lets another replacement win.

The registry here wraps as SGLang's does; tests/engine/test_verify.py has the real one on every hook point.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.arming import ArmingError, arm

REGISTRY = "sglang.srt.plugins.hook_registry"
TARGET = "hooked_engine.function"


class HookType(Enum):
    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"
    REPLACE = "replace"


def wrap(original: Callable[..., Any], hook: Callable[..., Any], kind: HookType) -> Callable[..., Any]:
    if kind is HookType.REPLACE:

        @functools.wraps(original)
        def wrapper(*args: Any) -> Any:
            return hook(*args)
    elif kind is HookType.AROUND:

        @functools.wraps(original)
        def wrapper(*args: Any) -> Any:
            return hook(original, *args)
    elif kind is HookType.AFTER:

        @functools.wraps(original)
        def wrapper(*args: Any) -> Any:
            return hook(original(*args), *args)
    else:

        @functools.wraps(original)
        def wrapper(*args: Any) -> Any:
            hook(*args)
            return original(*args)

    return wrapper


class Registry:
    """What arming uses of HookRegistry. `fails`: it logs that and goes on."""

    def __init__(self) -> None:
        self.hooks: list[tuple[Callable[..., Any], HookType]] = []
        self.fails = False

    def register(self, target: str, hook: Callable[..., Any], kind: HookType) -> None:
        self.hooks.append((hook, kind))

    def apply_hooks(self) -> None:
        module: Any = sys.modules["hooked_engine"]
        for hook, kind in [] if self.fails else sorted(self.hooks, key=lambda each: each[1] is not HookType.REPLACE):
            module.function = wrap(module.function, hook, kind)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    made, engine = Registry(), ModuleType("hooked_engine")

    def function(value: int) -> int:
        return value

    engine.function = function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hooked_engine", engine)
    parts = REGISTRY.split(".")
    for end in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
    monkeypatch.setitem(sys.modules, REGISTRY, SimpleNamespace(HookRegistry=made, HookType=HookType))
    yield made


def ours(*arguments: Any) -> Any:
    return 7


def adapter(kind: Kind) -> Adapter:
    return Adapter(
        name="one", problem="", settings=(), hooks=(HookPoint(TARGET, kind, "(value)", Process.SCHEDULER),),
        engines=(), remove_when="", off=lambda values: "", functions=lambda values: {TARGET: ours},
    )  # fmt: skip


KINDS = [Kind.BEFORE, Kind.AFTER, Kind.AROUND, Kind.REPLACE]


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_that_was_applied_holds(registry: Registry, kind: Kind) -> None:
    [stated] = arm([adapter(kind)], {}, [Process.SCHEDULER])
    assert stated.state == "armed"
    module: Any = sys.modules["hooked_engine"]
    assert module.function(3) == (3 if kind is Kind.BEFORE else 7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_that_the_registry_failed_to_apply_is_an_error(registry: Registry, kind: Kind) -> None:
    registry.fails = True
    with pytest.raises(ArmingError) as caught:
        arm([adapter(kind)], {}, [Process.SCHEDULER])
    assert (caught.value.adapter, caught.value.target) == ("one", TARGET)
    assert caught.value.reason == "the hook was registered and did not apply"


@pytest.mark.parametrize("kind", KINDS)
def test_another_replacement_takes_the_place_of_ours_and_of_no_other_kind(registry: Registry, kind: Kind) -> None:
    late = registry.register

    def and_another(target: str, hook: Callable[..., Any], of: HookType) -> None:
        late(target, hook, of)
        late(target, lambda value: -1, HookType.REPLACE)

    registry.register = and_another  # type: ignore[method-assign]
    if kind is Kind.REPLACE:
        with pytest.raises(ArmingError, match="did not apply"):
            arm([adapter(kind)], {}, [Process.SCHEDULER])
    else:
        assert arm([adapter(kind)], {}, [Process.SCHEDULER])[0].state == "armed"


@pytest.mark.parametrize("other", list(HookType))
def test_a_plugin_that_wraps_ours_leaves_it_working_unless_it_replaces(registry: Registry, other: HookType) -> None:
    apply = registry.apply_hooks

    def and_wrap() -> None:
        apply()
        module: Any = sys.modules["hooked_engine"]
        module.function = wrap(module.function, lambda *_: None, other)

    registry.apply_hooks = and_wrap  # type: ignore[method-assign]
    if other is HookType.REPLACE:
        with pytest.raises(ArmingError, match="did not apply"):
            arm([adapter(Kind.AROUND)], {}, [Process.SCHEDULER])
    else:
        assert arm([adapter(Kind.AROUND)], {}, [Process.SCHEDULER])[0].state == "armed"
