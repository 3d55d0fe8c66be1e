"""pack: each node's Engram rows from the checkpoint onto its own NVMe, in one labelled container a node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from sparktui.cluster.container import SPEC_LABEL, ContainerSpec
from sparktui.engine.folders import NodeFolders, node_folders
from sparktui.engine.launch import packer_spec
from sparktui.errors import DeadlineExceeded, NodeUnreachable, SparktuiError, StepFailed
from sparktui.events import CommandShown, Event, Finding, LogLine, NodeOutcome, Note, Outcome, Progress, State
from sparktui.readings.node_view import NodeView
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.settings import Settings
from sparktui.steps.merge import merged
from sparktui.steps.share import Share
from sparktui.steps.shown import shown, typed
from sparktui.steps.step import Command, Context, Inspection
from sparktui.steps.views import Look, known_revision, look_everywhere, make_folders

STEP = "pack"
GIB = 1 << 30
RECONNECTS = 5
RECONNECT_SECONDS = 5.0


class Pack:
    name = STEP
    title = "Pack each node's Engram rows onto its own NVMe"

    async def inspect(self, context: Context) -> Inspection:
        try:
            revision = await known_revision(context.settings)
        except StepFailed as error:
            return Inspection(done=False, summary=error.what, blocked=error.what, fix=error.fix)
        looks = await look_everywhere(context.settings, context.links, revision)
        rows = tuple(_row(context.settings, each) for each in looks)
        done = all(row.state is State.OK for row in rows)
        left = sum(each.total_bytes - each.partial_bytes for row in looks if row.view for each in _open(row.view))
        summary = "every node has its rows" if done else f"{left / GIB:.2f} GiB are still to be packed"
        return Inspection(done=done, summary=summary, findings=rows)

    async def plan(self, context: Context) -> list[Command]:
        revision = await known_revision(context.settings)
        return [
            shown(link.node, packer_spec(context.settings, link.node, revision).run_argv(), "this rank's rows")
            for link in context.links
        ]

    async def run(self, context: Context) -> AsyncIterator[Event]:
        settings = context.settings
        revision = await known_revision(settings)
        # Before the head's ten minutes: does every node see the checkpoint?
        looks = await look_everywhere(settings, context.links, revision)
        for each in looks:
            if isinstance(each.error, NodeUnreachable):
                raise each.error
        blind = [each for each in looks if _is_blind(each, looks[0])]
        if blind and settings.nfs_share:
            names = ", ".join(each.node for each in blind)
            yield Note(STEP, "head", f"{names} cannot see the checkpoint; sharing it again, once", State.WARN)
            async for event in Share().run(context):
                yield event
            looks = await look_everywhere(settings, context.links, revision)
            blind = [each for each in looks if _is_blind(each, looks[0])]
        if blind:
            first = blind[0]
            if first.error is not None and first.error.exit_status == 3:
                raise first.error
            reason = first.error.what if first.error else _reason(first, looks[0])
            own = "copy the head's folder there, or set NFS_SHARE=1"
            fix = "sparktui share" if settings.nfs_share else own
            raise StepFailed(f"cannot see the checkpoint: {reason}", fix=fix, node=first.node)
        for each in looks:
            if each.view is not None and (wrong := _refused(each.view)):
                raise StepFailed(wrong[0], fix=wrong[1], node=each.node)
        for each in looks:
            if wrong := _short(settings, each):
                raise StepFailed(wrong[0], fix=wrong[1], node=each.node)
        async for event in merged([_pack_on(context, each, revision) for each in looks]):
            yield event


@dataclass
class _Told:
    """What a packer said last."""

    folders: NodeFolders
    error: str = ""
    fix: str = ""


def _open(view: NodeView) -> list[Any]:
    return [each for each in view.engram if not each.done]


def _row(settings: Settings, look: Look) -> Finding:
    if look.error is not None:
        state = State.UNKNOWN if look.error.exit_status == 3 else State.WARN
        return Finding(STEP, "rows", look.node, state, look.error.what, fix=look.error.fix)
    assert look.view is not None
    wrong = _refused(look.view)
    if wrong:
        return Finding(STEP, "rows", look.node, State.FAIL, wrong[0], fix=wrong[1])
    if wrong := _short(settings, look):
        return Finding(STEP, "rows", look.node, State.FAIL, wrong[0], fix=wrong[1])
    left = _open(look.view)
    if left:
        here = sum(each.partial_bytes for each in left)
        text = f"{len(left)} of {len(look.view.engram)} files to pack" + (
            f", {here} bytes of them there" if here else ""
        )
        return Finding(STEP, "rows", look.node, State.WARN, text, fix="sparktui pack")
    total = sum(each.total_bytes for each in look.view.engram)
    return Finding(STEP, "rows", look.node, State.OK, f"{len(look.view.engram)} files, {total / GIB:.2f} GiB")


def _refused(view: NodeView) -> tuple[str, str] | None:
    """A file that is not the wanted one is named and left alone."""
    if view.engram_error:
        return view.engram_error, "sparktui download checks the checkpoint; after a failed read dmesg says more"
    bad = next((each for each in view.engram if each.error), None)
    return (bad.error, bad.fix or "sparktui logs shows what the packer said; dmesg on this node") if bad else None


def _short(settings: Settings, look: Look) -> tuple[str, str] | None:
    """Rows that will not fit are said of every node before any packer starts."""
    if look.view is None or not look.view.short_bytes:
        return None
    folder = node_folders(settings, look.link.node).engram
    needed, free = look.view.engram_needed_bytes, look.view.engram_free_bytes
    text = f"{look.view.short_bytes / GIB:.2f} GiB short in {folder}: the rows need {needed / GIB:.2f} GiB"
    name = "ENGRAM_DIR" if look.link.node.is_head else "WORKER_ENGRAM_DIR"
    return f"{text}, {(free or 0) / GIB:.2f} GiB are free", f"free that much there, or point {name} to a larger disk"


def _is_blind(look: Look, head: Look) -> bool:
    return look.error is not None or bool(_reason(look, head))


def _reason(look: Look, head: Look) -> str:
    if look.view is None or head.view is None:
        return "" if look.view is not None else "no answer"
    return look.view.difference(head.view)


async def _pack_on(context: Context, look: Look, revision: str) -> AsyncIterator[Event]:
    settings, link = context.settings, look.link
    spec = packer_spec(settings, link.node, revision)
    running = await our_containers.look(link, spec.name)
    if running is not None and running.running and running.spec != spec.labels[SPEC_LABEL]:
        raise StepFailed("another packing runs here", fix="sparktui stop", node=link.node.name)
    if running is None or not running.running:
        if look.view is not None and look.view.packed:
            if running is not None:  # it went on after its run was killed, and has ended
                await our_containers.remove(link, spec.name, stop_seconds=0)
            yield NodeOutcome(STEP, link.node.name, Outcome.SKIPPED, "its rows are packed")
            return
        await make_folders(settings, link)
        yield CommandShown(STEP, link.node.name, typed(link.node, spec.run_argv()))
        await our_containers.start(link, spec)
    else:
        yield Note(STEP, link.node.name, "a packing of an earlier run goes on; following it")
    told = _Told(node_folders(settings, link.node))
    async for event in _follow(link, spec, told):
        yield event
    ended = await our_containers.look(link, spec.name)
    if ended is None:
        raise StepFailed("the packing container was removed by somebody", fix="sparktui pack", node=link.node.name)
    if ended.exit_code != 0:
        cause = told.error or f"the packer ended with status {ended.exit_code}"
        cause = "the packer ran out of memory" if ended.oom_killed else cause
        raise StepFailed(cause, fix=told.fix or "sparktui pack goes on where it stopped", node=link.node.name)
    await our_containers.remove(link, spec.name, stop_seconds=0)
    yield NodeOutcome(STEP, link.node.name, Outcome.DONE, "its rows are packed")


async def _follow(link: NodeLink, spec: ContainerSpec, told: _Told) -> AsyncIterator[Event]:
    """The packer's lines until it has ended; a connection that breaks is made again, the packing goes on meanwhile."""
    tries = 0
    while True:
        try:
            engine = await link.docker()
            async for line in engine.lines(spec.name, since_seconds=None, tail=None if not tries else 1, follow=True):
                event = read_line(link.node.name, line, told)
                if event is not None:
                    yield event
            found = await our_containers.look(link, spec.name)
            if found is None or not found.running:
                return
        except (NodeUnreachable, DeadlineExceeded) as error:
            tries += 1
            if tries > RECONNECTS:
                raise
            yield Note(STEP, link.node.name, f"{error.what}; looking again", State.WARN)
        except SparktuiError:
            if await our_containers.look(link, spec.name) is None:
                return
            raise
        await asyncio.sleep(RECONNECT_SECONDS if tries else 0.5)


def read_line(node: str, line: str, told: _Told) -> Event | None:
    """One line of the packer (JSON events) as an event; other text is kept as its log."""
    try:
        plain = json.loads(line)
    except ValueError:
        return LogLine(STEP, node, line) if line.strip() else None
    if not isinstance(plain, dict):
        return LogLine(STEP, node, line)
    match plain.get("event"):
        case "progress":
            done, total, rate = (plain.get(key) for key in ("done_bytes", "total_bytes", "rate_bytes_per_second"))
            left = (total - done) / rate if rate and total is not None and done is not None else None
            phase = f"layer {plain.get('layer')}"
            return Progress(STEP, node, phase, done, total, rate_per_second=rate, seconds_left=left)
        case "error":
            told.error = told.folders.as_on_node(str(plain.get("what") or ""))
            told.fix = told.folders.as_on_node(str(plain.get("fix") or ""))
            return None
        case "note":
            state = State.WARN if plain.get("state") == "warn" else State.INFO
            return Note(STEP, node, told.folders.as_on_node(str(plain.get("text") or "")), state)
        case "done" | "skipped" as how:
            return Note(STEP, node, told.folders.as_on_node(f"{plain.get('file') or plain.get('reason')}: {how}"))
    return LogLine(STEP, node, line)
