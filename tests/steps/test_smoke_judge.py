"""Smoke: what counts as right, as the model's habit and as the server's fault; and whole runs against a told server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.errors import StepFailed
from sparktui.events import Finding, Question, State
from sparktui.remote.server import Generation, ServerError
from sparktui.settings import Settings, parse_settings
from sparktui.shipped import shipped
from sparktui.steps import smoke
from sparktui.steps.smoke import Smoke
from sparktui.steps.smoke_checks import NOT_SERVED, judge, load_checks, picture_refused, takes_pictures
from sparktui.steps.step import Context
from tests.scripted_link import ScriptedLink

KEY = "a-long-secret-key"
REFUSAL = (
    '{"object":"error","message":"Model only supports text input; received unsupported content type \'image_url\'"}'
)


def answer(content: str | None = None, finish: str = "stop", calls: list[Any] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    return {"choices": [{"message": message | ({"tool_calls": calls} if calls else {}), "finish_reason": finish}]}


def call(name: str = "lookup_fixture", arguments: Any = '{"key": "alpha"}', identity: Any = "call_1") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def checks() -> dict[str, Any]:
    return {each.id: each for each in load_checks(shipped("assets") / "smoke.json")}


NUMBER = {"finish_reason": "stop", "content": "42"}
STRICT = {"finish_reason": "stop", "json": {"answer": 42}}
TOOL = {"finish_reason": "tool_calls", "tool_calls": [{"name": "lookup_fixture", "arguments": {"key": "alpha"}}]}
WORDS = {"finish_reason": "stop", "content_contains": ["red", "circle"]}


@pytest.mark.parametrize(
    ("given_answer", "expect", "state", "said"),
    [
        (answer(" 42\n"), NUMBER, State.OK, "42"),
        (answer("The answer is 42"), NUMBER, State.FAIL, "not '42'"),
        (answer("42", finish="length"), NUMBER, State.FAIL, "it ended with 'length'"),
        (answer(""), NUMBER, State.FAIL, "not '42'"),
        (answer(None), NUMBER, State.FAIL, "not '42'"),
        (answer('{ "answer": 42 }'), STRICT, State.OK, "42"),
        (answer('{"answer": 43}'), STRICT, State.FAIL, "43"),
        (answer('{"answer": "42"}'), STRICT, State.FAIL, "'42'"),
        (answer('```json\n{"answer": 42}\n```'), STRICT, State.FAIL, "no JSON"),
        (answer("A RED circle"), WORDS, State.OK, "RED"),
        (answer("a red square"), WORDS, State.FAIL, "does not name circle"),
        (answer(None, "tool_calls", [call()]), TOOL, State.OK, "lookup_fixture("),
        (answer("I will look it up."), TOOL, State.WARN, "did not call the tool"),
        (answer(None, "tool_calls", [call("other")]), TOOL, State.FAIL, "it called other("),
        (answer(None, "tool_calls", [call(arguments='{"key": "beta"}')]), TOOL, State.FAIL, "beta"),
        (answer(None, "tool_calls", [call(arguments='{"key": ')]), TOOL, State.FAIL, "no JSON"),
        (answer(None, "tool_calls", [call(arguments={"key": "alpha"})]), TOOL, State.FAIL, "no JSON"),
        (answer(None, "tool_calls", [call(), call()]), TOOL, State.FAIL, "2 tool calls, not 1"),
        (answer(None, "tool_calls", [call(identity=None)]), TOOL, State.FAIL, "no id"),
        (answer(None, "tool_calls", ["lookup_fixture"]), TOOL, State.FAIL, "garbled"),
        (answer(None, "stop", [call()]), TOOL, State.FAIL, "it ended with 'stop'"),
        ({}, NUMBER, State.FAIL, "no choice"),
        ({"choices": []}, NUMBER, State.FAIL, "no choice"),
        ({"choices": [{"message": "42"}]}, NUMBER, State.FAIL, "no choice"),
        ({"error": {"message": "busy"}}, NUMBER, State.FAIL, "busy"),
    ],
)
def test_the_verdict_on_an_answer(given_answer: dict[str, Any], expect: Any, state: State, said: str) -> None:
    verdict = judge(given_answer, expect)
    assert (verdict.state, said in verdict.what) == (state, True), verdict


def test_the_shipped_checks_judge_the_answers_they_ask_for() -> None:
    ours = checks()
    assert set(ours) == {"arithmetic", "json", "tool", "picture"}
    assert judge(answer("42"), ours["arithmetic"].expect).state is State.OK
    assert judge(answer('{"answer": 42}'), ours["json"].expect).state is State.OK
    assert judge(answer(None, "tool_calls", [call()]), ours["tool"].expect).state is State.OK
    assert judge(answer("The value is 42."), ours["tool"].then).state is State.OK
    assert judge(answer("A red circle and a blue square."), ours["picture"].expect).state is State.OK


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)
CALLS = JSON | st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": JSON,
            "function": JSON | st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON}),
        },
    ),
    max_size=2,
)
SHAPED = st.fixed_dictionaries(
    {},
    optional={
        "choices": JSON
        | st.lists(
            st.fixed_dictionaries(
                {"message": JSON | st.fixed_dictionaries({}, optional={"content": JSON, "tool_calls": CALLS})},
                optional={"finish_reason": JSON},
            ),
            max_size=2,
        )
    },
)


@given(JSON | SHAPED, st.sampled_from([NUMBER, STRICT, TOOL, WORDS, {}]))
def test_whatever_the_server_says_is_a_verdict(said: Any, expect: Any) -> None:
    verdict = judge(said, expect)
    assert verdict.state in (State.OK, State.WARN, State.FAIL)
    assert verdict.state is State.OK or verdict.what


def test_json_nested_without_end_is_a_verdict() -> None:
    assert judge(answer("[" * 100_000), STRICT).state is State.FAIL


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (REFUSAL, True),
        ("This is not a multimodal model, but images were given", True),
        ("image input is not supported", True),
        ("The request's max_tokens is not supported", False),
        ("could not decode the image: truncated file", False),
        ("", False),
    ],
)
def test_a_refusal_of_pictures_is_told_from_other_errors(body: str, refused: bool) -> None:
    assert picture_refused(body) is refused


def test_a_checkpoint_without_a_vision_part_takes_no_pictures_and_an_unread_one_is_unknown() -> None:
    assert takes_pictures(None) is None
    assert takes_pictures({"model_type": "deepseek_v4"}) is False
    assert takes_pictures({"vision_config": {}}) is True


# -- whole runs --------------------------------------------------------------------------------------------------


class ToldServer:
    """Answers chats from a list; an exception in it is raised."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers: Iterator[Any] = iter(answers)
        self.asked: list[tuple[Generation, list[Any]]] = []
        self.anthropic_thinking: list[Any] = []

    def __call__(self, url: str, *, api_key: str | None = None) -> ToldServer:
        return self

    async def __aenter__(self) -> ToldServer:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def anthropic(self, model: str, messages: Any, generation: Generation, *, thinking: Any, **_: Any) -> Any:
        self.anthropic_thinking.append(thinking)
        return await self.chat(model, messages, generation)

    async def chat(self, model: str, messages: Any, generation: Generation, **_: Any) -> Any:
        self.asked.append((generation, list(messages)))
        said = next(self.answers)
        if isinstance(said, Exception):
            raise said
        return said


def settings_for(**more: str) -> Settings:
    text = (
        'HEAD_IP=10.0.0.1\nWORKER_IPS="10.0.0.2 10.0.0.3"\nWORKER_HOSTS="spark2 spark3"\n'
        f"MODEL_DIR=/srv/model\nAPI_KEY={KEY}\n"
    ) + "".join(f"{name}={value}\n" for name, value in more.items())
    return parse_settings(text, env_path=Path("/srv/.env"), profile="three", environment={"HOME": "/home/u"})


def cluster(config: dict[str, Any] | None = None, **more: str) -> Context:
    settings = settings_for(**more)
    links = [ScriptedLink(node) for node in settings.nodes]
    for link in links:
        name = "dsv41-head" if link.node.is_head else "dsv41-worker"
        link.engine.add_container(name, labels={"sparktui.owner": "sparktui", "sparktui.profile": "three"})
    if config is not None:
        links[0].put_file("/srv/model/config.json", json.dumps(config))

    async def ask(question: Question) -> str:
        raise AssertionError(f"smoke asked {question.question}")

    return Context(settings, tuple(links), ask)


async def rows(
    monkeypatch: pytest.MonkeyPatch, context: Context, answers: list[Any]
) -> tuple[dict[str, Finding], ToldServer]:
    """Of the first four checks; the others have a file of their own."""
    server = ToldServer(answers)
    monkeypatch.setattr(smoke, "EngineServer", server)
    monkeypatch.setattr(smoke, "agent_checks", lambda tool: ())
    found = [each async for each in Smoke().run(context) if isinstance(each, Finding)]
    return {each.check: each for each in found}, server


FIRST_TWO = [answer("42"), answer('{"answer": 42}')]
TOOL_TURNS = [answer(None, "tool_calls", [call()]), answer("It is 42.")]
SHAPES = answer("a red circle, a blue square")


async def test_four_right_answers_are_four_ok_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found, server = await rows(monkeypatch, cluster({"vision_config": {}}), [*FIRST_TWO, *TOOL_TURNS, SHAPES])
    assert {name: each.state for name, each in found.items()} == dict.fromkeys(
        ("arithmetic", "json", "tool", "picture"), State.OK
    )
    assert all(generation.max_tokens > 0 and not generation.thinking for generation, _ in server.asked)
    second_turn = server.asked[3][1]
    assert second_turn[-1] == {"role": "tool", "tool_call_id": "call_1", "content": '{"value":42}'}
    assert server.asked[4][1][-1]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")


async def test_a_tool_call_not_made_is_a_warning_after_two_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    shy = answer("Let me look that up.")
    found, server = await rows(monkeypatch, cluster({}), [*FIRST_TWO, shy, shy])
    assert found["tool"].state is State.WARN
    assert "2 of 2 tries" in found["tool"].what
    assert len(server.asked) == 4


async def test_a_broken_tool_call_fails_at_once_and_says_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = answer(None, "tool_calls", [call(arguments="{")])
    found, server = await rows(monkeypatch, cluster({}), [*FIRST_TWO, broken])
    assert (found["tool"].state, found["tool"].fix) == (State.FAIL, "sparktui logs head")
    assert len(server.asked) == 3


async def test_a_text_model_has_a_row_that_says_pictures_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    found, server = await rows(monkeypatch, cluster({"model_type": "x"}), [*FIRST_TWO, *TOOL_TURNS])
    assert found["picture"].state is State.INFO
    assert found["picture"].what.startswith(NOT_SERVED)
    assert len(server.asked) == 4


async def test_the_servers_own_refusal_of_pictures_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = ServerError("HTTP 400", kind="status", status=400, body=REFUSAL)
    found, _ = await rows(monkeypatch, cluster(), [*FIRST_TWO, *TOOL_TURNS, refusal])
    assert (found["picture"].state, found["picture"].what) == (State.INFO, NOT_SERVED)


async def test_another_400_at_the_picture_and_a_400_elsewhere_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = ServerError("HTTP 400", kind="status", status=400, body=REFUSAL)
    other = ServerError("HTTP 400", kind="status", status=400, body="could not decode the image")
    found, _ = await rows(monkeypatch, cluster(), [refusal, FIRST_TWO[1], *TOOL_TURNS, other])
    assert found["arithmetic"].state is State.FAIL
    assert found["picture"].state is State.FAIL


async def test_a_rank_that_is_gone_is_named_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    context = cluster()
    link = context.links[2]
    assert isinstance(link, ScriptedLink)
    link.engine.containers["dsv41-worker"].status = "exited"
    with pytest.raises(StepFailed, match="rank 2 does not run") as caught:
        await rows(monkeypatch, context, [])
    assert (caught.value.node, caught.value.fix) == ("worker2", "sparktui serve")


async def test_the_curl_lines_read_the_key_from_its_file() -> None:
    ours = checks()
    commands = (await Smoke().plan(cluster()))[: len(ours)]
    assert [each.why for each in commands] == list(ours)
    for each in commands:
        assert KEY not in each.text
        assert '"Authorization: Bearer $(cat ' in each.text
        assert f'"max_tokens": {ours[each.why].max_tokens}' in each.text


@pytest.mark.parametrize(
    ("usage", "state"),
    [
        ({"prompt_tokens_details": {"image_tokens": 1024}}, State.OK),
        ({"prompt_tokens_details": {"image_tokens": 256}}, State.FAIL),
        ({"prompt_tokens_details": {"image_tokens": 0}}, State.FAIL),
        ({"prompt_tokens_details": {"cached_tokens": 3}}, State.OK),
        ({"prompt_tokens_details": None}, State.OK),
        (None, State.OK),
        ("many", State.OK),
    ],
)
def test_a_picture_that_became_other_than_1024_tokens_fails_where_the_engine_says_how_many(
    usage: Any, state: State
) -> None:
    """A picture that was scaled down may still be guessed right; an engine that reports nothing is no fault."""
    verdict = judge(SHAPES | {"usage": usage}, checks()["picture"].expect)
    assert verdict.state is state
    assert state is State.OK or "tokens, not 1024" in verdict.what


@pytest.mark.parametrize(
    ("verbs", "skipped"), [(("build", "serve", "smoke"), True), (("serve", "smoke"), True), (("smoke",), False)]
)
async def test_skip_smoke_ends_a_chain_without_it_and_smoke_by_itself_asks(
    verbs: tuple[str, ...], skipped: bool
) -> None:
    plain = await Smoke().inspect(replace(cluster(), verbs=verbs))
    assert not plain.done
    told = await Smoke().inspect(replace(cluster(SKIP_SMOKE="1"), verbs=verbs))
    assert told.done is skipped
    assert not skipped or "SKIP_SMOKE=1" in told.summary
