"""serve: all ranks and their load checked, then the workers started, then the head, then watched until it is ready."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from sparktui.engine.endpoint import local_url
from sparktui.engine.environment import uses_rdma
from sparktui.engine.folders import key_file, node_folders
from sparktui.engine.launch import HEAD_CONTAINER, LaunchSpec, launch_specs
from sparktui.errors import NodeUnreachable, SparktuiError, StepFailed
from sparktui.events import CommandShown, Event, Finding, NodeOutcome, Note, Outcome, Question, State
from sparktui.remote import images, our_containers
from sparktui.remote.link import NodeLink
from sparktui.remote.our_containers import OurContainer
from sparktui.remote.server import EngineServer, ServerError
from sparktui.settings import Settings
from sparktui.steps.fabric_probe import decide_gids
from sparktui.steps.kept_logs import keep_log
from sparktui.steps.load_check import check_commands, check_loads
from sparktui.steps.merge import merged
from sparktui.steps.serve_boot import BootWatch
from sparktui.steps.serve_preflight import ENGINES, Preflight, is_same, preflight
from sparktui.steps.shown import shown, typed
from sparktui.steps.smoke import asked_rows, shown_checks
from sparktui.steps.step import Command, Context, Inspection
from sparktui.steps.views import make_folders, recorded_revision

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
                *(_runs(settings, link, spec) for link, spec in zip(context.links, specs, strict=True))
            )
        except SparktuiError as error:
            return Inspection(done=False, summary=str(error))
        if not all(running):
            missing = [link.node.name for link, there in zip(context.links, running, strict=True) if not there]
            return Inspection(done=False, summary=f"not running as configured: {', '.join(missing)}")
        if wrong := await unready(settings):
            return Inspection(done=False, summary=f"all ranks run; the head is not ready: {wrong}")
        return Inspection(done=True, summary="all ranks run and the head answers")

    async def plan(self, context: Context) -> list[Command]:
        settings = context.settings
        specs = await _specs_now(context)
        there = await asyncio.gather(*(our_containers.find(link) for link in context.links))
        commands = [
            shown(link.node, ["mkdir", "-p", "--", *node_folders(settings, link.node).to_make])
            for link in context.links
        ]
        if settings.api_key is not None:
            line = f"""printf '%s\\n' "$API_KEY" | install -m 600 /dev/stdin {shlex.quote(key_file(settings))}"""
            commands.append(Command("head", line, f"API_KEY as {settings.env_path.name} has it"))
        for link, found in zip(context.links, there, strict=True):
            commands += [
                shown(link.node, argv, "of an earlier boot; its log is kept first")
                for each in found
                if each.name in ENGINES
                for argv in _removal(each)
            ]
        commands = await check_commands(context) + commands
        ordered = [*specs[1:], specs[0]]
        commands += [
            shown(spec.node, spec.container.run_argv(), "workers first" if not spec.node.is_head else "then the head")
            for spec in ordered
        ]
        return commands + (
            await shown_checks(settings, quick=settings.smoke_quick) if _ends_with_smoke(context) else []
        )

    async def run(self, context: Context) -> AsyncIterator[Event]:
        settings = context.settings
        checked = await preflight(context)
        for finding in checked.findings:
            yield finding
        if checked.failures:
            raise _refusal(checked.failures)
        specs = checked.specs
        if all(map(checked.runs, specs)):
            if not await unready(settings):
                for link in context.links:
                    yield NodeOutcome(
                        STEP, link.node.name, Outcome.SKIPPED, f"rank {link.node.rank} runs, and the head answers"
                    )
                return
            yield Note(STEP, "head", "all ranks run already; following their boot")
        else:
            unfit: list[Finding] = []
            async for event in check_loads(context):
                yield event
                unfit += [event] if isinstance(event, Finding) and event.state is State.FAIL else []
            if unfit:
                raise _refusal(unfit)
            async for event in self._start(context, checked, specs):
                yield event
        async for event in BootWatch(settings, context.links, specs).events():
            yield event
        if _ends_with_smoke(context):
            async for finding in asked_rows(context, STEP, prefix="smoke.", quick=settings.smoke_quick):
                yield finding

    async def _start(self, context: Context, checked: Preflight, specs: Sequence[LaunchSpec]) -> AsyncIterator[Event]:
        settings = context.settings
        running = [spec for spec in specs if checked.running(spec.node.name)]
        other = [spec.node.name for spec in running if not checked.runs(spec)]
        if other:
            text = f"{', '.join(other)}: an engine runs with other settings or from another image. Replace it?"
            if await context.ask(Question(STEP, "serve.replace", text)) != "yes":
                raise StepFailed("the running engine was left alone", fix="sparktui stop", node=other[0])
        elif running:
            gone = [spec.node for spec in specs if spec not in running]
            names = ", ".join(f"rank {node.rank} ({node.name})" for node in gone)
            rest = ", ".join(spec.node.name for spec in running)
            if any(each.name == HEAD_CONTAINER for each in checked.containers[context.head.node.name]):
                # Ranks cannot join a running engine, and loading takes minutes: a person decides when it is stopped.
                text = f"{names} does not run, and without it {rest} answers nobody. Stop {rest}, start all ranks anew?"
                if await context.ask(Question(STEP, "serve.restart", text)) != "yes":
                    raise StepFailed(
                        f"{names} does not run; the others were left alone", fix="sparktui stop", node=gone[0].name
                    )
            else:
                text = f"a start was cut off before the head: {names} does not run; all ranks are started anew"
                yield Note(STEP, gone[0].name, text)
        # All prepared before anything is replaced: after this only Docker itself can refuse.
        await asyncio.gather(*(make_folders(settings, link) for link in context.links))
        await write_key(settings, context.head)
        async for event in merged([_cleared(settings, link, checked) for link in context.links]):
            yield event
        workers = list(zip(context.workers, specs[1:], strict=True))
        async for event in merged([_started(settings, link, spec) for link, spec in workers]):
            yield event
        async for event in _started(settings, context.head, specs[0]):
            yield event


def _ends_with_smoke(context: Context) -> bool:
    """A serve by itself proves that the engine answers; where smoke follows, that is asked there."""
    return not context.settings.skip_smoke and "smoke" not in context.verbs


async def write_key(settings: Settings, head: NodeLink) -> None:
    """The key's 0600 file on the head; away when there is no key."""
    path = key_file(settings)
    if settings.api_key is None:
        await asyncio.to_thread(Path(path).unlink, missing_ok=True)
        return
    data = (settings.api_key.get_secret_value() + "\n").encode()
    await head.write_file(path, data, mode=0o600, deadline_seconds=SHORT_SECONDS)


async def unready(settings: Settings) -> str:
    """Why the head does not serve our model yet; empty when it does. That says nothing about the other ranks."""
    key = settings.api_key.get_secret_value() if settings.api_key else None
    async with EngineServer(local_url(settings), api_key=key) as server:
        try:
            if not await server.health():
                return "it is still starting"
            models = await server.models()
        except ServerError as error:
            return error.what
    return "" if settings.served_model in models else f"it serves {', '.join(models) or 'nothing'}"


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
        elif uses_rdma(context.settings):
            raise StepFailed(f"rank {each.rank}: {each.what}", fix=each.fix, node=link.node.name)
    return launch_specs(context.settings, known, revision=await recorded_revision(context.settings))


async def _runs(settings: Settings, link: NodeLink, spec: LaunchSpec) -> bool:
    found = await our_containers.look(link, spec.container.name)
    if found is None or not found.running:
        return False
    image = await images.look(link, settings.image)
    return image is not None and is_same(found, spec, image.local_id)


async def _cleared(settings: Settings, link: NodeLink, checked: Preflight) -> AsyncIterator[Event]:
    """Remove what is left of an earlier boot, running or not; its last lines are kept."""
    for each in checked.containers.get(link.node.name, ()):
        if each.name in ENGINES:
            for event in await keep_log(settings, link, each, STEP):
                yield event
            for argv in _removal(each):
                yield CommandShown(STEP, link.node.name, typed(link.node, argv))
            await our_containers.remove(link, each.name, stop_seconds=STOP_SECONDS if each.running else 0)
            yield Note(STEP, link.node.name, f"{each.name} of an earlier boot removed")


def _removal(each: OurContainer) -> list[list[str]]:
    stop = [["docker", "stop", "--time", str(STOP_SECONDS), each.name]] if each.running else []
    return [*stop, ["docker", "rm", "--force", each.name]]


async def _started(settings: Settings, link: NodeLink, spec: LaunchSpec) -> AsyncIterator[Event]:
    yield CommandShown(STEP, link.node.name, settings.mask(typed(link.node, spec.container.run_argv())))
    await our_containers.start(link, spec.container)
    yield Note(STEP, link.node.name, f"rank {link.node.rank}: {spec.container.name} started")


def _refusal(failures: Sequence[Finding]) -> SparktuiError:
    """A node that nobody could ask comes first: it decides the exit status."""
    first = min(failures, key=lambda each: not each.data.get("unreachable"))
    kind = NodeUnreachable if first.data.get("unreachable") else StepFailed
    return kind(first.what, fix=first.fix, node=first.node)
