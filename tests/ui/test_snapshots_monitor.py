"""Pictures of the monitor in {calm, working, failing} at both sizes, its pages, and poor terminals.

After a change that is meant: `pytest tests/ui/test_snapshots_monitor.py --snapshot-update`, then look at each picture.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparktui.ui.terminal import Colour, Terminal
from tests.ui.app_in_test import AppInTest
from tests.ui.monitor_values import STATES, on_monitor

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", STATES)
def test_monitor(snap_compare: Callable[..., bool], tmp_path: Path, state: str, size: str) -> None:
    assert snap_compare(AppInTest(tmp_path), terminal_size=SIZES[size], run_before=on_monitor(state))


@pytest.mark.parametrize("page", ["2", "3", "4", "5"])
def test_monitor_pages(snap_compare: Callable[..., bool], tmp_path: Path, page: str) -> None:
    assert snap_compare(AppInTest(tmp_path), terminal_size=(80, 24), run_before=on_monitor("failing", page))


@pytest.mark.parametrize("key", ["2", "a"])
def test_monitor_devices_and_alarms(snap_compare: Callable[..., bool], tmp_path: Path, key: str) -> None:
    """The links alone with each Spark's four devices; the card with all alarms."""
    size = "120x40" if key == "2" else "80x24"
    assert snap_compare(AppInTest(tmp_path), terminal_size=SIZES[size], run_before=on_monitor("failing", key))


def test_monitor_very_wide(snap_compare: Callable[..., bool], tmp_path: Path) -> None:
    assert snap_compare(AppInTest(tmp_path), terminal_size=(200, 60), run_before=on_monitor("calm"))


@pytest.mark.parametrize("size", SIZES)
def test_monitor_ascii_in_sixteen_colours(snap_compare: Callable[..., bool], tmp_path: Path, size: str) -> None:
    app = AppInTest(tmp_path, terminal=Terminal(Colour.BASIC, ascii_only=True))
    assert snap_compare(app, terminal_size=SIZES[size], run_before=on_monitor("failing"))
