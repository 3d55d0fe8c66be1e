"""What every screen has: a line on top that says where this is, one below with the keys, and a smallest size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

if TYPE_CHECKING:
    from sparktui.ui.app import SparkApp

SMALLEST_COLUMNS = 60
SMALLEST_ROWS = 18
QUIT_ANYWHERE = ("^q", "quit")
"""Also where letters are typed."""
ALWAYS = ("?", "q", QUIT_ANYWHERE[0])
"""Keys that are named on every screen, however narrow."""
WAYS_BACK = ("esc", "w")
"""The first of these that a screen has is always named too: it leads back to the wizard."""


class OneLine(Static):
    """A line in a fixed place: another text never lays the screen out anew, the same text paints nothing."""

    _now: Content | None = None

    def show(self, content: Content) -> None:
        if self._now is None or not content.is_same(self._now):  # == does not look at styles
            self._now = content
            self.update(content, layout=False)


class TopLine(OneLine):
    """`sparktui  SIMULATED  three Sparks   run: serve is running   endpoint: ready`."""


class KeyLine(OneLine):
    """The keys of this screen in their order, as many as fit; the way to all of them and the way out always do."""

    def show_keys(self, pairs: Sequence[tuple[str, str]], width: int) -> None:
        keys = [key for key, _ in pairs]
        always = {*ALWAYS, next((key for key in WAYS_BACK if key in keys), "")}
        room = width - 1 - sum(_columns(pair) for pair in pairs if pair[0] in always)
        shown: list[Content] = []
        for pair in pairs:
            if pair[0] not in always:
                room -= _columns(pair)
                if room < 0:
                    continue
            shown.append(Content.assemble((pair[0], "$accent bold"), " ", (pair[1], "$quiet"), "  "))
        self.show(Content.assemble(" ", *shown))


def _columns(pair: tuple[str, str]) -> int:
    return len(pair[0]) + len(pair[1]) + 3


class FrameScreen(Screen[Any]):
    """Base of the full screens. A subclass gives `body()` and, where it shows live data, `refresh_data()`."""

    BINDINGS: ClassVar[list[BindingType]] = []
    name_shown: ClassVar[str] = ""

    app: SparkApp

    def compose(self) -> ComposeResult:
        yield TopLine(id="top-line", markup=False)
        yield from self.body()
        yield KeyLine(id="key-line", markup=False)
        yield Static(id="too-small", markup=False)

    def body(self) -> Iterable[Widget]:
        return ()

    def refresh_data(self) -> None:
        """Show what the app holds now. Called when it changed and this screen is the one that is seen."""

    def on_mount(self) -> None:
        self.show_frame()

    def on_screen_resume(self) -> None:
        self.show_frame()
        self.refresh_data()

    def on_resize(self) -> None:
        self.call_after_refresh(self.show_frame)

    def on_descendant_focus(self) -> None:
        self._keys_changed()

    def on_descendant_blur(self) -> None:
        self._keys_changed()

    def _keys_changed(self) -> None:
        """Where letters are typed they are no keys."""
        if self.is_mounted and self.query(KeyLine):
            self.query_one(KeyLine).show_keys(self.keys_shown(), self.app.size.width)

    def show_frame(self) -> None:
        """Top line, key line, and the one sentence where there is no room for a screen."""
        # Not yet there, or being taken down while a last message arrives.
        if not self.is_mounted or not self.query(TopLine):
            return
        width, height = self.app.size
        small = width < SMALLEST_COLUMNS or height < SMALLEST_ROWS
        self.set_class(small, "-too-small")
        self.set_class(self.app.terminal.ascii_only, "-ascii")
        if small:
            self.query_one("#too-small", Static).update(
                f"sparktui needs {SMALLEST_COLUMNS}{self.app.glyphs.times}{SMALLEST_ROWS}; this is {width}"
                f"{self.app.glyphs.times}{height}. Nothing stopped: make the window larger, or q."
            )
        self.query_one(TopLine).show(self.app.top_line(self.name_shown, width))
        self.query_one(KeyLine).show_keys(self.keys_shown(), width)

    def keys_shown(self) -> list[tuple[str, str]]:
        """(key, word) of the bindings that are shown and enabled, the screen's own before the app's.

        A way to leave is always there, and the screen that one is on already is not.
        """
        pairs = []
        for active in self.active_bindings.values():
            binding: Binding = active.binding
            if binding.show and active.enabled and active.node in (self, self.focused, self.app):
                pairs.append((active.node is self.app, self.app.get_key_display(binding), binding.description))
        pairs.sort(key=lambda each: each[0])
        named = list(dict.fromkeys((key, word) for _, key, word in pairs if word != self.name_shown))
        return named if any(key == "q" for key, _ in named) else [*named, QUIT_ANYWHERE]
