"""stop: end the engines and packings of this profile, and show that nothing is left. Never the NFS exporter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sparktui.cluster.container import OWNER_LABEL
from sparktui.engine.launch import CHECK_ROLE, HEAD_CONTAINER, PACK_CONTAINER, WORKER_CONTAINER
from sparktui.errors import SparktuiError, StepFailed
from sparktui.events import CommandShown, Event, Finding, NodeOutcome, Note, Outcome, State
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.remote.our_containers import OurContainer
from sparktui.settings import Settings
from sparktui.steps.kept_logs import keep_log
from sparktui.steps.merge import merged
from sparktui.steps.shown import shown, typed
from sparktui.steps.step import Command, Context, Inspection

STEP = "stop"
ROLES = ("head", "worker", "pack", "view", CHECK_ROLE)
GRACE_SECONDS = 30
LOOK_SECONDS = 15.0

_LEFTOVERS = """\
mine=$(readlink /proc/self/ns/net)
for d in /proc/[0-9]*; do
  read -r name <"$d/comm" 2>/dev/null || continue
  # Only this machine's own: where namespaces are shared out, the others' processes are in view too.
  their=$(readlink "$d/ns/net" 2>/dev/null); [ -z "$their" ] || [ "$their" = "$mine" ] || continue
  case "$name" in sglang::*) printf 'process\\t%s %s\\n' "${d#/proc/}" "$name";; esac
done
for f in /dev/shm/psm_* /dev/shm/sem.mp-* /dev/shm/torch_* /dev/shm/nccl-*; do
  [ -e "$f" ] || continue
  # Others' memory maps cannot be read without being root, so nobody here can say whether that segment is in use.
  if [ "$(id -u)" != 0 ] && [ ! -O "$f" ]; then printf 'foreign memory\\t%s\\n' "$f"; continue; fi
  if grep -qs -- "$f" /proc/[0-9]*/maps; then continue; fi
  printf 'shared memory\\t%s\\n' "$f"
done
if command -v ss >/dev/null && ss -Hltn "sport = :$port" | grep -q .; then printf 'port\\t%s\\n' "$port"; fi
:"""
"""A failed boot can leave a scheduler that holds tens of GB, and segments of shared memory that no process maps."""
_FREE = 'for f in $files; do case "$f" in /dev/shm/*) rm -f -- "$f";; esac; done'


class Stop:
    name = STEP
    title = "Stop the engines on all nodes"

    async def inspect(self, context: Context) -> Inspection:
        return Inspection(done=False, summary="asked anew each time")

    async def plan(self, context: Context) -> list[Command]:
        commands = []
        for link in _chosen(context):
            for each in await _ours(context.settings, link):
                commands.append(shown(link.node, ["docker", "stop", "--time", str(GRACE_SECONDS), each.name]))
                commands.append(shown(link.node, ["docker", "rm", "--force", each.name]))
        return commands

    async def run(self, context: Context) -> AsyncIterator[Event]:
        async for event in merged([_stop_on(context.settings, link) for link in _chosen(context)]):
            yield event


def _chosen(context: Context) -> list[NodeLink]:
    return [link for link in context.links if context.only_node in (None, link.node.name)]


async def _ours(settings: Settings, link: NodeLink) -> list[OurContainer]:
    """Engines, packings and looks of this profile; another cluster's and the exporter stay."""
    return [
        each for each in await our_containers.find(link) if each.role in ROLES and each.profile == settings.profile.name
    ]


async def _stop_on(settings: Settings, link: NodeLink) -> AsyncIterator[Event]:
    node = link.node.name
    try:
        found = await _ours(settings, link)
        for each in found:
            if each.role in ("head", "worker"):
                for event in await keep_log(settings, link, each, STEP):
                    yield event
            yield CommandShown(
                STEP, node, typed(link.node, ["docker", "stop", "--time", str(GRACE_SECONDS), each.name])
            )
            await our_containers.remove(link, each.name, stop_seconds=GRACE_SECONDS if each.running else 0)
        left = await _leftovers(settings, link)
        segments = [what for kind, what in left if kind == "shared memory"]
        if segments:
            freed = await link.script(_FREE, values={"files": " ".join(segments)}, deadline_seconds=LOOK_SECONDS)
            how = "removed" if freed.ok else f"could not be removed: {freed.stderr.strip()[-200:]}"
            yield Note(
                STEP, node, f"{len(segments)} segments of shared memory {how}", State.INFO if freed.ok else State.WARN
            )
            left = await _leftovers(settings, link)
        foreign = [what for kind, what in left if kind == "foreign memory"]
        if foreign:
            text = f"{len(foreign)} segments of shared memory are another user's: {' '.join(foreign[:4])}"
            yield Note(STEP, node, text)
        left = [each for each in left if each[0] != "foreign memory"]
        left += [("container of somebody else", name) for name in await _not_ours(link)]
    except (SparktuiError, OSError) as raised:
        error = our_containers.refusal(link, raised)
        # The other nodes are stopped all the same; then the run ends with the status of an unreached node.
        text = f"{error.what}; what runs there is not known"
        data = {"unreachable": True} if error.exit_status == 3 else {}
        yield Finding(
            STEP, "stop", node, State.UNKNOWN, text, fix=error.fix or f"sparktui stop --node {node}", data=data
        )
        yield NodeOutcome(STEP, node, Outcome.FAILED, text)
        return
    if left:
        names = ", ".join(f"{kind} {what}" for kind, what in left)
        yield NodeOutcome(STEP, node, Outcome.FAILED, f"still there: {names}")
        return
    names = ", ".join(each.name for each in found) or "nothing ran"
    yield NodeOutcome(STEP, node, Outcome.DONE, f"{names}; port {settings.port} is closed")


async def _not_ours(link: NodeLink) -> list[str]:
    """Running containers that have a name of ours but not our label: never touched, never passed over in silence."""
    engine = await link.docker()
    listed = await engine.call(lambda client: client.api.containers(all=False), deadline_seconds=LOOK_SECONDS)
    names = {HEAD_CONTAINER, WORKER_CONTAINER, PACK_CONTAINER}
    return sorted(
        name
        for each in listed
        if (each.get("Labels") or {}).get(OWNER_LABEL) != "sparktui"
        for name in (text.lstrip("/") for text in each.get("Names") or ())
        if name in names
    )


async def _leftovers(settings: Settings, link: NodeLink) -> list[tuple[str, str]]:
    """(kind, what) of everything of the engine that is still on the node; given a moment to go."""
    rows: list[tuple[str, str]] = []
    for _ in range(5):
        answer = await link.script(_LEFTOVERS, values={"port": str(settings.port)}, deadline_seconds=LOOK_SECONDS)
        if not answer.ok:
            raise StepFailed(f"could not look for leftovers: {answer.stderr.strip()[-200:]}", node=link.node.name)
        rows = [(kind, what) for kind, _, what in (line.partition("\t") for line in answer.stdout.splitlines()) if what]
        if not [kind for kind, _ in rows if kind not in ("shared memory", "foreign memory")]:
            return rows
        await asyncio.sleep(1.0)
    return rows
