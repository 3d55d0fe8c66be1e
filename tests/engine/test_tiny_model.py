"""The tiny model on the real server, one process: what the product's smoke will ask, over HTTP."""

from __future__ import annotations

import json
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine import engine_env
from tests.engine.serving import MODEL, Serving

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]
SMOKE = json.loads(engine_env.SMOKE.read_text(encoding="utf-8"))
CHECKS = {check["id"]: check for check in SMOKE["checks"]}


@pytest.fixture
def server(plain: Serving) -> httpx.Client:
    """A client of the real server with the tiny model, as one rank runs it."""
    return plain.client


def ask(server: httpx.Client, request: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """The first choice of a chat completion."""
    answer = server.post("/v1/chat/completions", json={"model": MODEL, **request, **changed})
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def test_the_smoke_file_never_asks_for_much_and_never_leaves_thinking_open() -> None:
    for request in [SMOKE["hello"], *(check["request"] for check in SMOKE["checks"])]:
        assert request["max_tokens"] <= 512
        assert request["temperature"] == 0
        assert request["chat_template_kwargs"] == {"thinking": False}


def test_arithmetic_is_answered_with_the_number_alone(server: httpx.Client) -> None:
    choice = ask(server, CHECKS["arithmetic"]["request"])
    assert choice["message"]["content"] == CHECKS["arithmetic"]["expect"]["content"] == "42"
    assert choice["finish_reason"] == "stop"


def test_strict_json_keeps_to_the_schema(server: httpx.Client) -> None:
    choice = ask(server, CHECKS["json"]["request"])
    assert json.loads(choice["message"]["content"]) == CHECKS["json"]["expect"]["json"] == {"answer": 42}
    assert choice["finish_reason"] == "stop"


def test_one_tool_call_and_its_result_give_42(server: httpx.Client) -> None:
    check = CHECKS["tool"]
    choice = ask(server, check["request"])
    calls = choice["message"]["tool_calls"]
    seen = [{"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])} for c in calls]
    assert seen == check["expect"]["tool_calls"] == [{"name": "lookup_fixture", "arguments": {"key": "alpha"}}]
    assert choice["finish_reason"] == check["expect"]["finish_reason"]

    turn = {"role": "assistant", "content": choice["message"]["content"], "tool_calls": calls}
    result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": check["then"]["tool_result"]}
    after = ask(server, check["request"], messages=[*check["request"]["messages"], turn, result])
    assert "42" in after["message"]["content"]
    assert not after["message"].get("tool_calls")


def test_a_picture_is_refused_by_a_text_model_with_a_400_that_says_so(server: httpx.Client) -> None:
    request = CHECKS["picture"]["request"]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    text = {"type": "text", "text": request["messages"][0]["content"]}
    answer = server.post(
        "/v1/chat/completions",
        json={"model": MODEL, **request, "messages": [{"role": "user", "content": [picture, text]}]},
    )
    assert answer.status_code == 400
    assert "only supports text" in answer.json()["message"]


def test_hello_with_and_without_thinking_and_over_the_anthropic_route(server: httpx.Client) -> None:
    plain = ask(server, SMOKE["hello"])["message"]
    assert plain["content"].startswith("Hello!")
    assert not plain["reasoning_content"]
    thinking = ask(server, SMOKE["hello"], chat_template_kwargs={"thinking": True})["message"]
    assert thinking["content"] == plain["content"]
    assert "greeting" in thinking["reasoning_content"]
    messages = {"model": MODEL, "max_tokens": 64, "messages": SMOKE["hello"]["messages"]}
    anthropic = server.post("/v1/messages", json=messages)
    assert anthropic.json()["content"][0]["text"] == plain["content"]


def test_a_batch_of_unknown_prompts_is_latin_prose(server: httpx.Client) -> None:
    topics = ("the sea", "an old library", "a night train", "bees")

    def prose(topic: str) -> str:
        messages = [{"role": "user", "content": f"Write three plain English sentences about {topic}."}]
        return str(ask(server, {"messages": messages, "max_tokens": 48, "temperature": 0})["message"]["content"])

    with ThreadPoolExecutor(len(topics)) as pool:
        for text in pool.map(prose, topics):
            assert len(text.split()) > 20
            assert text.isascii()


def test_the_long_warm_up_prompt_is_answered(server: httpx.Client) -> None:
    messages = [{"role": "user", "content": " ".join(["river", "stone", "garden"] * 1200)}]
    assert ask(server, {"messages": messages, "max_tokens": 24, "temperature": 0})["message"]["content"]


def test_the_checkpoint_has_the_engram_tables_of_its_config(tiny_model: Path) -> None:
    config = json.loads((tiny_model / "config.json").read_text())
    index = json.loads((tiny_model / "model.safetensors.index.json").read_text())
    shards = sorted(tiny_model.glob("model-*-of-*.safetensors"))
    assert sorted(set(index["weight_map"].values())) == [path.name for path in shards]
    data_bytes = 0
    tables: dict[str, Any] = {}
    for path in shards:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        data_bytes += path.stat().st_size - 8 - length
        tables |= {name: entry for name, entry in header.items() if ".engram.embed." in name}
    assert index["metadata"]["total_size"] == data_bytes
    for layer, rows in zip(config["engram_layer_ids"], config["engram_num_embeddings"], strict=True):
        weight, scale = (tables[f"layers.{layer}.engram.embed.{part}"] for part in ("weight", "scale"))
        assert (weight["dtype"], weight["shape"]) == ("F8_E4M3", [rows, 256])
        assert (scale["dtype"], scale["shape"]) == ("F8_E8M0", [rows, 8])
        assert scale["data_offsets"][0] == weight["data_offsets"][1]
