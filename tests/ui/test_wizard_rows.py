"""The rail's rows: who is believed when the run, the nodes and the journals say different things."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktui.errors import NodeUnreachable
from sparktui.events import NodeOutcome, Outcome, Progress, RunFinished, StepFinished, StepStarted, Unit
from sparktui.runs.view import RunView, StepState, StepView
from sparktui.steps.step import Inspection
from sparktui.ui.wizard.rows import Known, StepRow, next_row, rail, share_of, short_seconds
from tests.ui.app_in_test import NOON, done, run_of, started
from tests.ui.wizard_values import CHAIN

DONE = Inspection(done=True, summary="all is there")
TODO = Inspection(done=False, summary="3 of 48 files")


def row(verb: str, known: Known) -> StepRow:
    return next(each for each in rail(CHAIN, known) if each.verb == verb)


def remembered(verb: str, outcome: Outcome, *, at: float, seconds: float = 10.0) -> dict[str, StepView]:
    state = {Outcome.DONE: StepState.DONE, Outcome.FAILED: StepState.FAILED, Outcome.CANCELLED: StepState.CANCELLED}
    return {verb: StepView(verb, state[outcome], outcome, started_at=at, seconds=seconds, text="it said so")}


def test_what_the_nodes_say_beats_what_is_remembered() -> None:
    memory = remembered("pack", Outcome.DONE, at=NOON - 500)
    gone = Known(inspections={"pack": TODO}, inspected_at={"pack": NOON}, remembered=memory, now=NOON)
    assert row("pack", gone).state is StepState.TODO
    failed = remembered("pack", Outcome.FAILED, at=NOON - 500)
    there = Known(inspections={"pack": DONE}, inspected_at={"pack": NOON}, remembered=failed, now=NOON)
    assert row("pack", there).state is StepState.DONE


def test_a_failure_stays_in_sight_as_long_as_the_nodes_say_not_done() -> None:
    failed = remembered("pack", Outcome.FAILED, at=NOON - 500)
    known = Known(inspections={"pack": TODO}, inspected_at={"pack": NOON}, remembered=failed, now=NOON)
    assert row("pack", known).state is StepState.FAILED


def test_a_step_that_ended_after_the_nodes_were_asked_is_believed_until_they_are_asked_again() -> None:
    run = run_of([(0, started("pack")), *done("pack", 20.0), (23, RunFinished(0, "done"))], begin=NOON)
    old = Known(run=run, inspections={"pack": TODO}, inspected_at={"pack": NOON - 60}, now=NOON + 30)
    assert row("pack", old).state is StepState.DONE
    asking = Known(run=run, looking=frozenset({"pack"}), now=NOON + 30)
    assert row("pack", asking).state is StepState.DONE, "nothing jumps to checking and back"
    newer = Known(run=run, inspections={"pack": TODO}, inspected_at={"pack": NOON + 40}, now=NOON + 41)
    assert row("pack", newer).state is StepState.TODO


def test_memory_alone_never_says_done_where_nodes_can_be_asked() -> None:
    memory = remembered("build", Outcome.DONE, at=NOON - 90_000)
    assert row("build", Known(remembered=memory, now=NOON)).state is StepState.UNKNOWN
    asking = Known(remembered=memory, looking=frozenset({"build"}), now=NOON)
    assert row("build", asking).state is StepState.CHECKING


def test_a_node_that_does_not_answer_makes_unknown_not_done() -> None:
    known = Known(
        inspections={"share": NodeUnreachable("no answer", node="worker1")},
        inspected_at={"share": NOON},
        remembered=remembered("share", Outcome.DONE, at=NOON - 500),
        now=NOON,
    )
    assert row("share", known).state is StepState.UNKNOWN


def test_blocked_is_said_with_its_reason() -> None:
    blocked = Inspection(False, "", blocked="there is no image", fix="sparktui build")
    found = row("serve", Known(inspections={"serve": blocked}, inspected_at={"serve": NOON}, now=NOON))
    assert found.state is StepState.BLOCKED and found.answer == blocked


def test_doctor_cannot_be_inspected_and_says_when_it_was_last_done() -> None:
    today = Known(remembered=remembered("doctor", Outcome.DONE, at=NOON - 3600), now=NOON)
    assert (row("doctor", today).state, row("doctor", today).figure) == (StepState.DONE, "11:00")
    older = Known(remembered=remembered("doctor", Outcome.DONE, at=NOON - 2 * 86_400), now=NOON)
    assert row("doctor", older).figure == "27 Nov"
    assert row("doctor", Known(now=NOON)).state is StepState.TODO


def test_a_smoke_test_tells_only_of_the_engine_that_it_tested() -> None:
    passed = remembered("smoke", Outcome.DONE, at=NOON - 3600)
    stopped = Known(inspections={"serve": TODO}, inspected_at={"serve": NOON}, remembered=passed, now=NOON)
    assert row("smoke", stopped).state is StepState.TODO
    assert "does not serve now" in row("smoke", stopped).stale
    serve = StepView(
        "serve",
        StepState.DONE,
        Outcome.DONE,
        started_at=NOON - 900,
        seconds=700.0,
        outcomes=(NodeOutcome("serve", "head", Outcome.DONE),),
    )
    again = Known(
        inspections={"serve": DONE}, inspected_at={"serve": NOON}, remembered=passed | {"serve": serve}, now=NOON
    )
    assert "started again" in row("smoke", again).stale
    same = Known(inspections={"serve": DONE}, inspected_at={"serve": NOON}, remembered=passed, now=NOON)
    assert row("smoke", same).state is StepState.DONE


def test_a_running_step_shows_its_share_and_without_a_total_its_seconds() -> None:
    begun = [(0, started("pack")), (0, StepStarted("pack", ("head",)))]
    assert row("pack", Known(run=run_of(begun, begin=NOON), now=NOON + 75)).figure == "1 min"
    half = Progress("pack", "head", "layer 1", 5.0, 10.0)
    assert row("pack", Known(run=run_of([*begun, (1, half)], begin=NOON), now=NOON + 75)).figure == "50 %"


def test_a_boot_is_as_far_as_the_rank_that_is_furthest_behind() -> None:
    ranks = (
        Progress("serve", "head", "graphs", 8, 11, Unit.PHASES),
        Progress("serve", "worker1", "weights", 5, 11, Unit.PHASES),
    )
    assert share_of(StepView("serve", progress=ranks)) == 5 / 11


def test_a_run_that_is_starting_is_seen_at_once() -> None:
    assert row("pack", Known(starting="pack")).figure == "starts"
    assert row("doctor", Known(starting="up")).state is StepState.RUNNING
    logging_in = run_of([(0, started("pack"))], begin=NOON)
    assert row("pack", Known(run=logging_in, now=NOON)).state is StepState.RUNNING


def test_what_is_next_is_the_first_step_that_is_not_done() -> None:
    inspections = {verb: DONE for verb in ("download", "build")} | {"share": TODO}
    known = Known(
        inspections=inspections,
        inspected_at=dict.fromkeys(inspections, NOON),
        remembered=remembered("doctor", Outcome.DONE, at=NOON - 60),
        now=NOON,
    )
    found = next_row(rail(CHAIN, known))
    assert found is not None and found.verb == "share"


def test_a_dead_run_is_a_failed_step() -> None:
    run = run_of([(0, started("pack")), (0, StepStarted("pack", ("head",)))], begin=NOON)
    died = run.after(RunFinished(1, "the run ended without a closing line", "run it again", "head"), 3, "")
    known = Known(run=died, inspections={"pack": TODO}, inspected_at={"pack": NOON - 5}, now=NOON + 5)
    assert row("pack", known).state is StepState.FAILED


def test_a_step_that_was_skipped_took_no_time_worth_showing() -> None:
    run = run_of(
        [
            (0, started("build")),
            (0, StepStarted("build", ())),
            (1, StepFinished("build", Outcome.SKIPPED, 0.2, "all there")),
        ]
    )
    found = row("build", Known(run=run, now=NOON))
    assert (found.state, found.figure) == (StepState.DONE, "")


@given(st.floats(0, 1e8))
def test_a_length_of_time_fits_into_six_characters(seconds: float) -> None:
    assert 0 < len(short_seconds(seconds)) <= 6


@given(
    st.dictionaries(st.sampled_from(CHAIN), st.sampled_from([DONE, TODO, NodeUnreachable("gone", node="head")])),
    st.frozensets(st.sampled_from(CHAIN)),
    st.dictionaries(st.sampled_from(CHAIN), st.sampled_from(list(Outcome))),
    st.sampled_from(["", "up", "pack"]),
)
def test_there_is_one_row_for_each_step_whatever_is_known(
    inspections: dict[str, object], looking: frozenset[str], memory: dict[str, Outcome], starting: str
) -> None:
    states = {Outcome.SKIPPED: StepState.DONE} | {each: StepState(each.value) for each in Outcome if each != "skipped"}
    known = Known(
        RunView(),
        inspections,  # type: ignore[arg-type]
        dict.fromkeys(inspections, NOON),
        looking,
        {verb: StepView(verb, states[how], how, started_at=NOON - 50, seconds=1.0) for verb, how in memory.items()},
        starting,
        NOON,
    )
    rows = rail(CHAIN, known)
    assert [each.verb for each in rows] == list(CHAIN)
    assert all(len(each.figure) <= 6 for each in rows)
