"""A loop on the real server: an error with its name on every route, or a stop that keeps one copy; then it goes on."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine import engine_env
from tests.engine.looping import HELLO, PIECE, SCHEMA
from tests.engine.serving import KEY, MODEL, Serving, environment

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]
TOKEN = 300
LINE = "the sâme lîne again and again and again"
LOOPS: dict[str, dict[str, Any]] = {
    "identical": {"logit_bias": {str(TOKEN): 100}},
    # Characters that are three tokens each: the piece is 36 tokens long and split inside characters.
    "ngram": {"regex": f"({PIECE}){{40}}"},
    "lines": {"regex": f"({LINE}\n){{40}}"},
}
ENDS_AFTER = {"identical": 64, "ngram": 4 * 36}


def body(path: str, loop: str) -> dict[str, Any]:
    common = {"model": MODEL, "max_tokens": 190, "temperature": 0, **LOOPS[loop]}
    if path == "/v1/chat/completions":
        return {"messages": HELLO, **common}
    if path == "/v1/completions":
        return {"prompt": "ab", **common}
    return {"text": "ab", "sampling_params": {"max_new_tokens": 190, "temperature": 0, **LOOPS[loop]}}


def events(server: Serving, path: str, request: dict[str, Any]) -> list[Any]:
    """The `data:` lines of a stream, parsed."""
    with server.client.stream("POST", path, json={**request, "stream": True}) as answer:
        assert answer.status_code == 200
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def text_of(chunks: list[Any]) -> str:
    choices = [chunk["choices"][0] for chunk in chunks if chunk.get("choices")]
    return "".join(each.get("text") or each.get("delta", {}).get("content") or "" for each in choices)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
def test_an_answer_in_one_piece_is_the_named_error(plugin: Serving, path: str, loop: str) -> None:
    answer = plugin.client.post(path, json=body(path, loop))
    assert answer.status_code == 500
    assert answer.json()["message"].startswith(f"loop_abort: {loop} at output token ")
    # SGLang's own route has no official client that would ask again.
    assert answer.headers.get("x-should-retry") == (None if path == "/generate" else "false")
    if loop in ENDS_AFTER:
        assert f"at output token {ENDS_AFTER[loop]}:" in answer.json()["message"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_ends_with_the_named_error_and_counts_what_was_sent(plugin: Serving, path: str, loop: str) -> None:
    chunks = events(plugin, path, body(path, loop) | {"stream_options": {"include_usage": True}})
    errors = [chunk["error"] for chunk in chunks if "error" in chunk]
    assert [error["code"] for error in errors] == [500]
    assert errors[0]["message"].startswith(f"loop_abort: {loop} at output token ")
    ended = int(errors[0]["message"].split("output token ")[1].split(":")[0])
    # All but the token that completed the loop were sent before.
    assert chunks[-1]["usage"]["completion_tokens"] == ended - 1
    assert all(each["finish_reason"] is None for chunk in chunks for each in chunk.get("choices", ()))
    assert text_of(chunks)


@pytest.fixture(scope="module")
def official(plugin: Serving) -> dict[str, Any]:
    script, before = engine_env.FOLDER / "official_clients.py", len(plugin.text())
    done = subprocess.run(
        [str(engine_env.engine_python()), str(script), plugin.url, KEY, "loops"],
        env=environment(), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    found["in the log"] = [line for line in plugin.text()[before:].splitlines() if line.startswith("[spark] request ")]
    return found


def test_the_official_clients_ask_once_though_they_retry_a_500(official: dict[str, Any]) -> None:
    assert len(official["in the log"]) == len(official) - 1 == 7, official["in the log"]
    assert all(": loop_abort: " in line for line in official["in the log"])


def test_the_official_clients_raise_the_named_error_on_every_route(official: dict[str, Any]) -> None:
    for row in ("chat", "completions", "responses", "anthropic"):
        assert (official[row]["raised"], official[row]["status"]) == ("InternalServerError", 500), official[row]
        assert "loop_abort: " in official[row]["text"], row
    for row in ("chat stream", "anthropic stream"):
        assert official[row]["raised"] in ("APIError", "APIStatusError", "InternalServerError"), official[row]
        assert "loop_abort: " in official[row]["text"], row
    failed = official["responses stream"]
    assert (failed["last"], failed["status"]) == ("response.failed", "failed")
    assert failed["text"].startswith("loop_abort: ngram")


def test_the_body_of_the_error_on_responses_and_messages(plugin: Serving) -> None:
    responses = {"model": MODEL, "input": "hello", "max_output_tokens": 900}
    responses["text"] = {"format": {"type": "json_schema", "name": "rows", "schema": SCHEMA}}
    answer = plugin.client.post("/v1/responses", json=responses)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (500, 500, "server_error")
    assert answer.headers["x-should-retry"] == "false"
    assert error["message"].startswith("loop_abort: ngram at output token ")

    messages = {"model": MODEL, "messages": HELLO, "max_tokens": 900}
    messages["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
    answer = plugin.client.post("/v1/messages", json=messages)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "api_error")
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"]["message"].startswith("loop_abort: ngram at output token ")
    kinds = [event["type"] for event in events(plugin, "/v1/messages", messages)]
    assert kinds[0] == "message_start"
    assert kinds[-3:] == ["content_block_stop", "error", "message_stop"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_without_the_name_an_answer_in_one_piece_stops_behind_one_copy(other: Serving, path: str, loop: str) -> None:
    answer = other.client.post(path, json=body(path, loop)).json()
    choice = answer["choices"][0]
    text = choice["text"] if path == "/v1/completions" else choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    assert choice["matched_stop"] == f"loop_abort: {loop}"
    tokens = answer["usage"]["completion_tokens"]
    if loop == "identical":
        one = other.client.post("/detokenize", json={"model": MODEL, "tokens": [TOKEN]}).json()["text"]
        assert (text, tokens) == (one, 1)
    elif loop == "ngram":
        assert (text, tokens) == (PIECE, 36)
    else:
        assert text.rstrip("\n") == LINE
        assert tokens < 60


def test_a_loop_in_the_thinking_counts_no_more_thinking_than_output(plugin: Serving, other: Serving) -> None:
    path = "/v1/chat/completions"
    # A grammar begins only behind the thinking, so of the loops it is the biased token.
    request = body(path, "identical") | {"chat_template_kwargs": {"thinking": True}}
    usage = other.client.post(path, json=request).json()["usage"]
    assert (usage["completion_tokens"], usage["reasoning_tokens"]) == (1, 1)
    for server in (plugin, other):
        usage = events(server, path, request | {"stream_options": {"include_usage": True}})[-1]["usage"]
        assert usage["reasoning_tokens"] == usage["completion_tokens"] == 63


@pytest.mark.parametrize("loop", LOOPS)
def test_without_the_name_a_stream_stops_where_it_is(other: Serving, loop: str) -> None:
    request = body("/v1/chat/completions", loop) | {"stream_options": {"include_usage": True}}
    chunks = events(other, "/v1/chat/completions", request)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]]
    assert reasons[-1] == "stop"
    assert set(reasons[:-1]) == {None}
    if loop in ENDS_AFTER:
        assert chunks[-1]["usage"]["completion_tokens"] == ENDS_AFTER[loop] - 1
    assert text_of(chunks)


def test_without_the_name_a_native_answer_has_as_many_tokens_as_it_says(other: Serving) -> None:
    answer = other.client.post("/generate", json=body("/generate", "ngram")).json()
    assert answer["meta_info"]["completion_tokens"] == len(answer["output_ids"]) == 36
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": "loop_abort: ngram"}


def test_a_loop_among_other_requests_ends_alone_and_its_prompt_can_be_asked_again(plugin: Serving) -> None:
    def hello(_: int) -> Any:
        request = {"model": MODEL, "messages": HELLO, "max_tokens": 64, "temperature": 0}
        return plugin.client.post("/v1/chat/completions", json=request)

    def looping(_: int) -> Any:
        return plugin.client.post("/v1/chat/completions", json=body("/v1/chat/completions", "ngram"))

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask, number) for number in range(3) for ask in (hello, looping)]
        found = [each.result() for each in answers]
    assert [answer.status_code for answer in found] == [200, 500] * 3
    assert len({answer.json()["choices"][0]["message"]["content"] for answer in found[::2]}) == 1


def test_each_loop_is_a_line_in_the_log(plugin: Serving) -> None:
    said = "loop_abort: identical at output token 64"
    for rid, shown in (("of-the-log", "'of-the-log'"), ("x\n[spark] READY rank=0", r"'x\n[spark] READY rank=0'")):
        plugin.client.post("/generate", json=body("/generate", "identical") | {"rid": rid})
        assert f"[spark] request {shown}: {said}" in plugin.text()
    assert "\n[spark] READY" not in plugin.text()
