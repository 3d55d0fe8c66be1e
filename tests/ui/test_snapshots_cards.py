"""Pictures of the cards: talk, smoke (asking, no endpoint) and help, at both sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktui.events import StepStarted
from sparktui.telemetry.sample import ClusterSnapshot, EndpointState, Serving
from tests.ui import cluster_values
from tests.ui.app_in_test import AppInTest, settled, until
from tests.ui.wizard_values import smoke_findings

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
# Without a key no line names a folder of this machine.
ENV = {"API_KEY": "", "HOST": "127.0.0.1"}


async def talk(app: AppInTest, pilot: Any) -> None:
    app.snapshot = cluster_values.CALM
    await pilot.press("t")


async def no_endpoint(app: AppInTest, pilot: Any) -> None:
    app.snapshot = ClusterSnapshot(serving=Serving(EndpointState.DOWN))
    await pilot.press("s")


async def asking(app: AppInTest, pilot: Any) -> None:
    app.snapshot = cluster_values.CALM
    await pilot.press("s")
    run = await app.started(pilot)
    run.say(StepStarted("smoke", ("head",)), *smoke_findings()[:2])
    await until(pilot, lambda: len(getattr(app.run_view.step("smoke"), "findings", ())) == 2)
    # The frame below holds the clock of the journal; it is no part of this picture.
    app.now = app.run_view.started_at or app.now


async def help_card(app: AppInTest, pilot: Any) -> None:
    await pilot.press("question_mark")


CARDS = {"talk": talk, "smoke-asking": asking, "smoke-no-endpoint": no_endpoint, "help": help_card}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("card", CARDS)
def test_card(snap_compare: Callable[..., bool], tmp_path: Path, card: str, size: str) -> None:
    app = AppInTest(tmp_path, env=ENV)
    app.all_done("serve")

    async def before(pilot: Any) -> None:
        await settled(pilot)
        await CARDS[card](app, pilot)
        await pilot.pause()

    assert snap_compare(app, terminal_size=SIZES[size], run_before=before)
