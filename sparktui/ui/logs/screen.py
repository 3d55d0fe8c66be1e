"""The logs screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget
from textual.widgets import Static

from sparktui.ui.frame import FrameScreen


class LogsScreen(FrameScreen):
    name_shown: ClassVar[str] = "logs"

    def body(self) -> Iterable[Widget]:
        yield Static("", id="logs-body", markup=False)
