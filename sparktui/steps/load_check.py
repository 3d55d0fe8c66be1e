"""The load of every rank over the checkpoint's headers, before serve touches an engine: minutes less than a boot."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from sparktui.cluster.container import ContainerSpec
from sparktui.engine.launch import check_spec
from sparktui.errors import SparktuiError
from sparktui.events import CommandShown, Event, Finding, LogLine, Note, Progress, State, Unit
from sparktui.readings.load_check import load_check, parse_load_line
from sparktui.readings.meminfo import parse_meminfo
from sparktui.remote import our_containers
from sparktui.remote.link import NodeLink
from sparktui.settings import Settings
from sparktui.steps.amounts import bytes_text
from sparktui.steps.doctor_checks.memory import HEADROOM_WARN_BYTES
from sparktui.steps.load_result import (
    CHECK,
    KEPT_FAULTS,
    LoadKey,
    ask_key,
    checked_ranks,
    keep,
    read_kept,
    valid,
    verdict,
)
from sparktui.steps.merge import merged
from sparktui.steps.shown import shown, typed
from sparktui.steps.step import Command, Context

STEP = "serve"
NEEDS_BYTES = 3 * 1024**3 // 2
RANK_SECONDS = 240.0
"""Seen: 27 to 45 a rank on two shared cores; a cold disk adds to it."""
READ_SECONDS = 15.0
USAGE_STATUS = 2


@dataclass
class _Said:
    """What the container printed."""

    events: list[dict[str, Any]] = field(default_factory=list)
    other: deque[str] = field(default_factory=lambda: deque(maxlen=5))

    @property
    def last(self) -> str:
        return self.other[-1][:300] if self.other else "it printed nothing"


async def check_loads(context: Context) -> AsyncIterator[Event]:
    """Rows of the check, on every node that checks at the same time. A row that fails stops the start."""
    settings = context.settings
    links = [link for link in context.links if checked_ranks(settings, link.node)]
    writing = asyncio.Lock()  # one file for all nodes
    async for event in merged([_check_on(settings, link, writing) for link in links]):
        yield event


async def check_commands(context: Context) -> list[Command]:
    """The containers that `check_loads` would start now."""
    settings = context.settings
    links = [link for link in context.links if checked_ranks(settings, link.node)]
    open_links = [link for link in links if not await _kept(settings, link, await ask_key(settings, link))]
    why = "whether every rank loads, before anything is replaced; removed when it has ended"
    return [shown(link.node, check_spec(settings, link.node).run_argv(), why) for link in open_links]


async def _kept(settings: Settings, link: NodeLink, key: LoadKey | None) -> Finding | None:
    """A kept good result's row. A kept fault is checked again: what stands in the way may have been mended."""
    found = valid((await asyncio.to_thread(read_kept, settings.state_dir)).get(link.node.name), key)
    return verdict(settings, STEP, link.node, found.said, found.at) if found is not None and found.said.ok else None


async def _check_on(settings: Settings, link: NodeLink, writing: asyncio.Lock) -> AsyncIterator[Event]:
    node, spec = link.node.name, check_spec(settings, link.node)
    key = await ask_key(settings, link)
    if (kept := await _kept(settings, link, key)) is not None:
        yield kept
        return
    if short := await _short(link):
        fix = "sparktui stop, then sparktui serve checks it first"
        yield Finding(STEP, CHECK, node, State.WARN, f"the load was not checked: {short}", fix=fix)
        return
    # The check of a run that was killed goes on without a reader; it is begun anew.
    await our_containers.remove(link, spec.name, stop_seconds=0)
    yield CommandShown(STEP, node, typed(link.node, spec.run_argv()))
    said = _Said()
    # Shielded: a start that was cut off half way would leave a container that nobody knows of.
    starting = asyncio.ensure_future(our_containers.start(link, spec))
    try:
        await asyncio.shield(starting)
        async for event in _follow(settings, link, spec, said):
            yield event
        ended = await our_containers.look(link, spec.name)
    except TimeoutError:
        yield _no_verdict(node, f"no verdict in {_seconds(settings, link):.0f} s")
        return
    finally:
        await asyncio.wait({starting})
        await our_containers.remove(link, spec.name, stop_seconds=0)
    checked = load_check(said.events)
    if checked.ok is not None:
        yield verdict(settings, STEP, link.node, checked)
        if key is not None:
            try:
                async with writing:
                    await asyncio.to_thread(keep, settings.state_dir, node, key, said.events)
            except OSError as error:
                yield Note(STEP, node, f"the result of the load check could not be kept: {error}", State.WARN)
    elif ended is not None and ended.exit_code == USAGE_STATUS:
        what = f"the load check refused to begin: {said.last}"
        fix = "sparktui build brings the image up to date; sparktui doctor checks the settings"
        yield Finding(STEP, CHECK, node, State.FAIL, what, fix=fix)
    elif ended is not None and ended.oom_killed:
        yield _no_verdict(node, f"it wanted more than {bytes_text(spec.memory_bytes)}")
    else:
        status = "it was removed by somebody" if ended is None else f"status {ended.exit_code}, {said.last}"
        yield _no_verdict(node, status)


def _no_verdict(node: str, why: str) -> Finding:
    """Not known is not good, and no reason to keep a model from starting that may well load."""
    fix = "serve goes on; the boot's own log names what does not load"
    return Finding(STEP, CHECK, node, State.WARN, f"the load could not be checked: {why}", fix=fix)


def _seconds(settings: Settings, link: NodeLink) -> float:
    return RANK_SECONDS * len(checked_ranks(settings, link.node))


async def _short(link: NodeLink) -> str:
    """Why the check may not run beside what the node holds now; empty when it may."""
    try:
        data = await link.read_file("/proc/meminfo", deadline_seconds=READ_SECONDS)
    except SparktuiError as error:
        return f"its memory cannot be read: {error.what}"
    memory = parse_meminfo(data.decode("utf-8", "replace")) if data else None
    left = memory.available_bytes if memory else None
    if left is None:
        return "its available memory cannot be read"
    if left - NEEDS_BYTES < HEADROOM_WARN_BYTES:
        kept = f"{bytes_text(HEADROOM_WARN_BYTES)} have to stay"
        return f"{bytes_text(left)} are available, the check takes {bytes_text(NEEDS_BYTES)} and {kept}"
    return ""


async def _follow(settings: Settings, link: NodeLink, spec: ContainerSpec, said: _Said) -> AsyncIterator[Event]:
    """The container's lines until it has ended.

    Raises:
        TimeoutError: it takes too long.
    """
    node, ranks = link.node.name, checked_ranks(settings, link.node)
    until = asyncio.get_running_loop().time() + _seconds(settings, link)
    engine = await link.docker()
    done = faults = 0
    async with aclosing(engine.lines(spec.name, since_seconds=None, tail=None, follow=True)) as lines:  # type: ignore[type-var]
        while True:
            try:
                # Not around the yield: there the time is the reader's.
                async with asyncio.timeout_at(until):
                    line = await anext(lines)
            except StopAsyncIteration:
                return
            event = parse_load_line(line)
            if event is None:
                if line.strip():
                    said.other.append(line.strip())
                    yield LogLine(STEP, node, line)
                continue
            said.events.append(event)
            faults += event["event"] == "fault"
            if event["event"] == "fault" and faults <= KEPT_FAULTS:
                yield Note(STEP, node, load_check([event]).faults[0].sentence, State.FAIL)
            done += event["event"] == "rank"
            if event["event"] in ("checking", "rank"):
                yield Progress(STEP, node, "check that it loads", float(done), float(len(ranks)), unit=Unit.ITEMS)
