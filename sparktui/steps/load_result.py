"""The kept result of the load check: one file in the state folder, good as long as nothing that decides it changes."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktui.cluster.node import Node
from sparktui.errors import SparktuiError
from sparktui.events import Finding, State
from sparktui.readings.load_check import LoadCheck, load_check
from sparktui.remote import checkpoint_folder, images
from sparktui.remote.link import NodeLink
from sparktui.steps.checkpoint_probe import IDENTITY_SCRIPT, checkpoint_identity

if TYPE_CHECKING:
    from sparktui.settings import Settings

FILE = "load-check.json"
VERSION = 1
CHECK = "load"
KEPT_FAULTS = 20
IDENTITY_SECONDS = 30.0
NOT_CHECKED = "not checked yet whether the model loads from this checkpoint"


@dataclass(frozen=True, slots=True)
class LoadKey:
    """What decides a result; any difference makes it another one's.

    Attributes:
        checkpoint: of `checkpoint_identity()`: config, index, sizes and times of the weights.
        engine: the base image with its digest; `overlay` is the hash that the image's label has.
    """

    revision: str
    checkpoint: str
    ranks: tuple[int, ...]
    tp: int
    ep: int
    engine: str
    overlay: str


@dataclass(frozen=True, slots=True)
class KeptCheck:
    """`at` is UTC, ISO 8601; `events` are what the check said, its first faults only."""

    key: LoadKey
    at: str
    events: tuple[Mapping[str, Any], ...]

    @property
    def said(self) -> LoadCheck:
        return load_check(self.events)


def checked_ranks(settings: Settings, node: Node) -> tuple[int, ...]:
    """The ranks that are checked on the node: all on the head, or each its own where each holds the checkpoint."""
    if not settings.nfs_share:
        return (node.rank,)
    return tuple(range(settings.tp_size)) if node.is_head else ()


def load_key(
    settings: Settings, node: Node, *, identity_text: str, revision: str, engine: str, overlay: str
) -> LoadKey | None:
    """None where something that decides is not known: such a result is neither kept nor used."""
    checkpoint, ranks = checkpoint_identity(identity_text), checked_ranks(settings, node)
    if not (checkpoint and revision and overlay and engine and ranks):
        return None
    return LoadKey(revision, checkpoint, ranks, settings.tp_size, settings.ep_size, engine, overlay)


async def ask_key(settings: Settings, link: NodeLink) -> LoadKey | None:
    """The node's key now; None also where the node does not say."""
    folder = settings.model_dir if link.node.is_head else settings.worker_model_path
    try:
        record = await asyncio.to_thread(checkpoint_folder.read_record, Path(settings.model_dir))
        told, image = await asyncio.gather(
            link.script(IDENTITY_SCRIPT, values={"MODEL_DIR": folder}, deadline_seconds=IDENTITY_SECONDS),
            images.look(link, settings.image),
        )
    except (SparktuiError, OSError):
        return None
    if record is None or image is None:
        return None
    facts = {"revision": record.revision, "engine": image.base, "overlay": image.overlay}
    return load_key(settings, link.node, identity_text=told.stdout, **facts)


def read_kept(state_dir: Path) -> dict[str, KeptCheck]:
    """Node name to its result; whatever cannot be read is not there."""
    found: dict[str, KeptCheck] = {}
    try:
        plain = json.loads((state_dir / FILE).read_bytes())
        if plain["version"] != VERSION:
            return {}
        for node, each in plain["results"].items():
            key = LoadKey(**{**each["key"], "ranks": tuple(each["key"]["ranks"])})
            events = tuple(event for event in each["events"] if isinstance(event, dict))
            found[str(node)] = KeptCheck(key, str(each["at"]), events)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return found
    return found


def keep(state_dir: Path, node: str, key: LoadKey, events: Sequence[Mapping[str, Any]]) -> None:
    """Beside, fsync, rename; the other nodes' results stay.

    Raises:
        OSError: the disk refuses.
    """
    faults = [each for each in events if each.get("event") == "fault"][:KEPT_FAULTS]
    said = [*faults, *(each for each in events if each.get("event") in ("rank", "checked"))]
    results = read_kept(state_dir) | {node: KeptCheck(key, datetime.now(UTC).isoformat("T", "seconds"), tuple(said))}
    rows = {name: {"key": asdict(each.key), "at": each.at, "events": each.events} for name, each in results.items()}
    state_dir.mkdir(parents=True, exist_ok=True)
    beside = state_dir / f"{FILE}.{secrets.token_hex(6)}.new"
    try:
        with beside.open("w", encoding="utf-8") as out:
            json.dump({"version": VERSION, "results": rows}, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(state_dir / FILE)
    finally:
        beside.unlink(missing_ok=True)


def valid(kept: KeptCheck | None, key: LoadKey | None) -> KeptCheck | None:
    """The kept result, where it is this key's and has a verdict."""
    return kept if kept is not None and kept.key == key and kept.said.ok is not None else None


def verdict(settings: Settings, step: str, node: Node, said: LoadCheck, when: str = "") -> Finding:
    """The row of a check with a verdict; `when` (UTC, ISO 8601) is of a kept one."""
    at = f" (checked {when[:16].replace('T', ' ')} UTC)" if when else ""
    fault = next(iter(said.faults), None)
    if fault is not None:
        # Of a kept one the first faults are known, not how many there were.
        count = "more" if when else f"{len(said.faults) - 1} more"
        more = f" (and {count})" if len(said.faults) > 1 else ""
        fix = next_step(settings, node, fault.kind)
        what, data = f"{fault.sentence}{more}{at}", {"tensor": fault.tensor, "rank": fault.rank, "kind": fault.kind}
        return Finding(step, CHECK, node.name, State.FAIL, what, fix=fix, data=data)
    if said.skipped:
        return Finding(step, CHECK, node.name, State.INFO, f"the load is not checked: {said.skipped}{at}")
    ranks = ", ".join(str(each.rank) for each in said.ranks)
    tensors = max((each.tensors or 0 for each in said.ranks), default=0)
    name = "rank" if len(said.ranks) == 1 else "ranks"
    what = f"{name} {ranks} load at TP {settings.tp_size}, EP {settings.ep_size}: {tensors:,} tensors{at}"
    pads = {str(each.rank): each.pad_bytes for each in said.ranks}
    return Finding(step, CHECK, node.name, State.OK, what, data={"pad_bytes": pads})


def next_step(settings: Settings, node: Node, kind: str) -> str:
    if kind == "file" and node.is_head:
        return f"delete that file in {settings.model_dir}, then: sparktui download"
    if kind == "file":
        return f"copy that file from the head to {settings.worker_model_path} again, then: sparktui serve"
    if kind == "engine":
        return "sparktui build; if it stays, report this line with what `sparktui serve --dry-run` prints"
    if node.is_head:
        return "sparktui download (it names what is incomplete); if it is complete, report this line"
    return f"compare {settings.worker_model_path} with the head's folder; if they are the same, report this line"


async def kept_rows(settings: Settings, links: Sequence[NodeLink], step: str) -> list[Finding]:
    """What is known of the load without checking it: one row a node that checks."""
    asked = [link for link in links if checked_ranks(settings, link.node)]
    kept = await asyncio.to_thread(read_kept, settings.state_dir)
    keys = await asyncio.gather(*(ask_key(settings, link) for link in asked))
    return [known(settings, step, link.node, kept, key) for link, key in zip(asked, keys, strict=True)]


def known(settings: Settings, step: str, node: Node, kept: Mapping[str, KeptCheck], key: LoadKey | None) -> Finding:
    found = valid(kept.get(node.name), key)
    if found is not None:
        return verdict(settings, step, node, found.said, found.at)
    return Finding(step, CHECK, node.name, State.INFO, NOT_CHECKED, fix="sparktui serve checks it before it starts")
