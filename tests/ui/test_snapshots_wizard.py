"""Pictures of the wizard in {calm, working, failing} and what else it can stand at, at both sizes.

After a change that is meant: `pytest tests/ui/test_snapshots_wizard.py --snapshot-update`, then look at each picture.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktui.ui.widgets import question_card
from sparktui.ui.widgets.question_card import QuestionCard
from tests.ui.app_in_test import AppInTest, settled, show, until
from tests.ui.wizard_values import STATES

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", STATES)
def test_wizard(snap_compare: Callable[..., bool], tmp_path: Path, state: str, size: str) -> None:
    before, values = STATES[state]
    app = AppInTest(tmp_path)
    before(app)

    async def shown(pilot: Any) -> None:
        await show(values)(pilot)
        if state == "question":  # pictured as it stays
            await until(pilot, lambda: isinstance(app.screen, QuestionCard) and app.screen.takes_keys)

    assert snap_compare(app, terminal_size=SIZES[size], run_before=shown)


def test_wizard_question_that_has_just_opened(
    snap_compare: Callable[..., bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_card, "QUIET_SECONDS", 3600.0)
    before, values = STATES["question"]
    app = AppInTest(tmp_path)
    before(app)
    assert snap_compare(app, terminal_size=SIZES["80x24"], run_before=show(values))


def test_wizard_very_wide(snap_compare: Callable[..., bool], tmp_path: Path) -> None:
    before, values = STATES["working"]
    app = AppInTest(tmp_path)
    before(app)
    assert snap_compare(app, terminal_size=(200, 60), run_before=show(values))


@pytest.mark.parametrize("size", SIZES)
def test_wizard_simulated(snap_compare: Callable[..., bool], tmp_path: Path, size: str) -> None:
    def values(app: AppInTest) -> None:
        """Nothing was done yet."""

    app = AppInTest(tmp_path, banner="SIMULATED")
    assert snap_compare(app, terminal_size=SIZES[size], run_before=show(values))


@pytest.mark.parametrize("size", SIZES)
def test_wizard_commands(snap_compare: Callable[..., bool], tmp_path: Path, size: str) -> None:
    from sparktui.steps.step import Command

    app = AppInTest(tmp_path)
    argv = "docker run --rm --network host -v /srv/DeepSeek-V4.1-Flash-1017:/models:ro -v /srv/engram:/engram"
    nodes = (("head", 0), ("worker1", 1), ("worker2", 2))
    app.step("doctor").commands = tuple(
        Command(node, f"{argv} dsv41-3x-spark:local pack --rank {rank} --tp 3", "this rank's columns")
        for node, rank in nodes
    )

    async def before(pilot: Any) -> None:
        await settled(pilot)
        await pilot.press("x")
        await until(pilot, lambda: app.screen.commands is not None)  # type: ignore[attr-defined]

    assert snap_compare(app, terminal_size=SIZES[size], run_before=before)
