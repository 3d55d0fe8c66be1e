"""Smoke: what coding agents lean on (U85, U86, U88, U89), against a told server; the spine asks the real one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.events import Finding, State
from sparktui.remote.server import ServerError
from sparktui.steps import smoke
from sparktui.steps.smoke import Smoke
from sparktui.steps.smoke_agents import OLD, AgentCheck, agent_checks, judge_agent, not_asked
from sparktui.steps.step import Context
from tests.steps.test_smoke_judge import (
    FIRST_TWO,
    KEY,
    SHAPED,
    SHAPES,
    TOOL_TURNS,
    ToldServer,
    answer,
    call,
    checks,
    cluster,
    settings_for,
)

FOUR = [*FIRST_TWO, *TOOL_TURNS, SHAPES]
CUT_OFF = answer("I will", finish="length")
MESSAGE = {"type": "message", "content": [{"type": "text", "text": "4"}], "stop_reason": "max_tokens"}
LOOP_ABORT = ServerError(
    "/v1/chat/completions answered 500: loop_abort: lines at output token 80",
    kind="status",
    status=500,
    body='{"object":"error","message":"loop_abort: lines at output token 80","code":500}',
)
GOOD: dict[str, list[Any]] = {
    "cut": [CUT_OFF, CUT_OFF],
    "reasoning": [CUT_OFF, CUT_OFF],
    "loop": [LOOP_ABORT],
    "placeholder": [CUT_OFF],
    "thinking": [MESSAGE],
}


def refused(status: int, text: str = "no") -> ServerError:
    return ServerError(f"answered {status}: {text}", kind="status", status=status, body=f'{{"message":"{text}"}}')


def check(name: str) -> AgentCheck:
    return next(each for each in agent_checks(checks()["tool"]) if each.id == name)


async def rows(
    monkeypatch: pytest.MonkeyPatch, context: Context, changed: dict[str, list[Any]]
) -> tuple[dict[str, Finding], ToldServer]:
    """The five rows, all well but for what is `changed`."""
    server = ToldServer([*FOUR, *(each for said in (GOOD | changed).values() for each in said)])
    monkeypatch.setattr(smoke, "EngineServer", server)
    found = {each.check: each async for each in Smoke().run(context) if isinstance(each, Finding)}
    return {name: found[name] for name in GOOD if name in found}, server


async def test_five_right_answers_are_five_ok_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found, server = await rows(monkeypatch, cluster({"vision_config": {}}), {})
    assert {name: each.state for name, each in found.items()} == dict.fromkeys(GOOD, State.OK)
    assert all(generation.max_tokens > 0 for generation, _ in server.asked)
    first, history = (messages for _, messages in server.asked[5:7])
    assert [each["role"] for each in history] == [*(each["role"] for each in first), "assistant", "tool"]
    assert history[-2]["tool_calls"][0]["function"]["arguments"] == '{"key": "alp', "cut off in the middle"
    with_it, without = (messages for _, messages in server.asked[7:9])
    assert [["reasoning_content" in each for each in messages] for messages in (with_it, without)] == [
        [False, True, False],
        [False, False, False],
    ]
    assert "<｜deepseek_image｜>" in server.asked[10][1][0]["content"]
    assert server.anthropic_thinking == [{"type": "enabled"}], "without a budget"


@pytest.mark.parametrize(
    ("name", "answers", "state", "said"),
    [
        # U85
        ("cut", [CUT_OFF, refused(400, "bad arguments")], State.FAIL, f"an old overlay, {OLD}"),
        ("cut", [CUT_OFF, refused(500)], State.FAIL, "in the history is refused (answered 500"),
        ("cut", [answer(None, "tool_calls", [call()]), CUT_OFF], State.FAIL, f"as a whole one: {OLD}"),
        ("cut", [answer(None, "length", [call()]), CUT_OFF], State.FAIL, f"as a whole one: {OLD}"),
        ("cut", [answer(None, "length", [call(arguments='{"key": "al')]), CUT_OFF], State.OK, "'length'"),
        ("cut", [answer("No."), CUT_OFF], State.WARN, "the model ended with 'stop'"),
        # U88
        ("reasoning", [refused(400, "pass it back"), CUT_OFF], State.FAIL, "in its history 400, without 200"),
        (
            "reasoning",
            [CUT_OFF, refused(400, "must be passed back")],
            State.FAIL,
            "200, without 400 (answered 400: must",
        ),
        # U89
        ("loop", [answer("the same line\n" * 9, finish="stop")], State.FAIL, f"an ordinary 'stop': {OLD}"),
        ("loop", [answer("the same line\n" * 64, finish="length")], State.FAIL, "nothing ends loops here"),
        ("loop", [refused(500, "out of memory")], State.FAIL, "out of memory"),
        ("loop", [refused(400, "no grammar backend")], State.UNKNOWN, "no loop could be made"),
        ("placeholder", [refused(500, "Image placeholders")], State.FAIL, OLD),
        ("thinking", [refused(400, "budget_tokens is required")], State.FAIL, f"is required: {OLD}"),
    ],
)
async def test_u85_u88_u89_an_answer_as_of_old_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, answers: list[Any], state: State, said: str
) -> None:
    found, _ = await rows(monkeypatch, cluster({"vision_config": {}}), {name: answers})
    assert (found[name].state, said in found[name].what) == (state, True), found[name]
    assert {each.state for other, each in found.items() if other != name} == {State.OK}, "it costs its own row alone"
    if state is State.FAIL:
        assert found[name].fix.startswith("sparktui build" if OLD in found[name].what else "sparktui logs head")


async def test_a_loop_is_not_asked_for_where_the_settings_let_it_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = await rows(monkeypatch, cluster({"vision_config": {}}, DSV41_LOOP_ABORT="0"), {"loop": []})
    assert (found["loop"].state, "DSV41_LOOP_ABORT=0" in found["loop"].what) == (State.INFO, True)
    unnamed = cluster({"vision_config": {}}, DSV41_LOOP_NAMED_EXIT="0")
    found, _ = await rows(monkeypatch, unnamed, {"loop": [answer("the same line\n", finish="stop")]})
    assert (found["loop"].state, "DSV41_LOOP_NAMED_EXIT=0" in found["loop"].what) == (State.INFO, True)


async def test_an_endpoint_that_goes_away_is_no_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = ServerError("did not answer in 180 s", kind="timeout")
    for name in GOOD:
        found, _ = await rows(monkeypatch, cluster({"vision_config": {}}), {name: [gone] * len(GOOD[name])})
        assert (found[name].state, found[name].what) == (State.FAIL, "did not answer in 180 s"), name


async def test_u86_a_model_that_only_announces_its_call_is_a_warning_with_the_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    well = [each for said in GOOD.values() for each in said]
    told = ToldServer([*FIRST_TWO, answer("I will look it up:"), *TOOL_TURNS, SHAPES, *well])
    monkeypatch.setattr(smoke, "EngineServer", told)
    found = [each async for each in Smoke().run(cluster({"vision_config": {}})) if isinstance(each, Finding)]
    row = next(each for each in found if each.check == "tool")
    assert row.state is State.WARN
    assert "the model did not call the tool (1 of 2 tries)" in row.what


async def test_what_is_shown_is_what_is_asked() -> None:
    commands = [each for each in await Smoke().plan(cluster()) if each.why in GOOD]
    assert [each.why for each in commands] == [name for name, said in GOOD.items() for _ in said]
    for each in commands:
        assert KEY not in each.text
        assert '"Authorization: Bearer $(cat ' in each.text
        assert '"max_tokens": ' in each.text
    assert "/v1/messages" in commands[-1].text
    assert '"thinking": {"type": "enabled"}' in commands[-1].text
    assert '"regex": ' in next(each.text for each in commands if each.why == "loop")


@given(SHAPED, st.sampled_from(sorted(GOOD)))
def test_whatever_the_server_says_is_a_verdict(said: Any, name: str) -> None:
    each, settings = check(name), settings_for()
    assert not_asked(each, settings) is None
    verdict = judge_agent(each, [said] * len(each.asks), settings)
    assert verdict.what
