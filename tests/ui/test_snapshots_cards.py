"""Pictures of the cards: talk, smoke, help, the palette and the question before a run is cancelled, at both sizes.

After a change that is meant: `pytest tests/ui/test_snapshots_cards.py --snapshot-update`, then look at each picture.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandPalette
from textual.widgets import Input

from sparktui.events import Event, Finding, Outcome, RunFinished, State, StepFinished, StepStarted
from sparktui.telemetry.sample import ClusterSnapshot, EndpointState, Serving
from sparktui.ui.widgets.question_card import QuestionCard
from sparktui.ui.widgets.smoke_card import SmokeCard
from tests.ui import cluster_values
from tests.ui.app_in_test import AppInTest, run_of, settled, started, until
from tests.ui.wizard_values import show_working, smoke_findings

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


async def ended(app: AppInTest, pilot: Any, findings: list[Event], outcome: Outcome, text: str, fix: str = "") -> None:
    """The card's own test has come to its end."""
    app.snapshot = cluster_values.CALM
    begun = [started("smoke"), StepStarted("smoke", ("head",))]
    app.run_view = run_of(begun)
    await pilot.press("s")
    card = app.screen
    assert isinstance(card, SmokeCard)
    card.asked_for = True
    node = "head" if outcome is Outcome.FAILED else ""
    last = [StepFinished("smoke", outcome, 7.1, text, fix, node), RunFinished(0 if not node else 1, text, fix, node)]
    app.run_view = run_of([*begun, *findings, *last])
    app.now = app.run_view.started_at or app.now


async def passed(app: AppInTest, pilot: Any) -> None:
    await ended(app, pilot, smoke_findings(), Outcome.DONE, "nine checks")


async def failed(app: AppInTest, pilot: Any) -> None:
    why, fix = "it answered 'alpha' in words instead of calling lookup_fixture", "see what it said: l, then /tool"
    tool = Finding("smoke", "tool", "head", State.FAIL, why, "", fix, {"seconds": 1.84})
    slow = Finding("smoke", "cut", "head", State.WARN, "a cut-off call ends with 'stop'", data={"seconds": 0.4})
    findings = smoke_findings()
    await ended(
        app, pilot, [*findings[:2], tool, findings[3], slow, *findings[5:]], Outcome.FAILED, f"tool: {why}", fix
    )


async def talk_without_endpoint(app: AppInTest, pilot: Any) -> None:
    app.snapshot = ClusterSnapshot(serving=Serving(EndpointState.DOWN))
    await pilot.press("t")


async def palette(app: AppInTest, pilot: Any) -> None:
    app.snapshot = cluster_values.CALM
    await pilot.press("ctrl+p")
    assert isinstance(app.screen, CommandPalette)
    app.screen.query_one(Input).cursor_blink = False
    await until(pilot, lambda: app.screen.query_one("CommandList").option_count > 9)  # type: ignore[attr-defined]


async def cancel(app: AppInTest, pilot: Any) -> None:
    show_working(app)
    app.run_dir = app.env_file.parent
    await pilot.pause()
    await pilot.press("ctrl+x")
    await until(pilot, lambda: isinstance(app.screen, QuestionCard))


async def help_card(app: AppInTest, pilot: Any) -> None:
    await pilot.press("question_mark")


CARDS = {
    "talk": talk,
    "talk-no-endpoint": talk_without_endpoint,
    "smoke-asking": asking,
    "smoke-no-endpoint": no_endpoint,
    "smoke-passed": passed,
    "smoke-failed": failed,
    "help": help_card,
    "palette": palette,
    "cancel": cancel,
}


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
