"""A run as a screen shows it: the journal's entries folded into one frozen value. Pure; knows no screen and no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from sparktui.events import (
    Answered,
    CommandShown,
    Event,
    Finding,
    LogLine,
    NodeOutcome,
    Note,
    Outcome,
    Progress,
    Question,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
)

KEPT_LINES = 400
KEPT_NOTES = 40
INTERRUPTED = 130
"""Exit status of a run that was cancelled."""
E = TypeVar("E", bound=Event)


class StepState(StrEnum):
    """Shown as this word beside its glyph."""

    UNKNOWN = "unknown"
    CHECKING = "checking"
    TODO = "todo"
    RUNNING = "running"
    DONE = "done"
    BLOCKED = "blocked"
    FAILED = "failed"
    CANCELLED = "cancelled"


_STATE_OF = {
    Outcome.DONE: StepState.DONE,
    Outcome.SKIPPED: StepState.DONE,
    Outcome.FAILED: StepState.FAILED,
    Outcome.CANCELLED: StepState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of a run so far.

    Attributes:
        started_at: seconds since the epoch, by the journal; None before it began.
        seconds: how long it took; None while it runs.
        findings: the newest for each check and node, in the order in which they first came.
        progress: the newest for each node.
        outcomes: how it ended on each node.
        output: notes, commands and log lines, the newest `KEPT_LINES`, oldest first.
    """

    verb: str
    state: StepState = StepState.TODO
    outcome: Outcome | None = None
    nodes: tuple[str, ...] = ()
    started_at: float | None = None
    seconds: float | None = None
    text: str = ""
    fix: str = ""
    node: str = ""
    findings: tuple[Finding, ...] = ()
    progress: tuple[Progress, ...] = ()
    outcomes: tuple[NodeOutcome, ...] = ()
    commands: tuple[CommandShown, ...] = ()
    output: tuple[Note | LogLine | CommandShown, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that waits. `seq` is its place in the journal, which the answer names."""

    seq: int
    question: Question


@dataclass(frozen=True, slots=True)
class RunView:
    """One run. Empty (`run_id` '') when there never was one."""

    run_id: str = ""
    verbs: tuple[str, ...] = ()
    started_at: float | None = None
    last_at: float | None = None
    steps: tuple[StepView, ...] = ()
    current: str = ""
    asked: Asked | None = None
    finished: RunFinished | None = None
    last_seq: int = 0
    notes: tuple[Note, ...] = ()
    """What the run itself says, outside its steps (the settings' warnings), the newest `KEPT_NOTES`."""

    @property
    def active(self) -> bool:
        return bool(self.run_id) and self.finished is None

    def step(self, verb: str) -> StepView | None:
        return next((each for each in self.steps if each.verb == verb), None)

    def after(self, event: Event | None, seq: int, at: str) -> RunView:
        """The run after one more journal entry. `at` is RFC 3339, '' for a line that viewers made up."""
        seconds = _seconds(at)
        view = replace(self, last_seq=max(self.last_seq, seq), last_at=self.last_at if seconds is None else seconds)
        match event:
            case RunStarted():
                steps = tuple(StepView(verb) for verb in event.verbs)
                return replace(view, run_id=event.run_id, verbs=event.verbs, started_at=seconds, steps=steps)
            case StepStarted():
                begun = StepView(event.step, StepState.RUNNING, nodes=event.nodes, started_at=seconds)
                return replace(view, current=event.step)._with(begun)
            case Question():
                return replace(view, asked=Asked(seq, event))
            case Answered():
                same = view.asked is not None and view.asked.question.question == event.question
                return replace(view, asked=None) if same else view
            case RunFinished():
                return replace(view._ended(event), finished=event, asked=None)
            case Finding() | Progress() | NodeOutcome() | CommandShown() | Note() | LogLine() | StepFinished() if (
                step := view.step(event.step)
            ):
                return view._with(_step_after(step, event))
            case Note():
                return replace(view, notes=(*view.notes, event)[-KEPT_NOTES:])
        return view

    def _with(self, step: StepView) -> RunView:
        if self.step(step.verb) is None:
            return replace(self, steps=(*self.steps, step))
        return replace(self, steps=tuple(step if each.verb == step.verb else each for each in self.steps))

    def _ended(self, event: RunFinished) -> RunView:
        """What a run that stopped says of the step it was in, or of the first one when it had not come to any.

        A run that died says nothing of its step: that ended with the last line that was written.
        """
        step = self.step(self.current or next(iter(self.verbs), ""))
        unbegun = step is not None and not self.current and step.state is StepState.TODO and event.exit_status != 0
        if step is None or not (step.state is StepState.RUNNING or unbegun):
            return self
        started_at = self.started_at if unbegun else step.started_at
        seconds = None
        if self.last_at is not None and started_at is not None:
            seconds = max(0.0, self.last_at - started_at)
        ended = replace(
            step,
            state=StepState.CANCELLED if event.exit_status == INTERRUPTED else StepState.FAILED,
            started_at=started_at,
            seconds=seconds,
            text=event.text,
            fix=event.fix,
            node=event.node,
        )
        return self._with(ended)


def _step_after(step: StepView, event: Event) -> StepView:
    match event:
        case Finding():
            return replace(step, findings=_newest(step.findings, event, lambda each: (each.check, each.node)))
        case Progress():
            return replace(step, progress=_newest(step.progress, event, lambda each: each.node))
        case NodeOutcome():
            return replace(step, outcomes=_newest(step.outcomes, event, lambda each: each.node))
        case CommandShown():
            return replace(step, commands=(*step.commands, event)[-KEPT_LINES:], output=_kept(step, event))
        case Note() | LogLine():
            return replace(step, output=_kept(step, event))
        case StepFinished():
            return replace(
                step,
                state=_STATE_OF[event.outcome],
                outcome=event.outcome,
                seconds=event.seconds,
                text=event.text,
                fix=event.fix,
                node=event.node,
            )
    return step


def _kept(step: StepView, event: Note | LogLine | CommandShown) -> tuple[Note | LogLine | CommandShown, ...]:
    return (*step.output[-KEPT_LINES + 1 :], event)


def _newest(kept: tuple[E, ...], event: E, key: Callable[[E], object]) -> tuple[E, ...]:
    keys = [key(each) for each in kept]
    if key(event) in keys:
        return tuple(event if key(each) == key(event) else each for each in kept)
    return (*kept, event)


def _seconds(at: str) -> float | None:
    try:
        return datetime.fromisoformat(at).timestamp() if at else None
    except ValueError:
        return None
