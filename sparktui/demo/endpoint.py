"""The simulated SGLang endpoint on 127.0.0.1: health, models, chat in both dialects, metrics."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktui.demo.answering import Answer, answer_to, tokens_of
from sparktui.demo.faults import OFF
from sparktui.demo.http import Reply, Request, as_json
from sparktui.demo.machine import Container
from sparktui.engine.folders import KEY_PATH

if TYPE_CHECKING:
    from sparktui.demo.world import World

RATES = (51.0, 36.0, 28.0, 22.8)
"""Tokens a second of each request by how many run at once; the first and the last are the recipe's published ones."""
_FIRST_TOKEN_SECONDS = 0.35
_LONGEST_WAIT_SECONDS = 3600
_STEP_TOKENS = 3
"""Tokens that one verify step brings."""
_LOOP_TOKENS = 64
"""Where the simulated loop is seen."""
ACCEPT_LENGTH = 3.02


class Endpoint:
    """Answers requests while the head's engine runs; what it counts is of this engine's life."""

    def __init__(self, world: World, engine: Container) -> None:
        self._world, self._engine = world, engine
        self._began = time.time()
        self._decoded = self._prefilled = self._generated = self._prompted = self._requests = 0
        self._latest_first_token = 0.0

    @property
    def model(self) -> str:
        return self._engine.environment.get("SERVED_MODEL_NAME", "").split(",")[0] or "simulated"

    @property
    def _up(self) -> bool:
        return self._world.play(self._world.head, self._engine).is_up(time.time())

    async def __call__(self, request: Request) -> Reply:
        path = request.path
        if path in ("/health", "/health_generate", "/ready"):
            return Reply(200 if self._up else 503, b"", "text/plain")
        if path == "/metrics":
            return Reply(200, self._metrics().encode(), "text/plain; version=0.0.4")
        if not self._allowed(request):
            return as_json({"error": {"message": "Unauthorized", "code": 401}}, 401)
        match request.method, path:
            case "GET", "/v1/models":
                row = {"id": self.model, "object": "model", "created": int(self._began), "owned_by": "sglang"}
                return as_json({"object": "list", "data": [{**row, "max_model_len": self._whole("CONTEXT_LENGTH")}]})
            case "GET", "/server_info" | "/get_server_info" | "/model_info" | "/get_model_info":
                pool = self._whole("MAX_TOTAL_TOKENS") // 256 * 256
                return as_json({"version": "0.5.23", "served_model_name": self.model, "max_total_num_tokens": pool})
            case "POST", "/v1/chat/completions":
                return await self._chat(request)
            case "POST", "/v1/messages":
                return await self._messages(request)
        return as_json({"error": {"message": f"the simulated endpoint has no {request.method} {path}"}}, 404)

    def _whole(self, name: str) -> int:
        return self._engine.whole(name, 0)

    def _allowed(self, request: Request) -> bool:
        wanted = self._key()
        if wanted is None:
            return True
        given = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key", "")
        return secrets.compare_digest(given.encode(), wanted.encode())

    def _key(self) -> str | None:
        """From the file that the container mounts, as the engine reads it."""
        for bind in (self._engine.body.get("HostConfig") or {}).get("Binds") or ():
            source, _, target = bind.partition(":")
            if target.partition(":")[0] == KEY_PATH:
                try:
                    return Path(source).read_text().strip()
                except OSError:
                    return None
        return None

    # -- answering ----------------------------------------------------------------------------------------------

    async def _all_ranks(self) -> None:
        """A rank that is gone leaves the head listening and answering nobody."""
        for _ in range(_LONGEST_WAIT_SECONDS):
            ranks = self._world.ranks
            gone = [each for each in ranks if each.engine() is None or OFF in self._world.faults(each.name)]
            if not gone or not self._engine.running:
                return
            await asyncio.sleep(1.0)

    async def _steps(self, answer: Answer, prompt: int) -> AsyncIterator[str]:
        """The answer's text in verify steps, at the pace that so many requests allow."""
        await self._all_ranks()
        world = self._world
        world.settle()
        world.requests_running += 1
        self._requests += 1
        started = time.time()
        try:
            await asyncio.sleep(world.pause(_FIRST_TOKEN_SECONDS + prompt / 6000))
            self._latest_first_token = time.time() - started
            self._prefilled += prompt
            self._prompted += prompt
            pieces = answer.pieces
            for at in range(0, len(pieces), _STEP_TOKENS):
                step = pieces[at : at + _STEP_TOKENS]
                yield "".join(step)
                self._decoded += len(step)
                rate = RATES[min(max(world.requests_running, 1), len(RATES)) - 1]
                await asyncio.sleep(world.pause(len(step) / rate))
                world.settle()
            self._generated += len(pieces)
            self._log(len(pieces), time.time() - started)
        finally:
            world.requests_running -= 1

    def _log(self, tokens: int, seconds: float) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now))
        rate = tokens / max(seconds, 0.1)
        text = (
            f"[{stamp} TP0] Decode batch, #running-req: {self._world.requests_running}, #full token: {self._prompted}, "
            f"full token usage: {self._usage():.2f}, accept len: {ACCEPT_LENGTH}, accept rate: 0.40, cuda graph: True, "
            f"gen throughput (token/s): {rate:.2f}, #queue-req: 0"
        )
        self._engine.extra = [*self._engine.extra[-200:], (now, text)]

    async def _chat(self, request: Request) -> Reply:
        body = request.json()
        if not self._up:
            return as_json({"error": {"message": "still starting"}}, 503)
        prompt = tokens_of(json.dumps(body.get("messages", [])))
        answer = answer_to(body)
        if body.get("regex"):
            return await self._looping(prompt)
        if body.get("stream"):
            usage = bool((body.get("stream_options") or {}).get("include_usage"))
            return Reply(200, content_type="text/event-stream", stream=self._chunks(answer, prompt, with_usage=usage))
        async for _ in self._steps(answer, prompt):
            pass
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "reasoning_content": None}
        message["tool_calls"] = answer.tool_calls or None
        return as_json(
            {
                "id": f"chatcmpl-{secrets.token_hex(8)}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": self.model,
                "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
                "usage": _usage(prompt, len(answer.pieces)),
            }
        )

    async def _looping(self, prompt: int) -> Reply:
        """Who forces a text by a grammar wants to see a loop end (the smoke test), as the overlay ends it."""
        async for _ in self._steps(Answer("", ("loop",) * _LOOP_TOKENS), prompt):
            pass
        text = f"loop_abort: lines at output token {_LOOP_TOKENS}: one line 8 times; nothing of it is kept"
        return as_json({"object": "error", "message": text, "type": "InternalServerError", "code": 500}, 500)

    async def _chunks(self, answer: Answer, prompt: int, *, with_usage: bool) -> AsyncIterator[bytes]:
        name = f"chatcmpl-{secrets.token_hex(8)}"

        def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
            choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
            plain = {"id": name, "object": "chat.completion.chunk", "created": int(time.time()), "model": self.model}
            return f"data: {json.dumps({**plain, 'choices': choices, **more})}\n\n".encode()

        yield chunk({"role": "assistant", "content": ""})
        async for text in self._steps(answer, prompt):
            if answer.text:
                yield chunk({"content": text})
        if answer.tool_calls:
            yield chunk({"tool_calls": [{**each, "index": at} for at, each in enumerate(answer.tool_calls)]})
        yield chunk({}, answer.finish_reason)
        if with_usage:
            yield chunk(None, usage=_usage(prompt, len(answer.pieces)))
        yield b"data: [DONE]\n\n"

    async def _messages(self, request: Request) -> Reply:
        body = request.json()
        prompt = tokens_of(json.dumps(body.get("messages", [])))
        answer = answer_to(body)
        async for _ in self._steps(answer, prompt):
            pass
        return as_json(
            {
                "id": f"msg_{secrets.token_hex(8)}",
                "type": "message",
                "role": "assistant",
                "model": self.model,
                "content": [{"type": "text", "text": answer.text}],
                "stop_reason": "end_turn" if answer.finish_reason == "stop" else "max_tokens",
                "usage": {"input_tokens": prompt, "output_tokens": len(answer.pieces)},
            }
        )

    # -- metrics ------------------------------------------------------------------------------------------------

    def _usage(self) -> float:
        pool = max(self._whole("MAX_TOTAL_TOKENS"), 1)
        return min(0.004 + 700 * self._world.requests_running / pool, 0.98)

    def _metrics(self) -> str:
        running = self._world.requests_running
        rate = RATES[min(running, len(RATES)) - 1] * min(running, len(RATES)) if running else RATES[0]
        rank = f'engine_type="unified",model_name="{self.model}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        whole = f'engine_type="unified",model_name="{self.model}"'
        usage, pool = self._usage(), self._whole("MAX_TOTAL_TOKENS") // 256 * 256
        gauges = {
            "num_running_reqs": running,
            "num_queue_reqs": max(running - len(RATES), 0),
            "num_used_tokens": int(usage * pool),
            "token_usage": usage,
            "full_token_usage": usage,
            "swa_token_usage": usage / 2,
            "gen_throughput": rate,
            "cache_hit_rate": 0.0,
            "spec_accept_length": ACCEPT_LENGTH,
            "spec_accept_rate": 0.404,
            "num_retracted_reqs": 0,
            "max_total_num_tokens": pool,
        }
        rows = ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {self._began:.2f}"]
        for name, value in gauges.items():
            rows += [f"# TYPE sglang:{name} gauge", f"sglang:{name}{{{rank}}} {float(value)}"]
        rows.append("# TYPE sglang:realtime_tokens_total counter")
        for mode, count in (("prefill_compute", self._prefilled), ("prefill_cache", 0), ("decode", self._decoded)):
            rows.append(f'sglang:realtime_tokens_total{{mode="{mode}",{rank}}} {float(count)}')
        counters = {
            "prompt_tokens_total": self._prompted,
            "generation_tokens_total": self._generated,
            "num_requests_total": self._requests,
            "num_aborted_requests_total": 0,
        }
        for name, value in counters.items():
            rows += [f"# TYPE sglang:{name} counter", f"sglang:{name}{{{whole}}} {float(value)}"]
        rows.append("# TYPE sglang:time_to_first_token_seconds histogram")
        first = self._latest_first_token
        for bound in (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0):
            count = self._requests if first <= bound else 0
            rows.append(f'sglang:time_to_first_token_seconds_bucket{{le="{bound}",{whole}}} {float(count)}')
        rows.append(f'sglang:time_to_first_token_seconds_bucket{{le="+Inf",{whole}}} {float(self._requests)}')
        rows.append(f"sglang:time_to_first_token_seconds_sum{{{whole}}} {first * self._requests:.4f}")
        rows.append(f"sglang:time_to_first_token_seconds_count{{{whole}}} {float(self._requests)}")
        return "\n".join(rows) + "\n"


def _usage(prompt: int, tokens: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
