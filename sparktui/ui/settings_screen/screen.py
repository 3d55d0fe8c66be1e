"""The settings screen."""

from __future__ import annotations

from textual.screen import Screen


class SettingsScreen(Screen[bool]):
    """Dismissed with True when settings were saved."""
