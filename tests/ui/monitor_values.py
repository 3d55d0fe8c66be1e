"""The monitor on fixture values: a picture, its ladders, and five minutes of history that end with its values."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from textual.pilot import Pilot

from sparktui.engine.ladder import RankBoot
from sparktui.telemetry.sample import ClusterSnapshot, NodeSample
from tests.ui import pane_values as values
from tests.ui.app_in_test import AppInTest, settled

NOW = 1300.0
LAST = 299
"""The second of the newest history."""
STATES: dict[str, tuple[ClusterSnapshot, tuple[RankBoot, ...]]] = {
    "calm": (values.calm(), values.boots_ready()),
    "working": (values.working(), values.boots_loading()),
    "failing": (values.failing(), values.boots_dead()),
}


def _then(node: NodeSample, second: int) -> NodeSample:
    available = node.split.available_bytes
    if available is None:
        return node
    moved = int(available + 1.5 * values.GIB * math.sin((LAST - second) / (20 + 3 * node.rank)))
    return replace(node, split=replace(node.split, available_bytes=moved))


def give(app: AppInTest, state: str) -> None:
    """The history first, then the picture; the decode speed has a gap of twenty seconds."""
    snapshot, boots = STATES[state]
    for second in range(LAST + 1):
        speed = snapshot.serving.decode_tokens_per_second
        if speed is not None:
            speed = None if 100 < second < 120 else speed + 6 * math.sin((LAST - second) / 11)
        then = replace(
            snapshot,
            at=NOW - 300 + second,
            nodes=tuple(_then(node, second) for node in snapshot.nodes),
            serving=replace(snapshot.serving, decode_tokens_per_second=speed),
        )
        app.history.take(then)
    app.monotonic = lambda: 120.0
    app.boots = boots
    app.snapshot = replace(snapshot, at=NOW)


def on_monitor(state: str, *keys: str) -> Callable[[Pilot[Any]], Awaitable[None]]:
    """For `run_before`: the monitor with these values, after these keys."""

    async def before(pilot: Pilot[Any]) -> None:
        await settled(pilot)
        await pilot.press("m")
        app = pilot.app
        assert isinstance(app, AppInTest)
        give(app, state)
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause()

    return before
