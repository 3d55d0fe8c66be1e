"""The wizard screen: the rail of steps, the step that is selected, the live panes, and what enter will do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import Static

from sparktui.errors import SparktuiError
from sparktui.runs.view import StepState
from sparktui.steps.step import Command
from sparktui.ui.messages import Copied, StepRequested
from sparktui.ui.wizard.lines import Panel, Shown
from sparktui.ui.wizard.obvious import NOTHING, Does, Enter, enter_does
from sparktui.ui.wizard.panel import all_commands, commands_panel, panel_of, trouble_panel
from sparktui.ui.wizard.panes import ROWS_A_PANE, LivePanes
from sparktui.ui.wizard.rail import Rail
from sparktui.ui.wizard.rows import Known, StepRow, next_row, rail
from sparktui.ui.wizard.run_actions import RunActions
from sparktui.ui.wizard.words import StepWords, words_of

if TYPE_CHECKING:
    from sparktui.cluster.fabric import FabricPlan

BESIDE_COLUMNS = 120
"""From this width on the live panes stand beside the step; below they are a strip under it."""
ROOMY_ROWS = 32
KEY_ORDER = ("enter", "?", "q", "^x", "a", "x", "m", "l", "s", "r", "c", "t", "e")
"""Which keys keep their place on a narrow key line."""

POINT = "Point at the next finding, or at the one before"
PANE = "The live pane before or after"
PAGE = "The step's text, a page up or down"


class WizardScreen(RunActions):
    name_shown: ClassVar[str] = "wizard"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "enter",
            "next",
            key_display="enter",
            id="wizard.enter",
            tooltip="The obvious next thing; the line above says what",
        ),
        Binding("up,k", "select(-1)", "up", show=False, id="wizard.up", tooltip="The step above or below"),
        Binding("down,j", "select(1)", "down", show=False, id="wizard.down", tooltip="The step above or below"),
        Binding("a", "all", "all", id="wizard.all", tooltip="Run all that is left, up to the smoke test"),
        Binding("r", "again", "again", id="wizard.again", tooltip="Run the selected step again, even if it is done"),
        Binding("x", "commands", "commands", id="wizard.commands", tooltip="The exact commands of this step"),
        Binding("ctrl+x", "cancel", "cancel", id="wizard.cancel", tooltip="Cancel the run; what is done stays done"),
        Binding("c", "copy", "copy", id="wizard.copy", tooltip="Copy the finding or error that is pointed at"),
        Binding("n", "point(1)", "point", show=False, id="wizard.point", tooltip=POINT),
        Binding("N", "point(-1)", "point", show=False, id="wizard.point-back", tooltip=POINT),
        Binding("o", "unfold", "unfold", show=False, id="wizard.unfold", tooltip="Findings that are OK, one by one"),
        Binding("y", "copy_all", "copy all", show=False, id="wizard.copy-all", tooltip="Copy all commands shown"),
        Binding("left_square_bracket", "pane(-1)", "pane", show=False, id="wizard.pane-before", tooltip=PANE),
        Binding("right_square_bracket", "pane(1)", "pane", show=False, id="wizard.pane", tooltip=PANE),
        Binding("p", "preview", "preview", show=False, id="wizard.preview", tooltip="Decode preview: the other case"),
        Binding("pageup,b", "scroll(-1)", "page up", show=False, id="wizard.page-up", tooltip=PAGE),
        Binding("pagedown,space", "scroll(1)", "page down", show=False, id="wizard.page-down", tooltip=PAGE),
        Binding("f", "follow", "follow", show=False, id="wizard.follow", tooltip="Go with the running step again"),
        Binding("escape", "leave_view", "back", show=False, id="wizard.leave-view", tooltip="Back from the commands"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.rows: tuple[StepRow, ...] = ()
        self.selected = ""
        self.following = True
        """The selection goes with the running step until the person moves it."""
        self.unfolded = False
        self.focused_thing = 0
        self.commands: list[Command] | SparktuiError | None = None
        self.shows_commands = False
        self.panel = Panel()
        self.pane_chosen = False
        self._enter_shown: Enter | None = None
        self._seen_running = ""
        """The run that this screen saw going on."""

    def body(self) -> Iterable[Widget]:
        with Horizontal(id="wizard"):
            yield Rail(id="rail")
            with VerticalScroll(id="step", can_focus=False):
                yield Static("", id="step-text", markup=False)
            yield LivePanes(id="live")
        yield Static("", id="enter-line", markup=False)

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(1.0, self._second)

    def _second(self) -> None:
        """Times that grow while something runs."""
        if self.app.screen is self and (self.app.run_view.active or any(each.changes for each in self.app.boots)):
            self.refresh_data()

    def on_resize(self, event: Resize | None = None) -> None:
        super().on_resize()
        self.call_after_refresh(self.refresh_data)

    # what is shown

    @property
    def words(self) -> StepWords:
        return words_of(self.selected, self.app.session.settings)

    @property
    def enter(self) -> Enter:
        settings = self.app.session.settings
        return enter_does(
            self.rows,
            self.app.run_view,
            waiting=self.waiting,
            selected=self.selected,
            starting=self.app.starting,
            trouble=bool(self.app.trouble),
            ready=settings is not None,
            where=lambda verb: words_of(verb, settings).where,
        )

    @property
    def row(self) -> StepRow | None:
        return next((row for row in self.rows if row.verb == self.selected), None)

    @property
    def serving(self) -> bool:
        return any(row.verb == "serve" and row.state is StepState.DONE for row in self.rows)

    def refresh_data(self) -> None:
        if not self.is_mounted or not self.query("#enter-line"):
            return  # not yet there, or being taken down
        app = self.app
        self.rows = rail(
            app.session.chain,
            Known(
                app.run_view,
                app.inspections,
                app.inspected_at,
                app.looking,
                app.remembered,
                app.starting,
                app.clock(),
            ),
        )
        self._select_by_itself()
        wide = app.size.width >= BESIDE_COLUMNS
        self.set_class(wide, "-beside")
        self.set_class(not wide, "-strip")
        self.query_one(Rail).show(self.rows, self.selected)
        self._show_step()
        self._show_panes(wide)
        self._show_enter()
        self.open_question()

    def _select_by_itself(self) -> None:
        """The step that runs; else where the last run stopped; else the first that is not done."""
        run = self.app.run_view
        verbs = [row.verb for row in self.rows]
        if run.active:
            self._seen_running = run.run_id
        current = run.current or next(iter(run.verbs), "")
        running = current if run.active else self.app.starting
        stopped = run.finished is not None and (run.finished.exit_status != 0 or run.run_id == self._seen_running)
        if not self.following or (self.starts_up and self.selected):
            wanted = self.selected
        elif running in verbs:
            wanted = running
        elif stopped and current in verbs:
            wanted = current
        else:
            first = next_row(self.rows)
            wanted = first.verb if first is not None else verbs[-1]
        self._select(wanted)

    @property
    def starts_up(self) -> bool:
        """The nodes are asked and nothing runs: where to stand is known in a moment."""
        return bool(self.app.looking) and not self.app.run_view.active and not self.app.starting

    def _select(self, verb: str) -> None:
        if verb != self.selected:
            self.selected = verb
            self.focused_thing = 0
            self.unfolded = False
            self.pane_chosen = False
            self.shows_commands = False
            self.query_one("#step", VerticalScroll).scroll_home(animate=False)

    def _show_step(self) -> None:
        panel = self._panel()
        if panel != self.panel:
            self.panel = panel
            self.query_one("#step-text", Static).update(panel.content)

    def _panel(self) -> Panel:
        app = self.app
        room = self.query_one("#step", VerticalScroll).scrollable_content_region.width
        shown = Shown(
            width=room or 48,
            now=app.clock(),
            focused=self.focused_thing,
            unfolded=self.unfolded,
            banner=app.session.start.banner,
            short=app.size.height < ROOMY_ROWS,
        )
        if app.trouble:
            return trouble_panel(app.trouble, str(app.session.start.env_file), shown, app.glyphs)
        if self.shows_commands:
            return commands_panel(self.words, self.commands, shown, app.glyphs)
        row = self.row
        if row is None:
            return Panel()
        notes = app.run_view.notes if row.verb == app.run_view.current else ()
        enter = self.enter
        then = None
        if enter.does is Does.RUN and enter.verb != row.verb:
            then = enter.verb, words_of(enter.verb, app.session.settings)
        return panel_of(row, self.words, shown, app.glyphs, notes=notes, refused=app.refused, then=then)

    def _show_panes(self, wide: bool) -> None:
        app = self.app
        panes = self.query_one(LivePanes)
        if not self.pane_chosen:
            panes.pick(self.words.pane)
        panes.fit((app.size.height - 3) // ROWS_A_PANE if wide else 1)
        settings = app.session.settings
        sparks = len(settings.nodes) if settings is not None else 3
        panes.show(app.snapshot, app.boots, self._plan(), sparks, app.monotonic())

    def _plan(self) -> FabricPlan | None:
        settings = self.app.session.settings
        if settings is None:
            return None
        from sparktui.cluster.fabric import fabric_plan

        names = [node.name for node in settings.nodes]
        return fabric_plan(settings.profile.fabric, names, settings.rdma_devices)

    def _show_enter(self) -> None:
        enter = self.enter
        width = self.app.size.width - 1
        line = Content.assemble((" enter", "$accent bold"), f": {enter.text}").truncate(width, ellipsis=True)
        run = self.app.run_view
        left = sum(row.state is not StepState.DONE for row in self.rows)
        more = Content("")
        if self.waiting is not None:
            more = Content.styled("   a question waits", "$warning bold")
        elif run.active and run.current not in ("", self.selected):
            more = Content.styled(f"   {run.current} is running", "$quiet")
        elif enter.does is Does.RUN and left > 1:
            more = Content.assemble("   ", ("a", "$accent bold"), (f": all {left} that are left", "$quiet"))
        if line.cell_length + more.cell_length <= width:
            line = Content.assemble(line, more)
        self.query_one("#enter-line", Static).update(line)
        if enter != self._enter_shown:
            self._enter_shown = enter
            self.show_frame()

    def keys_shown(self) -> list[tuple[str, str]]:
        """What enter does in words; where not all fit, those that matter most, in their usual order."""
        pairs = [(key, self.enter.word if word == "next" else word) for key, word in super().keys_shown()]
        pairs = [pair for pair in pairs if pair[1] != NOTHING]
        room = self.app.size.width - 1
        kept = set()
        for key, word in sorted(pairs, key=_importance):
            needed = len(key) + len(word) + 3
            if needed <= room:
                room -= needed
                kept.add(key)
        return [pair for pair in pairs if pair[0] in kept]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        run = self.app.run_view
        if action == "cancel":
            return run.active
        if action in ("all", "again"):
            return True if self.app.session.settings is not None and not run.active else None
        if action == "commands":
            return True if self.app.session.settings is not None else None
        return True

    # moving

    def action_select(self, by: int) -> None:
        verbs = [row.verb for row in self.rows]
        if not verbs:
            return
        self.following = False
        at = verbs.index(self.selected) if self.selected in verbs else 0
        self._select(verbs[max(0, min(len(verbs) - 1, at + by))])
        self.refresh_data()

    def on_rail_chosen(self, message: Rail.Chosen) -> None:
        self.following = False
        self._select(message.verb)
        self.refresh_data()

    def action_follow(self) -> None:
        self.following = True
        self.refresh_data()

    def action_leave_view(self) -> None:
        self.shows_commands = False
        self.refresh_data()

    def action_scroll(self, direction: int) -> None:
        step = self.query_one("#step", VerticalScroll)
        step.scroll_relative(y=direction * max(1, step.size.height - 2), animate=False, immediate=True)

    def action_pane(self, by: int) -> None:
        self.pane_chosen = True
        self.query_one(LivePanes).step(by)

    def action_preview(self) -> None:
        self.pane_chosen = True
        live = self.query_one(LivePanes)
        live.pick("decode")
        if live.panes is not None:
            live.panes.decode.switch()

    def on_live_panes_filled(self) -> None:
        self.refresh_data()

    def action_unfold(self) -> None:
        self.unfolded = not self.unfolded
        self.refresh_data()

    def action_point(self, by: int) -> None:
        count = len(self.panel.copyables)
        if count:
            self.focused_thing = (self.focused_thing + by) % count
            self.refresh_data()
            line = self.panel.copyables[self.focused_thing].line
            step = self.query_one("#step", VerticalScroll)
            step.scroll_to(y=max(0, line - step.size.height // 2), animate=False)

    # copying

    def action_copy(self) -> None:
        if not self.panel.copyables:
            self.notify("there is nothing to copy here", markup=False)
            return
        thing = self.panel.copyables[min(self.focused_thing, len(self.panel.copyables) - 1)]
        self.post_message(Copied(thing.text, thing.what))

    def action_copy_all(self) -> None:
        if self.shows_commands and isinstance(self.commands, list) and self.commands:
            self.post_message(Copied(all_commands(self.commands), f"all commands of {self.selected}"))
        else:
            self.action_copy()

    # the exact commands

    def action_commands(self) -> None:
        self.shows_commands = not self.shows_commands
        self.commands = None
        self.focused_thing = 0
        if self.shows_commands:
            self.ask_for_commands(self.selected)
        self.refresh_data()

    @work(group="commands", exclusive=True, exit_on_error=False)
    async def ask_for_commands(self, verb: str) -> None:
        answer: list[Command] | SparktuiError
        try:
            answer = await self.app.session.commands(verb)
        except SparktuiError as error:
            answer = error
        if verb == self.selected:
            self.commands = answer
            self.refresh_data()

    # doing

    def action_enter(self) -> None:
        enter = self.enter
        match enter.does:
            case Does.SETTINGS:
                self.app.action_settings()
            case Does.ANSWER:
                self.ask_again()
            case Does.SHOW:
                self.following = True
                self._select(enter.verb)
                self.refresh_data()
            case Does.RUN:
                self.following = True
                self.post_message(StepRequested((enter.verb,)))
            case Does.TALK:
                self.app.action_talk()
            case Does.WAIT:
                pass

    def action_all(self) -> None:
        self.following = True
        self.post_message(StepRequested(self.app.session.chain))


def _importance(pair: tuple[str, str]) -> int:
    return KEY_ORDER.index(pair[0]) if pair[0] in KEY_ORDER else len(KEY_ORDER)
