"""What serve checks on all ranks, the last one too, before it replaces anything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sparktui.cluster.container import SPEC_LABEL
from sparktui.cluster.gid import GidDecision, index_by_rank
from sparktui.engine.environment import uses_rdma
from sparktui.engine.folders import key_file
from sparktui.engine.launch import (
    CHECK_ROLE,
    HEAD_CONTAINER,
    WORKER_CONTAINER,
    LaunchSpec,
    container_name,
    launch_specs,
    must_exist,
)
from sparktui.errors import SparktuiError
from sparktui.events import Finding, State
from sparktui.readings.nvidia_smi import parse_compute_apps
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.remote.our_containers import OurContainer
from sparktui.settings import Settings
from sparktui.steps.build import Found
from sparktui.steps.build import look_everywhere as images_everywhere
from sparktui.steps.fabric_probe import decide_gids
from sparktui.steps.step import Context
from sparktui.steps.views import Look, known_revision
from sparktui.steps.views import look_everywhere as views_everywhere

T = TypeVar("T")
STEP = "serve"
ENGINES = (HEAD_CONTAINER, WORKER_CONTAINER)
_NODE_SCRIPT = """\
[ -d /dev/infiniband ] && echo infiniband
if command -v nvidia-smi >/dev/null; then
  timeout 5 nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader,nounits | sed 's/^/app /'
fi
if command -v ss >/dev/null; then echo ss; ss -Hltn | awk '{print "port " $4}'; fi
:"""
_NODE_SECONDS = 15.0
_MISSING_PATHS = """\
printf '%s\\n' "$paths" | while IFS= read -r p; do [ -z "$p" ] || [ -e "$p" ] || printf '%s\\n' "$p"; done"""


@dataclass(frozen=True, slots=True)
class Preflight:
    """The answers of all nodes; `specs` is empty when a rank has no right GID index."""

    findings: tuple[Finding, ...]
    specs: tuple[LaunchSpec, ...]
    containers: dict[str, tuple[OurContainer, ...]]
    image_ids: dict[str, str]
    """Each node's own id of the image, to tell an engine of an older build under the same tag."""

    @property
    def failures(self) -> list[Finding]:
        return [each for each in self.findings if each.state in (State.FAIL, State.UNKNOWN)]

    def running(self, node: str) -> OurContainer | None:
        """The engine container that runs on the node."""
        found = self.containers.get(node, ())
        return next((each for each in found if each.name in ENGINES and each.running), None)

    def runs(self, spec: LaunchSpec) -> bool:
        """Whether just this runs on its node, from the image that is there now."""
        found = self.running(spec.node.name)
        return found is not None and is_same(found, spec, self.image_ids.get(spec.node.name))


def is_same(found: OurContainer, spec: LaunchSpec, image_id: str | None) -> bool:
    """`found` was made by `spec` from the image of that local id."""
    same_image = image_id is None or not found.image or found.image == image_id
    return found.running and found.spec == spec.container.labels[SPEC_LABEL] and same_image


async def preflight(context: Context) -> Preflight:
    """Ask all nodes everything at the same time."""
    settings, links = context.settings, context.links
    revision = await known_revision(settings)
    images, views, gids, ours, nodes = await asyncio.gather(
        images_everywhere(context),
        views_everywhere(settings, links, revision),
        decide_gids(settings, links),
        asyncio.gather(*(_caught(link, _ours(link)) for link in links)),
        asyncio.gather(*(_caught(link, _ask(link)) for link in links)),
    )
    containers = {
        link.node.name: found for link, found in zip(links, ours, strict=True) if not isinstance(found, SparktuiError)
    }
    findings = [
        *_images(settings, images),
        *_views(views),
        *_gids(settings, links, gids),
        *_others(settings, links, ours),
        *_machines(settings, links, nodes, containers),
    ]
    decided = [each for each in gids if isinstance(each, GidDecision)]
    known = index_by_rank(decided)
    specs: tuple[LaunchSpec, ...] = ()
    if not uses_rdma(settings) or len(known) == len(links):
        specs = launch_specs(settings, known, revision=revision)
    for link, lacking in zip(
        links, await asyncio.gather(*(_caught(link, _missing(settings, link, specs)) for link in links)), strict=True
    ):
        findings += _paths(link.node.name, lacking)
    ids = {each.node: each.image.local_id for each in images if each.image is not None}
    return Preflight(tuple(findings), specs, containers, ids)


async def _caught(link: NodeLink, work: Awaitable[T]) -> T | SparktuiError:
    try:
        return await work
    except (SparktuiError, OSError) as error:
        return our_containers.refusal(link, error)


async def _ours(link: NodeLink) -> tuple[OurContainer, ...]:
    """Containers of ours; a name of ours that somebody else's container has is an error."""
    await our_containers.look(link, container_name(link.node))
    return await our_containers.find(link)


async def _missing(settings: Settings, link: NodeLink, specs: Sequence[LaunchSpec]) -> list[str]:
    """What would be mounted read-only and is not there: Docker would make an empty folder of it, and start."""
    spec = next((each for each in specs if each.node.name == link.node.name), None)
    # The key's file is written just before the start.
    paths = [path for path in must_exist(spec.container) if path != key_file(settings)] if spec else []
    if not paths:
        return []
    asked = await link.script(_MISSING_PATHS, values={"paths": "\n".join(paths)}, deadline_seconds=_NODE_SECONDS)
    return asked.stdout.splitlines()


def _paths(node: str, lacking: list[str] | SparktuiError) -> Iterator[Finding]:
    if isinstance(lacking, SparktuiError):
        yield _lost("paths", node, lacking)
        return
    for path in lacking:
        fix = "put it there, or correct the setting that names it"
        yield Finding(STEP, "paths", node, State.FAIL, f"{path} is to be mounted and is not there", fix=fix)


async def _ask(link: NodeLink) -> str:
    return (await link.script(_NODE_SCRIPT, deadline_seconds=_NODE_SECONDS)).stdout


def _lost(check: str, node: str, error: SparktuiError) -> Finding:
    if error.exit_status == 3:
        return Finding(STEP, check, node, State.UNKNOWN, error.what, fix=error.fix, data={"unreachable": True})
    return Finding(STEP, check, node, State.FAIL, error.what, fix=error.fix)


def _images(settings: Settings, found: list[Found]) -> Iterator[Finding]:
    head = found[0].image
    for each in found:
        if each.error is not None:
            yield _lost("image", each.node, each.error)
        elif each.image is None:
            yield Finding(STEP, "image", each.node, State.FAIL, f"no image {settings.image}", fix="sparktui build")
        elif head is not None and _differs(settings, each, found[0]):
            what = "image differs: " + " ".join(row.image.content if row.image else "?" for row in found)
            yield Finding(STEP, "image", each.node, State.FAIL, what, fix="sparktui build")
        else:
            yield Finding(STEP, "image", each.node, State.OK, f"image {each.image.content}")


def _differs(settings: Settings, each: Found, head: Found) -> bool:
    if each.image is None or head.image is None:
        return True
    if settings.build_on == "each":
        return (each.image.overlay, each.image.base) != (head.image.overlay, head.image.base)
    return each.image.content != head.image.content


def _views(looks: list[Look]) -> Iterator[Finding]:
    head = looks[0].view
    for each in looks:
        if each.error is not None or each.view is None:
            if each.error is not None:
                yield _lost("checkpoint", each.node, each.error)
            continue
        wrong = each.view.difference(head) if head is not None else "the head's own view is not known"
        if wrong:
            yield Finding(STEP, "checkpoint", each.node, State.FAIL, wrong, fix="sparktui share")
        else:
            yield Finding(STEP, "checkpoint", each.node, State.OK, "the same checkpoint as the head")
        if each.view.packed:
            yield Finding(STEP, "rows", each.node, State.OK, f"{len(each.view.engram)} packed files")
        else:
            bad = next((file.error for file in each.view.engram if file.error), each.view.engram_error)
            text = bad or "its Engram rows are not packed"
            yield Finding(STEP, "rows", each.node, State.FAIL, text, fix="sparktui pack")


def _gids(
    settings: Settings, links: Sequence[NodeLink], decisions: list[GidDecision | SparktuiError]
) -> Iterator[Finding]:
    if not uses_rdma(settings):
        return
    for link, each in zip(links, decisions, strict=True):
        if isinstance(each, SparktuiError):
            yield _lost("gid", link.node.name, each)
        else:
            yield Finding(STEP, "gid", link.node.name, each.state, f"rank {each.rank}: {each.what}", fix=each.fix)


def _others(
    settings: Settings, links: Sequence[NodeLink], ours: Sequence[tuple[OurContainer, ...] | SparktuiError]
) -> Iterator[Finding]:
    """Another cluster's engines, or a packing, on a node of ours: respected, never replaced."""
    for link, found in zip(links, ours, strict=True):
        if isinstance(found, SparktuiError):
            yield _lost("containers", link.node.name, found)
            continue
        assert isinstance(found, tuple)
        for each in found:
            if not each.running or each.role in ("nfs", "view"):
                continue
            if (each.name in ENGINES or each.role == CHECK_ROLE) and each.profile == settings.profile.name:
                continue
            what = f"{each.name} of profile {each.profile or '?'} runs here ({each.role or 'unknown role'})"
            own = f" --profile {each.profile}" if each.profile else ", with its own profile"
            fix = f"stop it first: sparktui stop{own}"
            yield Finding(STEP, "containers", link.node.name, State.FAIL, what, fix=fix)


def _machines(
    settings: Settings,
    links: Sequence[NodeLink],
    answers: Sequence[str | SparktuiError],
    containers: dict[str, tuple[OurContainer, ...]],
) -> Iterator[Finding]:
    for link, answer in zip(links, answers, strict=True):
        node = link.node.name
        if isinstance(answer, SparktuiError):
            yield _lost("machine", node, answer)
            continue
        lines = answer.splitlines()
        if uses_rdma(settings) and "infiniband" not in lines:
            fix = "plug the ConnectX cable in and wait 20 s, or see `lsmod | grep ib_uverbs`"
            yield Finding(STEP, "infiniband", node, State.FAIL, "there is no /dev/infiniband", fix=fix)
        if any(each.name in ENGINES and each.running for each in containers.get(node, ())):
            continue  # what holds GPU and ports now is ours and will be replaced
        apps = parse_compute_apps("\n".join(line[4:] for line in lines if line.startswith("app ")))
        if apps and not settings.force:
            names = ", ".join(f"{app.name or 'pid ' + str(app.pid)}" for app in apps)
            fix = "end it, or set FORCE=1 if you know that it fits"
            yield Finding(STEP, "gpu", node, State.FAIL, f"the GPU is in use by {names}", fix=fix)
        taken = {line.rsplit(":", 1)[-1] for line in lines if line.startswith("port ")}
        wanted = [settings.port, *([settings.dist_port] if link.node.is_head else [])]
        for port in wanted:
            if str(port) in taken:
                what = f"port {port} is taken by something that is not ours"
                yield Finding(STEP, "port", node, State.FAIL, what, fix=f"ss -ltnp 'sport = :{port}' shows by whom")
        if "ss" not in lines:
            yield Finding(STEP, "port", node, State.INFO, "ss is not here, so nobody knows whether the ports are free")
