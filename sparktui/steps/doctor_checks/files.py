"""The checkpoint on a node, and caches that must not be shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sparktui.events import Finding, State
from sparktui.readings.checkpoint import shard_count
from sparktui.readings.checkpoint_listing import FOLDER_SUFFIX, Listing, compare
from sparktui.readings.image_identity import BASE_LABEL, OVERLAY_LABEL
from sparktui.steps.amounts import bytes_text
from sparktui.steps.checkpoint_probe import checkpoint_identity, read_folder
from sparktui.steps.doctor_checks.disk import keeps_checkpoint
from sparktui.steps.doctor_checks.probe import probe_values
from sparktui.steps.doctor_checks.report import STEP, NodeReport
from sparktui.steps.load_result import KeptCheck, checked_ranks, known, load_key

NETWORK_FILESYSTEMS = ("nfs", "cifs", "smb", "fuseblk", "9p", "ceph")


def check_checkpoint(report: NodeReport, listing: Listing | None) -> Iterator[Finding]:
    """checkpoint: only complete by every size is OK. What `download` has yet to fetch is no warning; a worker's own
    copy, which no step makes, and a file of the wrong size are.
    """
    if not keeps_checkpoint(report):
        return
    path = probe_values(report.settings, report.node)["MODEL_DIR"]
    fix = "sparktui download" if report.node.is_head else f"copy the head's folder to {path} on this node"
    if not path.rstrip("/").endswith(FOLDER_SUFFIX):
        yield report.finding(
            "checkpoint",
            State.FAIL,
            f"{path} does not end in {FOLDER_SUFFIX}: an older checkpoint could be taken for it",
        )
        return
    if report.probe.status("checkpoint") != 0 and report.probe.hung("checkpoint"):
        yield report.finding(
            "checkpoint", State.UNKNOWN, f"{path}: no answer in time", cause="a file server that is gone?"
        )
        return
    reading = read_folder(report.probe.parts)
    if reading.state is None:
        yield report.unknown("checkpoint", "checkpoint", path)
    elif reading.state == "absent":
        if report.node.is_head:
            yield report.finding("checkpoint", State.INFO, f"not downloaded yet: {path} is absent", fix=fix)
        else:
            yield report.finding("checkpoint", State.WARN, f"{path} is absent", fix=fix)
    elif reading.state != "present":
        word = "is not a folder" if reading.state == "other" else "cannot be opened by this login"
        yield report.finding("checkpoint", State.FAIL, f"{path} {word}")
    elif listing is not None:
        state = compare(listing, reading.files, reading.parts, reading.index_shards)
        have = f"{bytes_text(state.present_bytes)} of {bytes_text(state.total_bytes)}"
        to_come = report.node.is_head and not state.wrong and not state.outside_index
        row = State.OK if state.complete else State.INFO if to_come else State.WARN
        what = f"{state.text}, {have}, revision {listing.revision[:12]}"
        yield report.finding(
            "checkpoint", row, what, fix="" if state.complete else fix, remaining_bytes=state.remaining_bytes
        )
    else:
        shards, _ = shard_count(list(reading.files))
        what = f"{shards} of {report.settings.expected_shards} shards by name; their sizes were not compared"
        yield report.finding("checkpoint", State.WARN, what, cause="no revision is recorded here yet", fix=fix)


def check_load(report: NodeReport, listing: Listing | None, kept: Mapping[str, KeptCheck]) -> Iterator[Finding]:
    """load: what serve's check of the load said of just this checkpoint and image; once both are there. A kept fault
    only warns: serve checks it again.
    """
    image = report.docker.image if report.docker else None
    text = report.probe.text("identity") or ""
    if image is None or listing is None or not checkpoint_identity(text):
        return
    if not checked_ranks(report.settings, report.node):
        return
    facts = {"engine": image.labels.get(BASE_LABEL, ""), "overlay": image.labels.get(OVERLAY_LABEL, "")}
    key = load_key(report.settings, report.node, identity_text=text, revision=listing.revision, **facts)
    row = known(report.settings, STEP, report.node, kept, key)
    yield replace(row, state=State.WARN) if row.state is State.FAIL else row


def check_caches(report: NodeReport) -> Iterator[Finding]:
    """caches.local: compilers' caches on a network file system are written by several nodes at once."""
    text = report.probe.text("caches")
    for line in (text or "").split("\n"):
        kind, tab, path = line.partition("\t")
        if tab and any(kind.lower().startswith(each) for each in NETWORK_FILESYSTEMS):
            yield report.finding(
                "caches.local",
                State.FAIL,
                f"{path} is on {kind}: it must be node-local",
                cause="two nodes that compile into one cache corrupt it",
                fix=f"move it to this node's own disk and leave a link at {path}",
            )
