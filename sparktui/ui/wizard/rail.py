"""The steps, one a row: glyph, name, state as a word, and a figure. A click selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widget import Widget

from sparktui.runs.view import StepState
from sparktui.ui.wizard.panel import STATE_STYLES
from sparktui.ui.wizard.rows import StepRow

if TYPE_CHECKING:
    from sparktui.ui.app import SparkApp
    from sparktui.ui.glyphs import Glyphs

COLUMNS = 30
FIRST_ROW = 1


class Rail(Widget):
    """`show(rows, selected)`."""

    app: SparkApp

    class Chosen(Message):
        def __init__(self, verb: str) -> None:
            self.verb = verb
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        self.rows: tuple[StepRow, ...] = ()
        self.selected = ""
        super().__init__(id=id)

    def show(self, rows: tuple[StepRow, ...], selected: str) -> None:
        if (rows, selected) != (self.rows, self.selected):
            self.rows, self.selected = rows, selected
            self.refresh()

    def render(self) -> Content:
        return rail_content(self.rows, self.selected, self.app.glyphs)

    def on_click(self, event: Click) -> None:
        number = event.y - FIRST_ROW
        if 0 <= number < len(self.rows):
            self.post_message(self.Chosen(self.rows[number].verb))


def rail_content(rows: Sequence[StepRow], selected: str, glyphs: Glyphs) -> Content:
    """28 cells a row: pointer, glyph, name (8), state (9), figure (6)."""
    lines: list[Content] = [Content("")]
    for row in rows:
        here = row.verb == selected
        style = STATE_STYLES[row.state]
        name = "bold" if here or row.state is StepState.RUNNING else ""
        lines.append(
            Content.assemble(
                (glyphs.pointer if here else " ", "$accent bold"),
                (glyphs.of_step(row.state), style),
                " ",
                (f"{row.verb:<9}", name),
                (f"{row.state:<10}", style),
                (f"{row.figure:>6}", "$quiet"),
            )
        )
    done = sum(row.state is StepState.DONE for row in rows)
    if rows:
        lines += [Content(""), Content.styled(f"   {done} of {len(rows)} done", "$quiet")]
    return Content("\n").join(lines)
