"""The first start: from no settings to a saved `.env`, one question group after the other."""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static


class FirstStart(Screen[Path | None]):
    """Dismissed with the saved env file, or None when the person leaves."""

    def compose(self) -> ComposeResult:
        yield Static("", markup=False)
