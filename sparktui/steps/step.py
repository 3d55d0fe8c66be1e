"""What a step is: the frame that every verb fills."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparktui.events import Event, Finding, Question
from sparktui.remote.link import NodeLink

if TYPE_CHECKING:
    from sparktui.settings import Settings  # pydantic: the screens know steps and paint before it is needed


@dataclass(frozen=True, slots=True)
class Command:
    """A command as a person would type it on the head, secrets masked."""

    node: str
    text: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the nodes say about a step: the truth, asked anew each time.

    Attributes:
        done: nothing is left to do on any node.
        blocked: why it cannot start now, empty when it can.
        findings: one row a node and subject.
    """

    done: bool
    summary: str
    blocked: str = ""
    fix: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """What a step is given. Links exist for all nodes, head first, whether the node answers or not."""

    settings: Settings
    links: tuple[NodeLink, ...]
    ask: Callable[[Question], Awaitable[str]]
    """The viewer's answer; with `--yes` the question's own; unattended it raises StepFailed that names the question."""
    only_node: str | None = None
    verbs: tuple[str, ...] = ()
    """What was asked for, in order: a step may leave to a later one what that one does anyway."""

    @property
    def head(self) -> NodeLink:
        return self.links[0]

    @property
    def workers(self) -> tuple[NodeLink, ...]:
        return self.links[1:]


class Step(Protocol):
    """A verb that changes or checks the cluster. Idempotent: run it again after anything."""

    name: str
    title: str

    async def inspect(self, context: Context) -> Inspection: ...

    async def plan(self, context: Context) -> list[Command]:
        """What `run` would execute now, exactly; changes nothing."""
        ...

    def run(self, context: Context) -> AsyncIterator[Event]:
        """Do it. Raises SparktuiError with cause, node and next step; the runner adds StepStarted/StepFinished."""
        ...
