"""A run folded from its journal: what a screen shows must hold for every order in which lines can come."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

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
    State,
    StepFinished,
    StepStarted,
)
from sparktui.runs.view import KEPT_LINES, KEPT_NOTES, RunView, StepState

VERBS = ("doctor", "download", "pack")
BEGUN = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)

verbs = st.sampled_from([*VERBS, "settings"])
nodes = st.sampled_from(["head", "worker1"])
words = st.text(max_size=8)
number = st.none() | st.floats(0, 1e12)
events = st.one_of(
    st.builds(StepStarted, verbs, st.just(("head",))),
    st.builds(CommandShown, verbs, nodes, words),
    st.builds(Finding, verbs, st.sampled_from(["a.b", "c.d"]), nodes, st.sampled_from(State), words),
    st.builds(Progress, verbs, nodes, words, number, number),
    st.builds(Note, verbs, nodes, words),
    st.builds(LogLine, verbs, nodes, words),
    st.builds(Question, verbs, st.sampled_from(["q.one", "q.two"]), words),
    st.builds(Answered, verbs, st.sampled_from(["q.one", "q.two"]), words, st.just("viewer")),
    st.builds(NodeOutcome, verbs, nodes, st.sampled_from(Outcome), words),
    st.builds(StepFinished, verbs, st.sampled_from(Outcome), st.floats(0, 1e6), words),
    st.none(),
)


def run_started(*verbs: str) -> RunStarted:
    return RunStarted("20261129T120000000Z-up-abcd", verbs, "three", "/srv/.env", 1, 2, "0")


def at(second: float) -> str:
    return datetime.fromtimestamp(BEGUN.timestamp() + second, UTC).isoformat(timespec="milliseconds")


def folded(said: list[Event | None]) -> RunView:
    numbered = enumerate(said, 1)
    return reduce(lambda view, each: view.after(each[1], each[0], at(each[0])), numbered, RunView())


@given(st.lists(events, max_size=60))
def test_any_order_of_lines_folds_into_a_view_that_a_screen_can_show(said: list[Event | None]) -> None:
    view = folded([run_started(*VERBS), *said])
    assert view.active and view.last_seq == len(said) + 1
    assert [step.verb for step in view.steps][:3] == list(VERBS)
    assert len({step.verb for step in view.steps}) == len(view.steps)
    assert len(view.notes) <= KEPT_NOTES
    for step in view.steps:
        assert len({(each.check, each.node) for each in step.findings}) == len(step.findings)
        assert len({each.node for each in step.progress}) == len(step.progress)
        assert step.state in (StepState.TODO, StepState.RUNNING) or step.outcome is not None, "no run ended here"


@given(st.lists(events, max_size=40))
def test_a_run_that_ended_has_no_running_step_and_no_open_question(said: list[Event | None]) -> None:
    view = folded([run_started(*VERBS), *said, RunFinished(1, "killed?", "run it again", "head")])
    assert not view.active and view.asked is None
    current = view.step(view.current)
    assert current is None or current.state is not StepState.RUNNING


@given(st.lists(events, max_size=40), st.integers(0, 40))
def test_a_view_that_was_left_and_taken_up_again_is_the_same(said: list[Event | None], cut: int) -> None:
    whole = [run_started(*VERBS), *said]
    view = folded(whole[:cut])
    for seq, event in enumerate(whole[cut:], len(whole[:cut]) + 1):
        view = view.after(event, seq, at(seq))
    assert view == folded(whole)


def test_a_run_that_died_says_what_is_known_of_its_step() -> None:
    view = folded([run_started("pack"), StepStarted("pack", ("head",)), Progress("pack", "head", "layer 1", 5, 10)])
    view = view.after(RunFinished(1, "killed?", "run the same verb again", "head"), 4, "")
    step = view.step("pack")
    assert step is not None
    assert (step.state, step.text, step.fix, step.node) == (
        StepState.FAILED,
        "killed?",
        "run the same verb again",
        "head",
    )
    assert step.progress[0].amount == 5
    # Its last line came one second after the step began; a made-up closing line has no time of its own.
    assert step.seconds == 1.0


def test_a_run_that_fails_before_its_first_step_is_a_failure_of_that_step() -> None:
    refused = RunFinished(3, "no answer on port 22", "is it on?", "worker1")
    view = folded([run_started("pack", "serve"), refused])
    pack, serve = view.step("pack"), view.step("serve")
    assert pack is not None and serve is not None
    assert (pack.state, pack.text, pack.node, pack.started_at) == (
        StepState.FAILED,
        "no answer on port 22",
        "worker1",
        view.started_at,
    )
    assert serve.state is StepState.TODO
    cancelled = folded([run_started("pack"), RunFinished(130, "cancelled")]).step("pack")
    assert cancelled is not None and cancelled.state is StepState.CANCELLED


def test_a_step_that_runs_again_starts_from_nothing() -> None:
    finding = Finding("pack", "disk", "head", State.FAIL, "full")
    view = folded([run_started("pack"), StepStarted("pack"), finding, StepFinished("pack", Outcome.FAILED, 1.0)])
    step = view.after(StepStarted("pack"), 9, at(9)).step("pack")
    assert step is not None and step.state is StepState.RUNNING and step.findings == ()


def test_only_the_answered_question_goes_away() -> None:
    asked = folded([run_started("build"), StepStarted("build"), Question("build", "base.digest", "pin it?")])
    assert asked.asked is not None and asked.asked.seq == 3
    assert asked.after(Answered("build", "another", "yes", "viewer"), 4, at(4)).asked == asked.asked
    assert asked.after(Answered("build", "base.digest", "yes", "viewer"), 4, at(4)).asked is None


def test_old_output_goes_and_the_newest_stays() -> None:
    lines: list[Event | None] = [LogLine("pack", "head", f"line {number}") for number in range(KEPT_LINES + 50)]
    step = folded([run_started("pack"), StepStarted("pack"), *lines]).step("pack")
    assert step is not None and len(step.output) == KEPT_LINES
    last = step.output[-1]
    assert isinstance(last, LogLine) and last.text == f"line {KEPT_LINES + 49}"


def test_what_the_run_says_outside_its_steps_is_kept() -> None:
    view = folded([run_started("pack"), Note("settings", "head", "line 7: nobody knows this name", State.WARN)])
    assert [note.text for note in view.notes] == ["line 7: nobody knows this name"]
