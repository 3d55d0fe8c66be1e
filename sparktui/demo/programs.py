"""Which program a simulated container runs, and what that does: engine, packer, a short look, the NFS exporter."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from sparktui.cluster.disk import ENGRAM_BOUNDS, ENGRAM_ROWS, engram_file_bytes
from sparktui.demo.boot import engine_play
from sparktui.demo.faults import DISK_FULL
from sparktui.demo.images import ENGINE_VERSION
from sparktui.demo.machine import GIB, Container, Machine
from sparktui.demo.play import Play
from sparktui.engine.launch import CHECK_ROLE
from sparktui.engine.sharing import NFS_PORT
from sparktui.readings.checkpoint import INDEX_NAME

if TYPE_CHECKING:
    from sparktui.demo.world import World

__all__ = ["Play", "play"]
_LOOK_SECONDS = 0.5
_EXPORTER_SECONDS = 0.9
_PACK_SECONDS = 11.0
_PACK_RESERVE_BYTES = 2 * 1024**3
_PROGRESS_SECONDS = 0.5
_CHECK_SECONDS = 1.2
_TENSORS = 95_876


def play(world: World, machine: Machine, container: Container) -> Play:
    """What the container does, from its role."""
    if container.is_engine:
        return engine_play(world, machine, container)
    if container.role == "pack":
        return _pack(world, machine, container)
    if container.role == "view":
        return _look(world, machine, container)
    if container.role == "nfs":
        return _exporter(container)
    if container.role == CHECK_ROLE:
        return _check(world, container)
    return Play()


def rows_of(rank: int, ranks: int) -> dict[str, int]:
    """This rank's packed files: name to bytes."""
    found = {}
    for layer, rows in ENGRAM_ROWS.items():
        bounds = ENGRAM_BOUNDS.get((ranks, layer))
        count = bounds[rank + 1] - bounds[rank] if bounds else -(-rows // max(1, ranks))
        found[f"engram-l{layer}-r{rank}of{ranks}.bin"] = engram_file_bytes(count)
    return found


def _option(container: Container, name: str, default: str = "") -> str:
    words = container.command
    return words[words.index(name) + 1] if name in words[:-1] else default


def _pack(world: World, machine: Machine, container: Container) -> Play:
    rank, ranks = int(_option(container, "--rank", "0")), int(_option(container, "--tp", "3"))
    started = container.started_at or container.created_at
    told = Play(rows=rows_of(rank, ranks), kept=container.kept)
    seconds = (_PACK_SECONDS + 0.7 * machine.rank) / container.speed * (2.2 if container.slow else 1.0)
    left = {name: size - container.kept.get(name, 0) for name, size in told.rows.items()}
    rate = max(sum(told.rows.values()) / seconds, 1.0)
    at = started + 0.4 / container.speed
    for (name, size), layer in zip(told.rows.items(), ENGRAM_ROWS, strict=True):
        begin, end = at, at + left[name] / rate
        told.row_times[name] = (begin, end)
        if not left[name]:
            told.say(begin, _event("skipped", layer=layer, file=f"/engram/{name}", bytes=size))
            continue
        moment = begin
        while moment < end:
            done = container.kept.get(name, 0) + int((moment - begin) * rate)
            told.say(moment, _progress(layer, done, size, rate))
            moment += _PROGRESS_SECONDS / container.speed
        told.say(
            end, _progress(layer, size, size, rate), _event("done", layer=layer, file=f"/engram/{name}", bytes=size)
        )
        told.reads.append((begin, end, rate))
        at = end
    told.ends_at = at + 0.1 / container.speed
    # Looking at the disk costs a walk through the checkpoint's folder, so only where it is known to be short.
    short = sum(left.values()) - world.disk_left(machine) if DISK_FULL in world.faults(machine.name) else 0
    if short > 0 and sum(machine.packed.values()) < sum(told.rows.values()):
        what = f"No space left on device: {short} bytes short in /engram"
        told.lines = [(started + 0.3, _event("error", what=what, fix="free space on this node, then pack again"))]
        told.ends_at, told.exit_code, told.rows = started + 0.4, 1, {}
    if container.finished_at is not None:
        told.lines = told.until(container.finished_at)
    return told


def _progress(layer: int, done: int, total: int, rate: float) -> str:
    return _event("progress", layer=layer, done_bytes=done, total_bytes=total, rate_bytes_per_second=round(rate))


def _event(event: str, **fields: Any) -> str:
    return json.dumps({"event": event, **fields})


def _check(world: World, container: Container) -> Play:
    """Every rank loads: the sizes are those that the memory sheet has for it."""
    told, at = Play(), container.started_at or 0.0
    tp, ep = int(_option(container, "--tp-size", "3")), int(_option(container, "--ep-size", "1"))
    only = _option(container, "--rank")
    for rank in (int(only),) if only else range(tp):
        told.say(at + 0.1 / container.speed, _event("checking", rank=rank, tp=tp, ep=ep))
        at += _CHECK_SECONDS / container.speed
        weights = int(world.sheet(rank)["weights"] * GIB)
        told.say(at, _event("rank", rank=rank, ok=True, tensors=_TENSORS, parameter_bytes=weights, seconds=31.0))
    told.ends_at = at + 0.1 / container.speed
    told.say(told.ends_at, _event("checked", ok=True, fingerprint="5" * 64, sglang=ENGINE_VERSION, overlay="0" * 16))
    return told


def _exporter(container: Container) -> Play:
    environment = container.environment
    told = Play()
    told.say(
        (container.started_at or 0.0) + _EXPORTER_SECONDS / container.speed,
        f"[spark] NFS READY port={environment.get('NFS_PORT', NFS_PORT)} server={environment.get('NFS_SERVER')} "
        f"clients={environment.get('NFS_CLIENTS')}",
    )
    return told


def _look(world: World, machine: Machine, container: Container) -> Play:
    told = Play()
    end = (container.started_at or 0.0) + _LOOK_SECONDS / container.speed
    told.say(end, json.dumps(_view(world, machine, container), separators=(",", ":")))
    told.ends_at = end
    return told


def _view(world: World, machine: Machine, container: Container) -> dict[str, Any]:
    view: dict[str, Any] = {"config_sha256": None, "index_sha256": None, "files": {}, "error": ""}
    if not machine.is_head and world.head.running("nfs") is None:
        view["error"] = "Connection refused"
    else:
        folder = world.home.model_dir
        view |= {"config_sha256": sha256_of(folder / "config.json"), "index_sha256": sha256_of(folder / INDEX_NAME)}
        view["files"] = {name: size for name, size in world.checkpoint()[0].items() if "/" not in name}
    if "--engram" not in container.command:
        return view
    if view["config_sha256"] is None:
        return {**view, "engram": {"files": [], "error": "config.json cannot be read"}}
    rank, ranks = int(_option(container, "--rank", "0")), int(_option(container, "--tp", "3"))
    files, needed = [], 0
    for (name, size), layer in zip(rows_of(rank, ranks).items(), ENGRAM_ROWS, strict=True):
        there = machine.packed.get(name, 0)
        done = there == size
        needed += 0 if done else size - there
        files.append(
            {
                "layer": layer,
                "file": name,
                "bytes": size,
                "done": done,
                "partial_bytes": 0 if done else there,
                "error": "",
                "fix": "",
            }
        )
    space = {"needed_bytes": needed + _PACK_RESERVE_BYTES, "free_bytes": world.disk_left(machine)} if needed else {}
    return {**view, "engram": {"files": files, "error": "", "needed_bytes": 0, "free_bytes": None, **space}}


def sha256_of(path: Any) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
