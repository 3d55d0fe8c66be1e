"""What an adapter is: one change of the engine's behaviour, as data that can be checked, stated and taken away again.

A hook point names a function of the engine, how it is changed and how its parameters looked when that was written. An
engine in which one of these is missing or looks otherwise is refused: nothing is guessed into a running server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spark_overlay.switches import Switch, Values, Word


class Kind(StrEnum):
    """How a hook changes its target; the first four are SGLang's own (`sglang.srt.plugins.hook_registry`)."""

    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"
    REPLACE = "replace"
    VALIDATOR = "validator"
    """A pydantic model validator, held where no hook of SGLang's reaches: wrapped there, and the models rebuilt.
    The function gets the original and the validator's one argument.
    """


class Process(StrEnum):
    """Where a hook works. The server is the main process with its HTTP routes; each GPU has a scheduler."""

    SERVER = "server"
    SCHEDULER = "scheduler"


@dataclass(frozen=True)
class HookPoint:
    """One changed function.

    Attributes:
        target: dotted path, from the package down to the attribute.
        signature: its parameters with their defaults, without annotations, as `signatures.of` writes them.
        rebuild: of a VALIDATOR, the dotted paths of the models to rebuild, in this order.
    """

    target: str
    kind: Kind
    signature: str
    process: Process
    rebuild: tuple[str, ...] = ()


@dataclass(frozen=True)
class Adapter:
    """One ledger entry.

    Attributes:
        problem: what goes wrong without it, in a sentence.
        engines: the versions of SGLang in which it was seen to work.
        remove_when: what makes it superfluous.
        off: why it is not armed with these settings; '' arms it.
        not_needed: why this process's environment (its model) has no use for it; '' where it has.
        functions: the hook function of each target; made once a process.
        check: proves in the process that it works, without a server; raises AssertionError with the reason.
    """

    name: str
    problem: str
    settings: tuple[Switch | Word, ...]
    hooks: tuple[HookPoint, ...]
    engines: tuple[str, ...]
    remove_when: str
    off: Callable[[Values], str]
    functions: Callable[[Values], Mapping[str, Callable[..., Any]]]
    check: Callable[[Values], None] = field(default=lambda values: None)
    not_needed: Callable[[Mapping[str, str]], str] = field(default=lambda environment: "")

    def hooks_of(self, process: Process) -> tuple[HookPoint, ...]:
        return tuple(hook for hook in self.hooks if hook.process is process)
