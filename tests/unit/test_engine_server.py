"""The HTTP client against a real small server; and every generation states its length and thinking (U83)."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.remote.server import EngineServer, Generation, ServerError, anthropic_body, chat_body

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
FIELDS = st.dictionaries(
    st.sampled_from(["tools", "stop", "n", "response_format", "reasoning_effort"]), JSON, max_size=3
)
GENERATIONS = st.builds(
    Generation, st.integers(1, 512), st.booleans(), st.none() | st.floats(0, 2, allow_nan=False, allow_infinity=False)
)
ASK = [{"role": "user", "content": "hi"}]


@given(generation=GENERATIONS, more=FIELDS, stream=st.booleans())
def test_u83_every_body_states_max_tokens_and_thinking(
    generation: Generation, more: dict[str, Any], stream: bool
) -> None:
    for body in (
        chat_body("m", ASK, generation, stream=stream, more=more),
        anthropic_body("m", ASK, generation, more=more),
        anthropic_body("m", ASK, generation, thinking={"type": "enabled"}, more=more),
    ):
        assert body["max_tokens"] == generation.max_tokens
        assert body["chat_template_kwargs"]["thinking"] is generation.thinking
        assert more.items() <= body.items()


@pytest.mark.parametrize("field", ["max_tokens", "model", "messages", "temperature"])
def test_u83_more_cannot_take_back_what_is_stated(field: str) -> None:
    for make in (chat_body, anthropic_body):
        with pytest.raises(ValueError, match="already stated"):
            make("m", ASK, Generation(8, False), more={field: None})
    with pytest.raises(ValueError, match="already stated"):
        chat_body("m", ASK, Generation(8, False), more={"chat_template_kwargs": {"thinking": True}})


def test_u83_no_sender_has_a_default_for_it() -> None:
    senders = [EngineServer.chat, EngineServer.chat_stream, EngineServer.anthropic, chat_body, anthropic_body]
    for sender in senders:
        assert inspect.signature(sender).parameters["generation"].default is inspect.Parameter.empty
    for name in ("max_tokens", "thinking"):
        assert inspect.signature(Generation).parameters[name].default is inspect.Parameter.empty
    with pytest.raises(ValueError, match="at least 1"):
        Generation(0, False)


Handler = Callable[[str, dict[str, str], bytes], tuple[int, str, bytes] | None]


@asynccontextmanager
async def served(handler: Handler, **options: Any) -> AsyncIterator[EngineServer]:
    """A plain HTTP server: `handler` answers (status, type, body), or None to stay silent."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *rest = head.split("\r\n")
            headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in rest if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            answer = handler(first, headers, body)
            if answer is None:
                await asyncio.sleep(60)
                return
            status, kind, content = answer
            length = "" if kind == "text/event-stream" else f"Content-Length: {len(content)}\r\n"
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{length}Connection: close\r\n\r\n".encode())
            writer.write(content)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with EngineServer(f"http://127.0.0.1:{port}/", **options) as client:
            yield client
    finally:
        server.close()


def json_answer(value: Any, status: int = 200) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(value).encode()


async def test_the_key_travels_in_the_header_only() -> None:
    seen = []

    def handler(first: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        seen.append((first, headers, body))
        return json_answer({"data": [{"id": "deepseek-v4.1-flash"}]})

    async with served(handler, api_key="s3cret") as client:
        assert await client.models() == ("deepseek-v4.1-flash",)
    first, headers, body = seen[0]
    assert headers["authorization"] == "Bearer s3cret" and "s3cret" not in first and b"s3cret" not in body


async def test_health_is_true_only_for_200_and_503_is_starting() -> None:
    for status in (200, 503):
        async with served(lambda *_, status=status: (status, "text/plain", b"")) as client:  # type: ignore[misc]
            assert await client.health() is (status == 200)


@pytest.mark.parametrize(
    "answer, kind, said",
    [
        (json_answer({"error": {"message": "bad key"}}, 401), "unauthorized", "refuses the API key"),
        (json_answer({"error": {"message": "too long"}}, 400), "status", "answered 400: too long"),
        (json_answer({"object": "error", "message": "no such thing"}, 404), "status", "answered 404: no such thing"),
        ((200, "text/html", b"<html>router</html>"), "garbled", "something else than expected"),
        (json_answer({"data": 5}), "garbled", "something else than expected"),
        (None, "timeout", "did not answer in 0.5 s"),
    ],
)
async def test_each_kind_of_failure_is_its_own(answer: Any, kind: str, said: str) -> None:
    async with served(lambda *_: answer) as client:
        with pytest.raises(ServerError, match=said) as failed:
            await client.models(deadline_seconds=0.5)
    assert failed.value.kind == kind and failed.value.node == "head"


async def test_nothing_listening_is_said_so() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with EngineServer(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(ServerError, match=f"nothing listens at http://127.0.0.1:{port}") as refused:
            await client.health()
    assert refused.value.kind == "refused"


def events(*values: Any, done: bool = True) -> tuple[int, str, bytes]:
    text = "".join(f"data: {json.dumps(value)}\n\n" for value in values) + ("data: [DONE]\n\n" if done else "")
    return 200, "text/event-stream", (": ping\n\n" + text).encode()


async def test_a_stream_gives_its_chunks_and_a_cut_one_is_not_an_end() -> None:
    chunks = [{"choices": [{"delta": {"content": "4"}}]}, {"choices": [], "usage": {"completion_tokens": 1}}]
    async with served(lambda *_: events(*chunks)) as client:
        got = [each async for each in client.chat_stream("m", ASK, Generation(8, False), deadline_seconds=20)]
    assert got == chunks
    async with served(lambda *_: events(chunks[0], done=False)) as client:
        with pytest.raises(ServerError, match="ended in the middle"):
            async for _ in client.chat_stream("m", ASK, Generation(8, False), deadline_seconds=20):
                pass
    async with served(lambda *_: events({"error": {"message": "loop_abort: 3 repeats"}})) as client:
        with pytest.raises(ServerError, match="loop_abort: 3 repeats"):
            async for _ in client.chat_stream("m", ASK, Generation(8, False), deadline_seconds=20):
                pass


async def test_a_slow_reader_of_a_stream_is_not_the_servers_fault() -> None:
    async with served(lambda *_: events({"a": 1}, {"a": 2})) as client:
        seen = []
        async for chunk in client.chat_stream("m", ASK, Generation(8, True), deadline_seconds=5):
            seen.append(chunk)
            await asyncio.sleep(0.1)
    assert len(seen) == 2
