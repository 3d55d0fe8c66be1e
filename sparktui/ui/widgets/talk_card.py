"""How to reach the endpoint, to copy; the key masked."""

from __future__ import annotations

from collections.abc import Sequence

from textual.screen import ModalScreen


class TalkCard(ModalScreen[None]):
    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        super().__init__()
