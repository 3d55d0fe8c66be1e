"""Panes alone on a page, with the product's theme and style sheet: no settings, no nodes, no journal."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import App, ComposeResult
from textual.widget import Widget

from sparktui.shipped import shipped
from sparktui.ui.glyphs import ASCII, UNICODE, Glyphs
from sparktui.ui.theme import NAMED, SPARK


class PaneApp(App[None]):
    """Shows the panes below each other in equal parts. `ascii_only` and `named` as on a poor terminal."""

    CSS_PATH = shipped("assets") / "sparktui.tcss"
    CSS = ".pane { height: 1fr; }"

    def __init__(self, panes: Sequence[Widget], *, ascii_only: bool = False, named: bool = False) -> None:
        self.panes = panes
        self.glyphs: Glyphs = ASCII if ascii_only else UNICODE
        self.ascii_only = ascii_only
        super().__init__()
        for theme in (SPARK, NAMED):
            self.register_theme(theme)
        self.theme = NAMED.name if named else SPARK.name

    def compose(self) -> ComposeResult:
        yield from self.panes

    def on_mount(self) -> None:
        self.screen.set_class(self.ascii_only, "-ascii")
