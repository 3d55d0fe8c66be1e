"""What the middle of the wizard says about one step, as lines of text. Pure: values in, `Panel` out.

Places are fixed: title and state, what the step does, then what needs a person first (error, blocked, findings),
then progress, how it ended on each node, and the last lines of output.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from sparktui.errors import SparktuiError
from sparktui.events import CommandShown, Finding, LogLine, NodeOutcome, Note, Outcome, State
from sparktui.printing import plain, seconds_text
from sparktui.runs.view import StepState, StepView
from sparktui.ui.wizard.lines import BESIDE_COLUMNS, Lines, Panel, Shown
from sparktui.ui.wizard.progress_rows import progress_rows
from sparktui.ui.wizard.rows import ASKED_ANEW, StepRow, moment
from sparktui.ui.wizard.words import StepWords

if TYPE_CHECKING:
    from sparktui.steps.step import Command
    from sparktui.ui.glyphs import Glyphs

STATE_STYLES = {
    StepState.DONE: "$success",
    StepState.RUNNING: "$accent bold",
    StepState.CHECKING: "$quiet",
    StepState.TODO: "$quiet",
    StepState.BLOCKED: "$warning",
    StepState.CANCELLED: "$warning",
    StepState.FAILED: "$error bold",
    StepState.UNKNOWN: "$warning",
}
FINDING_STYLES = {
    State.FAIL: "$error bold",
    State.WARN: "$warning",
    State.UNKNOWN: "$warning",
    State.OK: "$success",
    State.INFO: "$quiet",
}
OUTCOME_STYLES = {
    Outcome.DONE: "$success",
    Outcome.SKIPPED: "$success",
    Outcome.FAILED: "$error bold",
    Outcome.CANCELLED: "$warning",
}
ORDER = (State.FAIL, State.WARN, State.UNKNOWN, State.OK, State.INFO)
FIRST = frozenset({State.FAIL, State.WARN, State.UNKNOWN})
LAST_LINES = 8
FEW = 4
"""As many good findings are shown one by one without being asked for."""
SHOWN_WHOLE = frozenset({"smoke"})
"""Steps whose good answers are what a person came for."""


def panel_of(
    row: StepRow,
    words: StepWords,
    shown: Shown,
    glyphs: Glyphs,
    *,
    notes: Sequence[Note] = (),
    refused: SparktuiError | None = None,
    then: tuple[str, StepWords] | None = None,
) -> Panel:
    """The step's state, findings, progress and output.

    Args:
        notes: the run's own warnings.
        refused: why the run that was asked for last did not start.
        then: what enter runs next, when that is another step.
    """
    lines = Lines(shown.width, glyphs, shown.focused)
    then = then if row.state is StepState.DONE else None
    _heading(lines, row, words, shown, brief=shown.short and (then is not None or _busy(row)))
    if refused is not None:
        lines.text("the run was not started:", "$error bold")
        _error(lines, refused.node or "", refused.what, refused.fix)
        lines.space()
    _trouble(lines, row)
    findings = findings_of(row)
    _findings(lines, row, findings, shown.unfolded)
    for note in notes:
        mark = lines.point(f"a warning of the {note.step}", plain(note.text))
        lines.text(f"{note.step}: {note.text}", "$warning", first=f"{mark}{glyphs.warn} ")
    if row.ran is not None:
        progress_rows(lines, row)
        _outcomes(lines, row)
        if then is None or not shown.short:
            _output(lines, row.ran)
    if then is not None:
        _then(lines, *then, shown)
    return Panel(tuple(lines.lines), tuple(lines.copyables))


def commands_panel(
    words: StepWords, commands: Sequence[Command] | SparktuiError | None, shown: Shown, glyphs: Glyphs
) -> Panel:
    """The exact commands, node by node; None while they are being made."""
    lines = Lines(shown.width, glyphs, shown.focused)
    lines.add(Content.assemble((words.title, "bold"), ("  the exact commands", "$quiet")))
    lines.space()
    if commands is None:
        lines.text("the nodes are asked what there is to do ...", "$quiet")
    elif isinstance(commands, SparktuiError):
        _error(lines, commands.node or "", commands.what, commands.fix)
    elif not commands:
        lines.text("nothing: this step would execute no command now", "$quiet")
    else:
        lines.text("y copies all, c the one that is pointed at, n the next; secrets are masked.", "$quiet")
        for node in dict.fromkeys(each.node for each in commands):
            lines.space()
            lines.add(Content.styled(node, "bold"))
            for command in (each for each in commands if each.node == node):
                if command.why:
                    lines.text(f"# {command.why}", "$quiet", indent=2)
                mark = lines.point(f"command on {node}", command.text)
                lines.text(command.text, "", first=f"{mark} ")
    return Panel(tuple(lines.lines), tuple(lines.copyables))


def all_commands(commands: Sequence[Command]) -> str:
    """All of them as one text to copy: a comment line with the node before each."""
    return "\n".join(f"# {each.node}{': ' + each.why if each.why else ''}\n{each.text}" for each in commands)


def trouble_panel(trouble: str, env_file: str, shown: Shown, glyphs: Glyphs) -> Panel:
    """Settings that cannot be used, whole: every problem with its line and its fix."""
    lines = Lines(shown.width, glyphs, shown.focused)
    first, *more = trouble.split("\n")
    lines.add(Content.styled("The settings cannot be used", "bold"))
    lines.text(env_file, "$quiet")
    lines.space()
    mark = lines.point("what is wrong with the settings", trouble)
    lines.text(first, "$error bold", first=f"{mark}{glyphs.failed} ")
    for line in more:
        lines.text(line.strip(), "" if line.strip().startswith("next:") else "$error", indent=3)
    lines.space()
    lines.text("Nothing was started and no node was asked. e opens the settings; c copies this.")
    return Panel(tuple(lines.lines), tuple(lines.copyables))


def state_mark(row: StepRow, glyphs: Glyphs) -> Content:
    return Content.styled(f"{glyphs.of_step(row.state)} {row.state}", STATE_STYLES[row.state])


def _then(lines: Lines, verb: str, words: StepWords, shown: Shown) -> None:
    """What comes next, before it is done."""
    lines.space()
    lines.add(Content.assemble(("enter", "$accent bold"), f" runs {verb}: ", (words.title, "bold")))
    lines.text(words.what)
    lines.text(_real(words, shown), "$quiet")


def _real(words: StepWords, shown: Shown) -> str:
    return f"{shown.banner} here. On real Sparks: {words.real}" if shown.banner else words.real


def _heading(lines: Lines, row: StepRow, words: StepWords, shown: Shown, *, brief: bool) -> None:
    mark = state_mark(row, lines.glyphs)
    gap = max(1, lines.width - len(words.title) - mark.cell_length)
    lines.add(Content.assemble((words.title, "bold"), " " * gap, mark))
    if not brief:
        lines.text(words.what)
        lines.text(_real(words, shown), "$quiet")
    lines.space()
    state = _state_line(row, shown.now)
    if state:
        lines.text(state)


def _busy(row: StepRow) -> bool:
    """There is more to show than what the step is about."""
    if row.state in (StepState.RUNNING, StepState.FAILED, StepState.BLOCKED, StepState.UNKNOWN):
        return row.ran is not None or row.answer is not None
    return any(each.state in FIRST for each in findings_of(row))


def _state_line(row: StepRow, now: float) -> str:
    """One sentence: what is known, and from whom."""
    answer, ran = row.answer, row.ran
    if row.state is StepState.RUNNING:
        if ran is None:
            return "the run is starting"
        return f"running for {seconds_text(max(0.0, now - ran.started_at))}" if ran.started_at is not None else ""
    if row.state is StepState.CHECKING:
        return "the nodes are being asked"
    if row.stale and row.ended_at is not None:
        return f"last passed at {moment(row.ended_at, now)}; {row.stale}"
    if row.verb in ASKED_ANEW and ran is not None and row.state is StepState.DONE and row.ended_at is not None:
        took = f", in {seconds_text(ran.seconds)}" if ran.seconds is not None else ""
        return f"last done at {moment(row.ended_at, now)}{took}"
    if row.state is StepState.DONE:
        if answer is not None and not isinstance(answer, SparktuiError):
            return answer.summary
        return ran.text if ran is not None and ran.text else ""
    if row.state is StepState.TODO:
        if answer is not None and not isinstance(answer, SparktuiError):
            return answer.summary
        return "not done yet"
    if row.state is StepState.CANCELLED:
        return "cancelled; what was done stays done, the next run goes on from there"
    if row.state is StepState.UNKNOWN and answer is None:
        return "not asked yet"
    return ""


def _trouble(lines: Lines, row: StepRow) -> None:
    """The one thing that stands in the way: the failure of a run, a node that does not answer, or a block."""
    if isinstance(row.answer, SparktuiError):
        _error(lines, row.answer.node or "", row.answer.what, row.answer.fix)
    elif row.state is StepState.BLOCKED and row.answer is not None:
        mark = lines.point("what blocks it", _copy_text("", row.answer.blocked, "", row.answer.fix))
        lines.text(f"blocked: {row.answer.blocked}", "$warning", first=f"{mark}{lines.glyphs.blocked} ")
        if row.answer.fix:
            lines.text(f"next: {row.answer.fix}", indent=3)
    elif row.state is StepState.FAILED and row.ran is not None:
        _error(lines, row.ran.node, row.ran.text or "it did not finish", row.ran.fix)


def _error(lines: Lines, node: str, what: str, fix: str) -> None:
    first = f"{node}: {what}" if node else what
    mark = lines.point("the error and its next step", _copy_text(node, what, "", fix))
    lines.text(first, "$error bold", first=f"{mark}{lines.glyphs.failed} ")
    if fix:
        lines.text(f"next: {fix}", indent=3)


def findings_of(row: StepRow) -> tuple[Finding, ...]:
    """The run's own findings while it is the newest; else what the nodes said."""
    if row.answer is not None and not isinstance(row.answer, SparktuiError) and row.answer.findings:
        return row.answer.findings
    return row.ran.findings if row.ran is not None else ()


def _findings(lines: Lines, row: StepRow, findings: Sequence[Finding], unfolded: bool) -> None:
    if not findings:
        return
    lines.space()
    first = [each for each in findings if each.state in FIRST and not _said(each, row)]
    rest = [each for each in findings if each.state not in FIRST]
    for finding in _ordered(first):
        _finding(lines, finding)
    if not rest:
        return
    if unfolded or len(rest) <= FEW or row.verb in SHOWN_WHOLE:
        for finding in _ordered(rest):
            _finding(lines, finding)
        return
    good = sum(each.state is State.OK for each in rest)
    info = len(rest) - good
    count = f"{good} OK" if good else ""
    count += f"{', ' if good and info else ''}{info} for information" if info else ""
    nodes = len({each.node for each in rest})
    where = f" on {nodes} nodes" if nodes > 1 else f" on {rest[0].node}"
    lines.add(Content.assemble(" ", (f"{lines.glyphs.done} ", "$success"), count, where, ("   o: all", "$quiet")))


def _said(finding: Finding, row: StepRow) -> bool:
    """The error above is this finding."""
    ran = row.ran
    failed = row.state is StepState.FAILED and ran is not None
    return failed and ran is not None and finding.node == ran.node and ran.text.startswith(finding.what)


def _ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first, then as they came: the order of the nodes."""
    return sorted(findings, key=lambda each: ORDER.index(each.state))


def _finding(lines: Lines, finding: Finding) -> None:
    style = FINDING_STYLES[finding.state]
    mark = lines.point(f"{finding.check} on {finding.node}", finding_text(finding))
    state = f"{lines.glyphs.of_finding(finding.state)} {finding.state}"
    # All smoke rows are the head's: what was asked tells them apart.
    name = finding.check if finding.step == "smoke" else finding.node
    if lines.width >= BESIDE_COLUMNS:
        state, indent = f"{state:<10}", 20
        head = Content.assemble(mark, (state, style), (f"{name:<8}", "bold"), " ")
        _hanging(lines, head, finding.what, indent)
    else:
        indent = 3
        head = Content.assemble(mark, (state, style), " ", (f"{name}:", "bold"), " ")
        _hanging(lines, head, finding.what, indent)
    if finding.cause:
        lines.text(finding.cause, "$quiet", indent=indent)
    if finding.fix and finding.state in FIRST:
        lines.text(f"next: {finding.fix}", indent=indent)


def _hanging(lines: Lines, head: Content, text: str, indent: int) -> None:
    """`head`, then the text behind it; what does not fit goes on below, indented."""
    room = max(12, lines.width - head.cell_length)
    words = plain(text)
    first = (textwrap.wrap(words, room, break_on_hyphens=False) or [""])[0]
    lines.add(Content.assemble(head, first))
    rest = words[len(first) :].strip()
    if rest:
        lines.text(rest, indent=indent)


def finding_text(finding: Finding) -> str:
    """To copy: one finding with its cause and next step."""
    return f"{finding.state} {finding.check} " + _copy_text(finding.node, finding.what, finding.cause, finding.fix)


def _copy_text(node: str, what: str, cause: str, fix: str) -> str:
    lines = [f"{node}: {what}" if node else what]
    lines += [f"cause: {cause}"] if cause else []
    lines += [f"next: {fix}"] if fix else []
    return "\n".join(lines)


def _outcomes(lines: Lines, row: StepRow) -> None:
    step = row.ran
    if step is None or not step.outcomes:
        return
    lines.space()
    for each in step.outcomes:
        _outcome(lines, each)


def _outcome(lines: Lines, each: NodeOutcome) -> None:
    glyph = lines.glyphs.failed if each.outcome is Outcome.FAILED else lines.glyphs.done
    style = OUTCOME_STYLES[each.outcome]
    if lines.width >= BESIDE_COLUMNS:
        state = (f" {glyph} {each.outcome:<8}", style)
        _hanging(lines, Content.assemble(state, (f"{each.node:<8}", "bold"), " "), each.text, 20)
    else:
        name = f"{each.node}:" if each.text else each.node
        head = Content.assemble((f" {glyph} {each.outcome}", style), " ", (name, "bold"), " ")
        _hanging(lines, head, each.text, 3)


def _output(lines: Lines, step: StepView) -> None:
    if not step.output:
        return
    lines.space()
    running = step.state is StepState.RUNNING
    lines.add(Content.styled("last lines" if running else "last lines of that run", "$quiet"))
    for each in step.output[-LAST_LINES:]:
        lines.add(_output_line(each).truncate(lines.width, ellipsis=True))


def _output_line(each: Note | LogLine | CommandShown) -> Content:
    node = (f"{each.node:<8} ", "$quiet")
    match each:
        case CommandShown():
            return Content.assemble(node, ("$ ", "$accent"), plain(each.command))
        case Note() if each.state in FIRST:
            return Content.assemble(node, (f"{each.state}: {plain(each.text)}", FINDING_STYLES[each.state]))
        case Note():
            return Content.assemble(node, plain(each.text))
    return Content.assemble(node, (plain(each.text), "$quiet"))
