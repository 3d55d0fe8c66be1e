"""Room on the head before a download: the checkpoint, the Engram rows and the image share its disk."""

from __future__ import annotations

from dataclasses import replace

from sparktui.errors import DeadlineExceeded, DockerUnavailable
from sparktui.events import Finding
from sparktui.readings.checkpoint_listing import Listing
from sparktui.steps.doctor_checks.ask import ask_node
from sparktui.steps.doctor_checks.disk import check_disk
from sparktui.steps.step import Context


async def head_disk(context: Context, listing: Listing) -> Finding:
    """doctor's `disk` row of the head, for this listing."""
    report = await ask_node(context.settings, context.head)
    if isinstance(report.docker_failure, DockerUnavailable | DeadlineExceeded):
        report = replace(report, docker=None)
    return next(iter(check_disk(report, listing)))
