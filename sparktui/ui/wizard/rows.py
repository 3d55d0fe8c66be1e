"""The rail's rows: what the run, the nodes and the journals say of each step, merged. Pure.

The newest wins: an answer of the nodes that is younger than a run says whether the step is done; a run that ended
later than the nodes were asked speaks for its steps until they are asked again. Memory alone never says done where
nodes can be asked; a check that only exists while it runs (doctor, smoke) says when it was last done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from sparktui.errors import SparktuiError
from sparktui.events import Outcome, Unit
from sparktui.runs.view import RunView, StepState, StepView

if TYPE_CHECKING:
    from sparktui.steps.step import Inspection

ASKED_ANEW = frozenset({"doctor", "smoke"})
"""Steps of which the nodes keep no trace."""
ENDED = frozenset({StepState.DONE, StepState.FAILED, StepState.CANCELLED})
RECENT_SECONDS = 120.0
"""A run that ended this short ago speaks for its steps while the nodes are asked again."""
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Known:
    """Everything that is known of the steps, as the app holds it.

    Attributes:
        inspected_at: when each inspection came, seconds since the epoch.
        starting: the verb of a run that has not begun yet, `up` for all, or empty.
    """

    run: RunView = field(default_factory=RunView)
    inspections: Mapping[str, Inspection | SparktuiError] = field(default_factory=dict)
    inspected_at: Mapping[str, float] = field(default_factory=dict)
    looking: frozenset[str] = frozenset()
    remembered: Mapping[str, StepView] = field(default_factory=dict)
    starting: str = ""
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step.

    Attributes:
        figure: at most six characters: time, share or time of day.
        ran: the run's view of it that is worth showing, None when it never ran.
        answer: what the nodes said, where that is newer than what ran.
        ended_at: when it last ended, seconds since the epoch.
        stale: why an older good end no longer counts; empty when it does.
    """

    verb: str
    state: StepState
    figure: str = ""
    ran: StepView | None = None
    answer: Inspection | SparktuiError | None = None
    ended_at: float | None = None
    stale: str = ""


def rail(chain: Sequence[str], known: Known) -> tuple[StepRow, ...]:
    rows = {verb: _row(verb, known, first=verb == chain[0]) for verb in chain}
    if "smoke" in rows and "serve" in rows:
        rows["smoke"] = _smoke_after_serve(rows["smoke"], rows["serve"])
    return tuple(rows.values())


def next_row(rows: Sequence[StepRow]) -> StepRow | None:
    """The first step that is not done; None when all are."""
    return next((row for row in rows if row.state is not StepState.DONE), None)


def _row(verb: str, known: Known, *, first: bool) -> StepRow:
    ran = known.run.step(verb) if known.run.verbs else None
    if ran is not None and ran.state is StepState.TODO:
        ran = None
    if ran is not None and ran.state is StepState.RUNNING and known.run.active:
        return StepRow(verb, StepState.RUNNING, _running_figure(ran, known.now), ran)
    before_its_steps = known.run.active and not known.run.current and known.run.verbs[:1] == (verb,)
    if known.starting == verb or (known.starting == "up" and first) or before_its_steps:
        return StepRow(verb, StepState.RUNNING, "starts", None)
    ran = ran or known.remembered.get(verb)
    ended_at = _ended_at(ran)
    answer = known.inspections.get(verb)
    if answer is not None and ended_at is not None and known.inspected_at.get(verb, 0.0) < ended_at:
        answer = None
    state = _state(verb, known, ran, ended_at, answer)
    return StepRow(verb, state, _figure(verb, state, ran, ended_at, known.now), ran, answer, ended_at)


def _state(
    verb: str,
    known: Known,
    ran: StepView | None,
    ended_at: float | None,
    answer: Inspection | SparktuiError | None,
) -> StepState:
    after = ran.state if ran is not None and ran.state in ENDED else None
    if verb in ASKED_ANEW:
        return after or StepState.TODO
    if isinstance(answer, SparktuiError):
        return StepState.UNKNOWN
    if answer is not None:
        if answer.done:
            return StepState.DONE
        if answer.blocked:
            return StepState.BLOCKED
        # A failure is worth more than "not done"; an old success is not.
        return after if after in (StepState.FAILED, StepState.CANCELLED) else StepState.TODO
    if after and ended_at is not None and (known.run.active or known.now - ended_at < RECENT_SECONDS):
        return after
    if verb in known.looking:
        return StepState.CHECKING
    return after if after in (StepState.FAILED, StepState.CANCELLED) else StepState.UNKNOWN


def _smoke_after_serve(smoke: StepRow, serve: StepRow) -> StepRow:
    """A smoke test tells of the boot that it tested, of no other."""
    if smoke.state is not StepState.DONE:
        return smoke
    if serve.state in (StepState.TODO, StepState.BLOCKED, StepState.FAILED, StepState.CANCELLED, StepState.RUNNING):
        why = "the engine that it tested does not serve now"
    elif serve.ended_at is not None and smoke.ended_at is not None and serve.ended_at > smoke.ended_at and _ran(serve):
        why = "the engine was started again since"
    else:
        return smoke
    return StepRow("smoke", StepState.TODO, "", smoke.ran, None, smoke.ended_at, why)


def _ran(row: StepRow) -> bool:
    """It did something, unlike a step that was skipped since nothing was left to do."""
    return row.ran is not None and bool(row.ran.outcomes or row.ran.commands or row.ran.progress)


def _ended_at(step: StepView | None) -> float | None:
    if step is None or step.started_at is None or step.state not in ENDED:
        return None
    return step.started_at + (step.seconds or 0.0)


def _running_figure(step: StepView, now: float) -> str:
    share = share_of(step)
    if share is not None:
        return f"{100 * share:.0f} %"
    return short_seconds(max(0.0, now - step.started_at)) if step.started_at is not None else ""


def share_of(step: StepView) -> float | None:
    """How much of the whole is done, all nodes together; None where any node's total is unknown or units differ."""
    progress = step.progress
    if not progress or len({each.unit for each in progress}) > 1:
        return None
    # Phases are counted by the node that is furthest behind: all of them are needed.
    if progress[0].unit is Unit.PHASES:
        shares = [each.amount / each.total for each in progress if each.amount is not None and each.total]
        return min(1.0, min(shares)) if len(shares) == len(progress) else None
    amounts = [each.amount for each in progress if each.amount is not None]
    totals = [each.total for each in progress if each.total]
    if len(amounts) < len(progress) or len(totals) < len(progress):
        return None
    return max(0.0, min(1.0, sum(amounts) / sum(totals)))


def _figure(verb: str, state: StepState, ran: StepView | None, ended_at: float | None, now: float) -> str:
    if ran is None or state not in ENDED or ran.outcome is Outcome.SKIPPED:
        return ""
    if verb in ASKED_ANEW and ended_at is not None:
        return moment(ended_at, now)
    return short_seconds(ran.seconds) if ran.seconds is not None else ""


def short_seconds(seconds: float) -> str:
    """`3 s`, `12 min`, `2.1 h`, `99 h`: at most six characters."""
    if seconds < 60:
        return f"{int(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 9.95 else f"{min(999, round(hours))} h"


def moment(at: float, now: float) -> str:
    """The local time of day, or of an older one the date: `14:02`, `27 Nov`."""
    local = datetime.fromtimestamp(at).astimezone()
    return f"{local:%H:%M}" if abs(now - at) < DAY_SECONDS else f"{local.day} {local:%b}"
