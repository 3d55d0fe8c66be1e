"""The verb `plan`: what each rank's memory goes to and whether that fits, as rows. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparktui.cluster.plan import Fit, MemoryPlan
from sparktui.events import Event, Finding, Note, RunFinished, State

if TYPE_CHECKING:
    from sparktui.remote.link import NodeLink
    from sparktui.settings import Settings

STEP = "plan"
_READ_SECONDS = 20.0
_STATES = {Fit.FITS: State.OK, Fit.TIGHT: State.WARN, Fit.DOES_NOT_FIT: State.FAIL}


async def read_totals(links: Sequence[NodeLink]) -> dict[int, int | None]:
    """MemTotal in bytes by rank; None for a node that does not say (the sheet then assumes, and says so)."""
    from sparktui.errors import SparktuiError
    from sparktui.readings.meminfo import parse_meminfo
    from sparktui.remote.fleet_calls import gather_nodes

    async def one(link: NodeLink) -> int | None:
        data = await link.read_file("/proc/meminfo", deadline_seconds=_READ_SECONDS)
        memory = parse_meminfo(data.decode(errors="replace")) if data else None
        return memory.total_bytes if memory else None

    answers = await gather_nodes(links, one, deadline_seconds=_READ_SECONDS)
    return {
        link.node.rank: None if isinstance(answer, SparktuiError) else answer
        for link, answer in zip(links, answers, strict=True)
    }


def sheet_events(settings: Settings, totals: dict[int, int | None], loads: Sequence[Finding]) -> list[Event]:
    """The sheet's rows, then the closing line: exit status 1 when something cannot fit or cannot load.

    `loads` are the rows of the load check, as far as it is known.
    """
    from sparktui.engine.fitting import memory_sheet, runs_on_cpu

    if runs_on_cpu(settings):
        text = "the engine runs on the CPU (--device cpu): the sheet is for Sparks and says nothing about it"
        return [Note(STEP, "head", text), RunFinished(0, text)]
    names = {node.rank: node.name for node in settings.nodes}
    return rows(memory_sheet(settings, totals), names, loads)


def rows(plan: MemoryPlan, names: dict[int, str], loads: Sequence[Finding] = ()) -> list[Event]:
    """The same for a plan in hand; `names` by rank."""
    events: list[Event] = []
    for rank in plan.ranks:
        node = names.get(rank.rank, f"rank{rank.rank}")
        what = f"{rank.used_gib:.1f} of {rank.total_gib:.1f} GiB used, {rank.free_gib:.1f} left ({rank.total_source})"
        data = {"items": {item.name: round(item.gib, 2) for item in rank.items}, "pool_tokens": rank.pool_tokens}
        events.append(Finding(STEP, "memory.fit", node, _STATES[rank.fit], what, "; ".join(rank.reasons), data=data))
        events += [
            Finding(
                STEP, f"memory.{_slug(item.name)}", node, State.INFO, f"{item.gib:6.2f} GiB {item.name} [{item.source}]"
            )
            for item in rank.items
        ]
    events += loads
    events += [Note(STEP, "head", text, State.WARN) for text in (*plan.warnings, *plan.advice)]
    events += [Note(STEP, "head", text, State.FAIL) for text in plan.refusals]
    if plan.refusals:
        return [*events, RunFinished(1, plan.refusals[0], "change the setting it names, then: sparktui plan", "head")]
    unfit = next((each for each in loads if each.state is State.FAIL), None)
    if unfit is not None:
        return [*events, RunFinished(1, f"cannot load: {unfit.what}", unfit.fix, unfit.node)]
    fits = f"{plan.fit}: about {plan.pool_tokens:,} tokens of KV pool"
    known = bool(loads) and all(each.state is State.OK for each in loads)
    return [*events, RunFinished(0, fits if known else f"memory {fits}; the load was not checked yet")]


def _slug(name: str) -> str:
    return "_".join(name.lower().replace(",", " ").replace("-", " ").split())
