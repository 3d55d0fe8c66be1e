"""build: one image, the same on every node. Built on the head; a worker gets the layers that it lacks."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from sparktui.cluster.node import Node
from sparktui.envfile import save
from sparktui.errors import RemoteCommandFailed, SparktuiError, StepFailed
from sparktui.events import (
    CommandShown,
    Event,
    Finding,
    LogLine,
    NodeOutcome,
    Outcome,
    Question,
    State,
)
from sparktui.readings.image_identity import BASE_LABEL, NFS_LABEL, ImageIdentity
from sparktui.readings.sglang_log import pieces
from sparktui.remote import images
from sparktui.remote.docker import DOCKER_SOCKET, load_image_argv, save_image_argv
from sparktui.remote.link import NodeLink
from sparktui.remote.our_containers import refusal
from sparktui.settings import SECRET_NAMES, Settings
from sparktui.shipped import shipped
from sparktui.steps.merge import merged
from sparktui.steps.overlay_content import content_hash, context_tar
from sparktui.steps.ship import ship
from sparktui.steps.shown import shown, typed
from sparktui.steps.step import Command, Context, Inspection

STEP = "build"
DOCKER = ("docker", "--host", f"unix://{DOCKER_SOCKET}")
"""The system's Engine by name: another context or DOCKER_HOST would lack the GPU and /dev/infiniband."""


@dataclass(frozen=True, slots=True)
class Found:
    """The image on one node, or why it is not known."""

    node: str
    image: ImageIdentity | None
    error: SparktuiError | None = None


class Build:
    name = STEP
    title = "Build the image on the head and bring it to every worker"

    async def inspect(self, context: Context) -> Inspection:
        settings = context.settings
        wanted = await asyncio.to_thread(content_hash, shipped("overlay"))
        found = await look_everywhere(context)
        rows = tuple(_finding(settings, each, found[0].image, wanted) for each in found)
        done = all(row.state is State.OK for row in rows)
        summary = "the same image is on all nodes" if done else "; ".join(f"{r.node}: {r.what}" for r in rows)
        return Inspection(done=done, summary=summary, findings=rows)

    async def plan(self, context: Context) -> list[Command]:
        settings, head = context.settings, context.head.node
        overlay = shipped("overlay")
        wanted = await asyncio.to_thread(content_hash, overlay)
        commands = []
        base = settings.base_reference
        if "@" not in base:
            commands.append(
                shown(
                    head, [*DOCKER, "manifest", "inspect", "--verbose", base], "which digest the tag names now; asked"
                )
            )
            base = f"{base}@sha256:…"
        everywhere = settings.build_on == "each"
        found = await look_everywhere(context)
        stale = [each for each in found if _finding(settings, each, found[0].image, wanted).state is not State.OK]
        for link in context.links if everywhere else (context.head,):
            if not any(each.node == link.node.name for each in stale):
                continue
            commands.append(shown(link.node, pull_argv(base), "the base, by digest, where it is not there"))
            if link.node.is_head:
                commands.append(shown(head, build_argv(settings, base, wanted, str(overlay))))
            else:
                packed = shlex.join(["tar", "-C", str(overlay), "-c", "."])
                commands.append(
                    Command(link.node.name, f"{packed} | {typed(link.node, build_argv(settings, base, wanted, '-'))}")
                )
        if not everywhere:
            for link in context.workers:
                if any(each.node == link.node.name for each in stale):
                    commands.append(Command(link.node.name, _ship_line(settings, link.node), "only layers it lacks"))
        return commands

    async def run(self, context: Context) -> AsyncIterator[Event]:
        settings = context.settings
        overlay = shipped("overlay")
        wanted = await asyncio.to_thread(content_hash, overlay)
        base = await _pinned_base(context)
        everywhere = settings.build_on == "each"
        found = {each.node: each for each in await look_everywhere(context)}
        for each in found.values():
            if each.error is not None:
                raise each.error
        builders = [
            link
            for link in (context.links if everywhere else (context.head,))
            if not _built(found[link.node.name].image, settings, base, wanted)
        ]
        async for event in merged([_build_on(link, settings, base, wanted, overlay) for link in builders]):
            yield event
        head_image = await images.look(context.head, settings.image)
        if head_image is None:
            raise StepFailed(f"the build left no image {settings.image}", fix="sparktui build", node="head")
        if everywhere:
            return
        lacking = []
        for each in await look_everywhere(context):
            if each.error is not None:
                yield NodeOutcome(STEP, each.node, Outcome.FAILED, each.error.what)
            elif each.image is None or each.image.content != head_image.content:
                lacking.append(next(link for link in context.workers if link.node.name == each.node))
            else:
                yield NodeOutcome(STEP, each.node, Outcome.DONE, f"image {head_image.content}; nothing to send")
        for link in lacking:
            machine = await images.machine_architecture(link)
            if machine and machine != head_image.architecture:
                raise StepFailed(
                    f"the head's image is {head_image.architecture}, node is {machine}",
                    fix="all nodes must be of one kind; or set BUILD_ON=each",
                    node=link.node.name,
                )
        if lacking:
            for link in lacking:
                yield CommandShown(STEP, link.node.name, _ship_line(settings, link.node))
            async for event in ship(context.head, lacking, settings.image, settings.state_dir / "spool"):
                yield event


async def look_everywhere(context: Context) -> list[Found]:
    """The image on every node at the same time; a node that cannot say costs its own row."""

    async def one(link: NodeLink) -> Found:
        try:
            return Found(link.node.name, await images.look(link, context.settings.image))
        except (SparktuiError, OSError) as error:
            return Found(link.node.name, None, refusal(link, error))

    return list(await asyncio.gather(*map(one, context.links)))


def pull_argv(base: str) -> list[str]:
    return [*DOCKER, "pull", base]


def build_argv(settings: Settings, base: str, overlay_hash: str, build_context: str) -> list[str]:
    """The classic builder's command; BuildKit would give other layers on each node."""
    argv = ["env", "DOCKER_BUILDKIT=0", *DOCKER, "build", "--tag", settings.image, "--force-rm"]
    argv += ["--build-arg", f"BASE={base}", "--build-arg", f"OVERLAY_HASH={overlay_hash}"]
    argv += ["--build-arg", f"NFS={exporter_programs(settings)}"]
    for pair in settings.build_args:
        argv += ["--build-arg", pair]
    argv += ["--label", f"{BASE_LABEL}={base}", "--label", f"{NFS_LABEL}={exporter_programs(settings)}"]
    if settings.build_dockerfile:
        argv += ["--file", str(settings.home_dir / settings.build_dockerfile)]
    return [*argv, build_context]


def _ship_line(settings: Settings, worker: Node) -> str:
    """What brings the head's image to a worker, as typed on the head."""
    return f"{shlex.join(save_image_argv(settings.image))} | {typed(worker, load_image_argv())}"


def exporter_programs(settings: Settings) -> str:
    """Which exporter the image must hold: none where nothing is exported."""
    return settings.nfs_server if settings.nfs_share else "none"


def _built(image: ImageIdentity | None, settings: Settings, base: str, wanted: str) -> bool:
    return (
        image is not None
        and (image.overlay, image.base) == (wanted, base)
        and image.nfs in (exporter_programs(settings), "both")
    )


def _finding(settings: Settings, found: Found, head: ImageIdentity | None, wanted: str) -> Finding:
    def row(state: State, what: str, fix: str = "") -> Finding:
        data = {} if found.image is None else {"content": found.image.content, "overlay": found.image.overlay}
        return Finding(STEP, "image", found.node, state, what, fix=fix, data=data)

    again = "sparktui build"
    if found.error is not None:
        return row(State.UNKNOWN, found.error.what, found.error.fix)
    if found.image is None:
        return row(State.WARN, f"no image {settings.image}", again)
    if "@" not in settings.base_reference:
        return row(State.WARN, "BASE_DIGEST is empty: nobody has pinned the base yet", again)
    if found.image.overlay != wanted:
        return row(
            State.WARN, f"built from another overlay ({found.image.overlay or 'unlabelled'}, now {wanted})", again
        )
    if found.image.base != settings.base_reference:
        return row(State.WARN, f"built on {found.image.base or 'an unknown base'}", again)
    if not _built(found.image, settings, settings.base_reference, wanted):
        return row(State.WARN, f"built without the exporter's programs ({exporter_programs(settings)})", again)
    if settings.build_on == "head" and head is not None and found.image.content != head.content:
        return row(State.WARN, f"image {found.image.content} differs from the head's {head.content}", again)
    return row(State.OK, f"image {found.image.content}")


async def _pinned_base(context: Context) -> str:
    """The base with its digest; an unpinned one is resolved, shown, asked about and written to the env file."""
    settings = context.settings
    if "@" in settings.base_reference:
        return settings.base_reference
    digest = await images.resolve_digest(context.head, settings.base_image)
    answer = await context.ask(
        Question(STEP, "base.digest", f"{settings.base_image} is {digest} now. Pin it in {settings.env_path.name}?")
    )
    if answer != "yes":
        raise StepFailed(
            f"{settings.base_image} is not pinned", fix="answer yes, or write BASE_DIGEST yourself", node="head"
        )
    await asyncio.to_thread(save, settings.env_path, {"BASE_DIGEST": digest}, secret_names=SECRET_NAMES)
    return f"{settings.base_image}@{digest}"


async def _build_on(link: NodeLink, settings: Settings, base: str, wanted: str, overlay: Path) -> AsyncIterator[Event]:
    node = link.node.name
    if await images.look(link, base) is None:
        yield CommandShown(STEP, node, typed(link.node, pull_argv(base)))
        async for event in _followed(link, pull_argv(base), settings.pull_timeout, "the base could not be pulled"):
            yield event
    await _refuse_foreign_architecture(link, base)
    if link.node.is_head:
        argv = build_argv(settings, base, wanted, str(overlay))
        yield CommandShown(STEP, node, settings.mask(typed(link.node, argv)))
        async for event in _followed(link, argv, settings.build_timeout, "the build failed"):
            yield event
    else:
        argv = build_argv(settings, base, wanted, "-")
        yield CommandShown(STEP, node, settings.mask(typed(link.node, argv)))
        packed = await asyncio.to_thread(context_tar, overlay)
        async for event in _fed(link, argv, packed, settings.build_timeout, "the build failed"):
            yield event
    built = await images.look(link, settings.image)
    if built is None or not _built(built, settings, base, wanted):
        raise StepFailed(f"the build left no image {settings.image} of this overlay", fix="sparktui build", node=node)
    yield NodeOutcome(STEP, node, Outcome.DONE, f"image {built.content} built")


async def _refuse_foreign_architecture(link: NodeLink, reference: str) -> None:
    """An image of another architecture ends with a bare `exec format error`, and only when it is started."""
    image = await images.look(link, reference)
    machine = await images.machine_architecture(link)
    if image is not None and machine and image.architecture and image.architecture != machine:
        raise StepFailed(
            f"image is {image.architecture}, node is {machine}: {reference}",
            fix=f"set BASE_IMAGE to one that has {machine}, and BASE_DIGEST to nothing",
            node=link.node.name,
        )


async def _fed(link: NodeLink, argv: list[str], data: bytes, silent_seconds: int, failed: str) -> AsyncIterator[Event]:
    """As `_followed`, for a command that is given `data` on its standard input."""
    held, last = b"", ""
    async with link.pipe(argv) as pipe:
        try:
            async with asyncio.timeout(silent_seconds or None):
                pipe.stdin.write(data)
                await pipe.stdin.drain()
                pipe.stdin.write_eof()
            while True:
                async with asyncio.timeout(silent_seconds or None):
                    chunk = await pipe.stdout.read()
                *lines, held = (held + chunk).split(b"\n") if chunk else (held, b"")
                for line in lines:
                    for last in pieces(line.decode("utf-8", "replace")):
                        yield LogLine(STEP, link.node.name, last)
                if not chunk:
                    break
        except TimeoutError:
            raise StepFailed(
                f"{failed}: no word for {silent_seconds} s", fix="look at the node's network", node=link.node.name
            ) from None
        except BrokenPipeError:
            pass  # it ended before it had read all: its status and last words tell why
        ended = await pipe.wait()
    if not ended.ok:
        said = (ended.stderr.strip() or ended.stdout.strip() or last).splitlines()[-1:]
        raise StepFailed(f"{failed}: {' '.join(said)}", fix="look at the lines above", node=link.node.name)


async def _followed(link: NodeLink, argv: list[str], silent_seconds: int, failed: str) -> AsyncIterator[Event]:
    """A command's lines as they come; with a limit on its silence where the user set one."""
    lines = link.lines(argv)
    last = ""
    try:
        while True:
            try:
                async with asyncio.timeout(silent_seconds or None):
                    last = await anext(lines)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise StepFailed(
                    f"{failed}: no word for {silent_seconds} s", fix="look at the node's network", node=link.node.name
                ) from None
            for piece in pieces(last):
                yield LogLine(STEP, link.node.name, piece)
    except RemoteCommandFailed as error:
        said = (error.stderr.strip() or last).splitlines()[-1:]
        raise StepFailed(f"{failed}: {' '.join(said)}", fix="look at the lines above", node=link.node.name) from error
    finally:
        await lines.aclose()  # type: ignore[attr-defined]
