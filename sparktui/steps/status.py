"""status: what is true now on every node. Liveness is judged from all ranks, not from the endpoint alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from sparktui.engine.endpoint import local_url
from sparktui.errors import SparktuiError
from sparktui.events import Event, Finding, State
from sparktui.local_fault import LocalFault
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.remote.server import EngineServer, ServerError
from sparktui.settings import Settings
from sparktui.steps.serve_preflight import ENGINES
from sparktui.steps.step import Command, Context, Inspection

STEP = "status"
TOGETHER_SECONDS = 1.0
"""How long an answer may take before the rows of the nodes behind it are shown."""


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
        gone = [link.node.name for link in context.links]
        async with aclosing(_as_they_answer(context.links)) as answers:
            async for rows in answers:
                for finding in rows:
                    yield finding
                    if finding.data.get("running") is True:
                        gone.remove(finding.node)
        yield await _endpoint(context.settings, gone)


async def _as_they_answer(links: Sequence[NodeLink]) -> AsyncGenerator[list[Finding], None]:
    """The rows of each node, in the nodes' order but for those that are late."""
    asked = [asyncio.create_task(_node(link)) for link in links]
    left = list(asked)
    try:
        await asyncio.wait(left, timeout=TOGETHER_SECONDS)
        while left:
            for each in [task for task in left if task.done()]:
                left.remove(each)
                yield each.result()
            if left:
                await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _node(link: NodeLink) -> list[Finding]:
    """The rank's row, then one for each other container of ours."""
    node = link.node.name

    def row(state: State, what: str, fix: str = "", **data: object) -> Finding:
        return Finding(STEP, "rank", node, state, f"rank {link.node.rank}: {what}", fix=fix, data=dict(data))

    try:
        found = await our_containers.find(link)
    except (SparktuiError, OSError) as raised:
        error = our_containers.refusal(link, raised)
        state = State.FAIL if isinstance(error, LocalFault) else State.UNKNOWN
        return [row(state, error.what, error.fix, unreachable=error.exit_status == 3)]
    others = [
        Finding(STEP, "container", node, State.INFO, f"{each.name} ({each.role}): {each.status}")
        for each in found
        if each.name not in ENGINES
    ]
    engine = next((each for each in found if each.name in ENGINES), None)
    if engine is None:
        return [row(State.INFO, "no engine container", "sparktui serve", running=False), *others]
    if engine.running:
        return [row(State.OK, f"{engine.name} runs since {engine.started_at[:19]}Z", running=True), *others]
    how = "out of memory" if engine.oom_killed else f"exit code {engine.exit_code}"
    what = f"{engine.name} ended ({how}) at {engine.finished_at[:19]}Z"
    return [row(State.WARN, what, f"sparktui logs {node}", running=False), *others]


async def _endpoint(settings: Settings, gone: Sequence[str]) -> Finding:
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
        return row(
            State.WARN, f"it answers, but {', '.join(gone)} has no rank: requests now hang", "sparktui stop, then serve"
        )
    return row(State.OK, f"{local_url(settings)} serves {', '.join(models)}")
