"""The logs screen: every rank's output in one view; which ranks, what is searched for, and what failed first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from sparktui.errors import SparktuiError
from sparktui.ui.frame import FrameScreen
from sparktui.ui.logs.book import LogBook
from sparktui.ui.logs.intake import Intake, as_text
from sparktui.ui.logs.pattern import Pattern, PatternRefused
from sparktui.ui.logs.whole_line import WholeLine
from sparktui.ui.messages import Copied
from sparktui.ui.widgets.log_view import LogView
from sparktui.ui.wrapping import hanging

if TYPE_CHECKING:
    from sparktui.telemetry.rank_log_stream import LogBatch

SLICE_PAUSE_SECONDS = 1 / 60
PART_PAUSE_SECONDS = 0.004
MOST_FIX_ROWS = 3
"""Of what to do about the first error; the longest that is known has two at 80 columns."""


class LogsScreen(FrameScreen):
    name_shown: ClassVar[str] = "logs"
    AUTO_FOCUS = "LogView"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "filter", key_display="/", id="logs.search", 
                tooltip="Show only lines with these words"),
        Binding("f", "follow", "follow", id="logs.follow", tooltip="Follow the newest line, or stay"),
        Binding("exclamation_mark,E", "first_error", "first error", key_display="!", id="logs.error",
                tooltip="The line that failed first, of all ranks"),
        Binding("r", "cycle", "rank", id="logs.cycle", tooltip="One rank after the other, then all"),
        Binding("n", "next(1)", "next", id="logs.next", tooltip="Next match"),
        Binding("N", "next(-1)", "previous", show=False, id="logs.previous", tooltip="Match before"),
        Binding("x", "context", "around", id="logs.context", tooltip="All lines around the matches, or only matches"),
        Binding("c", "copy", "copy", id="logs.copy", tooltip="Copy the marked lines, or those that are seen"),
        Binding("y", "path", "saved file", show=False, id="logs.path", tooltip="Where this rank's saved log is"),
        Binding("a", "rank(-1)", "all ranks", show=False, id="logs.all", tooltip="All ranks"),
        *(
            Binding(str(rank), f"rank({rank})", f"rank {rank}", show=False, id=f"logs.rank-{rank}",
                    tooltip=f"Only rank {rank}")
            for rank in range(8)
        ),
        Binding("ctrl+r", "regex", "regex", show=False, id="logs.regex", tooltip="Words or a regular expression"),
        Binding("escape", "clear", "clear", show=False, id="logs.clear", tooltip="No mark; then no filter"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.book = LogBook()
        self.intake = Intake(self.book)
        self.regex = False
        self._before_search: tuple[Pattern | None, bool] = (None, False)
        self._followed: object = None
        self._slicing: Timer | None = None
        self._shown: dict[str, Content] = {}

    def body(self) -> Iterable[Widget]:
        yield Static(id="logs-status", markup=False)
        with Horizontal(id="logs-search"):
            yield Static(id="logs-search-kind", markup=False)
            yield Input(id="logs-pattern", select_on_focus=False)
            yield Static(id="logs-search-word", markup=False)
        yield Static(id="logs-error", markup=False)
        yield Static(id="logs-nodes", markup=False)
        yield LogView(self.book, glyphs=self.app.glyphs, id="logs-view")

    @property
    def view(self) -> LogView:
        return self.query_one(LogView)

    # what comes

    def refresh_data(self) -> None:
        """Begin to follow when the settings are known, and anew when they are others."""
        settings = self.app.session.settings
        if settings is not None and settings is not self._followed:
            self._followed = settings
            self.app.run_worker(self._follow(), group="logs", exclusive=True, exit_on_error=False)
        if settings is not None:
            names = [node.name for node in settings.nodes]
            self.view.show_names(names)
        self._after_lines()

    async def _follow(self) -> None:
        """Take in what the ranks say until the app ends; only numbers are kept up while this is not seen."""
        from sparktui.telemetry.rank_log_stream import RankLogStream

        settings = self.app.session.settings
        assert settings is not None
        try:
            links = await self.app.session.links()
        except SparktuiError as error:
            self.intake.say_all("; ".join(error.lines()))
            self._after_lines()
            return
        stream = RankLogStream(links, settings.logs_dir, mask=settings.mask)
        async with aclosing(cast("AsyncGenerator[LogBatch]", stream.batches())) as batches:
            async for batch in batches:
                # In parts, with nothing to do between them: a key's way to the screen is many small turns of the loop.
                for _ in self.intake.take(batch):
                    await asyncio.sleep(PART_PAUSE_SECONDS)
                self._after_lines()

    def _after_lines(self) -> None:
        if self.is_current:
            self._advance()
            self.view.changed()
            self._show_words()

    def _advance(self) -> None:
        """Look for matches for a moment; go on a frame later where that was not enough."""
        done = self.book.advance()
        if not done and self._slicing is None:
            self._slicing = self.set_timer(SLICE_PAUSE_SECONDS, self._next_slice)

    def _next_slice(self) -> None:
        self._slicing = None
        self._after_lines()

    # what is said

    def _show_words(self) -> None:
        self._put("#logs-status", self._status())
        self._put("#logs-error", self._error())
        silent = self._silent()
        self.query_one("#logs-nodes").display = bool(silent)
        self._put("#logs-nodes", silent)

    def _put(self, selector: str, content: Content) -> None:
        """Only what changed is drawn."""
        before = self._shown.get(selector)
        if before is not None and before.is_same(content):
            return
        self._shown[selector] = content
        same_height = before is not None and before.plain.count("\n") == content.plain.count("\n")
        self.query_one(selector, Static).update(content, layout=not same_height or bool(before) != bool(content))

    def _status(self) -> Content:
        book = self.book
        place = self.view.place
        rank = "all ranks" if book.rank is None else f"only {self._name_of(book.rank)}"
        parts = [Content.styled(f" {rank}", "bold")]
        if book.pattern is not None:
            kind = "regex" if book.pattern.regex else "words"
            parts.append(Content.assemble((f"{kind} ", "$quiet"), (book.pattern.text, "$accent")))
            parts.append(Content.styled(f"{book.matches:,} match{'es' if book.matches != 1 else ''}", "$quiet"))
            if not book.only_matches:
                parts.append(Content.styled("all lines shown", "$quiet"))
        else:
            parts.append(Content.styled(f"{book.count:,} line{'s' if book.count != 1 else ''}", "$quiet"))
        if self.intake.dropped:
            parts.append(Content.styled(f"{self.intake.dropped:,} dropped", "$warning"))
        if place.following:
            word = Content.styled("FOLLOWING ", "$success bold")
        else:
            below = f"{place.below:,} new line{'s' if place.below != 1 else ''} below" if place.below else "at the end"
            word = Content.styled(f"NOT FOLLOWING, {below} ", "$warning bold")
        left = Content("  ").join(parts)
        room = max(0, self.size.width - word.cell_length)
        return Content.assemble(left.truncate(room, ellipsis=True, pad=True), word)

    def _error(self) -> Content:
        first = self.intake.errors.found
        width = max(10, self.size.width - 1)
        if first is None:
            return Content.styled(" no error seen so far", "$quiet")
        who = f"rank {first.row.rank} {first.row.node}"
        word = "first error" if not first.consequence else "an error, as a consequence"
        cause = Content.assemble(
            (f" {self.app.glyphs.failed} {word}: {who}: ", "$error bold"), (first.cause, "$error")
        ).truncate(width, ellipsis=True)
        fix = hanging(first.fix, width, first=Content.styled("   next: ", "$quiet"), indent=9)
        return Content("\n").join([cause, *fix[:MOST_FIX_ROWS]])

    def _silent(self) -> Content:
        lines = [
            Content.styled(f" {self.app.glyphs.warn} {node}: {why}", "$warning").truncate(
                max(10, self.size.width), ellipsis=True
            )
            for node, why in sorted(self.intake.silent.items())
        ]
        return Content("\n").join(lines)

    def _name_of(self, rank: int) -> str:
        settings = self.app.session.settings
        name = next((node.name for node in settings.nodes if node.rank == rank), "") if settings is not None else ""
        return f"rank {rank} {name}".rstrip()

    # which lines

    def _choose(self, *, rank: int | None, pattern: Pattern | None, only_matches: bool) -> None:
        self.book.choose(rank=rank, pattern=pattern, only_matches=only_matches)
        self._advance()
        self.view.chosen_anew()
        self._show_words()

    def action_rank(self, rank: int) -> None:
        settings = self.app.session.settings
        ranks = len(settings.nodes) if settings is not None else 0
        if rank >= ranks:
            return
        wanted = None if rank < 0 or rank == self.book.rank else rank
        self._choose(rank=wanted, pattern=self.book.pattern, only_matches=self.book.only_matches)

    def action_cycle(self) -> None:
        settings = self.app.session.settings
        ranks = len(settings.nodes) if settings is not None else 0
        following = 0 if self.book.rank is None else self.book.rank + 1
        wanted = following if following < ranks else None
        self._choose(rank=wanted, pattern=self.book.pattern, only_matches=self.book.only_matches)

    def action_search(self) -> None:
        self._before_search = (self.book.pattern, self.regex)
        self.add_class("-searching")
        field = self.query_one("#logs-pattern", Input)
        field.value = self.book.pattern.text if self.book.pattern else ""
        self._show_kind()
        field.focus()
        field.cursor_position = len(field.value)

    def _show_kind(self, refused: str = "") -> None:
        kind = "regex " if self.regex else "words "
        self.query_one("#logs-search-kind", Static).update(Content.styled(f" {kind}/", "$accent bold"))
        other = "words" if self.regex else "regex"
        word = Content.styled(f" {refused}", "$error") if refused else Content.styled(f" ctrl+r {other}", "$quiet")
        self.query_one("#logs-search-word", Static).update(word)

    @on(Input.Changed, "#logs-pattern")
    def _typed(self) -> None:
        if self.has_class("-searching"):
            self._take_pattern()

    def _take_pattern(self) -> bool:
        text = self.query_one("#logs-pattern", Input).value
        try:
            pattern = Pattern.of(text, regex=self.regex)
        except PatternRefused as refused:
            self._show_kind(str(refused))
            return False
        self._show_kind()
        self._choose(rank=self.book.rank, pattern=pattern, only_matches=self.book.only_matches)
        return True

    @on(Input.Submitted, "#logs-pattern")
    def _searched(self) -> None:
        if self._take_pattern():
            self._end_search()

    def _end_search(self) -> None:
        self.remove_class("-searching")
        self.view.focus()

    def action_regex(self) -> None:
        self.regex = not self.regex
        self._take_pattern()

    def action_clear(self) -> None:
        if self.has_class("-searching"):
            pattern, self.regex = self._before_search
            self._end_search()
            self._choose(rank=self.book.rank, pattern=pattern, only_matches=self.book.only_matches)
        elif self.view.marking:
            self.view.unmark()
        elif self.book.pattern is not None:
            self.query_one("#logs-pattern", Input).value = ""
            self._choose(rank=self.book.rank, pattern=None, only_matches=True)

    def action_context(self) -> None:
        if self.book.pattern is not None:
            self._choose(rank=self.book.rank, pattern=self.book.pattern, only_matches=not self.book.only_matches)

    # where to

    def action_follow(self) -> None:
        if self.view.following:
            self.view.hold()
        else:
            self.view.action_follow()
        self._put("#logs-status", self._status())

    def action_next(self, step: int) -> None:
        number = self.book.match_from(self.view.cursor, step)
        if number is not None:
            self.view.go_to(number)
        elif self.book.pattern is not None:
            self.notify("no match after this line" if step > 0 else "no match before this line", markup=False)

    def action_first_error(self) -> None:
        first = self.intake.errors.found
        if first is None:
            self.notify("no rank has said an error that is known", markup=False)
            return
        if first.number < self.book.first:
            self.app.push_screen(WholeLine(first.row))
            self.notify("it is older than the lines that are kept here; y says where the file is", markup=False)
            return
        if self.book.rank is not None or (self.book.pattern is not None and self.book.only_matches):
            self._choose(rank=None, pattern=self.book.pattern, only_matches=False)
        self.view.go_to(first.number)

    def on_log_view_place_changed(self) -> None:
        if self.is_current:
            self._put("#logs-status", self._status())

    def on_log_view_line_chosen(self, message: LogView.LineChosen) -> None:
        self.app.push_screen(WholeLine(message.row))

    # to take away

    def action_copy(self) -> None:
        rows = self.view.picked()
        if rows:
            what = f"{len(rows)} marked line{'s' if len(rows) != 1 else ''}" if self.view.marking else "the lines seen"
            self.post_message(Copied("\n".join(as_text(row) for row in rows), what))

    async def action_path(self) -> None:
        settings = self.app.session.settings
        if settings is None:
            return
        from sparktui.rank_logs import saved_log

        row = self.book.row(self.view.cursor)
        node = row.node if row is not None and row.rank is not None else "head"
        path = await asyncio.to_thread(saved_log, settings.logs_dir, node)
        if path is None:
            self.notify(f"no log of {node} is saved yet; sparktui stop saves it", markup=False)
        else:
            self.post_message(Copied(str(path), f"the path of {node}'s saved log"))
