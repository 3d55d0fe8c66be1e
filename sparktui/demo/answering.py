"""What the simulated model says: what a smoke test wants to hear, else a friendly text that says what it is."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_SUM = re.compile(r"(-?\d{1,9})\s*(?:\+|and|plus)\s*(-?\d{1,9})")
_PIECE = re.compile(r"\s*\S{1,6}")
_CALL_BEGINS = "calls the function with these arguments and nothing else: "
"""As many pieces as the tags around a real call."""
_CANNED = (
    "This is a simulated answer: no model runs here, and no Spark. On real Sparks these words would come from "
    "DeepSeek-V4.1-Flash, spread over three machines that hand each other their part of every token over RoCE. ",
    "One request at a time is read out at about fifty tokens a second, as you see it now; four at once get about "
    "twenty-three each. ",
    "Everything above the connection to the nodes is the real program: the steps, their checks, the logs that you saw "
    "and the memory that you watched fill. ",
    "When you are ready, put the addresses of your own machines into a settings file and begin with the doctor. ",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Text or tool calls, and the pieces that count as tokens."""

    text: str
    pieces: tuple[str, ...]
    finish_reason: str = "stop"
    tool_calls: list[dict[str, Any]] = field(default_factory=list)


def tokens_of(text: str) -> int:
    """About how many tokens a text is."""
    return max(len(text) // 4, 1)


def answer_to(body: Mapping[str, Any]) -> Answer:
    """For a chat body of either dialect."""
    messages = [each for each in body.get("messages") or () if isinstance(each, dict)]
    last = messages[-1] if messages else {}
    text, pictures = _content(last.get("content"))
    limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 512)
    if last.get("role") == "tool":
        value = _value(text)
        return _cut(f"The value is {value}.", limit)
    tools = body.get("tools") or []
    if tools and last.get("role") == "user" and isinstance(tools[0].get("function"), dict):
        return _call(tools[0]["function"], text, limit)
    if pictures:
        return _cut("The picture shows a red circle and a blue square.", limit)
    total = _total(text)
    schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
    if isinstance(schema, dict):
        return _cut(json.dumps(_shaped(schema, total)), limit)
    if total is not None:
        return _cut(str(total), limit)
    return _cut("".join(_CANNED) * (1 + limit // 150), limit)


def _content(content: object) -> tuple[str, int]:
    """Text and number of pictures."""
    if isinstance(content, str):
        return content, 0
    texts, pictures = [], 0
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "text":
            texts.append(str(part.get("text") or ""))
        elif isinstance(part, dict) and part.get("type") in ("image_url", "image"):
            pictures += 1
    return " ".join(texts), pictures


def _total(text: str) -> int | None:
    found = _SUM.search(text)
    return int(found[1]) + int(found[2]) if found else None


def _value(text: str) -> object:
    try:
        plain = json.loads(text)
    except ValueError:
        return text[:100]
    return next(iter(plain.values()), "") if isinstance(plain, dict) else plain


def _shaped(schema: Mapping[str, Any], total: int | None) -> object:
    """A value of the schema's shape."""
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: _shaped(each, total) for name, each in properties.items() if isinstance(each, dict)}
    if kind == "array":
        return []
    plain: dict[object, object] = {"integer": total or 0, "number": float(total or 0), "boolean": True}
    return plain.get(kind, "simulated")


def _call(function: Mapping[str, Any], text: str, limit: int) -> Answer:
    wanted = (function.get("parameters") or {}).get("properties") or {}
    arguments = {}
    for name in wanted:
        found = re.search(rf"\b{re.escape(name)}\s+[\"'`]?([\w.-]+)", text)
        arguments[name] = found[1] if found else "simulated"
    told = json.dumps(arguments)
    pieces = _PIECE.findall(f"{_CALL_BEGINS}{told}")
    if len(pieces) > limit:
        return Answer("", tuple(pieces[:limit]), "length")  # a call that is not whole is none
    call = {
        "id": f"call_{secrets.token_hex(8)}",
        "type": "function",
        "function": {"name": function.get("name"), "arguments": told},
    }
    return Answer("", tuple(pieces), "tool_calls", [call])


def _cut(text: str, limit: int) -> Answer:
    pieces = _PIECE.findall(text)
    kept = pieces[:limit]
    return Answer("".join(kept).lstrip(), tuple(kept), "length" if len(pieces) > limit else "stop")
