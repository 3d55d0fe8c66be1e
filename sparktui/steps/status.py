"""status: what is true now on every node. Liveness is judged from all ranks, not from the endpoint alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sparktui.engine.endpoint import local_url
from sparktui.errors import SparktuiError
from sparktui.events import Event, Finding, State
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.remote.server import EngineServer, ServerError
from sparktui.settings import Settings
from sparktui.steps.serve_preflight import ENGINES
from sparktui.steps.step import Command, Context, Inspection

STEP = "status"


class Status:
    name = STEP
    title = "What runs now"

    async def inspect(self, context: Context) -> Inspection:
        return Inspection(done=False, summary="asked anew each time")

    async def plan(self, context: Context) -> list[Command]:
        from sparktui.steps.shown import shown

        listing = ["docker", "ps", "--all", "--filter", "label=sparktui.owner=sparktui"]
        asked = Command("head", f"curl -sS {local_url(context.settings)}/v1/models")
        return [*(shown(link.node, listing) for link in context.links), asked]

    async def run(self, context: Context) -> AsyncIterator[Event]:
        ranks = await asyncio.gather(*(_rank(link) for link in context.links))
        for finding in ranks:
            yield finding
        for each in await asyncio.gather(*(_others(link) for link in context.links)):
            for finding in each:
                yield finding
        gone = [each for each in ranks if each.data.get("running") is not True]
        yield await _endpoint(context.settings, gone)


async def _rank(link: NodeLink) -> Finding:
    node = link.node.name

    def row(state: State, what: str, fix: str = "", **data: object) -> Finding:
        return Finding(STEP, "rank", node, state, f"rank {link.node.rank}: {what}", fix=fix, data=dict(data))

    try:
        found = [each for each in await our_containers.find(link) if each.name in ENGINES]
    except (SparktuiError, OSError) as raised:
        error = our_containers.refusal(link, raised)
        return row(State.UNKNOWN, error.what, error.fix, unreachable=error.exit_status == 3)
    if not found:
        return row(State.INFO, "no engine container", "sparktui serve", running=False)
    each = found[0]
    if each.running:
        return row(State.OK, f"{each.name} runs since {each.started_at[:19]}Z", running=True)
    how = "out of memory" if each.oom_killed else f"exit code {each.exit_code}"
    return row(
        State.WARN, f"{each.name} ended ({how}) at {each.finished_at[:19]}Z", f"sparktui logs {node}", running=False
    )


async def _others(link: NodeLink) -> list[Finding]:
    try:
        found = await our_containers.find(link)
    except (SparktuiError, OSError):
        return []  # the rank's row has said it
    return [
        Finding(STEP, "container", link.node.name, State.INFO, f"{each.name} ({each.role}): {each.status}")
        for each in found
        if each.name not in ENGINES
    ]


async def _endpoint(settings: Settings, gone: list[Finding]) -> Finding:
    key = settings.api_key.get_secret_value() if settings.api_key else None

    def row(state: State, what: str, fix: str = "") -> Finding:
        return Finding(STEP, "endpoint", "head", state, what, fix=fix)

    async with EngineServer(local_url(settings), api_key=key) as server:
        try:
            models = await server.models()
        except ServerError as error:
            state = State.INFO if error.kind == "refused" else State.WARN
            return row(state, error.what, error.fix)
    if gone:
        names = ", ".join(each.node for each in gone)
        return row(State.WARN, f"it answers, but {names} has no rank: requests now hang", "sparktui stop, then serve")
    return row(State.OK, f"{local_url(settings)} serves {', '.join(models)}")
