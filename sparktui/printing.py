"""Events as calm lines for a person at a terminal or in a log file. Words, never only colours; no escape codes."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from sparktui.events import (
    Answered,
    CommandShown,
    Event,
    Finding,
    LogLine,
    NodeOutcome,
    Note,
    Outcome,
    Progress,
    Question,
    RunFinished,
    RunStarted,
    State,
    StepFinished,
    StepStarted,
    Unit,
)

_INDENT = " " * 8
_PIPED_PROGRESS_SECONDS = 30.0
# C0 and C1 control characters: a node's text must not steer this terminal.
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x09}


def plain(text: str) -> str:
    """One line that is safe to print: control bytes out, and after a carriage return only what follows it."""
    return " ".join(line.rpartition("\r")[2].translate(_CONTROLS) for line in text.rstrip("\r\n").split("\n"))


def amount_text(value: float, unit: Unit) -> str:
    """`12.4 GiB`, `3`, `45 s`."""
    if unit is not Unit.BYTES:
        return seconds_text(value) if unit is Unit.SECONDS else f"{value:.0f}"
    for name in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or name == "GiB":
            return f"{value:.0f} {name}" if name == "B" else f"{value:.1f} {name}"
        value /= 1024
    raise AssertionError


def seconds_text(seconds: float) -> str:
    """`0.4 s`, `45 s`, `12 min 5 s`, `2 h 3 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def progress_text(event: Progress) -> str:
    """`worker1 fetch 12.4 GiB of 65.0 GiB 19 % 1.2 GiB/s 45 s left`; what is unknown is left out."""
    words = [event.node, event.phase]
    if event.amount is not None:
        words.append(amount_text(event.amount, event.unit))
        if event.total:
            words.append(f"of {amount_text(event.total, event.unit)}")
            words.append(f"{100 * event.amount / event.total:.0f} %")
    if event.rate_per_second is not None:
        words.append(f"{amount_text(event.rate_per_second, event.unit)}/s")
    if event.seconds_left is not None:
        words.append(f"{seconds_text(event.seconds_left)} left")
    return plain(" ".join(filter(None, words)))


def lines_of(event: Event) -> list[str]:
    """The lines of an event; none for what only a progress line or the report shows."""
    match event:
        case RunStarted():
            verb = event.verbs[0] if len(event.verbs) == 1 else "up"
            return [f"run {event.run_id}  ({verb}, profile {event.profile})"]
        case StepStarted():
            return [f"{event.step}:"]
        case Finding():
            rows = [_row(event.state, event.node, event.check, event.what)]
            rows += [f"{_INDENT}cause: {plain(event.cause)}"] if event.cause else []
            return rows + ([f"{_INDENT}next: {plain(event.fix)}"] if event.fix else [])
        case CommandShown():
            return [f"{'RUN':<8}{event.node:<9}{plain(event.command)}"]
        case Note():
            return [f"{event.state:<8}{event.node:<9}{plain(event.text)}"]
        case LogLine():
            return [f"{'LOG':<8}{event.node:<9}{plain(event.text)}"]
        case Question():
            return [f"{'ASK':<8}{plain(event.text)}  [{'/'.join(event.choices)}]"]
        case Answered():
            return [f"{_INDENT}answer: {plain(event.answer)} ({event.by})"]
        case NodeOutcome():
            return [f"{event.outcome.upper():<8}{event.node:<9}{plain(event.text)}".rstrip()]
        case StepFinished():
            head = f"{event.outcome.upper():<10}{event.step} in {seconds_text(event.seconds)}"
            return [f"{head}  {plain(event.text)}".rstrip() if event.outcome is not Outcome.FAILED else head]
    return []


def closing_lines(finished: RunFinished, steps: list[StepFinished]) -> list[str]:
    """The short report: one line a step, then the cause with its node, then the next step."""
    rows = []
    if len(steps) > 1:
        rows = ["", "report:"]
        rows += [f"  {each.outcome.upper():<10}{each.step:<10}{seconds_text(each.seconds):>12}" for each in steps]
    return rows + error_lines(finished.text, finished.fix, finished.node)


def error_lines(what: str, fix: str = "", node: str | None = None) -> list[str]:
    """Node and cause first (more lines where there is more to say), the next step last."""
    lines = [plain(line) for line in (f"{node}: {what}" if node else what).split("\n")]
    return lines + ([f"  next: {plain(fix)}"] if fix else [])


def _row(state: State, node: str, check: str, what: str) -> str:
    return f"{state:<8}{node:<9}{check:<24} {plain(what)}".rstrip()


class Printer:
    """Prints events as they come. On a terminal progress is one line that changes; elsewhere a line now and then."""

    def __init__(
        self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic, *, bare: str = ""
    ) -> None:
        """`bare` names the verb of a mere look (status, talk): its rows are printed and nothing around them."""
        self._out = out or sys.stdout
        self._bare = bare
        self._clock = clock
        self._tty = self._out.isatty()
        self._progress: dict[tuple[str, str], str] = {}
        self._shown = 0
        self._piped_at: dict[tuple[str, str, str], float] = {}
        self._steps: list[StepFinished] = []

    def event(self, event: Event) -> None:
        if isinstance(event, Progress):
            self._on_progress(event)
            return
        if self._bare and self._is_frame(event):
            return
        if self._bare == "talk" and isinstance(event, Note) and event.state is State.INFO:
            self.lines([plain(event.text)])  # to copy
            return
        if isinstance(event, StepStarted | StepFinished):
            self._progress.clear()
        if isinstance(event, StepFinished):
            self._steps.append(event)
        if isinstance(event, RunFinished):
            self._progress.clear()
            self.lines(closing_lines(event, self._steps))
        else:
            self.lines(lines_of(event))

    @staticmethod
    def _is_frame(event: Event) -> bool:
        return isinstance(event, StepStarted | StepFinished) or (
            isinstance(event, RunFinished) and event.exit_status == 0
        )

    def lines(self, lines: list[str]) -> None:
        self._wipe()
        for line in lines:
            print(line, file=self._out)
        self._draw()
        self._out.flush()

    def _on_progress(self, event: Progress) -> None:
        if self._tty:
            self._wipe()
            self._progress[event.step, event.node] = progress_text(event)
            self._draw()
            self._out.flush()
            return
        key = (event.step, event.node, event.phase)
        last = self._piped_at.get(key)
        if last is None or self._clock() - last >= _PIPED_PROGRESS_SECONDS:
            self._piped_at[key] = self._clock()
            self.lines([f"{_INDENT}{progress_text(event)}"])

    def _wipe(self) -> None:
        if self._shown:
            self._out.write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def _draw(self) -> None:
        if self._tty and self._progress:
            room = max(20, shutil.get_terminal_size().columns - 1)
            text = " | ".join(self._progress.values())[:room]
            self._out.write(text)
            self._shown = len(text)
