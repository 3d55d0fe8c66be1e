"""What each node sees of the checkpoint and of its packed rows, looked at from inside our image."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from sparktui.engine.folders import node_folders
from sparktui.engine.launch import view_spec
from sparktui.errors import SparktuiError, StepFailed
from sparktui.readings.node_view import NodeView, parse_node_view
from sparktui.remote import checkpoint_folder, our_containers
from sparktui.remote.link import NodeLink
from sparktui.settings import Settings

LOOK_SECONDS = 90.0
SHORT_SECONDS = 15.0
_MAKE_FOLDERS = """\
for folder in "$engram" "$state" "$cache"; do mkdir -p -- "$folder" || exit 1; done
"""
_FOLDER_THERE = '[ -d "$folder" ]'


@dataclass(frozen=True, slots=True)
class Look:
    """A node's view, or why there is none."""

    link: NodeLink
    view: NodeView | None
    error: SparktuiError | None = None

    @property
    def node(self) -> str:
        return self.link.node.name


async def look(settings: Settings, link: NodeLink, revision: str | None = None) -> NodeView:
    """One node's view.

    Raises:
        StepFailed: the checkpoint's folder or volume is not there, or the container said nothing.
        DeadlineExceeded: the mount does not answer.
    """
    node = link.node
    folders = node_folders(settings, node)
    # `docker run -v` would make an empty folder or volume where none is, and then there is one.
    if folders.model_is_volume:
        engine = await link.docker()
        volumes = await engine.call(lambda client: client.api.volumes(), deadline_seconds=30.0)
        if not any(each["Name"] == folders.model for each in volumes.get("Volumes") or ()):
            raise StepFailed(f"there is no volume {folders.model}", fix="sparktui share", node=node.name)
    else:
        await _need_folder(
            link,
            folders.model,
            "the checkpoint",
            "sparktui download"
            if node.is_head
            else "with NFS_SHARE=0 every node needs a complete copy; copy it there, or set NFS_SHARE=1",
        )
    if revision is not None:
        await make_folders(settings, link)
    spec = view_spec(settings, node, revision)
    status, text = await our_containers.run_once(link, spec, deadline_seconds=LOOK_SECONDS)
    view = parse_node_view(text)
    if view is None:
        last = (text.strip().splitlines() or ["it printed nothing"])[-1]
        raise StepFailed(f"the look at the checkpoint ended with status {status}: {last}", node=node.name)
    rows = (replace(e, error=folders.as_on_node(e.error), fix=folders.as_on_node(e.fix)) for e in view.engram)
    return replace(view, engram=tuple(rows), engram_error=folders.as_on_node(view.engram_error))


async def look_everywhere(settings: Settings, links: tuple[NodeLink, ...], revision: str | None = None) -> list[Look]:
    """All nodes at the same time; a node that cannot say costs its own row."""

    async def one(link: NodeLink) -> Look:
        try:
            return Look(link, await look(settings, link, revision))
        except (SparktuiError, OSError) as error:
            return Look(link, None, our_containers.refusal(link, error))

    return list(await asyncio.gather(*map(one, links)))


async def make_folders(settings: Settings, link: NodeLink) -> None:
    """The node's own folders for rows, state and caches, made as the login user and not by Docker as root."""
    folders = node_folders(settings, link.node)
    values = {"engram": folders.engram, "state": folders.state, "cache": folders.cache}
    made = await link.script(_MAKE_FOLDERS, values=values, deadline_seconds=SHORT_SECONDS)
    if not made.ok:
        raise StepFailed(
            f"a folder could not be made: {made.stderr.strip()}",
            fix="check ENGRAM_DIR and WORKER_DIR",
            node=link.node.name,
        )


async def _need_folder(link: NodeLink, folder: str, what: str, fix: str) -> None:
    there = await link.script(_FOLDER_THERE, values={"folder": folder}, deadline_seconds=SHORT_SECONDS)
    if not there.ok:
        raise StepFailed(f"{what} is not there: {folder}", fix=fix, node=link.node.name)


async def known_revision(settings: Settings) -> str:
    """The full commit of the head's checkpoint, as the download recorded it.

    Raises:
        StepFailed: nobody knows which commit the folder holds.
    """
    revision = await recorded_revision(settings)
    if revision is None:
        raise StepFailed(
            f"which commit {settings.model_dir} holds is not recorded",
            fix="sparktui download (it fetches nothing that is there already)",
            node="head",
        )
    return revision


async def recorded_revision(settings: Settings) -> str | None:
    """The same, and None where nobody knows."""
    record = await asyncio.to_thread(checkpoint_folder.read_record, Path(settings.model_dir))
    return record.revision if record else None
