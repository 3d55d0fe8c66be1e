"""Sends the head's image to workers: each gets only the layers that it lacks, all of them at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparktui.errors import SparktuiError, StepFailed
from sparktui.events import Event, NodeOutcome, Note, Outcome, State
from sparktui.readings.image_identity import ImageIdentity
from sparktui.remote import images
from sparktui.remote.checkpoint_folder import free_bytes
from sparktui.remote.docker import load_image_argv, save_image_argv
from sparktui.remote.link import NodeLink
from sparktui.remote.our_containers import refusal
from sparktui.steps.amounts import bytes_text
from sparktui.steps.image_parts import CHUNK_BYTES, needed_members, tar_of, total_bytes
from sparktui.steps.pace import Pace

STEP = "build"
SPOOL_RESERVE_BYTES = 2 * 1024**3
STALL_SECONDS = 180.0
"""A worker that takes nothing for so long is left behind: all of them get each chunk at the same time."""
_CLOSE_SECONDS = 3600.0


@dataclass
class _Receiver:
    """One worker's end of a transfer."""

    link: NodeLink
    pace: Pace
    pipe: Any = None
    sent_bytes: int = 0
    failure: str = ""
    refused: bool = False
    """Its `docker load` itself said no: the node and its Engine are there."""
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    @property
    def name(self) -> str:
        return self.link.node.name


async def ship(head: NodeLink, workers: Sequence[NodeLink], image: str, spool: Path) -> AsyncIterator[Event]:
    """Bring `image` from the head to `workers`; each worker's failure is its own NodeOutcome.

    Args:
        spool: a folder of ours on the head with room for the image; used only where layers are left out.
    """
    identity = await images.look(head, image)
    if identity is None:
        raise StepFailed(f"image {image} is not here", fix="sparktui build", node="head")
    shared: dict[NodeLink, int] = {}
    found = await asyncio.gather(
        *(images.longest_shared_layers(worker, identity.layers) for worker in workers), return_exceptions=True
    )
    for worker, count in zip(workers, found, strict=True):
        if isinstance(count, int):
            shared[worker] = count
        elif isinstance(count, SparktuiError | OSError):
            what = refusal(worker, count).what
            yield NodeOutcome(STEP, worker.node.name, Outcome.FAILED, f"the image was not sent: {what}")
        else:
            raise count
    whole = [worker for worker in shared if not shared[worker]]
    partial = [worker for worker in shared if shared[worker]]
    room = await asyncio.to_thread(free_bytes, spool)
    if partial and room is not None and room < identity.size_bytes + SPOOL_RESERVE_BYTES:
        yield Note(STEP, "head", f"{spool} has no room to pick layers out of the image; it is sent whole", State.WARN)
        whole, partial = [*whole, *partial], []
    if partial:
        async for event in _ship_missing(head, partial, shared, image, identity, spool, whole):
            yield event
    if whole:
        async for event in _ship_whole(head, whole, image, identity):
            yield event


async def _ship_missing(
    head: NodeLink,
    workers: Sequence[NodeLink],
    shared: dict[NodeLink, int],
    image: str,
    identity: ImageIdentity,
    spool: Path,
    retry_whole: list[NodeLink],
) -> AsyncIterator[Event]:
    """Save once to a file, send each worker its missing members; who cannot load that is added to `retry_whole`."""
    await asyncio.to_thread(spool.mkdir, parents=True, exist_ok=True)
    saved = spool / "image.tar"
    try:
        argv = [*save_image_argv(image), "--output", str(saved)]
        done = await head.run(argv, deadline_seconds=_CLOSE_SECONDS)
        if not done.ok:
            raise StepFailed(f"docker save failed: {done.stderr.strip()[-300:]}", fix="check the disk", node="head")
        for count in sorted({shared[worker] for worker in workers}):
            members = await asyncio.to_thread(needed_members, saved, count)
            group = [worker for worker in workers if shared[worker] == count]
            receivers = [_Receiver(w, Pace(STEP, w.node.name, "ship", total=total_bytes(members))) for w in group]
            chunks = _in_threads(saved, members)
            async for event in _send(chunks, receivers):
                yield event
            for receiver in receivers:
                if receiver.refused and await _answers(receiver.link):
                    text = f"its Engine refused the missing layers alone ({receiver.failure}); the whole image follows"
                    yield Note(STEP, receiver.name, text, State.WARN)
                    retry_whole.append(receiver.link)
                    continue
                yield await _verdict(receiver, image, identity)
    finally:
        await asyncio.to_thread(saved.unlink, missing_ok=True)


async def _ship_whole(
    head: NodeLink, workers: Sequence[NodeLink], image: str, identity: ImageIdentity
) -> AsyncIterator[Event]:
    async with head.pipe(save_image_argv(image)) as source:

        async def chunks() -> AsyncIterator[bytes]:
            while chunk := await source.stdout.read(CHUNK_BYTES):
                yield chunk

        receivers = [_Receiver(w, Pace(STEP, w.node.name, "ship", total=identity.size_bytes)) for w in workers]
        async for event in _send(chunks(), receivers):
            yield event
        ended = await source.wait()
        if not ended.ok:
            raise StepFailed(f"docker save failed: {ended.stderr.strip()[-300:]}", fix="sparktui build", node="head")
    for receiver in receivers:
        yield await _verdict(receiver, image, identity)


async def _send(chunks: AsyncIterator[bytes], receivers: list[_Receiver]) -> AsyncIterator[Event]:
    """Give each chunk to every receiver; one that breaks is left behind, the others go on."""

    async def opened(receiver: _Receiver) -> None:
        with _noted(receiver):
            receiver.pipe = await receiver.stack.enter_async_context(receiver.link.pipe(load_image_argv()))

    async def given(receiver: _Receiver, chunk: bytes) -> None:
        with _noted(receiver):
            receiver.pipe.stdin.write(chunk)
            async with asyncio.timeout(STALL_SECONDS):
                await receiver.pipe.stdin.drain()
            receiver.sent_bytes += len(chunk)

    async def closed(receiver: _Receiver) -> None:
        with _noted(receiver):
            receiver.pipe.stdin.write_eof()
        with _noted(receiver):
            async with asyncio.timeout(_CLOSE_SECONDS if not receiver.failure else 5.0):
                ended = await receiver.pipe.wait()
            if not ended.ok:
                receiver.refused = ended.exit_status == 1
                said = (ended.stderr or ended.stdout).strip()[-300:]
                if ended.exit_status >= 0 or not receiver.failure:  # a negative one knows less than what came before
                    receiver.failure = said or f"its `docker load` ended with status {ended.exit_status}"
        with contextlib.suppress(Exception):
            await receiver.stack.aclose()

    try:
        await asyncio.gather(*map(opened, receivers))
        async for chunk in chunks:
            alive = [receiver for receiver in receivers if not receiver.failure]
            if not alive:
                break
            await asyncio.gather(*(given(receiver, chunk) for receiver in alive))
            for receiver in alive:
                if receiver.pace.due():
                    yield receiver.pace.at(receiver.sent_bytes)
    finally:
        await asyncio.gather(*(closed(receiver) for receiver in receivers if receiver.pipe is not None))
    for receiver in receivers:
        receiver.pace.total = receiver.sent_bytes if not receiver.failure else receiver.pace.total
        yield receiver.pace.at(receiver.sent_bytes)


@contextlib.contextmanager
def _noted(receiver: _Receiver) -> Any:
    """A receiver's trouble becomes its own; the first one counts, unless a later one says what a broken pipe meant."""
    try:
        yield
    except TimeoutError:
        receiver.failure = receiver.failure or f"it took nothing for {STALL_SECONDS:.0f} s"
    except SparktuiError as error:
        receiver.failure = error.what
    except OSError as error:
        receiver.failure = receiver.failure or str(error) or "its end of the pipe broke"


async def _verdict(receiver: _Receiver, image: str, identity: ImageIdentity) -> NodeOutcome:
    if receiver.failure:
        return NodeOutcome(STEP, receiver.name, Outcome.FAILED, f"the image did not arrive: {receiver.failure}")
    try:
        there = await images.look(receiver.link, image)
    except (SparktuiError, OSError) as error:
        what = refusal(receiver.link, error).what
        return NodeOutcome(STEP, receiver.name, Outcome.FAILED, f"whether the image arrived is not known: {what}")
    if there is None or there.content != identity.content:
        found = "nothing" if there is None else there.content
        text = f"what arrived is not the head's image ({found} instead of {identity.content})"
        return NodeOutcome(STEP, receiver.name, Outcome.FAILED, text)
    text = f"image {identity.content}, {bytes_text(receiver.sent_bytes)} sent"
    return NodeOutcome(STEP, receiver.name, Outcome.DONE, text, {"sent_bytes": receiver.sent_bytes})


async def _answers(link: NodeLink) -> bool:
    """Whether the node's Engine is there: a `docker load` ends badly as well when its Engine has gone."""
    try:
        await images.machine_architecture(link)
    except (SparktuiError, OSError):
        return False
    return True


async def _in_threads(saved: Path, members: list[Any]) -> AsyncIterator[bytes]:
    """Read the file in a thread: a slow disk must not stop the loop."""
    parts = tar_of(saved, members)
    while (chunk := await asyncio.to_thread(next, parts, None)) is not None:
        yield chunk
