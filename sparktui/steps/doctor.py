"""doctor: is everything here that the other steps need. Reads, changes nothing; a dead node costs its own row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from sparktui.errors import DeadlineExceeded, NodeUnreachable, SparktuiError, StepFailed
from sparktui.events import Event, Finding, State
from sparktui.readings.checkpoint_listing import RECORD_FILE, Listing, parse_listing
from sparktui.remote.hub import HubRefused, list_revision
from sparktui.remote.link import NodeLink
from sparktui.steps.doctor_checks.ask import ask_node, commands_for
from sparktui.steps.doctor_checks.disk import check_disk
from sparktui.steps.doctor_checks.docker_calls import (
    check_containers,
    check_engine,
    check_image,
    check_same_image,
    check_toolkit,
)
from sparktui.steps.doctor_checks.files import check_caches, check_checkpoint, check_load
from sparktui.steps.doctor_checks.machine import check_architecture, check_gpu, check_kernel, check_login
from sparktui.steps.doctor_checks.memory import check_memory
from sparktui.steps.doctor_checks.network import check_address, check_fabric, check_interfaces, check_rdma
from sparktui.steps.doctor_checks.report import STEP, NodeReport
from sparktui.steps.doctor_checks.setup import check_daemon_choice, check_settings
from sparktui.steps.download import hub_access
from sparktui.steps.load_result import read_kept
from sparktui.steps.step import Command, Context, Inspection

if TYPE_CHECKING:
    from sparktui.settings import Settings

NODE_CHECKS = (
    check_login,
    check_architecture,
    check_kernel,
    check_address,
    check_engine,
    check_toolkit,
    check_gpu,
    check_containers,
    check_image,
    check_interfaces,
    check_rdma,
    check_memory,
    check_caches,
)


ListHub = Callable[["Settings"], Awaitable[Listing]]
HUB_DEADLINE_SECONDS = 10.0


class Doctor:
    """Step `doctor`. All nodes at the same time, one script and one set of Docker calls each."""

    name = STEP
    title = "Check everything"

    def __init__(self, list_hub: ListHub | None = None) -> None:
        """`list_hub` replaces the hub in tests."""
        self._list_hub = list_hub

    async def inspect(self, context: Context) -> Inspection:
        findings = [each async for each in self._findings(context)]
        failed = [each for each in findings if _fails(each, context.settings)]
        if failed:
            return Inspection(False, _first(failed), findings=tuple(findings))
        unknown = sum(each.state is State.UNKNOWN for each in findings)
        warned = sum(each.state is State.WARN for each in findings)
        return Inspection(True, f"nothing fails; {warned} to look at, {unknown} unknown", findings=tuple(findings))

    async def plan(self, context: Context) -> list[Command]:
        return [row for link in _links(context) for row in commands_for(context.settings, link.node)]

    async def run(self, context: Context) -> AsyncIterator[Event]:
        failed: list[Finding] = []
        unreachable: list[SparktuiError] = []
        async with aclosing(self._findings(context, unreachable)) as findings:
            async for finding in findings:
                yield finding
                if _fails(finding, context.settings):
                    failed.append(finding)
        if unreachable:
            first = unreachable[0]
            raise NodeUnreachable(
                first.what, fix=first.fix or "is the node on, and does `ssh` reach it?", node=first.node
            )
        if failed:
            raise StepFailed(_first(failed, with_node=False), fix=failed[0].fix, node=failed[0].node)

    async def _findings(
        self, context: Context, unreachable: list[SparktuiError] | None = None
    ) -> AsyncGenerator[Finding, None]:
        settings = context.settings
        for finding in check_settings(settings):
            yield finding
        kept = await asyncio.to_thread(read_kept, settings.state_dir)
        revision = asyncio.create_task(self._listing(context))
        asked = [asyncio.create_task(ask_node(settings, link)) for link in _links(context)]
        reports: list[NodeReport] = []
        try:
            for task in asked:
                report = await task
                listing, hub = await revision
                if hub is not None and not reports:
                    yield hub
                reports.append(report)
                for finding in (*_judge(report, listing), *check_load(report, listing, kept)):
                    yield finding
                if report.failure is not None and unreachable is not None:
                    unreachable.append(report.failure)
        finally:
            for each in (revision, *asked):
                each.cancel()
            await asyncio.gather(revision, *asked, return_exceptions=True)
        if context.only_node is None:
            for finding in (*check_same_image(reports), *check_fabric(reports)):
                yield finding

    async def _listing(self, context: Context) -> tuple[Listing | None, Finding | None]:
        """The revision's files: recorded on the head, else asked of the hub; None where neither says."""
        settings = context.settings
        try:
            data = await context.head.read_file(f"{settings.model_dir}/{RECORD_FILE}", deadline_seconds=5.0)
        except SparktuiError:
            data = None
        record = parse_listing(data.decode("utf-8", "replace")) if data else None
        if record is not None and record.answers(settings.hf_repo, settings.hf_revision):
            return record, None
        try:
            listing = await (self._list_hub(settings) if self._list_hub else _ask_hub(settings, context.head))
        except (HubRefused, DeadlineExceeded) as error:
            slow = isinstance(error, DeadlineExceeded) or error.kind in ("unreachable", "rate_limited")
            state = State.UNKNOWN if slow else State.FAIL
            return None, Finding(STEP, "hub", "head", state, settings.mask(error.what), fix=error.fix)
        what = f"{settings.hf_revision} of {listing.repo} is {listing.revision}"
        data_row = {"revision": listing.revision, "bytes": listing.total_bytes}
        return listing, Finding(STEP, "hub", "head", State.OK, what, data=data_row)


def _links(context: Context) -> list[NodeLink]:
    return [link for link in context.links if context.only_node in (None, link.node.name)]


def _judge(report: NodeReport, listing: Listing | None) -> Iterator[Finding]:
    """All rows of a node; of a node without an answer only the one that says so."""
    if report.failure is not None:
        yield from check_login(report)
        return
    for check in NODE_CHECKS:
        yield from check(report)
    if report.node.is_head:
        yield from check_daemon_choice(report)
    yield from check_checkpoint(report, listing)
    yield from check_disk(report, listing)


async def _ask_hub(settings: Settings, head: NodeLink) -> Listing:
    return await list_revision(
        hub_access(settings),
        settings.hf_repo,
        settings.hf_revision,
        link=head,
        deadline_seconds=HUB_DEADLINE_SECONDS,
    )


def _fails(finding: Finding, settings: Settings) -> bool:
    """DOCTOR_STRICT=1: a warning as well."""
    return finding.state is State.FAIL or (finding.state is State.WARN and settings.doctor_strict)


def _first(failed: Iterable[Finding], *, with_node: bool = True) -> str:
    """The first failure's cause; how many more there are."""
    rows = list(failed)
    more = f" (and {len(rows) - 1} more that fail)" if len(rows) > 1 else ""
    prefix = f"{rows[0].node}: " if with_node else ""
    return f"{prefix}{rows[0].what}{more}"
