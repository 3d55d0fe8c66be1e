"""The simulated hub: answers what `sparktui.remote.hub_child` is asked, "fetches" files of true size without data."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktui.demo.checkpoint import listing, small_files
from sparktui.demo.faults import DISK_FULL
from sparktui.readings.checkpoint_listing import PARTIAL_FOLDER, PARTIAL_SUFFIX, HubFile
from sparktui.remote import checkpoint_folder

if TYPE_CHECKING:
    from sparktui.demo.world import World

_FETCH_SECONDS = 14.0
_LIST_SECONDS = 0.6
_TICK_SECONDS = 0.1
_AT_ONCE = 4


async def hub_events(world: World, request: dict[str, Any]) -> AsyncIterator[str]:
    """The child's lines, one JSON object each."""
    if request.get("do") == "list":
        await asyncio.sleep(world.pause(_LIST_SECONDS))
        found = listing(str(request["repo"]), str(request["asked"]))
        yield _event("listing", listing=json.loads(found.to_json()))
        yield _event("done")
        return
    folder = Path(str(request["model_dir"]))
    record = checkpoint_folder.read_record(folder)
    if not world.home.holds(folder) or record is None:
        yield _event("refused", kind="other", what=f"{folder} is no folder of the simulated cluster", retry_after=None)
        return
    pending = [each for each in record.files if _size(folder / each.path) != each.size_bytes]
    yield _event("begun", files=len(pending))
    try:
        async for line in _fetch(world, folder, pending, record.total_bytes):
            yield line
    except OSError as error:
        what = f"cannot write in {folder}: {error.strerror or error}"
        yield _event("refused", kind="disk", what=what, retry_after=None)
        return
    yield _event("done")


async def _fetch(world: World, folder: Path, pending: list[HubFile], total: int) -> AsyncIterator[str]:
    small = [each for each in pending if each.path in small_files()]
    for file in small:
        _finish(folder, file, small_files()[file.path])
        yield _event("file", path=file.path, bytes=file.size_bytes, verified="git")
    queue = sorted((each for each in pending if each not in small), key=lambda each: -each.size_bytes)
    rate = total / world.pause(_FETCH_SECONDS)
    here: dict[str, int] = {}
    active: list[HubFile] = []
    while queue or active:
        while queue and len(active) < _AT_ONCE:
            file = queue.pop(0)
            part = _partial(folder, file)
            part.parent.mkdir(parents=True, exist_ok=True)
            here[file.path] = min(_size(part) or 0, file.size_bytes)
            active.append(file)
        await asyncio.sleep(_TICK_SECONDS)
        if DISK_FULL in world.faults("head"):
            yield _event("refused", kind="disk", what="No space left on device (simulated)", retry_after=None)
            return
        budget = rate * _TICK_SECONDS
        while budget >= 1 and active:
            share = budget / len(active)
            for file in list(active):
                step = min(int(share) + 1, file.size_bytes - here[file.path])
                here[file.path] += step
                budget -= step
                if here[file.path] >= file.size_bytes:
                    active.remove(file)
                    _finish(folder, file, None)
                    yield _event("file", path=file.path, bytes=file.size_bytes, verified="sha256")
            if queue:
                break
        for file in active:
            _grow(_partial(folder, file), here[file.path])
        world.head.cache_bytes += rate * _TICK_SECONDS * 0.25
        world.head.network_received += rate * _TICK_SECONDS


def _partial(folder: Path, file: HubFile) -> Path:
    return folder / PARTIAL_FOLDER / (file.path + PARTIAL_SUFFIX)


def _finish(folder: Path, file: HubFile, data: bytes | None) -> None:
    part = _partial(folder, file)
    part.parent.mkdir(parents=True, exist_ok=True)
    if data is not None:
        part.write_bytes(data)
    else:
        _grow(part, file.size_bytes)
    final = folder / file.path
    final.parent.mkdir(parents=True, exist_ok=True)
    part.replace(final)


def _grow(path: Path, size: int) -> None:
    """A hole: the size is true, and no block of the disk is taken."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.ftruncate(handle, size)
    finally:
        os.close(handle)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _event(event: str, **fields: Any) -> str:
    return json.dumps({"event": event, **fields})
