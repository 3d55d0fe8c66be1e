"""Pictures of the first start: its groups calm, nodes being tried, and what fails, at both sizes.

After a change that is meant: `pytest tests/ui/test_snapshots_first_start.py --snapshot-update`, then look at each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from sparktui.ui.first_start.draft import Draft, draft_path, keep_draft
from sparktui.ui.first_start.host_key_card import HostKeyCard
from tests.ui.app_in_test import screen_text, until
from tests.ui.first_start_parts import BeforeSettings, changed_key, dead, unknown_key

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
STATES = {
    "profile": ("profile", {}),
    "sparks": ("sparks", {}),
    "trying": ("ssh", {"worker1": None}),
    "failing": ("ssh", {"worker1": dead("worker1"), "worker2": changed_key("worker2")}),
    "host-key": ("ssh", {"worker1": unknown_key("spark-b")}),
    "network": ("network", {}),
    "watch": ("watch", {}),
    "keys": ("keys", {}),
    "save": ("save", {}),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", STATES)
def test_first_start(
    snap_compare: Callable[..., bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, size: str
) -> None:
    group, refusals = STATES[state]
    monkeypatch.chdir(tmp_path)  # the page that saves names the file: no folder of this machine in a picture
    app = BeforeSettings(Path())
    app.refusals.update(refusals)  # type: ignore[arg-type]

    async def before(pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: len(app.screen_stack) > 1 and app.first.is_mounted and app.first.found is not None)
        await until(pilot, lambda: "(101 GiB)" in screen_text(app))
        app.first.random_key = "not-random-in-a-picture-0123456"
        for _ in range(20):
            if app.at == group:
                break
            there = app.at
            await pilot.press("ctrl+n")
            await until(pilot, lambda there=there: app.at != there)  # type: ignore[misc]
            if app.at == "ssh":
                waits = [name for name, refusal in refusals.items() if refusal is None]
                await until(
                    pilot,
                    lambda waits=waits: (
                        app.first.rows and all(row.state or row.name in waits for row in app.first.rows)
                    ),
                )
        await until(pilot, lambda: app.first.made is not None or group == "profile")
        if state == "host-key":  # pictured as it stays
            await until(pilot, lambda: isinstance(app.screen, HostKeyCard) and app.screen.takes_keys)
        await pilot.pause(0.5)

    assert snap_compare(app, terminal_size=SIZES[size], run_before=before)


def test_keys_of_an_earlier_start(snap_compare: Callable[..., bool], tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    kept = Draft(page="save", given=frozenset(("API_KEY", "HF_TOKEN")))
    keep_draft(draft_path(app.env_file), kept)

    async def before(pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: len(app.screen_stack) > 1 and app.first.is_mounted and app.first.found is not None)
        app.first.random_key = "not-random-in-a-picture-0123456"
        app.first.show()
        await until(pilot, lambda: app.at == "keys" and app.first.made is not None)
        await pilot.pause(0.5)

    assert snap_compare(app, terminal_size=SIZES["80x24"], run_before=before)
