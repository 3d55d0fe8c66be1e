"""The served model over HTTP: health, models, server info, metrics, and chat in both dialects.

Every generation call must say how long and whether it thinks: a request without `max_tokens` gets the whole rest of the
context (714k tokens were seen), and thinking is not what a caller assumes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktui.errors import SparktuiError

if TYPE_CHECKING:
    import httpx

_SHORT_SECONDS = 5.0
_BODY_SHOWN = 500


class ServerError(SparktuiError):
    """The endpoint did not do what was asked.

    Attributes:
        kind: `refused` nothing listens, `timeout`, `unauthorized`, `status` another HTTP status, `garbled` no JSON,
            `lost` cut off in the middle.
        status: the HTTP status, where there was one.
        body: the beginning of what it said.
    """

    def __init__(
        self, what: str, *, kind: str, status: int | None = None, body: str = "", fix: str = "", node: str | None = None
    ) -> None:
        super().__init__(what, fix=fix, node=node)
        self.kind, self.status, self.body = kind, status, body


@dataclass(frozen=True, slots=True)
class Generation:
    """What every generation request must state.

    Attributes:
        max_tokens: the most tokens that may come back, thinking included.
        thinking: sent as `chat_template_kwargs.thinking`, also when it is off.
        temperature: None leaves the server's own.
    """

    max_tokens: int
    thinking: bool
    temperature: float | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError("max_tokens must be at least 1")


def chat_body(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    generation: Generation,
    *,
    stream: bool = False,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of an OpenAI chat request. `more` may add fields (tools, response_format), never change the stated ones.

    Raises:
        ValueError: `more` names a field that `generation` states.
    """
    extra = dict(more or {})
    template = dict(extra.pop("chat_template_kwargs", {}) or {})
    stated = {"model", "messages", "max_tokens", "max_completion_tokens", "stream", "temperature"} & extra.keys()
    if stated or "thinking" in template:
        raise ValueError(f"already stated: {', '.join(sorted(stated)) or 'thinking'}")
    body: dict[str, Any] = {
        **extra,
        "model": model,
        "messages": [dict(message) for message in messages],
        "max_tokens": generation.max_tokens,
        "chat_template_kwargs": {**template, "thinking": generation.thinking},
        "stream": stream,
    }
    if generation.temperature is not None:
        body["temperature"] = generation.temperature
    if stream:
        body.setdefault("stream_options", {"include_usage": True})
    return body


def anthropic_body(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    generation: Generation,
    *,
    thinking: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of an Anthropic messages request; `thinking` replaces the plain form (to leave the budget out)."""
    extra = dict(more or {})
    stated = {"model", "messages", "max_tokens", "thinking", "temperature", "chat_template_kwargs"} & extra.keys()
    if stated:
        raise ValueError(f"already stated: {', '.join(sorted(stated))}")
    plain = {"type": "enabled", "budget_tokens": generation.max_tokens} if generation.thinking else {"type": "disabled"}
    body: dict[str, Any] = {
        **extra,
        "model": model,
        "messages": [dict(message) for message in messages],
        "max_tokens": generation.max_tokens,
        "thinking": dict(thinking) if thinking is not None else plain,
        "chat_template_kwargs": {"thinking": generation.thinking},
    }
    if generation.temperature is not None:
        body["temperature"] = generation.temperature
    return body


class EngineServer:
    """An SGLang endpoint.

    Args:
        base_url: such as `http://10.0.0.1:8888`, without `/v1`.
        api_key: sent only in the Authorization header; None for an open endpoint.
        node: the name used in errors.
    """

    def __init__(self, base_url: str, *, api_key: str | None = None, node: str = "head") -> None:
        import httpx

        self.base_url, self._node = base_url.rstrip("/"), node
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # trust_env=False: a proxy of the environment must not see a cluster's own traffic, or break it.
        self._client = httpx.AsyncClient(
            base_url=self.base_url, headers=headers, trust_env=False, timeout=httpx.Timeout(_SHORT_SECONDS)
        )

    async def __aenter__(self) -> EngineServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._client.aclose()

    async def health(self, *, deadline_seconds: float = _SHORT_SECONDS) -> bool:
        """Whether the HTTP layer says it is well; False for 503 while it starts. It says nothing of the other ranks.

        Raises:
            ServerError: kind `refused` when nothing listens, `timeout` when it is silent.
        """
        answer = await self._send("GET", "/health", deadline_seconds=deadline_seconds, accept=(200, 503))
        return answer.status_code == 200

    async def models(self, *, deadline_seconds: float = _SHORT_SECONDS) -> tuple[str, ...]:
        answer = await self._send("GET", "/v1/models", deadline_seconds=deadline_seconds)
        try:
            return tuple(str(each["id"]) for each in self._json(answer)["data"])
        except (KeyError, TypeError) as error:
            raise self._garbled(answer) from error

    async def server_info(self, *, deadline_seconds: float = _SHORT_SECONDS) -> dict[str, Any]:
        """The engine's own settings and state. It may hold the API key: do not log it whole."""
        found = self._json(await self._send("GET", "/server_info", deadline_seconds=deadline_seconds))
        if not isinstance(found, dict):
            raise ServerError("/server_info is no JSON object", kind="garbled", node=self._node)
        return found

    async def metrics_text(self, *, deadline_seconds: float = _SHORT_SECONDS) -> str:
        """Prometheus text."""
        return (await self._send("GET", "/metrics", deadline_seconds=deadline_seconds)).text

    async def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        generation: Generation,
        *,
        deadline_seconds: float,
        more: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One OpenAI chat completion, whole."""
        body = chat_body(model, messages, generation, more=more)
        answer = await self._send("POST", "/v1/chat/completions", body=body, deadline_seconds=deadline_seconds)
        return self._object(answer)

    async def anthropic(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        generation: Generation,
        *,
        deadline_seconds: float,
        thinking: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One Anthropic message, whole."""
        body = anthropic_body(model, messages, generation, thinking=thinking, more=more)
        return self._object(await self._send("POST", "/v1/messages", body=body, deadline_seconds=deadline_seconds))

    async def chat_stream(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        generation: Generation,
        *,
        deadline_seconds: float,
        silence_seconds: float = 60.0,
        more: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """The chunks of one OpenAI chat completion; the last carries `usage`. Closing the iterator ends the request.

        Raises:
            ServerError: also for an error that arrives inside the stream (kind `status`).
        """
        import httpx

        body = chat_body(model, messages, generation, stream=True, more=more)
        patience = httpx.Timeout(_SHORT_SECONDS, read=silence_seconds)
        path, end = "/v1/chat/completions", asyncio.get_running_loop().time() + deadline_seconds
        async with self._translated(deadline_seconds, path), AsyncExitStack() as stack:
            # The deadline is on each wait of ours, never on the caller's own work between two chunks.
            async with asyncio.timeout_at(end):
                answer = await stack.enter_async_context(self._client.stream("POST", path, json=body, timeout=patience))
                if answer.status_code >= 400:
                    await answer.aread()
                    self._refuse(answer)
            lines = answer.aiter_lines()
            while True:
                async with asyncio.timeout_at(end):
                    line = await anext(lines, None)
                if line is None:
                    raise ServerError("the stream ended in the middle", kind="lost", node=self._node)
                text = line.removeprefix("data:").strip()
                if line.startswith("data:") and text == "[DONE]":
                    return
                if line.startswith("data:"):
                    yield self._chunk(text)

    # -- inside -------------------------------------------------------------------------------------------------

    async def _send(
        self,
        method: str,
        path: str,
        *,
        deadline_seconds: float,
        body: Mapping[str, Any] | None = None,
        accept: tuple[int, ...] = (200,),
    ) -> httpx.Response:
        import httpx

        patience = httpx.Timeout(min(_SHORT_SECONDS, deadline_seconds), read=deadline_seconds)
        async with self._translated(deadline_seconds, path), asyncio.timeout(deadline_seconds):
            answer = await self._client.request(method, path, json=body, timeout=patience)
        if answer.status_code not in accept:
            self._refuse(answer)
        return answer

    @asynccontextmanager
    async def _translated(self, deadline_seconds: float, path: str) -> AsyncIterator[None]:
        import httpx

        try:
            yield
        except (TimeoutError, httpx.TimeoutException):
            raise ServerError(
                f"{self.base_url}{path} did not answer in {deadline_seconds:g} s",
                kind="timeout",
                fix="a rank may be gone while the head still listens: sparktui status",
                node=self._node,
            ) from None
        except httpx.ConnectError as error:
            refused = "refused" in str(error).lower() or "All connection attempts failed" in str(error)
            raise ServerError(
                f"nothing listens at {self.base_url}" if refused else f"{self.base_url} is out of reach: {error}",
                kind="refused",
                fix="sparktui serve, and see sparktui status",
                node=self._node,
            ) from None
        except httpx.HTTPError as error:
            raise ServerError(
                f"{self.base_url}{path} broke off: {str(error) or type(error).__name__}",
                kind="lost",
                fix="sparktui status; the head's log has the reason: sparktui logs head",
                node=self._node,
            ) from None

    def _refuse(self, answer: httpx.Response) -> None:
        said = answer.text.strip()[:_BODY_SHOWN]
        if answer.status_code in (401, 403):
            raise ServerError(
                f"the endpoint refuses the API key ({answer.status_code})",
                kind="unauthorized",
                status=answer.status_code,
                body=said,
                fix="API_KEY in .env is not the one that it was started with: sparktui serve starts it anew",
                node=self._node,
            )
        raise ServerError(
            f"{answer.request.url.path} answered {answer.status_code}: {_message(said)}",
            kind="status",
            status=answer.status_code,
            body=said,
            node=self._node,
        )

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError:
            raise self._garbled(answer) from None

    def _object(self, answer: httpx.Response) -> dict[str, Any]:
        found = self._json(answer)
        if not isinstance(found, dict):
            raise self._garbled(answer)
        return found

    def _garbled(self, answer: httpx.Response) -> ServerError:
        said = answer.text.strip()[:_BODY_SHOWN]
        return ServerError(
            f"{answer.request.url.path} answered something else than expected: {said[:100]!r}",
            kind="garbled",
            status=answer.status_code,
            body=said,
            fix=f"is another program listening at {self.base_url}?",
            node=self._node,
        )

    def _chunk(self, text: str) -> dict[str, Any]:
        try:
            chunk = json.loads(text)
        except ValueError:
            raise ServerError(f"a chunk is no JSON: {text[:100]!r}", kind="garbled", node=self._node) from None
        if not isinstance(chunk, dict):
            raise ServerError(f"a chunk is no JSON object: {text[:100]!r}", kind="garbled", node=self._node)
        if "error" in chunk:
            raise ServerError(
                f"the stream reports an error: {_message(text)}",
                kind="status",
                body=text[:_BODY_SHOWN],
                node=self._node,
            )
        return chunk


def _message(text: str) -> str:
    """The message inside an error body of either dialect, or the text itself."""
    try:
        found = json.loads(text)
        found = found.get("error", found)
        return str(found.get("message") or found.get("detail") or text) if isinstance(found, dict) else str(found)
    except (ValueError, AttributeError):
        return text or "nothing"
