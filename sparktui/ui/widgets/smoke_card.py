"""The smoke test from any screen: it starts when the card opens, its rows fill as the answers come."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from sparktui.events import Finding, State
from sparktui.printing import plain, seconds_text
from sparktui.runs.view import StepState, StepView
from sparktui.steps.step import Inspection
from sparktui.telemetry.sample import EndpointState
from sparktui.ui.messages import Copied, StepRequested

if TYPE_CHECKING:
    from sparktui.ui.app import SparkApp
    from sparktui.ui.glyphs import Glyphs

CARD_COLUMNS = 70
"""Inside the card, where the terminal has them."""
SAID_COLUMN = 33
"""Where an answer begins: mark 10, words 14, seconds 7, two blanks."""
CHECKS = {
    "arithmetic": "19 + 23",
    "json": "strict JSON",
    "tool": "one tool call",
    "picture": "one picture",
    "cut": "a cut-off call",
    "reasoning": "a second turn",
    "loop": "a loop",
    "placeholder": "image's token",
    "thinking": "no budget",
}
"""Check to at most fourteen characters; a quick smoke makes the first alone."""
STYLES = {
    State.OK: "$success",
    State.WARN: "$warning",
    State.FAIL: "$error bold",
    State.UNKNOWN: "$warning",
    State.INFO: "$quiet",
}


class SmokeCard(ModalScreen[None]):
    """Leaving the card stops nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,s", "dismiss", "close", id="smoke.close", tooltip="Close the card; the test goes on"),
        Binding("r", "again", "again", id="smoke.again", tooltip="Ask the endpoint once more"),
        Binding("c,y", "copy", "copy", id="smoke.copy", tooltip="Copy the results"),
    ]

    app: SparkApp

    def __init__(self) -> None:
        self.seen_before = ""
        """The run that was the newest when the test was asked for: its rows are not this test's."""
        self.asked_for = False
        super().__init__()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="card", id="smoke-card", can_focus=False):
            yield Static("", id="smoke-text", markup=False)

    def on_mount(self) -> None:
        for name in ("run_view", "starting", "refused", "snapshot", "inspections"):
            self.watch(self.app, name, self.show_rows, init=False)
        if self._running_step() is None and self.hindrance() is None:
            self._start()
        self.show_rows()

    def hindrance(self) -> tuple[str, str] | None:
        """(why no test can be made now, what to do), or None."""
        app = self.app
        run = app.run_view
        ours = self.asked_for and run.run_id != self.seen_before
        if run.active and run.current != "smoke" and not ours:
            what = run.current or "a run"
            return f"{what} is running, and one run at a time changes this cluster", "when it has ended: s"
        serving = app.snapshot.serving
        if serving.state is EndpointState.READY:
            return None
        serve = app.inspections.get("serve")
        if serving.state is EndpointState.HANGS:
            return serving.problem, "sparktui stop, then serve: w, then enter"
        if serving.state is EndpointState.STARTING:
            return "the endpoint is still starting", "wait until it is ready; the boot ladder shows how far it is"
        if serving.state is EndpointState.DOWN or (isinstance(serve, Inspection) and not serve.done):
            return "no endpoint answers, so there is nobody to ask", "run serve: w, then enter (or sparktui serve)"
        return None

    def _start(self) -> None:
        self.seen_before, self.asked_for = self.app.run_view.run_id, True
        self.app.post_message(StepRequested(("smoke",)))

    def action_again(self) -> None:
        if not self.app.run_view.active and not self.app.starting and self.hindrance() is None:
            self._start()
            self.show_rows()

    def _running_step(self) -> StepView | None:
        run = self.app.run_view
        return run.step("smoke") if run.active and run.current == "smoke" else None

    def step_shown(self) -> StepView | None:
        """The smoke step that this card is about: the one that runs, or that it has started."""
        run = self.app.run_view
        step = run.step("smoke")
        if self.asked_for and run.run_id == self.seen_before:
            return None
        if step is not None and step.state is not StepState.TODO and (self.asked_for or run.active):
            return step
        return None

    def show_rows(self) -> None:
        for text in self.query("#smoke-text").results(Static):
            text.update(self._content())

    def _content(self) -> Content:
        glyphs = self.app.glyphs
        title = Content.assemble(("Smoke test", "bold"), ("  nine checks, each answer judged", "$quiet"))
        banner = self.app.session.start.banner
        if banner:
            title = Content.assemble((f"{banner}  ", "$simulated bold"), title)
        lines = [title, Content("")]
        width = min(CARD_COLUMNS, self.app.size.width - 10)
        hindrance, step = self.hindrance(), self.step_shown()
        last = self.app.remembered.get("smoke")
        if step is not None:
            lines += [
                *smoke_rows(step.findings, glyphs, running=step.state is StepState.RUNNING, width=width),
                Content(""),
            ]
            lines += self._verdict(step)
        elif hindrance is not None:
            why, fix = hindrance
            lines += [Content.styled(f"{glyphs.blocked} {why}", "$warning"), Content(f"  next: {fix}")]
            if last is not None and last.findings:
                lines += [Content(""), Content.styled("the last one:", "$quiet")]
                lines += smoke_rows(last.findings, glyphs, running=False, width=width)
        else:
            lines += smoke_rows((), glyphs, running=bool(self.app.starting))
            lines.append(Content(""))
            if self.app.refused is not None and self.asked_for:
                first, *more = self.app.refused.lines()
                lines.append(Content.styled(f"{glyphs.failed} it did not start: {plain(first)}", "$error"))
                lines += [Content(plain(line)) for line in more]
            else:
                lines.append(Content.styled("r: ask the endpoint" if not self.asked_for else "starting", "$quiet"))
        keys = "esc: close" if step is None or step.state is not StepState.RUNNING else "esc: close, the test goes on"
        again = "   r: again   c: copy" if step is not None and step.state is not StepState.RUNNING else ""
        return Content("\n").join([*lines, Content(""), Content.styled(keys + again, "$quiet")])

    def _verdict(self, step: StepView) -> list[Content]:
        glyphs = self.app.glyphs
        if step.state is StepState.RUNNING:
            return [Content.styled("asking; a busy endpoint takes longer", "$quiet")]
        took = f" in {seconds_text(step.seconds)}" if step.seconds is not None else ""
        if step.state is StepState.DONE:
            warned = sum(each.state is State.WARN for each in step.findings)
            word = f"passed with {warned} warning{'s' if warned > 1 else ''}" if warned else "passed"
            return [Content.styled(f"{glyphs.done} {word}{took}", "$success bold")]
        where = f"{step.node}: " if step.node else ""
        lines = [
            Content.styled(f"{glyphs.of_step(step.state)} {step.state}{took}: {where}{plain(step.text)}", "$error")
        ]
        return lines + ([Content(f"  next: {plain(step.fix)}")] if step.fix else [])

    def action_copy(self) -> None:
        step = self.step_shown() or self.app.remembered.get("smoke")
        if step is not None and step.findings:
            rows = [f"{each.state:<8}{each.check:<12}{plain(each.what)}" for each in step.findings]
            self.app.post_message(Copied("\n".join(rows), "smoke results"))


def smoke_rows(
    findings: Sequence[Finding], glyphs: Glyphs, *, running: bool, width: int = CARD_COLUMNS
) -> list[Content]:
    """One row a check: what has come, then the one that is asked now, then those that wait."""
    room = max(16, width - SAID_COLUMN)
    by_check = {each.check.removeprefix("smoke."): each for each in findings}
    names = list(dict.fromkeys([*CHECKS, *by_check]))
    open_names = [name for name in names if name not in by_check]
    rows = []
    for name in names:
        finding = by_check.get(name)
        words = f"{CHECKS.get(name, name):<14}"
        if finding is None:
            asking = running and name == open_names[0]
            mark = f"{glyphs.running if asking else glyphs.todo} {'asking' if asking else 'waiting':<8}"
            rows.append(Content.assemble((mark, "$accent" if asking else "$quiet"), words))
            continue
        seconds = finding.data.get("seconds")
        took = f"{seconds_text(seconds):>7}" if isinstance(seconds, int | float) else " " * 7
        mark = f"{glyphs.of_finding(finding.state)} {finding.state:<8}"
        said = textwrap.wrap(plain(finding.what), room) or [""]
        rows.append(Content.assemble((mark, STYLES[finding.state]), words, (took, "$quiet"), "  ", said[0]))
        rows += [Content(f"{' ' * SAID_COLUMN}{line}") for line in said[1:]]
        if finding.state is State.FAIL and finding.fix:
            rows.append(Content(f"{' ' * 10}next: {plain(finding.fix)}"))
    return rows
