"""The hook functions of loop_abort and max_new_tokens, with a request that has what they touch of SGLang's."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from spark_overlay import named_error
from spark_overlay.adapters import loop_abort, max_new_tokens
from spark_overlay.arming import values_of
from spark_overlay.ledger import LEDGER

from tests.overlay.test_loop_detect import Letters

PIECE = list(range(1000, 1040))


class Req:
    """What SGLang's Req has of it."""

    def __init__(self, *, stream: bool = False) -> None:
        self.rid, self.tokenizer, self.stream = "r1", None, stream
        self.output_ids: array[int] = array("q")
        self.finished_reason: Any = None
        self.finished_len: int | None = None
        self.send_token_offset = 0
        self.ends_at: int | None = None
        self.reasoning_tokens = 0

    def finished(self) -> bool:
        return self.finished_reason is not None

    def update_finish_state(self, new_accepted_len: int = 1) -> None:
        if self.ends_at is not None and len(self.output_ids) >= self.ends_at:
            self.finished_reason, self.finished_len = "its own", self.ends_at


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[..., Any]]:
    """The hook on Req.update_finish_state, with settings; SGLang's two finish reasons are plain namespaces."""
    module = ModuleType("sglang.srt.managers.schedule_batch")
    module.FINISH_ABORT = lambda text, status, kind: SimpleNamespace(text=text, status=status, kind=kind)  # type: ignore[attr-defined]
    module.FINISH_MATCHED_STR = lambda matched: SimpleNamespace(matched=matched)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def make(**settings: str) -> Callable[..., Any]:
        functions = loop_abort.ADAPTER.functions(values_of(LEDGER, settings))
        hook = functions[loop_abort._FINISH]
        return lambda req, count=1: hook(Req.update_finish_state, req, count)

    return make


def run(hook: Callable[..., Any], req: Req, tokens: list[int], step: int) -> int:
    """Steps until it ends, as a decoder that accepts `step` tokens at once."""
    for start in range(0, len(tokens), step):
        part = tokens[start : start + step]
        req.output_ids.extend(part)
        hook(req, len(part))
        if req.finished():
            return start // step + 1
        if req.stream:
            req.send_token_offset = len(req.output_ids)
    return 0


@pytest.mark.parametrize("step", [1, 2, 5, 6])
def test_it_ends_in_the_step_that_completes_the_loop(watched: Callable[..., Any], step: int) -> None:
    req = Req()
    steps = run(watched(), req, [*range(20), *PIECE * 9], step)
    end = 20 + 4 * len(PIECE)
    assert steps == -(-end // step)
    assert req.finished_reason.text.startswith(f"loop_abort: ngram at output token {end}: a piece of 40 tokens came 4")
    assert (req.finished_reason.status, req.finished_reason.kind) == (500, "loop_abort")
    assert req.finished_len == 60, "the first copy"


def test_a_stream_keeps_what_was_sent(watched: Callable[..., Any]) -> None:
    req = Req(stream=True)
    run(watched(), req, [*range(20), *PIECE * 9], 1)
    assert req.finished_len == req.send_token_offset == 20 + 4 * len(PIECE) - 1


def test_the_old_stop(watched: Callable[..., Any]) -> None:
    req = Req()
    run(watched(DSV41_LOOP_NAMED_EXIT="0"), req, [7] * 99, 3)
    assert req.finished_reason.matched == "loop_abort: identical"
    assert req.finished_len == 1


@pytest.mark.parametrize("named", ["0", "1"])
@pytest.mark.parametrize("stream", [False, True])
def test_thinking_that_loops_counts_no_more_thinking_than_output(
    watched: Callable[..., Any], named: str, stream: bool
) -> None:
    req, hook = Req(stream=stream), watched(DSV41_LOOP_NAMED_EXIT=named)

    def counted(req: Req, count: int) -> None:
        req.reasoning_tokens += count  # SGLang counts before it asks
        hook(req, count)

    run(counted, req, [*range(20), *PIECE * 9], 3)
    assert req.finished_len == (req.send_token_offset if stream else 60)
    assert req.reasoning_tokens == req.finished_len
    short = Req()
    short.reasoning_tokens = 5
    run(hook, short, [*range(20), *PIECE * 9], 1)
    assert short.reasoning_tokens == 5, "thinking that ended before stays as it was"


class Answer(SimpleNamespace):
    """A response of Starlette's, as far as it is touched."""

    def __init__(self) -> None:
        super().__init__(headers={})


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("message", ["loop_abort: ngram at output token 9: x", "out of memory"])
def test_only_a_loops_error_tells_the_clients_not_to_ask_again(message: str) -> None:
    functions = loop_abort.ADAPTER.functions(values_of(LEDGER, {}))
    expected = {"x-should-retry": "false"} if message.startswith("loop_abort") else {}
    openai = functions[named_error.OPENAI_ERROR](Answer(), None, message=message, err_type="500", status_code=500)
    anthropic = functions[named_error.ANTHROPIC_ERROR](
        Answer(), None, status_code=500, error_type="api_error", message=message, exception_name=None
    )
    hook = functions[named_error.RESPONSES]
    serving = SimpleNamespace(create_error_response=lambda *given: hook(Answer(), None, *given))
    responses = hook(Answer(), serving, f"500: {message}")
    assert [each.headers for each in (openai, anthropic, responses)] == [expected] * 3


def test_three_copies_and_a_request_that_ended_by_itself_are_left_alone(watched: Callable[..., Any]) -> None:
    req = Req()
    assert run(watched(), req, [*range(20), *PIECE * 3, 1, 2, 3], 1) == 0
    req = Req()
    req.ends_at = 64
    run(watched(), req, [7] * 64, 1)
    assert (req.finished_reason, req.finished_len) == ("its own", 64)


def test_a_request_whose_output_was_taken_back_is_watched_from_its_new_start(watched: Callable[..., Any]) -> None:
    hook, req = watched(), Req()
    run(hook, req, [7] * 50, 1)
    req.output_ids = array("q")
    assert run(hook, req, [7] * 63, 1) == 0
    assert run(hook, req, [7], 1) == 1
    assert "output token 64" in req.finished_reason.text


def test_lines_are_watched_where_there_is_a_tokenizer(watched: Callable[..., Any]) -> None:
    req = Req()
    req.tokenizer = Letters()  # type: ignore[assignment]
    hook = watched(DSV41_LOOP_NGRAM="0")
    run(hook, req, list("the sâme lîne\nthe sâme lîne again\n".encode() + "the sâme lîne again\n".encode() * 9), 4)
    assert req.finished_reason.text.startswith("loop_abort: lines at output token ")


def test_only_an_answer_in_one_piece_waits_and_only_for_the_old_stop(watched: Callable[..., Any]) -> None:
    sent: list[Any] = []

    def accept(accumulator: Any, *, req: Any) -> None:
        sent.append(req)

    for settings, stream, finished, goes in (
        ({}, False, None, True),
        ({"DSV41_LOOP_NAMED_EXIT": "0"}, False, None, False),
        ({"DSV41_LOOP_NAMED_EXIT": "0"}, False, "over", True),
        ({"DSV41_LOOP_NAMED_EXIT": "0"}, True, None, True),
    ):
        sent.clear()
        watched(**settings)
        req = Req(stream=stream)
        req.finished_reason = finished
        loop_abort.ADAPTER.functions(values_of(LEDGER, settings))[loop_abort._SEND](accept, None, req=req)
        assert bool(sent) is goes, settings


def limit(settings: dict[str, str], given: int | None) -> int | None:
    req = SimpleNamespace(sampling_params=SimpleNamespace(max_new_tokens=given))
    max_new_tokens.ADAPTER.functions(values_of(LEDGER, settings))[max_new_tokens._TARGET](None, req)
    found: int | None = req.sampling_params.max_new_tokens
    return found


def test_limits() -> None:
    assert limit({}, None) == 32_768
    assert limit({}, 100_000) == 100_000
    assert limit({}, 5) == 5
    assert limit({"DSV41_MAX_NEW_TOKENS": "0"}, None) is None
    assert limit({"DSV41_MAX_NEW_TOKENS": "0", "DSV41_MAX_NEW_TOKENS_HARD": "1"}, 9) == 9
    assert limit({"DSV41_MAX_NEW_TOKENS": "64", "DSV41_MAX_NEW_TOKENS_HARD": "1"}, 100) == 64
    assert limit({"DSV41_MAX_NEW_TOKENS": "64", "DSV41_MAX_NEW_TOKENS_HARD": "1"}, 9) == 9


@pytest.mark.parametrize(
    ("given", "cap", "expected"),
    [
        (None, "12", {"max_new_tokens": 12}),
        ({"temperature": 0}, "12", {"temperature": 0, "max_new_tokens": 12}),
        ({"max_new_tokens": 99}, "12", {"max_new_tokens": 99}),
        ({"max_new_tokens": None}, "12", {"max_new_tokens": None}),
        ([{}, {"max_new_tokens": 3}], "12", [{"max_new_tokens": 12}, {"max_new_tokens": 3}]),
        (None, "0", None),
        ({}, "32768", {}),
    ],
)
def test_the_native_route_gets_the_cap_where_it_names_no_limit(given: Any, cap: str, expected: Any) -> None:
    hook = max_new_tokens.ADAPTER.functions(values_of(LEDGER, {"DSV41_MAX_NEW_TOKENS": cap}))[max_new_tokens._GENERATE]
    request = SimpleNamespace(sampling_params=given)
    hook(request)
    assert request.sampling_params == expected
