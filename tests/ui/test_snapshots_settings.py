"""Pictures of the settings: the list calm, a value being typed, a file that is refused, and the cards before saving and
leaving, at both sizes.

After a change that is meant: `pytest tests/ui/test_snapshots_settings.py --snapshot-update`, then look at each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from sparktui.ui.settings_screen.book import diff
from sparktui.ui.settings_screen.cards import DiffCard, EditCard, LeaveCard
from sparktui.ui.settings_screen.screen import SettingsScreen
from tests.ui.app_in_test import AppInTest, screen_text, until

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
TEXT = "HEAD_IP=10.0.0.1\nWORKER_IPS='10.0.0.2 10.0.0.3'\nAPI_KEY=a-long-enough-key\nCONTEXT_LENGTH=32768\n"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", ["calm", "typing", "wrong", "refused", "diff", "leave"])
def test_settings(snap_compare: Callable[..., bool], tmp_path: Path, state: str, size: str) -> None:
    app = AppInTest(tmp_path)
    app.env_file.write_text(TEXT + ("PORT=99999\nEP_SIZE=2\n" if state == "refused" else ""))
    app.env_file.chmod(0o600)

    async def before(pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: app.session.settings is not None or app.trouble)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen) and app.screen.lines)
        if state == "refused":
            await pilot.press("n", "n")
        if state in ("typing", "wrong"):
            await pilot.press("slash", *"window request", "enter")
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, EditCard))
            await pilot.press("end", "ctrl+u", *("65536" if state == "typing" else "99"))
            await until(pilot, lambda: ("fits" if state == "typing" else "outside") in screen_text(app))
        if state == "diff":
            new = TEXT.replace("32768", "65536") + "MAX_RUNNING_REQUESTS=2\n"
            app.push_screen(DiffCard("/home/nvidia/sparktui/.env", diff(TEXT, new), ()))
        if state == "leave":
            app.push_screen(LeaveCard(("CONTEXT_LENGTH", "MAX_RUNNING_REQUESTS")))
        await pilot.pause(0.5)

    assert snap_compare(app, terminal_size=SIZES[size], run_before=before)
