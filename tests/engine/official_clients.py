"""Requests through the official `openai` and `anthropic` clients; run by the engine's Python, which brings both.

    official_clients.py URL KEY [loops]

Prints one JSON object: row name -> what the client made of it; an exception is its class, status and text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic
import openai
from engine_env import SMOKE
from looping import HELLO, MODEL, SCHEMA

CHECK: dict[str, Any] = next(
    check for check in json.loads(SMOKE.read_text(encoding="utf-8"))["checks"] if check["id"] == "tool"
)
IMAGE = [{"role": "user", "content": "what is <｜deepseek_image｜> here?"}]


def told(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except (openai.APIError, anthropic.APIError) as error:
        return {
            "raised": type(error).__name__, "status": getattr(error, "status_code", None), "text": str(error)
        }  # fmt: skip


def openai_rows(client: openai.OpenAI) -> dict[str, Callable[[], Any]]:
    def prompt(**more: Any) -> int:
        done = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4, **more)
        return done.usage.prompt_tokens

    def streamed() -> dict[str, Any]:
        chunks = list(
            client.chat.completions.create(
                model=MODEL, messages=HELLO, max_tokens=64, temperature=0, stream=True,
                stream_options={"include_usage": True},
            )
        )  # fmt: skip
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        return {"text": text, "completion_tokens": chunks[-1].usage.completion_tokens}

    def tools() -> dict[str, Any]:
        request = {"model": MODEL, **CHECK["request"]}
        request["extra_body"] = {"chat_template_kwargs": request.pop("chat_template_kwargs")}
        turn = client.chat.completions.create(**request).choices[0].message
        result = {"role": "tool", "tool_call_id": turn.tool_calls[0].id, "content": CHECK["then"]["tool_result"]}
        said = client.chat.completions.create(**request | {"messages": [*request["messages"], turn, result]})
        usage = said.usage
        return {
            "called": [turn.tool_calls[0].function.name, json.loads(turn.tool_calls[0].function.arguments)],
            "said": said.choices[0].message.content,
            "counts": usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > usage.completion_tokens > 0,
        }

    def cut_call() -> str:
        call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"x": "cut of'}}
        history = [
            *HELLO,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "42"},
        ]
        done = client.chat.completions.create(model=MODEL, messages=history, max_tokens=2)
        return done.choices[0].finish_reason

    def split() -> dict[str, Any]:
        asked = [{"role": "user", "content": "Say hello."}]
        thinking = {"chat_template_kwargs": {"thinking": True}}
        done = client.chat.completions.create(
            model=MODEL, messages=asked, max_tokens=64, temperature=0, extra_body=thinking
        )
        message = done.choices[0].message
        return {"thought": message.reasoning_content, "said": message.content}

    return {
        "openai tools": tools,
        "openai cut tool call": cut_call,
        "openai reasoning": split,
        "openai image": lambda: (
            client.chat.completions.create(model=MODEL, messages=IMAGE, max_tokens=2).choices[0].finish_reason
        ),
        "openai image completions": lambda: (
            client.completions.create(model=MODEL, prompt=IMAGE[0]["content"], max_tokens=2).choices[0].finish_reason
        ),
        "openai plain": prompt,
        "openai thinking": lambda: prompt(extra_body={"chat_template_kwargs": {"thinking": True}}),
        "openai alias": lambda: prompt(extra_body={"chat_template_kwargs": {"enable_thinking": True}}),
        "openai effort low": lambda: prompt(reasoning_effort="low"),
        "openai effort 30": lambda: prompt(extra_body={"reasoning_effort": 30}),
        "openai effort 101": lambda: prompt(extra_body={"reasoning_effort": 101}),
        "openai stream": streamed,
        "openai responses": lambda: client.responses.create(model=MODEL, input="hello", temperature=0).output_text,
    }


def anthropic_rows(client: anthropic.Anthropic) -> dict[str, Callable[[], Any]]:
    def message(**more: Any) -> dict[str, Any]:
        done = client.messages.create(model=MODEL, messages=HELLO, max_tokens=64, **more)
        return {"types": [block.type for block in done.content], "input_tokens": done.usage.input_tokens}

    def count(**more: Any) -> int:
        return client.messages.count_tokens(model=MODEL, messages=HELLO, **more).input_tokens

    def tools() -> dict[str, Any]:
        asked, function = CHECK["request"]["messages"], CHECK["request"]["tools"][0]["function"]
        tool = {**function, "input_schema": function["parameters"]}
        del tool["parameters"]
        request = {"model": MODEL, "max_tokens": 256, "extra_body": {"temperature": 0}, "tools": [tool]}
        done = client.messages.create(messages=asked, **request)
        used = next(block for block in done.content if block.type == "tool_use")
        result = {"type": "tool_result", "tool_use_id": used.id, "content": CHECK["then"]["tool_result"]}
        turn = [{"role": "assistant", "content": done.content}, {"role": "user", "content": [result]}]
        said = client.messages.create(messages=[*asked, *turn], **request)
        return {
            "called": [used.name, used.input],
            "stopped": done.stop_reason,
            "said": said.content[0].text,
            "counts": min(said.usage.input_tokens, said.usage.output_tokens) > 0,
        }

    rows: dict[str, Callable[[], Any]] = {"anthropic plain": message, "anthropic count plain": count}
    rows["anthropic tools"] = tools
    rows["anthropic image"] = lambda: client.messages.create(model=MODEL, messages=IMAGE, max_tokens=2).stop_reason
    for name, thinking in (
        ("enabled", {"type": "enabled"}),
        ("budget", {"type": "enabled", "budget_tokens": 2000}),
        ("short budget", {"type": "enabled", "budget_tokens": 5}),
        ("disabled with a budget", {"type": "disabled", "budget_tokens": 2000}),
        ("adaptive", {"type": "adaptive"}),
        ("disabled", {"type": "disabled"}),
    ):
        rows[f"anthropic {name}"] = lambda thinking=thinking: message(thinking=thinking)
        rows[f"anthropic count {name}"] = lambda thinking=thinking: count(thinking=thinking)
    return rows


def loop_rows(client: openai.OpenAI, other: anthropic.Anthropic) -> dict[str, Callable[[], Any]]:
    same = {"logit_bias": {"300": 100}}
    asked = {"model": MODEL, "messages": HELLO, "max_tokens": 400, "temperature": 0}
    formatted = {"format": {"type": "json_schema", "name": "rows", "schema": SCHEMA}}

    def stream(chunks: Any) -> dict[str, Any]:
        seen = 0
        try:
            for _ in chunks:
                seen += 1
        except openai.APIError as error:
            return {"raised": type(error).__name__, "text": str(error), "chunks": seen}
        return {"chunks": seen}

    def events(chunks: Any) -> dict[str, Any]:
        kinds = []
        try:
            for event in chunks:
                kinds.append(event.type)
                if event.type in ("response.failed", "response.completed"):
                    return {"last": event.type, "status": event.response.status, "text": event.response.error.message}
        except (openai.APIError, anthropic.APIError) as error:
            return {"raised": type(error).__name__, "text": str(error), "events": kinds[-1:]}
        return {"events": kinds[-2:]}

    message = {"model": MODEL, "messages": HELLO, "max_tokens": 900, "output_config": {"format": formatted["format"]}}
    return {
        "chat": lambda: client.chat.completions.create(**asked, **same).to_dict(),
        "chat stream": lambda: stream(client.chat.completions.create(**asked, **same, stream=True)),
        "completions": lambda: client.completions.create(model=MODEL, prompt="ab", max_tokens=400, **same).to_dict(),
        "responses": lambda: client.responses.create(
            model=MODEL, input="hello", max_output_tokens=900, text=formatted
        ).to_dict(),
        "responses stream": lambda: events(
            client.responses.create(model=MODEL, input="hello", max_output_tokens=900, text=formatted, stream=True)
        ),
        "anthropic": lambda: other.messages.create(**message).to_dict(),
        "anthropic stream": lambda: events(other.messages.create(**message, stream=True)),
    }


def main(url: str, key: str, *kinds: str) -> None:
    # With their own number of retries: what a loop answers must not make them ask for it again.
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, timeout=300)
    other = anthropic.Anthropic(base_url=url, auth_token=key, timeout=300)
    assert client.max_retries > 0 and other.max_retries > 0
    rows = loop_rows(client, other) if "loops" in kinds else openai_rows(client) | anthropic_rows(other)
    print(json.dumps({name: told(ask) for name, ask in rows.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
