"""A request whose output goes round in circles is ended, with an error that says so.

What a client was sent already stays sent. So a stream ends where it is, and its usage counts what was sent; an answer
in one piece ends, with DSV41_LOOP_NAMED_EXIT=0, behind the first copy. For that it must not leave the scheduler in
parts, as SGLang otherwise sends every answer.

A client that asks again, as the official ones do after a status of 500, would let the loop run three times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_overlay import named_error
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.loop_detect import MAX_PERIOD, PATIENCE, Loop, LoopDetector, LoopRules
from spark_overlay.switches import Switch, Values
from spark_overlay.token_bytes import token_bytes

ABORT = Switch("DSV41_LOOP_ABORT", 1, "1 ends a request whose output repeats itself")
NGRAM = Switch(
    "DSV41_LOOP_NGRAM",
    32,
    f"least length in tokens of a repeated piece, which is seen up to {MAX_PERIOD}; "
    f"a shorter one must fill {PATIENCE} times as many tokens; 0 watches none",
    4,
    256,
    zero_is_off=True,
)
REPEATS = Switch("DSV41_LOOP_REPEATS", 4, "how many copies of a piece are a loop", 2, 64)
IDENTICAL = Switch(
    "DSV41_LOOP_IDENTICAL", 64, "how many equal tokens in a row are a loop; 0 watches none", 2, 65_536, zero_is_off=True
)
LINES = Switch(
    "DSV41_LOOP_LINE_REPEATS",
    8,
    f"how many equal lines in a row are a loop, {PATIENCE} times as many of mostly marks; 0 watches none",
    2,
    65_536,
    zero_is_off=True,
)
NAMED = Switch("DSV41_LOOP_NAMED_EXIT", 1, "1 ends with the error loop_abort, 0 with finish_reason stop")
_FINISH = "sglang.srt.managers.schedule_batch.Req.update_finish_state"
_SEND = "sglang.srt.managers.scheduler_components.output_streamer._GenerationStreamAccumulator.accept"
_KEPT = "_spark_loop"
NAME = "loop_abort: "


def rules(values: Values) -> LoopRules:
    return LoopRules(
        identical=values[IDENTICAL.name],
        ngram=values[NGRAM.name],
        repeats=values[REPEATS.name],
        line_repeats=values[LINES.name],
    )


def _around(values: Values) -> Callable[..., Any]:
    from http import HTTPStatus

    from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_MATCHED_STR

    wanted, named = rules(values), bool(values[NAMED.name])
    pieces: dict[int, Callable[[int], bytes] | None] = {}

    def piece_of(req: Any) -> Callable[[int], bytes] | None:
        # One table for all requests of a tokenizer; without a tokenizer lines are not watched.
        tokenizer = req.tokenizer
        if id(tokenizer) not in pieces:
            pieces[id(tokenizer)] = token_bytes(tokenizer) if hasattr(tokenizer, "convert_ids_to_tokens") else None
        return pieces[id(tokenizer)]

    def ended(req: Any, loop: Loop) -> None:
        # Every rank counts what was sent, whether or not it is the one that sends: the same length on all.
        req.finished_len = max(loop.keep, req.send_token_offset)
        # SGLang counted the whole loop before it asked whether the request ends.
        req.reasoning_tokens = min(req.reasoning_tokens, req.finished_len)
        text = f"{NAME}{loop.detector} at output token {loop.end}: {loop.what}"
        # A client may choose the request's id: in quotes it cannot begin a line of the log.
        print(f"[spark] request {str(req.rid)[:80]!r}: {text}", flush=True)
        if named:
            req.finished_reason = FINISH_ABORT(text, HTTPStatus.INTERNAL_SERVER_ERROR, "loop_abort")
        else:
            req.finished_reason = FINISH_MATCHED_STR(matched=f"{NAME}{loop.detector}")

    def watched(original: Callable[..., Any], req: Any, new_accepted_len: int = 1) -> Any:
        result = original(req, new_accepted_len)
        if req.finished():
            return result
        detector = getattr(req, _KEPT, None)
        if detector is None or len(req.output_ids) < detector.count:  # taken back for want of memory
            detector = LoopDetector(wanted, piece_of(req))
            setattr(req, _KEPT, detector)
        loop = detector.feed(req.output_ids[detector.count :])
        if loop is not None:
            ended(req, loop)
        return result

    return watched


def _sending(values: Values) -> Callable[..., Any]:
    named = bool(values[NAMED.name])

    def in_one_piece(original: Callable[..., Any], accumulator: Any, *, req: Any) -> Any:
        if named or req.stream or req.finished():
            return original(accumulator, req=req)
        return None

    return in_one_piece


ADAPTER = Adapter(
    name="loop_abort",
    problem="A model that repeats itself writes to the end of the context, and agents take the cut text for an answer.",
    settings=(ABORT, NGRAM, REPEATS, IDENTICAL, LINES, NAMED),
    hooks=(
        HookPoint(_FINISH, Kind.AROUND, "(self, new_accepted_len=1)", Process.SCHEDULER),
        HookPoint(_SEND, Kind.AROUND, "(self, *, req)", Process.SCHEDULER),
        *named_error.HOOKS,
    ),
    engines=("0.5.21", "0.5.23"),
    remove_when="SGLang ends repetition itself, with an error of its own.",
    off=lambda values: "" if values[ABORT.name] else f"{ABORT.name}=0",
    functions=lambda values: {
        _FINISH: _around(values),
        _SEND: _sending(values),
        **named_error.functions(NAME, 500),
    },
)
