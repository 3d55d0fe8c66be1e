"""The smoke test's four rows, from any screen."""

from __future__ import annotations

from textual.screen import ModalScreen


class SmokeCard(ModalScreen[None]):
    pass
