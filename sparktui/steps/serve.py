"""serve: all ranks checked, then the workers started, then the head, then watched until the ready line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from sparktui.cluster.container import SPEC_LABEL
from sparktui.engine.folders import key_file
from sparktui.engine.launch import LaunchSpec, launch_specs
from sparktui.errors import SparktuiError, StepFailed
from sparktui.events import CommandShown, Event, Note, Question
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.remote.server import EngineServer, ServerError
from sparktui.settings import Settings
from sparktui.steps.fabric_probe import decide_gids
from sparktui.steps.merge import merged
from sparktui.steps.serve_boot import BootWatch
from sparktui.steps.serve_preflight import ENGINES, Preflight, preflight
from sparktui.steps.shown import shown, typed
from sparktui.steps.step import Command, Context, Inspection
from sparktui.steps.views import make_folders

STEP = "serve"
STOP_SECONDS = 30
SHORT_SECONDS = 15.0


class Serve:
    name = STEP
    title = "Start the engine on all ranks, workers first"

    async def inspect(self, context: Context) -> Inspection:
        """Done when every rank runs what would be started now and the head answers."""
        settings = context.settings
        try:
            specs = await _specs_now(context)
            running = await asyncio.gather(
                *(_runs(link, spec) for link, spec in zip(context.links, specs, strict=True))
            )
        except SparktuiError as error:
            return Inspection(done=False, summary=str(error))
        if not all(running):
            missing = [link.node.name for link, there in zip(context.links, running, strict=True) if not there]
            return Inspection(done=False, summary=f"not running as configured: {', '.join(missing)}")
        if not await answers(settings):
            return Inspection(done=False, summary="all ranks run; the head is not ready yet")
        return Inspection(done=True, summary="all ranks run and the head answers")

    async def plan(self, context: Context) -> list[Command]:
        specs = await _specs_now(context)
        ordered = [*specs[1:], specs[0]]
        return [
            shown(spec.node, spec.container.run_argv(), "workers first" if not spec.node.is_head else "then the head")
            for spec in ordered
        ]

    async def run(self, context: Context) -> AsyncIterator[Event]:
        settings = context.settings
        checked = await preflight(context)
        for finding in checked.findings:
            yield finding
        if checked.failures:
            first = checked.failures[0]
            raise _refusal(first.what, first.fix, first.node, bool(first.data.get("unreachable")))
        specs = checked.specs
        same = [_is_same(checked, spec) for spec in specs]
        if all(same):
            yield Note(STEP, "head", "all ranks run already; following their boot")
        else:
            async for event in self._start(context, checked, specs):
                yield event
        async for event in BootWatch(settings, context.links, specs).events():
            yield event

    async def _start(self, context: Context, checked: Preflight, specs: Sequence[LaunchSpec]) -> AsyncIterator[Event]:
        settings = context.settings
        running = [spec.node.name for spec in specs if checked.running(spec.node.name)]
        if running:
            answer = await context.ask(
                Question(
                    STEP, "serve.replace", f"{', '.join(running)}: an engine runs with other settings. Replace it?"
                )
            )
            if answer != "yes":
                raise StepFailed("the running engine was left alone", fix="sparktui stop", node=running[0])
        # All prepared before anything is replaced: after this only Docker itself can refuse.
        await asyncio.gather(*(make_folders(settings, link) for link in context.links))
        await write_key(settings, context.head)
        async for event in merged([_cleared(link, checked) for link in context.links]):
            yield event
        workers = list(zip(context.workers, specs[1:], strict=True))
        async for event in merged([_started(settings, link, spec) for link, spec in workers]):
            yield event
        async for event in _started(settings, context.head, specs[0]):
            yield event


async def write_key(settings: Settings, head: NodeLink) -> None:
    """The key's 0600 file on the head; away when there is no key."""
    path = key_file(settings)
    if settings.api_key is None:
        await asyncio.to_thread(Path(path).unlink, missing_ok=True)
        return
    data = (settings.api_key.get_secret_value() + "\n").encode()
    await head.write_file(path, data, mode=0o600, deadline_seconds=SHORT_SECONDS)


def local_url(settings: Settings) -> str:
    """The endpoint as the head itself reaches it."""
    host = "127.0.0.1" if settings.host in ("", "0.0.0.0", "::") else settings.host
    return f"http://{host}:{settings.port}"


async def answers(settings: Settings) -> bool:
    """Whether the head's HTTP layer says that it is well. That says nothing about the other ranks."""
    async with EngineServer(local_url(settings)) as server:
        try:
            return await server.health()
        except ServerError:
            return False


async def _specs_now(context: Context) -> tuple[LaunchSpec, ...]:
    """What would be started now.

    Raises:
        SparktuiError: a node does not answer, or a rank has no right GID index.
    """
    known: dict[int, int] = {}
    for link, each in zip(context.links, await decide_gids(context.settings, context.links), strict=True):
        if isinstance(each, SparktuiError):
            raise each
        if each.index is not None:
            known[link.node.rank] = each.index
    return launch_specs(context.settings, known)


async def _runs(link: NodeLink, spec: LaunchSpec) -> bool:
    found = await our_containers.look(link, spec.container.name)
    return found is not None and found.running and found.spec == spec.container.labels[SPEC_LABEL]


def _is_same(checked: Preflight, spec: LaunchSpec) -> bool:
    found = checked.running(spec.node.name)
    return found is not None and found.spec == spec.container.labels[SPEC_LABEL]


async def _cleared(link: NodeLink, checked: Preflight) -> AsyncIterator[Event]:
    """Remove what is left of an earlier boot of this profile, running or not."""
    for each in checked.containers.get(link.node.name, ()):
        if each.name in ENGINES:
            await our_containers.remove(link, each.name, stop_seconds=STOP_SECONDS if each.running else 0)
            yield Note(STEP, link.node.name, f"{each.name} of an earlier boot removed")


async def _started(settings: Settings, link: NodeLink, spec: LaunchSpec) -> AsyncIterator[Event]:
    yield CommandShown(STEP, link.node.name, settings.mask(typed(link.node, spec.container.run_argv())))
    await our_containers.start(link, spec.container)
    yield Note(STEP, link.node.name, f"rank {link.node.rank}: {spec.container.name} started")


def _refusal(what: str, fix: str, node: str, unreachable: bool) -> SparktuiError:
    from sparktui.errors import NodeUnreachable

    return NodeUnreachable(what, fix=fix, node=node) if unreachable else StepFailed(what, fix=fix, node=node)
