"""share: the head exports the checkpoint, each worker mounts it and proves that it sees the same files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from sparktui.cluster.container import OWNER_LABEL, SPEC_LABEL, VolumeSpec
from sparktui.engine.launch import view_spec
from sparktui.engine.sharing import (
    EXPORTER_CONTAINER,
    ServerAddress,
    export_clients,
    exporter_spec,
    nfs_volume_spec,
    parse_route_source,
    server_address,
)
from sparktui.errors import SparktuiError, StepFailed
from sparktui.events import CommandShown, Event, Finding, NodeOutcome, Note, Outcome, State
from sparktui.readings.docker import volume_facts
from sparktui.readings.node_view import NodeView
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.steps.merge import merged
from sparktui.steps.shown import shown, typed
from sparktui.steps.step import Command, Context, Inspection
from sparktui.steps.views import Look, look, look_everywhere

if TYPE_CHECKING:
    import docker

STEP = "share"
READY_SECONDS = 60.0
CALL_SECONDS = 30.0
READY_WORD = "[spark] NFS READY"


class Share:
    name = STEP
    title = "Share the checkpoint with the workers"

    async def inspect(self, context: Context) -> Inspection:
        settings = context.settings
        looks = await look_everywhere(settings, context.links)
        rows = _rows(looks)
        if settings.nfs_share:
            rows = [await _exporter_row(context), *[await _with_options(context, row) for row in rows]]
        done = all(row.state is State.OK for row in rows)
        what = "every worker sees the head's checkpoint" if done else "not every worker sees the checkpoint"
        return Inspection(done=done, summary=what, findings=tuple(rows))

    async def plan(self, context: Context) -> list[Command]:
        settings, head = context.settings, context.head.node
        commands = []
        if settings.nfs_share:
            commands.append(shown(head, exporter_spec(settings).run_argv(), "the exporter; it outlives stop"))
            for link in context.workers:
                spec, server = await _volume(context, link)
                commands.append(
                    shown(link.node, ["docker", "volume", "rm", spec.name], "only if it is ours and differs")
                )
                commands.append(shown(link.node, spec.create_argv(), f"mounts from {server.address} ({server.source})"))
        for link in context.links:
            commands.append(shown(link.node, view_spec(settings, link.node).run_argv(), "the proof"))
        return commands

    async def run(self, context: Context) -> AsyncIterator[Event]:
        settings = context.settings
        if settings.nfs_share:
            async for event in _export(context):
                yield event
        else:
            yield Note(STEP, "head", "NFS_SHARE=0: nothing is exported; every worker's own copy is checked")
        head_view = await look(settings, context.head)
        async for event in merged([_worker(context, link, head_view) for link in context.workers]):
            yield event


def _rows(looks: list[Look]) -> list[Finding]:
    return [_row(each, looks[0].view) for each in looks]


def _row(look: Look, head: NodeView | None) -> Finding:
    if look.error is not None:
        state = State.UNKNOWN if look.error.exit_status == 3 else State.WARN
        return Finding(STEP, "weights", look.node, state, look.error.what, fix=look.error.fix)
    if head is None or look.view is None:
        return Finding(
            STEP, "weights", look.node, State.UNKNOWN, "what the head has is not known, so nothing to compare"
        )
    wrong = look.view.difference(head)
    if wrong:
        return Finding(STEP, "weights", look.node, State.WARN, wrong, fix="sparktui share")
    count = len(look.view.sizes_bytes)
    return Finding(STEP, "weights", look.node, State.OK, f"sees {count} files, the same as the head")


async def _exporter_row(context: Context) -> Finding:
    try:
        found = await our_containers.look(context.head, EXPORTER_CONTAINER)
        wanted = exporter_spec(context.settings)
    except SparktuiError as error:
        return Finding(STEP, "exporter", "head", State.WARN, error.what, fix=error.fix)
    if found is None or not found.running:
        return Finding(STEP, "exporter", "head", State.WARN, "the exporter is not running", fix="sparktui share")
    if found.spec != wanted.labels[SPEC_LABEL]:
        return Finding(
            STEP, "exporter", "head", State.WARN, "the exporter runs with other options", fix="sparktui share"
        )
    return Finding(STEP, "exporter", "head", State.OK, "the exporter is running")


async def _with_options(context: Context, row: Finding) -> Finding:
    """A worker whose volume points elsewhere is not done, even if it sees files there (case U50)."""
    link = next(each for each in context.links if each.node.name == row.node)
    if link.node.is_head or row.state is not State.OK:
        return row
    spec, _ = await _volume(context, link)
    found = volume_facts(await _inspect_volume(link, spec.name) or {})
    if found.options == spec.options:
        return row
    text = f"volume {spec.name} still has other options: {found.options.get('o', '')}"
    return Finding(STEP, "weights", row.node, State.WARN, text, fix="sparktui share")


async def _export(context: Context) -> AsyncIterator[Event]:
    """Start or keep the exporter, and wait until NFSv4 answers."""
    settings, head = context.settings, context.head
    spec = exporter_spec(settings)
    found = await our_containers.look(head, spec.name)
    if found is not None and found.running and found.spec == spec.labels[SPEC_LABEL]:
        yield Note(STEP, "head", f"{spec.name} is already exporting to {', '.join(export_clients(settings))}")
    else:
        if found is not None:
            await _refuse_while_mounted(context, "the exporter's options changed")
            await our_containers.remove(head, spec.name, stop_seconds=10)
        yield CommandShown(STEP, "head", typed(head.node, spec.run_argv()))
        await our_containers.start(head, spec)
    end = time.monotonic() + READY_SECONDS
    while True:
        lines = await our_containers.last_lines(head, spec.name, 40)
        if any(READY_WORD in line for line in lines):
            return
        now = await our_containers.look(head, spec.name)
        if now is None or not now.running or time.monotonic() > end:
            said = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
            how = "does not answer" if now is not None and now.running else "ended"
            raise StepFailed(
                f"the NFS exporter {how}: {said}",
                fix="a kernel without NFS: NFS_SERVER=ganesha; port 2049 taken: see what else exports on this head",
                node="head",
            )
        await asyncio.sleep(0.5)


async def _worker(context: Context, link: NodeLink, head: NodeView) -> AsyncIterator[Event]:
    settings, node = context.settings, link.node
    used = ""
    if settings.nfs_share:
        spec, server = await _volume(context, link)
        used = f"mounted from {server.address} ({server.source})"
        if server.warning:
            yield Note(STEP, node.name, server.warning, State.WARN)
        existing = await _inspect_volume(link, spec.name)
        if existing is None or volume_facts(existing).options != spec.options:
            if existing is not None:
                await _remove_volume(context, link, spec.name, existing)
            yield CommandShown(STEP, node.name, typed(node, spec.create_argv()))
            await _create_volume(link, spec)
    try:
        wrong = (await look(settings, link)).difference(head)
    except SparktuiError as error:
        if error.exit_status == 3 and not settings.nfs_share:
            raise
        wrong = error.what
    if wrong:
        raise await _cannot_see(context, link, wrong, used)
    yield NodeOutcome(STEP, node.name, Outcome.DONE, f"sees the head's checkpoint{', ' + used if used else ''}")


async def _cannot_see(context: Context, link: NodeLink, wrong: str, used: str) -> StepFailed:
    settings = context.settings
    if not settings.nfs_share:
        return StepFailed(
            f"its copy in {settings.worker_model_path} is not the head's checkpoint: {wrong}",
            fix="copy the head's folder there, or set NFS_SHARE=1",
            node=link.node.name,
        )
    said = [line for line in await our_containers.last_lines(context.head, EXPORTER_CONTAINER, 5) if line.strip()]
    return StepFailed(
        f"cannot see the checkpoint, {used}: {wrong}; allowed are {', '.join(export_clients(settings))}; "
        f"the exporter's last word: {said[-1] if said else 'none'}",
        fix="the worker's address on that cable must be in NFS_CLIENTS, and the address must be the head's",
        node=link.node.name,
    )


async def _volume(context: Context, link: NodeLink) -> tuple[VolumeSpec, ServerAddress]:
    settings, node = context.settings, link.node
    route = None
    if not settings.nfs_server_ips and node.fabric_address:
        asked = await context.head.run(["ip", "route", "get", node.fabric_address], deadline_seconds=10.0)
        route = parse_route_source(asked.stdout) if asked.ok else None
    server = server_address(settings, node, route)
    return nfs_volume_spec(settings, node, server), server


async def _inspect_volume(link: NodeLink, name: str) -> dict[str, Any] | None:
    def work(client: docker.DockerClient) -> dict[str, Any] | None:
        from docker.errors import NotFound

        try:
            plain: dict[str, Any] = client.api.inspect_volume(name)
        except NotFound:
            return None
        return plain

    return await (await link.docker()).call(work, deadline_seconds=CALL_SECONDS)


async def _create_volume(link: NodeLink, spec: VolumeSpec) -> None:
    await (await link.docker()).call(
        lambda client: client.api.create_volume(
            spec.name, driver="local", driver_opts=spec.options, labels=spec.labels
        ),
        deadline_seconds=CALL_SECONDS,
    )


async def _remove_volume(context: Context, link: NodeLink, name: str, existing: dict[str, Any]) -> None:
    """Remove our own, unused volume; anything else is left and named."""
    if volume_facts(existing).labels.get(OWNER_LABEL) != "sparktui":
        raise StepFailed(
            f"volume {name} has other options and is not sparktui's; it was left alone",
            fix=f"remove it yourself: docker volume rm {name}",
            node=link.node.name,
        )

    def users(client: docker.DockerClient) -> list[str]:
        return [each["Names"][0].lstrip("/") for each in client.api.containers(all=True, filters={"volume": name})]

    engine = await link.docker()
    used_by = await engine.call(users, deadline_seconds=CALL_SECONDS)
    ours = {each.name for each in await our_containers.find(link) if not each.running}
    for each in used_by:
        if each not in ours:
            raise StepFailed(
                f"volume {name} has other options and {each} uses it", fix="sparktui stop", node=link.node.name
            )
        await our_containers.remove(link, each, stop_seconds=0)
    await engine.call(lambda client: client.api.remove_volume(name), deadline_seconds=CALL_SECONDS)


async def _refuse_while_mounted(context: Context, why: str) -> None:
    """A server that goes away under a hard mount wedges the worker: nothing may read while it is replaced."""
    for link in context.workers:
        for each in await our_containers.find(link):
            if each.running:
                raise StepFailed(
                    f"{why}, but {each.name} reads weights through it", fix="sparktui stop", node=link.node.name
                )
