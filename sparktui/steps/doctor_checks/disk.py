"""Is there room: checkpoint, image and its spools, Engram rows; each filesystem once, what is there deducted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparktui.cluster.disk import (
    CHECKPOINT_BYTES,
    GIB,
    IMAGE_BYTES,
    SPOOL_BYTES,
    DiskNeed,
    DiskRow,
    disk_sheet,
    engram_bytes,
    gib_text,
)
from sparktui.events import Finding, State
from sparktui.readings.checkpoint import parse_sizes
from sparktui.readings.checkpoint_listing import Listing, compare
from sparktui.readings.df import Filesystem, parse_df
from sparktui.steps.checkpoint_probe import read_folder
from sparktui.steps.doctor_checks.probe import probe_values
from sparktui.steps.doctor_checks.report import NodeReport

RESERVE_BYTES = 2 * GIB
"""Left free on each filesystem that something goes to: a full root disk stops more than us."""
RESERVE = "kept free"


def keeps_checkpoint(report: NodeReport) -> bool:
    """The head holds it; workers only where it is not shared."""
    return report.node.is_head or not report.settings.nfs_share


def certain_needs(report: NodeReport, listing: Listing | None) -> list[DiskNeed]:
    """Checkpoint and Engram rows: their sizes follow from the revision's (or, before it is known, the published)."""
    values, probe = probe_values(report.settings, report.node), report.probe
    total = listing.total_bytes if listing else CHECKPOINT_BYTES
    needs = []
    if keeps_checkpoint(report):
        reading = read_folder(probe.parts)
        have = sum(reading.files.values()) + sum(reading.parts.values())
        if listing is not None:
            have = compare(listing, reading.files, reading.parts).present_bytes
        needs.append(DiskNeed("checkpoint", values["MODEL_DIR"], total, have))
    # A smaller test checkpoint has Engram tables that are as much smaller.
    rows = int(engram_bytes(report.node.rank, report.settings.tp_size) * total / CHECKPOINT_BYTES)
    packed = sum(parse_sizes(probe.text("engram") or "").values())
    needs.append(DiskNeed("Engram rows", values["ENGRAM_DIR"], rows, packed))
    return needs


def estimated_needs(report: NodeReport) -> list[DiskNeed]:
    """The image and what a pull, load or build unpacks beside it: nobody knows these sizes before there is an image."""
    if report.docker is None or report.docker.image is not None:
        return []
    path = probe_values(report.settings, report.node)["DOCKER_DIR"]
    return [DiskNeed("image", path, IMAGE_BYTES), DiskNeed("its spool", path, SPOOL_BYTES)]


def filesystems(report: NodeReport) -> dict[str, Filesystem | None]:
    values, probe = probe_values(report.settings, report.node), report.probe
    docker = report.docker_space if report.docker_space is not None else probe.text("df.docker")
    return {
        values["MODEL_DIR"]: _disk(probe.text("df.model")),
        values["ENGRAM_DIR"]: _disk(probe.text("df.engram")),
        values["DOCKER_DIR"]: _disk(docker),
    }


def check_disk(report: NodeReport, listing: Listing | None) -> Iterator[Finding]:
    """disk: FAIL where known sizes do not fit, WARN where only an estimate makes it short."""
    disks = filesystems(report)
    certain, estimated = certain_needs(report, listing), estimated_needs(report)
    known, whole = _sheet(certain, disks), _sheet([*certain, *estimated], disks)
    unread = [row for row in known if row.available_bytes is None and row.missing_bytes]
    causes = [] if listing else ["published sizes: the revision is not resolved yet"]
    data: dict[str, Any] = {"filesystems": [_plain(row) for row in whole]}
    if any(row.short_bytes for row in known):
        worst = max((row for row in whole if row.short_bytes), key=lambda row: row.short_bytes or 0)
        fix = f"free space on {worst.mount}, or move MODEL_DIR or the Engram folder to another disk"
        yield report.finding("disk", State.FAIL, _text(worst), cause="; ".join(causes), fix=fix, **data)
    elif unread:
        yield report.finding("disk", State.UNKNOWN, f"{unread[0].mount}: free space cannot be read", **data)
    elif any(row.short_bytes for row in whole):
        worst = max(whole, key=lambda row: row.short_bytes or 0)
        causes.append("the image's size is an estimate until it is built")
        fix = f"free space on {worst.mount}"
        yield report.finding("disk", State.WARN, _text(worst), cause="; ".join(causes), fix=fix, **data)
    else:
        yield report.finding("disk", State.OK, "; ".join(map(_text, whole)), cause="; ".join(causes), **data)


def _sheet(needs: list[DiskNeed], disks: Mapping[str, Filesystem | None]) -> tuple[DiskRow, ...]:
    """The sheet with a reserve on each filesystem that something still has to go to."""
    rows = disk_sheet(needs, disks)
    reserves = [DiskNeed(RESERVE, row.needs[0].path, RESERVE_BYTES) for row in rows if row.missing_bytes]
    return disk_sheet([*needs, *reserves], disks)


def _text(row: DiskRow) -> str:
    has = "" if row.missing_bytes or row.available_bytes is None else f", has {gib_text(row.available_bytes)}"
    return f"{row.mount} {row.text}{has}"


def _disk(text: str | None) -> Filesystem | None:
    rows = parse_df(text or "")
    return rows[0] if rows else None


def _plain(row: DiskRow) -> dict[str, object]:
    needs = [{"what": each.what, "missing_bytes": each.missing_bytes} for each in row.needs]
    return {"mount": row.mount, "available_bytes": row.available_bytes, "short_bytes": row.short_bytes, "needs": needs}
