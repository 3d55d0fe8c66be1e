"""smoke: does the endpoint answer as it must. Arithmetic, strict JSON, one tool call, one picture; then what agents'
clients lean on (smoke_agents.py). The quick smoke at the end of serve is the arithmetic alone.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from sparktui.engine.endpoint import local_url
from sparktui.errors import StepFailed
from sparktui.events import Event, Finding, State
from sparktui.remote import our_containers
from sparktui.remote.server import EngineServer, Generation, ServerError, chat_body
from sparktui.settings import Settings
from sparktui.shipped import shipped
from sparktui.steps.chat_curl import chat_curl
from sparktui.steps.serve_preflight import ENGINES
from sparktui.steps.smoke_agents import ANTHROPIC, OLD, OLD_FIX, AgentCheck, agent_checks, judge_agent, not_asked
from sparktui.steps.smoke_checks import (
    NOT_SERVED,
    SmokeCheck,
    Verdict,
    judge,
    load_checks,
    picture_refused,
    takes_pictures,
)
from sparktui.steps.step import Command, Context, Inspection

STEP = "smoke"
REQUEST_SECONDS = 180.0
TRIES_OF_A_TOOL_CALL = 2


class Smoke:
    name = STEP
    title = "Ask the endpoint nine things"

    async def inspect(self, context: Context) -> Inspection:
        if context.settings.skip_smoke and len(context.verbs) > 1:
            return Inspection(done=True, summary="SKIP_SMOKE=1: the endpoint was not asked; sparktui smoke asks it")
        return Inspection(done=False, summary="a smoke test is made anew each time")

    async def plan(self, context: Context) -> list[Command]:
        return await shown_checks(context.settings)

    async def run(self, context: Context) -> AsyncIterator[Event]:
        async for finding in asked_rows(context, STEP):
            yield finding


async def asked_rows(context: Context, step: str, *, prefix: str = "", quick: bool = False) -> AsyncIterator[Finding]:
    """Ask the checks, or with `quick` the first of them alone: one row each, under `prefix` and the check's id.

    Raises:
        StepFailed: a rank does not run; then nothing is asked.
    """
    settings = context.settings
    key = settings.api_key.get_secret_value() if settings.api_key else None
    missing = await _missing_rank(context)
    if missing:
        raise StepFailed(missing[1], fix="sparktui serve", node=missing[0])
    async with EngineServer(local_url(settings), api_key=key) as server:
        config = await _config(context)
        checks = await _checks(quick)
        for check in checks:
            started = time.monotonic()
            verdict = await _ask(server, settings, check, config)
            fix = "sparktui logs head" if verdict.state is State.FAIL else ""
            yield _row(step, prefix + check.id, verdict, started, fix)
        for each in () if quick else agent_checks(_tool(checks)):
            started = time.monotonic()
            verdict = not_asked(each, settings) or judge_agent(each, await asked_of(server, settings, each), settings)
            old = OLD in verdict.what
            fix = "" if verdict.state is not State.FAIL else OLD_FIX if old else "sparktui logs head"
            yield _row(step, prefix + each.id, verdict, started, fix)


def _row(step: str, check: str, verdict: Verdict, started: float, fix: str) -> Finding:
    data = {"seconds": round(time.monotonic() - started, 2)}
    return Finding(step, check, "head", verdict.state, verdict.what, fix=fix, data=data)


async def shown_checks(settings: Settings, *, quick: bool = False) -> list[Command]:
    """The same checks as curl lines."""
    checks = await _checks(quick)
    lines = [Command("head", curl(settings, check, await _messages(check)), check.id) for check in checks]
    for each in () if quick else agent_checks(_tool(checks)):
        for ask in each.asks:
            body = ask.body(settings.served_model)
            lines.append(Command("head", chat_curl(settings, local_url(settings), body, "-sS", path=ask.path), each.id))
    return lines


def _tool(checks: Sequence[SmokeCheck]) -> SmokeCheck:
    return next(each for each in checks if each.tool_result is not None)


async def _checks(quick: bool) -> tuple[SmokeCheck, ...]:
    checks = await asyncio.to_thread(load_checks, shipped("assets") / "smoke.json")
    return checks[:1] if quick else checks


def curl(settings: Settings, check: SmokeCheck, messages: Sequence[Mapping[str, Any]]) -> str:
    """The check's request, as a person would send it on the head."""
    body = chat_body(settings.served_model, messages, _generation(check), more=check.more)
    return chat_curl(settings, local_url(settings), body, "-sS")


def _generation(check: SmokeCheck) -> Generation:
    return Generation(max_tokens=check.max_tokens, thinking=False, temperature=check.temperature)


async def _missing_rank(context: Context) -> tuple[str, str] | None:
    """The endpoint answers even when a worker is gone, and then hangs: look at all ranks first."""
    for link in context.links:
        found = [each for each in await our_containers.find(link) if each.name in ENGINES]
        if not any(each.running for each in found):
            return link.node.name, f"rank {link.node.rank} does not run"
    return None


async def _config(context: Context) -> Mapping[str, Any] | None:
    data = await context.head.read_file(f"{context.settings.model_dir}/config.json", deadline_seconds=10.0)
    try:
        plain = json.loads(data or b"")
    except ValueError:
        return None
    return plain if isinstance(plain, dict) else None


async def _ask(
    server: EngineServer, settings: Settings, check: SmokeCheck, config: Mapping[str, Any] | None
) -> Verdict:
    if check.image is not None and takes_pictures(config) is False:
        return Verdict(State.INFO, f"{NOT_SERVED}: its config names no vision part")
    try:
        return await _conversation(server, settings, check)
    except ServerError as error:
        if check.image is not None and error.status == 400 and picture_refused(error.body):
            return Verdict(State.INFO, NOT_SERVED)
        return Verdict(State.FAIL, error.what)


async def asked_of(
    server: EngineServer, settings: Settings, check: AgentCheck
) -> list[Mapping[str, Any] | ServerError]:
    """The answers to a check's requests, refusals among them."""
    said: list[Mapping[str, Any] | ServerError] = []
    for ask in check.asks:
        model, most = settings.served_model, REQUEST_SECONDS
        try:
            if ask.path == ANTHROPIC:
                call = server.anthropic(
                    model, ask.messages, ask.generation, deadline_seconds=most, thinking=ask.thinking, more=ask.more
                )
            else:
                call = server.chat(model, ask.messages, ask.generation, deadline_seconds=most, more=ask.more)
            said.append(await call)
        except ServerError as error:
            said.append(error)
    return said


async def _conversation(server: EngineServer, settings: Settings, check: SmokeCheck) -> Verdict:
    generation = _generation(check)
    messages = list(await _messages(check))

    async def turn() -> dict[str, Any]:
        return await server.chat(
            settings.served_model, messages, generation, deadline_seconds=REQUEST_SECONDS, more=check.more
        )

    answer = await turn()
    verdict = judge(answer, check.expect)
    tries = 1
    while verdict.state is State.WARN and tries < TRIES_OF_A_TOOL_CALL:
        tries += 1
        answer = await turn()
        verdict = judge(answer, check.expect)
    if verdict.state is State.WARN:
        return Verdict(State.WARN, f"{verdict.what} ({tries} of {TRIES_OF_A_TOOL_CALL} tries)")
    if verdict.state is not State.OK or check.tool_result is None:
        return verdict
    shy = f"; the model did not call the tool ({tries - 1} of {TRIES_OF_A_TOOL_CALL} tries)" if tries > 1 else ""
    said = answer["choices"][0]["message"]
    messages += [
        {"role": "assistant", "content": said.get("content") or "", "tool_calls": said["tool_calls"]},
        {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": check.tool_result},
    ]
    after = judge(await turn(), check.then or {})
    state = State.WARN if shy and after.state is State.OK else after.state
    return Verdict(state, f"{verdict.what}, then {after.what}{shy}")


async def _messages(check: SmokeCheck) -> tuple[Mapping[str, Any], ...]:
    if check.image is None:
        return check.messages
    data = await asyncio.to_thread((shipped("assets") / check.image).read_bytes)
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}
    *before, last = check.messages
    return (*before, {**last, "content": [picture, {"type": "text", "text": last["content"]}]})
