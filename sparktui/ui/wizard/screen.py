"""The wizard screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget
from textual.widgets import Static

from sparktui.ui.frame import FrameScreen


class WizardScreen(FrameScreen):
    name_shown: ClassVar[str] = "wizard"

    def body(self) -> Iterable[Widget]:
        yield Static("", id="wizard-body", markup=False)
