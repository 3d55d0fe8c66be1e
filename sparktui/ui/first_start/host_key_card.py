"""An unknown host key, with its fingerprint: trusted only where the answer that says so is chosen and taken."""

from __future__ import annotations

from textual.content import Content

from sparktui.printing import plain
from sparktui.ui.first_start.key_test import KeyRow
from sparktui.ui.widgets.question_card import QuestionCard

TRUST = "trust it"
NOT_NOW = "not now"


class HostKeyCard(QuestionCard):
    """Dismissed with TRUST when the key is to be trusted. It opens by itself, so no letter and no early key answers."""

    def __init__(self, row: KeyRow) -> None:
        self.row = row
        super().__init__(
            f"{row.name}: nobody has confirmed its host key",
            row.fix,
            (TRUST, NOT_NOW),
            safe=1,
            later="esc: not now",
            by_itself=True,
        )

    def shown_text(self) -> Content:
        return Content.assemble(
            plain(f"{self.row.target} shows"),
            ("\n  " + plain(self.row.fingerprint), "$accent bold"),
            "\n\n",
            super().shown_text(),
        )
