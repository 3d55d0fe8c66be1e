"""Is there room: checkpoint, image and its spools, Engram rows; each filesystem once, what is there deducted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sparktui.cluster.node import Node
from sparktui.events import Finding, State
from sparktui.readings.checkpoint import parse_sizes
from sparktui.readings.checkpoint_listing import Listing, compare
from sparktui.readings.df import Filesystem, parse_df
from sparktui.steps.amounts import bytes_text
from sparktui.steps.checkpoint_probe import read_folder
from sparktui.steps.doctor_checks.report import NodeReport

CHECKPOINT_BYTES = 510_310_549_975
"""The published size of the checkpoint, for when no hub was asked. Source: facts of the recipe, its own file list."""
ENGRAM_PART = 202_700_000_000 / CHECKPOINT_BYTES
"""The Engram tensors' part of the checkpoint; each node keeps its share of the columns."""
PAGE_OVERHEAD = 4096 / (15 * 264)
"""Packed file version 2: 15 rows of 264 bytes a page of 4,096."""
IMAGE_BYTES = 36_000_000_000
"""An estimate: the base is about 33.2 GB, the overlay and its wheels come on top."""
RESERVE_BYTES = 2 * 1024**3
"""Left free on each filesystem: a full root disk stops more than us."""


@dataclass(frozen=True, slots=True)
class Need:
    """What still has to fit on one filesystem. `estimated` where nobody knows the size yet."""

    subject: str
    bytes: int
    estimated: bool
    filesystem: Filesystem | None


@dataclass(frozen=True, slots=True)
class Shortage:
    """One filesystem against all that goes onto it."""

    filesystem: Filesystem
    needs: tuple[Need, ...]

    @property
    def need_bytes(self) -> int:
        return sum(each.bytes for each in self.needs)

    @property
    def certain_bytes(self) -> int:
        return sum(each.bytes for each in self.needs if not each.estimated)

    def short_by(self, amount: int) -> int:
        return max(amount + (RESERVE_BYTES if amount else 0) - self.filesystem.available_bytes, 0)

    @property
    def text(self) -> str:
        subjects = " + ".join(f"{bytes_text(each.bytes)} {each.subject}" for each in self.needs if each.bytes)
        available = bytes_text(self.filesystem.available_bytes)
        return f"{self.filesystem.mount} needs {subjects or 'nothing more'}, has {available}"


def engram_bytes(checkpoint_bytes: int, ranks: int) -> int:
    """One node's packed Engram rows, from the size of the checkpoint that they come from."""
    return int(checkpoint_bytes * ENGRAM_PART / ranks * PAGE_OVERHEAD)


def by_filesystem(needs: list[Need]) -> list[Shortage]:
    """Needs on the same filesystem add up; `source`, or the mount of a tmpfs, names it."""
    groups: dict[tuple[str, int], list[Need]] = {}
    for need in needs:
        if need.filesystem is not None:
            disk = need.filesystem
            key = disk.source if disk.source.startswith("/") or ":" in disk.source else disk.mount
            groups.setdefault((key, disk.total_bytes), []).append(need)
    return [
        Shortage(min((each.filesystem for each in group if each.filesystem), key=lambda f: len(f.mount)), tuple(group))
        for group in groups.values()
    ]


def keeps_checkpoint(report: NodeReport) -> bool:
    return holds_checkpoint(report.node, nfs_share=report.settings.nfs_share)


def holds_checkpoint(node: Node, *, nfs_share: bool) -> bool:
    """The head holds it; workers only where it is not shared."""
    return node.is_head or not nfs_share


def needs_of(report: NodeReport, listing: Listing | None) -> list[Need]:
    probe, settings = report.probe, report.settings
    total = listing.total_bytes if listing else CHECKPOINT_BYTES
    needs = []
    if keeps_checkpoint(report):
        reading = read_folder(probe.parts)
        if listing is not None:
            remaining = compare(listing, reading.files, reading.parts).remaining_bytes
        else:
            remaining = max(total - sum(reading.files.values()) - sum(reading.parts.values()), 0)
        needs.append(Need("checkpoint", remaining, False, _disk(probe.text("df.model"))))
    packed = sum(parse_sizes(probe.text("engram") or "").values())
    rows = max(engram_bytes(total, settings.tp_size) - packed, 0)
    needs.append(Need("Engram rows", rows, False, _disk(probe.text("df.engram"))))
    if report.docker is not None:
        space = report.docker_space if report.docker_space is not None else probe.text("df.docker")
        needs += _image_needs(report, _disk(space))
    return needs


def _image_needs(report: NodeReport, disk: Filesystem | None) -> list[Need]:
    if report.docker is not None and report.docker.image is not None:
        return []
    spool = (
        "image and its build" if report.node.is_head or report.settings.build_on == "each" else "image and its spool"
    )
    return [Need(spool, 2 * IMAGE_BYTES, True, disk)]


def _disk(text: str | None) -> Filesystem | None:
    rows = parse_df(text or "")
    return rows[0] if rows else None


def check_disk(report: NodeReport, listing: Listing | None) -> Iterator[Finding]:
    """disk: FAIL where known sizes do not fit, WARN where only an estimate makes it short."""
    needs = needs_of(report, listing)
    unread = [each.subject for each in needs if each.filesystem is None]
    groups = by_filesystem(needs)
    hint = "" if listing else "published sizes: the revision is not resolved yet"
    failed = [(each, each.short_by(each.certain_bytes)) for each in groups if each.short_by(each.certain_bytes)]
    doubtful = [(each, each.short_by(each.need_bytes)) for each in groups if each.short_by(each.need_bytes)]
    data: dict[str, Any] = {"filesystems": [_plain(each) for each in groups]}
    if failed:
        worst, short = max(failed, key=lambda each: each[1])
        total_short = worst.short_by(worst.need_bytes)
        yield report.finding(
            "disk",
            State.FAIL,
            f"{worst.text}: short by {bytes_text(max(short, total_short))}",
            cause=hint,
            fix=f"free space on {worst.filesystem.mount}, or move MODEL_DIR or the Engram folder to another disk",
            **data,
        )
    elif unread:
        yield report.finding("disk", State.UNKNOWN, f"free space for {', '.join(unread)}: no answer", **data)
    elif doubtful:
        worst, short = max(doubtful, key=lambda each: each[1])
        cause = "the image's size is an estimate until it is built" + (f"; {hint}" if hint else "")
        yield report.finding(
            "disk",
            State.WARN,
            f"{worst.text}: may be short by {bytes_text(short)}",
            cause=cause,
            fix=f"free space on {worst.filesystem.mount}",
            **data,
        )
    else:
        yield report.finding("disk", State.OK, "; ".join(each.text for each in groups), cause=hint, **data)


def _plain(group: Shortage) -> dict[str, object]:
    return {
        "mount": group.filesystem.mount,
        "available_bytes": group.filesystem.available_bytes,
        "needs": [{"what": each.subject, "bytes": each.bytes, "estimated": each.estimated} for each in group.needs],
    }
