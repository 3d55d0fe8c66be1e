"""What enter does now: the obvious next thing, decided from what is known and said before it is done. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparktui.errors import SparktuiError
from sparktui.runs.view import Asked, RunView, StepState
from sparktui.ui.wizard.rows import StepRow, next_row

NOTHING = "nothing"
"""The word for the key line when enter has nothing to do; then it is not shown there."""


class Does(StrEnum):
    ANSWER = "answer"
    SHOW = "show"
    RUN = "run"
    TALK = "talk"
    SETTINGS = "settings"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Enter:
    """Attributes:
    word: for the key line, a word or two.
    text: the same, whole, after `enter: `.
    verb: the step it is about, empty for none.
    """

    does: Does
    word: str
    text: str
    verb: str = ""


def enter_does(
    rows: Sequence[StepRow],
    run: RunView,
    *,
    waiting: Asked | None,
    selected: str,
    starting: str,
    trouble: bool,
    ready: bool,
    where: Callable[[str], str],
) -> Enter:
    """Args:
    waiting: the run's question that nobody has answered yet.
    trouble: the settings cannot be used.
    ready: they have been read.
    where: the nodes that a step works on, such as `on head`.
    """
    if trouble:
        return Enter(Does.SETTINGS, "settings", "open the settings")
    if not ready:
        return Enter(Does.WAIT, NOTHING, "in a moment; the settings are being read")
    if waiting is not None:
        step = waiting.question.step
        return Enter(Does.ANSWER, "answer", f"answer the question of {step}", step)
    if run.active:
        verb = run.current or (run.verbs[0] if run.verbs else "")
        if verb == selected:
            return Enter(Does.WAIT, NOTHING, f"nothing to press: {verb} goes on by itself, also after q")
        return Enter(Does.SHOW, "show it", f"show {verb}, which is running", verb)
    if starting:
        return Enter(Does.WAIT, NOTHING, f"{starting} is starting")
    row = next_row(rows)
    if row is None:
        return Enter(Does.TALK, "talk to it", "how to talk to it; everything is done")
    if row.state is StepState.UNKNOWN and isinstance(row.answer, SparktuiError):
        node = row.answer.node or "a node"
        return Enter(Does.RUN, "run doctor", f"run doctor: {node} could not be asked", "doctor")
    again = " again" if row.state in (StepState.FAILED, StepState.CANCELLED) else ""
    more = ""
    if again and row.verb not in ("doctor", "smoke"):
        more = "; it goes on from what is done"
    elif row.state is StepState.CHECKING:
        more = " (looking whether it is done)"
    elif row.state is StepState.BLOCKED:
        more = "; it is blocked until now"
    return Enter(Does.RUN, f"run {row.verb}", f"run {row.verb}{again} {where(row.verb)}{more}", row.verb)
