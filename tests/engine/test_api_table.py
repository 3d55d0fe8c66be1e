"""What the real server answers over HTTP, as it comes and with our plugin: the table of behaviours, row by row."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from spark_overlay.ledger import LEDGER

from tests.engine import engine_env
from tests.engine.looping import LONG_SCHEMA
from tests.engine.serving import KEY, MODEL, SMALL_CAP, Serving, environment

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]
HELLO = [{"role": "user", "content": "hello"}]
IMAGE_WORD = "<｜deepseek_image｜>"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def chat(server: Serving, **more: Any) -> tuple[int, dict[str, Any]]:
    answer = server.client.post(
        "/v1/chat/completions", json={"model": MODEL, "messages": HELLO, "max_tokens": 4, "temperature": 0, **more}
    )
    return answer.status_code, answer.json()


def rendered(server: Serving, **more: Any) -> str:
    """The prompt's text as the model gets it."""
    status, answer = chat(server, return_prompt_token_ids=True, **more)
    assert status == 200, answer
    tokens = answer["choices"][0]["prompt_token_ids"]
    text = server.client.post("/detokenize", json={"model": MODEL, "tokens": tokens, "skip_special_tokens": False})
    return str(text.json()["text"])


def effort(server: Serving, **more: Any) -> int | None:
    """The budget that stands in the prompt; None where the model does not think."""
    text = rendered(server, **more)
    found = re.search(r"Reasoning Effort: (\d+)", text)
    assert text.endswith("<think>") == (found is not None), text
    return int(found[1]) if found else None


def anthropic(server: Serving, path: str, thinking: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 4, "thinking": thinking}
    answer = server.client.post(path, json=body)
    return answer.status_code, answer.json()


@pytest.fixture(params=["plain", "plugin"])
def either(request: pytest.FixtureRequest) -> Serving:
    """Rows that are native: the same with and without the plugin."""
    server: Serving = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="module")
def official(plugin: Serving) -> dict[str, Any]:
    """What the official clients made of the server with the plugin."""
    script = engine_env.FOLDER / "official_clients.py"
    done = subprocess.run(
        [str(engine_env.engine_python()), str(script), plugin.url, KEY],
        env=environment(), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# Thinking and effort.


def test_thinking_is_off_unless_asked_for(either: Serving) -> None:
    assert effort(either) is None
    assert effort(either, chat_template_kwargs={"thinking": False}) is None
    assert effort(either, chat_template_kwargs={"thinking": True}) == 75


def test_enable_thinking_is_ignored_without_the_plugin_and_means_thinking_with_it(
    plain: Serving, plugin: Serving, other: Serving
) -> None:
    for kwargs, expected in (
        ({"enable_thinking": True}, 75),
        ({"enable_thinking": False}, None),
        ({"enable_thinking": True, "thinking": False}, None),
        ({"enable_thinking": False, "thinking": True}, 75),
    ):
        assert effort(plugin, chat_template_kwargs=kwargs) == expected, kwargs
    assert effort(plain, chat_template_kwargs={"enable_thinking": True}) is None
    assert effort(other, chat_template_kwargs={"enable_thinking": True}) is None, "its switch is off there"


@pytest.mark.parametrize(("name", "budget"), [("low", 50), ("medium", 75), ("high", 75), ("max", 100), ("none", None)])
def test_named_efforts(either: Serving, name: str, budget: int | None) -> None:
    assert effort(either, reasoning_effort=name) == budget


def test_the_default_effort_can_be_set(other: Serving) -> None:
    assert effort(other, chat_template_kwargs={"thinking": True}) == 33
    assert effort(other, reasoning_effort="low") == 50


@pytest.mark.parametrize("number", [1, 30, 99, 100])
def test_a_whole_number_is_an_effort_with_the_plugin_only(
    plain: Serving, plugin: Serving, other: Serving, number: int
) -> None:
    assert effort(plugin, reasoning_effort=number) == number
    assert effort(plugin, reasoning={"effort": number}) == number
    assert chat(other, reasoning_effort=number)[0] == chat(plain, reasoning_effort=number)[0] == 400


@pytest.mark.parametrize("wrong", [0, 101, -1, "30", "very", True, [30], 1.5])
def test_other_efforts_are_refused_as_before(plain: Serving, plugin: Serving, wrong: Any) -> None:
    before, now = chat(plain, reasoning_effort=wrong), chat(plugin, reasoning_effort=wrong)
    assert now[0] == before[0]
    if wrong not in (True, 0):
        assert now[0] == 400


def test_a_fraction_stays_what_it_was(either: Serving) -> None:
    assert effort(either, reasoning_effort=0.3) == 30


# Anthropic.


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_anthropic_thinking_without_a_budget(plain: Serving, plugin: Serving, path: str) -> None:
    status, answer = anthropic(plain, path, {"type": "enabled"})
    assert status == 400
    assert "budget_tokens is required" in json.dumps(answer)
    assert anthropic(plugin, path, {"type": "enabled"})[0] == 200


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_anthropic_shapes_that_were_accepted_or_refused_still_are(either: Serving, path: str) -> None:
    for shape, expected in (
        ({"type": "enabled", "budget_tokens": 2000}, 200),
        ({"type": "adaptive"}, 200),
        ({"type": "disabled"}, 200),
        ({"type": "enabled", "budget_tokens": 5}, 400),
        ({"type": "disabled", "budget_tokens": 2000}, 400),
        ({"type": "enabled", "budget_tokens": "many"}, 400),
        ({"type": "sometimes"}, 400),
        ({}, 400),
    ):
        assert anthropic(either, path, shape)[0] == expected, shape


# Limits.


def generated(server: Serving, path: str, **more: Any) -> tuple[int, str]:
    """Tokens that came and why it ended, for a request that would go on."""
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"model": MODEL, "messages": HELLO, "ignore_eos": True},
        "/v1/completions": {"model": MODEL, "prompt": "a long story", "ignore_eos": True},
        "/v1/responses": {"model": MODEL, "input": "Tell me a story."},
        "/generate": {"text": "a long story", "sampling_params": {"ignore_eos": True}},
    }
    body = {**bodies[path], **more}
    if "sampling_params" in more:
        body["sampling_params"] = {**bodies[path]["sampling_params"], **more["sampling_params"]}
    answer = server.client.post(path, json={"temperature": 0, **body} if path != "/generate" else body).json()
    if path == "/generate":
        return answer["meta_info"]["completion_tokens"], answer["meta_info"]["finish_reason"]["type"]
    if path == "/v1/responses":
        reason = answer["incomplete_details"] or {"reason": answer["status"]}
        return answer["usage"]["output_tokens"], reason["reason"]
    return answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]


ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate")


def limit(path: str, tokens: int) -> dict[str, Any]:
    if path == "/generate":
        return {"sampling_params": {"max_new_tokens": tokens}}
    return {"max_output_tokens" if path == "/v1/responses" else "max_tokens": tokens}


@pytest.mark.parametrize("path", ROUTES)
def test_the_cap_holds_where_no_limit_is_named_and_only_there(plugin: Serving, path: str) -> None:
    tokens, why = generated(plugin, path)
    assert tokens == SMALL_CAP, why
    assert why in ("length", "max_output_tokens")
    assert generated(plugin, path, **limit(path, 20))[0] in (18, 20)  # SGLang takes 2 off a Responses limit


@pytest.mark.parametrize("path", ROUTES)
def test_the_hard_cap_holds_a_larger_limit_too(plain: Serving, other: Serving, path: str) -> None:
    named = limit(path, 700)
    if path == "/v1/responses":
        # It has no ignore_eos, and what the model answers by itself is shorter than the cap.
        named["text"] = {"format": {"type": "json_schema", "name": "rows", "schema": LONG_SCHEMA}}
        tokens, why = generated(plain, path, **named)
        assert 200 < tokens < 690 and why == "completed"
    assert generated(other, path, **named) == (200, "max_output_tokens" if path == "/v1/responses" else "length")


def test_without_the_plugin_a_chat_without_a_limit_goes_on(plain: Serving) -> None:
    status, answer = chat(plain, max_tokens=None, stop=["four times"], messages=[{"role": "user", "content": "boats"}])
    assert status == 200
    assert answer["usage"]["completion_tokens"] > 5 * SMALL_CAP


# Native: these rows guard what needs no code of ours.


def test_a_cut_tool_call_in_the_history_is_answered(either: Serving) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"x": "cut of'}}
    history = [
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
    ]
    status, answer = chat(either, messages=history, tools=[TOOL])
    assert status == 200, answer


def test_the_image_placeholder_in_a_text_is_text(either: Serving) -> None:
    words = f"what is {IMAGE_WORD} here?"
    said = [{"role": "user", "content": words}]
    for path, body in (
        ("/v1/chat/completions", {"messages": said, "max_tokens": 2}),
        ("/v1/messages", {"messages": said, "max_tokens": 2}),
        ("/v1/completions", {"prompt": words, "max_tokens": 2}),
        ("/generate", {"text": words, "sampling_params": {"max_new_tokens": 2}}),
    ):
        body = body if path == "/generate" else {"model": MODEL, **body}
        answer = either.client.post(path, json=body)
        assert answer.status_code == 200, (path, answer.text)


def test_a_tool_call_comes_out_and_its_result_goes_in(either: Serving) -> None:
    smoke = json.loads(engine_env.SMOKE.read_text(encoding="utf-8"))
    check = next(each for each in smoke["checks"] if each["id"] == "tool")
    status, answer = chat(either, **check["request"])
    message = answer["choices"][0]["message"]
    calls = message["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["lookup_fixture"]
    result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": check["then"]["tool_result"]}
    turn = {"role": "assistant", "content": message["content"], "tool_calls": calls}
    status, answer = chat(either, **check["request"] | {"messages": [*check["request"]["messages"], turn, result]})
    assert status == 200
    assert "42" in answer["choices"][0]["message"]["content"]


def test_reasoning_is_split_off_and_counted(either: Serving) -> None:
    smoke = json.loads(engine_env.SMOKE.read_text(encoding="utf-8"))
    _, answer = chat(either, **smoke["hello"] | {"chat_template_kwargs": {"thinking": True}})
    message, usage = answer["choices"][0]["message"], answer["usage"]
    assert "greeting" in message["reasoning_content"]
    assert message["content"].startswith("Hello!")
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 < usage["reasoning_tokens"] < usage["completion_tokens"]


# The official clients.


def test_the_official_openai_client(official: dict[str, Any]) -> None:
    assert official["openai plain"] < official["openai thinking"] == official["openai alias"]
    assert min(official["openai effort low"], official["openai effort 30"]) > official["openai plain"] + 9
    assert (official["openai effort 101"]["raised"], official["openai effort 101"]["status"]) == (
        "BadRequestError",
        400,
    )
    assert official["openai stream"]["text"]
    assert official["openai stream"]["completion_tokens"] > 8
    assert len(official["openai responses"]) > 20


def test_the_official_anthropic_client(official: dict[str, Any]) -> None:
    plain = official["anthropic plain"]
    assert plain["types"] == ["text"]
    assert official["anthropic count plain"] == official["anthropic count disabled"]
    for kind in ("enabled", "budget", "adaptive"):
        assert official[f"anthropic {kind}"]["types"][0] == "thinking", kind
        assert official[f"anthropic count {kind}"] > official["anthropic count plain"], kind
    for kind in ("short budget", "disabled with a budget"):
        for row in (f"anthropic {kind}", f"anthropic count {kind}"):
            assert (official[row]["raised"], official[row]["status"]) == ("BadRequestError", 400), row


def test_tools_through_both_official_clients(official: dict[str, Any]) -> None:
    for client in ("openai", "anthropic"):
        row = official[f"{client} tools"]
        assert row["called"] == ["lookup_fixture", {"key": "alpha"}], row
        assert "42" in row["said"]
        assert row["counts"] is True
    assert official["anthropic tools"]["stopped"] == "tool_use"


def test_what_needs_no_code_of_ours_through_the_official_clients(official: dict[str, Any]) -> None:
    assert official["openai cut tool call"] in ("length", "stop")
    # Two tokens of a random model: whether the second one ends the text is the machine's rounding.
    assert {official["openai image"], official["openai image completions"]} <= {"length", "stop"}
    assert official["anthropic image"] == "max_tokens"
    assert "greeting" in official["openai reasoning"]["thought"]
    assert official["openai reasoning"]["said"].startswith("Hello!")


# The frame.


def test_every_process_says_one_line_an_adapter(plugin: Serving, other: Serving) -> None:
    for server, off in ((plugin, set()), (other, {"enable_thinking", "integer_effort"})):
        lines = re.findall(r"^\[spark\] (\w+): adapter (\w+): (armed|off|not needed)", server.text(), re.MULTILINE)
        for process in ("server", "scheduler", "detokenizer"):
            said = [(name, state) for where, name, state in lines if where == process]
            assert [name for name, _ in said] == [adapter.name for adapter in LEDGER], process
            assert {name for name, state in said if state == "off"} == off
        assert ("scheduler", "loop_abort", "armed") in lines


def test_the_key_is_in_nothing_that_sglang_says_of_itself(plugin: Serving) -> None:
    assert "'api_key': '••••••1f'" in plugin.text()
    assert KEY not in plugin.text()
    info = plugin.client.get("/server_info")
    assert info.json()["api_key"] == "••••••1f"
    for path in ("/server_info", "/get_server_info", "/model_info", "/v1/models", "/metrics"):
        answer = plugin.client.get(path)
        assert answer.status_code == 200, path
        assert KEY not in answer.text, path
    assert plugin.client.get("/server_info", headers={"Authorization": "Bearer no"}).status_code == 401
