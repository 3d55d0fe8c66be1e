"""The last ten minutes of every node, on the head's disk: what a Spark that wedged looked like just before.

A wedged node keeps nothing of itself, and the viewer may be gone as well. Two files of five minutes each, one line a
node and second, flushed to the disk every five seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparktui.telemetry.sample import ClusterSnapshot, Freshness

FLUSH_SECONDS = 5.0
FILE_SECONDS = 300.0
NEWER, OLDER = "samples.jsonl", "samples-before.jsonl"
SHORT_BYTES = 2 * 1024**3
_LARGEST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LastSeen:
    """A node's last kept sample; `at` in epoch seconds."""

    at: float
    available_bytes: int | None
    free_bytes: int | None
    stalled_percent: float | None

    @property
    def text(self) -> str:
        """`last seen 2026-11-29 14:03:10 with 1.2 GiB available: it probably ran out of memory`."""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.at))
        if self.available_bytes is None:
            return f"last seen {when}"
        short = self.available_bytes < SHORT_BYTES
        why = ": it probably ran out of memory; if ping answers and ssh does not, cut its power" if short else ""
        return f"last seen {when} with {self.available_bytes / 1024**3:.1f} GiB available{why}"


class KeptSamples:
    """Keeps what `take` is given, while `run` runs.

    Args:
        folder: of the cluster's state; made when needed.
        now: epoch seconds.
    """

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.time) -> None:
        self._folder, self._now = folder, now
        self._held: list[str] = []
        self._taken_at: dict[str, float] = {}
        self._began: float | None = None

    def take(self, snapshot: ClusterSnapshot) -> None:
        """New samples only; a node that is silent adds nothing."""
        at = round(self._now(), 1)
        for node in snapshot.nodes:
            if node.freshness is not Freshness.LIVE or node.taken_at is None:
                continue
            if self._taken_at.get(node.node) == node.taken_at or len(self._held) > 1000:
                continue
            self._taken_at[node.node] = node.taken_at
            row = {
                "at": at,
                "node": node.node,
                "available_bytes": node.split.available_bytes,
                "free_bytes": node.split.free_bytes,
                "held_bytes": node.split.held_bytes,
                "swap_used_bytes": node.split.swap_used_bytes,
                "stalled_percent": node.stalled_percent,
                "cpu_busy_percent": node.cpu_busy_percent,
            }
            self._held.append(json.dumps(row))

    async def last_seen(self) -> dict[str, LastSeen]:
        """By node name, what was kept before."""
        return await asyncio.to_thread(last_seen, self._folder)

    async def run(self) -> None:
        """Until cancelled. A full or missing disk costs the record, not the watch."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Write what is held, to the disk itself."""
        held, self._held = self._held, []
        if held:
            try:
                await asyncio.to_thread(self._write, held)
            except OSError:
                return

    def _write(self, lines: list[str]) -> None:
        path = self._folder / NEWER
        now = self._now()
        if self._began is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Another viewer's file goes on; how old its first line is does not matter much.
            self._began = path.stat().st_mtime if path.exists() else now
        if now - self._began >= FILE_SECONDS:
            if path.exists():
                path.replace(self._folder / OLDER)
            self._began = now
        with path.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())


def last_seen(folder: Path) -> dict[str, LastSeen]:
    """The newest kept sample of each node; empty where nothing was kept or it cannot be read."""
    return _rows(folder / OLDER) | _rows(folder / NEWER)


def _rows(path: Path) -> dict[str, LastSeen]:
    try:
        with path.open(errors="replace") as file:
            text = file.read(_LARGEST_BYTES)
    except OSError:
        return {}
    found: dict[str, LastSeen] = {}
    for line in text.splitlines():
        try:
            row = json.loads(line)
            seen = LastSeen(float(row["at"]), row["available_bytes"], row["free_bytes"], row["stalled_percent"])
            found[str(row["node"])] = seen
        except (ValueError, KeyError, TypeError):
            continue  # the last line of a head that lost its power
    return found
