"""What a published decode speed feels like: a text typed at it, alone or four at once; beside it what was measured."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from textual.timer import Timer

from sparktui.cluster.published import published_with
from sparktui.ui.widgets.drawing import Drawing, Piece, Row, filled, row_width
from sparktui.ui.widgets.published import Preview, PublishedSpeed, read_preview

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs

FRAMES_PER_SECOND = 8
SMALLEST_FOUR_COLUMNS = 60
"""Narrower, four at once are two rows of lines, each its own stream."""


class DecodePreview(Drawing):
    """Plays once and then rests; `switch()` (key `p`) plays the other case.

    Args:
        playing: begin at once; else the text stands there whole until `switch()`.
        clock: seconds, monotonic.
    """

    BORDER_TITLE = "published decode speed"

    def __init__(
        self,
        *,
        playing: bool = True,
        sparks: int = 3,
        clock: Callable[[], float] = time.monotonic,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        self._clock = clock
        self._preview: Preview | None = None
        self._sparks = sparks
        self._which = 0
        self._begun: float | None = None
        self._begin_at_once = playing
        self._timer: Timer | None = None
        self._tokens: float | None = None
        self._played = False
        self.measured: float | None = None
        self.running_requests: int | None = None
        super().__init__(id=id, classes=classes)

    def show(self, measured: float | None, sparks: int = 3, running_requests: int | None = None) -> None:
        """Decode tokens a second as measured, of all running requests together; None where nobody knows."""
        if sparks != self._sparks:
            self._sparks, self._preview, self._which = sparks, None, 0
        elif (measured, running_requests) == (self.measured, self.running_requests):
            return
        self.measured, self.running_requests = measured, running_requests
        self.redraw()

    @property
    def preview(self) -> Preview:
        if self._preview is None:
            self._preview = read_preview(self._sparks)
        return self._preview

    @property
    def speed(self) -> PublishedSpeed:
        return self.preview.speeds[self._which]

    @property
    def playing(self) -> bool:
        return self._timer is not None

    def play(self) -> None:
        """From the beginning."""
        self._begun, self._tokens, self._played = self._clock(), 0.0, True
        if self._timer is None:
            self._timer = self.set_interval(1 / FRAMES_PER_SECOND, self._frame)
        self.redraw()

    def stop(self) -> None:
        """The whole text stands."""
        if self._timer is not None:
            self._timer.stop()
        self._timer, self._begun, self._tokens = None, None, None
        self.redraw()

    def switch(self) -> None:
        """The other case, from the beginning."""
        if self._played:
            self._which = (self._which + 1) % len(self.preview.speeds)
        self.play()

    def on_mount(self) -> None:
        if self._begin_at_once:
            self.play()

    def on_hide(self) -> None:
        self.stop()

    def _frame(self) -> None:
        if not self.is_on_screen or not self.screen.is_active:
            self.stop()
            return
        assert self._begun is not None
        self._tokens = (self._clock() - self._begun) * self.speed.each_tokens_per_second
        if self._tokens * self.preview.characters_per_token >= len(self.preview.text):
            self.stop()
            return
        self.redraw()

    def rows(self, width: int, height: int, glyphs: Glyphs) -> Sequence[Row]:
        heading = [
            *heading_rows(self.speed, self.measured, self.running_requests, width, glyphs),
            *about_rows(self._sparks, width),
        ][: max(1, height - 3)]
        if not self._played:
            return [*heading, *_head(self.preview.text, width, height - len(heading))]
        typed = (
            len(self.preview.text) if self._tokens is None else int(self._tokens * self.preview.characters_per_token)
        )
        return [*heading, *typed_rows(self.preview.text, typed, self.speed.requests, width, height - len(heading))]

    def height_wanted(self, width: int) -> int:
        return 8 + len(about_rows(self._sparks, width))


def heading_rows(
    speed: PublishedSpeed, measured: float | None, running: int | None, width: int, glyphs: Glyphs
) -> list[Row]:
    """What is played, what else is published (the lower figure first), and what was measured here."""
    if speed.requests == 1:
        figures = sorted({speed.each_tokens_per_second, *speed.others})
        published = " and ".join(f"{figure:.1f}" for figure in figures)
        long = short = f"{published} tok/s"
        if len(figures) > 1:
            long = f"{published} tok/s are published; played at {speed.each_tokens_per_second:.1f}"
        name = "one request"
    else:
        name = f"{'four' if speed.requests == 4 else speed.requests} at once"
        long = f"{speed.each_tokens_per_second:.1f} tok/s each, {speed.combined_tokens_per_second:.1f} combined"
        short = f"{speed.each_tokens_per_second:.1f} each, {speed.combined_tokens_per_second:.1f} combined"
    result: list[Piece] = []
    if running == 0:
        result = [("your endpoint is idle", "$quiet")]
    elif measured is not None:
        together = f", {running} requests" if running is not None and running > 1 else ""
        result = [(f"measured {measured:.1f} tok/s{together}", "$success bold")]
    wide: list[Piece] = [(name, "bold"), ("  ", ""), (long, "$quiet")]
    if row_width(wide) + row_width(result) + 2 <= width:
        return [filled(wide, result, width, glyphs.ellipsis)]
    first: list[Piece] = [(name, "bold"), ("  ", ""), (long, "$quiet")]
    if row_width(first) > width:
        first = [(name, "bold"), ("  ", ""), (short, "$quiet")]
    return [filled(first, [], width, glyphs.ellipsis), *([tuple(result)] if result else [])]


def about_rows(sparks: int, width: int) -> list[Row]:
    """What the published speed was measured with."""
    return [((line, "$quiet"),) for line in textwrap.wrap(published_with(sparks), max(20, width))]


def typed_rows(text: str, typed: int, requests: int, width: int, height: int) -> list[Row]:
    """The newest lines of what is typed; four at once in four columns, or stacked where the pane is narrow."""
    if height < 1 or width < 8:
        return []
    if requests == 1:
        return _tail(text[:typed], width, height)
    if width >= SMALLEST_FOUR_COLUMNS:
        column = (width - 2 * (requests - 1)) // requests
        streams = [_tail(part[:typed], column, height) for part in _parts(text, requests)]
        return [_beside([stream[y] if y < len(stream) else () for stream in streams], column) for y in range(height)]
    each = max(1, height // requests)
    rows: list[Row] = []
    for part in _parts(text, requests):
        lines = _tail(part[:typed], width - 2, each)
        rows += [((("> " if at == 0 else "  "), "$quiet"), *line) for at, line in enumerate(lines)]
        rows += [()] * (each - len(lines))
    return rows[:height]


def _parts(text: str, requests: int) -> list[str]:
    """Each stream begins at another paragraph and goes round."""
    paragraphs = text.split("\n\n")
    return ["\n\n".join(paragraphs[first:] + paragraphs[:first]) for first in range(requests)]


def _head(text: str, width: int, height: int) -> list[Row]:
    return [((line, ""),) for line in _lines(text, max(8, width))[: max(0, height)]]


def _tail(text: str, width: int, height: int) -> list[Row]:
    return [((line, ""),) for line in _lines(text, width)[-height:]]


@lru_cache(maxsize=8)
def _lines(text: str, width: int) -> tuple[str, ...]:
    return tuple(line for paragraph in text.split("\n\n") for line in (textwrap.wrap(paragraph, width) or [""]))


def _beside(cells: Sequence[Row], column: int) -> Row:
    row: list[Piece] = []
    for cell in cells:
        row += [*cell, (" " * (column - row_width(cell) + 2), "")]
    return tuple(row)
