"""The smoke checks as data, and the judgement of an answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparktui.events import State

NOT_SERVED = "NOT SERVED BY THIS MODEL"


@dataclass(frozen=True, slots=True)
class SmokeCheck:
    """One request and what must come back.

    Attributes:
        messages, more: of the chat body; `more` holds tools or a response format.
        max_tokens: stated in every request.
        tool_result: the text that answers the tool call in a second turn, which then must meet `then`.
        image: file name in assets of the picture that goes with the last message.
    """

    id: str
    messages: tuple[Mapping[str, Any], ...]
    more: Mapping[str, Any]
    max_tokens: int
    temperature: float
    expect: Mapping[str, Any]
    tool_result: str | None = None
    then: Mapping[str, Any] | None = None
    image: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    state: State
    what: str


def load_checks(path: Path) -> tuple[SmokeCheck, ...]:
    """The checks of assets/smoke.json, in order."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    return tuple(_check(each) for each in plain["checks"])


def _check(plain: Mapping[str, Any]) -> SmokeCheck:
    request = dict(plain["request"])
    then = plain.get("then") or {}
    request.pop("chat_template_kwargs", None)
    return SmokeCheck(
        id=plain["id"],
        messages=tuple(request.pop("messages")),
        max_tokens=int(request.pop("max_tokens")),
        temperature=float(request.pop("temperature")),
        more=request,
        expect=plain["expect"],
        tool_result=then.get("tool_result"),
        then=then.get("expect"),
        image=plain.get("image"),
    )


def judge(answer: Mapping[str, Any], expect: Mapping[str, Any]) -> Verdict:
    """Compare one chat completion with what is expected; the first difference is the verdict."""
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        content = str(message.get("content") or "")
    except (KeyError, IndexError, TypeError, AttributeError):
        return Verdict(State.FAIL, f"the answer has no choice: {json.dumps(answer)[:200]}")
    wanted_reason = expect.get("finish_reason")
    calls = message.get("tool_calls") or []
    if not (isinstance(calls, list) and all(isinstance(_function(each), dict) for each in calls)):
        return Verdict(State.FAIL, f"its tool calls are garbled: {json.dumps(calls)[:120]}")
    if "tool_calls" in expect:
        verdict = _judge_calls(calls, expect["tool_calls"], content)
        if verdict is not None:
            return verdict
    if wanted_reason and choice.get("finish_reason") != wanted_reason:
        return Verdict(
            State.FAIL, f"it ended with {choice.get('finish_reason')!r}, not {wanted_reason!r}: {content[:120]!r}"
        )
    if "content" in expect and content.strip() != expect["content"]:
        return Verdict(State.FAIL, f"it said {content[:120]!r}, not {expect['content']!r}")
    if "json" in expect:
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            return Verdict(State.FAIL, f"it is no JSON: {content[:120]!r}")
        if found != expect["json"]:
            return Verdict(State.FAIL, f"it said {found!r}, not {expect['json']!r}")
    lacking = [word for word in expect.get("content_contains", ()) if word.lower() not in content.lower()]
    if lacking:
        return Verdict(State.FAIL, f"it does not name {', '.join(lacking)}: {content[:120]!r}")
    tokens = _image_tokens(answer)
    if "image_tokens" in expect and tokens is not None and tokens != expect["image_tokens"]:
        return Verdict(State.FAIL, f"the picture became {tokens} tokens, not {expect['image_tokens']}")
    shown = content.strip() or ", ".join(f"{f.get('name')}({f.get('arguments')})" for f in map(_function, calls))
    return Verdict(State.OK, shown[:120])


def _image_tokens(answer: Mapping[str, Any]) -> int | None:
    """What the usage reports; None where it reports none, as an engine may."""
    usage = answer.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    tokens = details.get("image_tokens") if isinstance(details, dict) else None
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None


def _function(call: object) -> Any:
    """What a call is of; None where the answer is not shaped like a call."""
    return call.get("function") if isinstance(call, dict) else None


def _judge_calls(calls: list[Any], wanted: list[Mapping[str, Any]], content: str) -> Verdict | None:
    if not calls:
        # The model's own habit (announcing a call and stopping) is not the server's fault.
        return Verdict(State.WARN, f"the model did not call the tool: {content[:120]!r}")
    if len(calls) != len(wanted):
        return Verdict(State.FAIL, f"{len(calls)} tool calls, not {len(wanted)}")
    for call, want in zip(calls, wanted, strict=True):
        function = _function(call)
        if not isinstance(call.get("id"), str):
            return Verdict(State.FAIL, f"the call of {function.get('name')} has no id to answer to")
        try:
            arguments = json.loads(function.get("arguments") or "")
        except (ValueError, TypeError, RecursionError):
            return Verdict(State.FAIL, f"the call's arguments are no JSON: {str(function.get('arguments'))[:120]!r}")
        if function.get("name") != want["name"] or arguments != want["arguments"]:
            return Verdict(State.FAIL, f"it called {function.get('name')}({json.dumps(arguments)})")
    return None


def picture_refused(body: str) -> bool:
    """Whether an error body says that this model takes no pictures at all."""
    text = body.lower()
    words = ("multimodal", "multi-modal", "image", "vision")
    return any(word in text for word in words) and any(
        refusal in text
        for refusal in ("not support", "unsupported", "does not accept", "not a multimodal", "only support")
    )


def takes_pictures(config: Mapping[str, Any] | None) -> bool | None:
    """From the checkpoint's config.json: None where it cannot be read."""
    if config is None:
        return None
    return any(key.startswith("vision") or key == "image_token_id" for key in config)
