"""Lines for people: words, columns, nothing that a node could use against the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.events import (
    Finding,
    LogLine,
    NodeOutcome,
    Note,
    Outcome,
    Progress,
    RunFinished,
    State,
    StepFinished,
    StepStarted,
    Unit,
)
from sparktui.printing import Printer, amount_text, error_lines, lines_of, plain, progress_text, seconds_text


@given(st.text())
def test_no_control_byte_gets_through(text: str) -> None:
    said = plain(text)
    assert all(ch == "\t" or (ord(ch) >= 0x20 and not 0x7F <= ord(ch) < 0xA0) for ch in said)


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (
            Finding("doctor", "ssh.login", "worker1", State.OK, "key x"),
            ["OK      worker1  ssh.login                key x"],
        ),
        (
            Finding("doctor", "gpu.use", "head", State.UNKNOWN, "no answer", "nvidia-smi hangs", "reboot"),
            [
                "UNKNOWN head     gpu.use                  no answer",
                "        cause: nvidia-smi hangs",
                "        next: reboot",
            ],
        ),
        (StepFinished("build", Outcome.SKIPPED, 0.4, "is there"), ["SKIPPED   build in 0.4 s  is there"]),
        (StepFinished("build", Outcome.FAILED, 75, "cause", "fix", "head"), ["FAILED    build in 1 min 15 s"]),
        (NodeOutcome("share", "worker2", Outcome.DONE, "sees it"), ["DONE    worker2  sees it"]),
        (LogLine("serve", "head", "10%\r20%\x1b[0m"), ["LOG     head     20%[0m"]),
        (Note("x", "head", "two\nlines"), ["INFO    head     two lines"]),
    ],
)
def test_lines(event: Any, lines: list[str]) -> None:
    assert lines_of(event) == lines


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress("s", "head", "fetch"), "head fetch"),
        (Progress("s", "head", "fetch", 0, 0), "head fetch 0 B"),
        (
            Progress("s", "head", "fetch", 2**30, 4 * 2**30, Unit.BYTES, 2**20, 3072),
            "head fetch 1.0 GiB of 4.0 GiB 25 % 1.0 MiB/s 51 min 12 s left",
        ),
        (Progress("s", "w", "layers", 3, 12, Unit.ITEMS), "w layers 3 of 12 25 %"),
        (Progress("s", "w", "wait", 5, None, Unit.SECONDS), "w wait 5.0 s"),
    ],
)
def test_unknown_is_left_out_of_progress(progress: Progress, text: str) -> None:
    assert progress_text(progress) == text


def test_amounts_and_times() -> None:
    assert [amount_text(value, Unit.BYTES) for value in (0, 1023, 1536, 65 * 2**30, 5000 * 2**30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "65.0 GiB",
        "5000.0 GiB",
    ]
    assert [seconds_text(value) for value in (0, 9.94, 59.4, 59.6, 3599, 7380)] == [
        "0.0 s",
        "9.9 s",
        "59 s",
        "1 min 0 s",
        "59 min 59 s",
        "2 h 3 min",
    ]


def test_t9_the_first_line_is_node_and_cause_then_the_rest() -> None:
    assert error_lines("disk full\n  3 GiB free", "make room", "worker1") == [
        "worker1: disk full",
        "  3 GiB free",
        "  next: make room",
    ]


class Out(io.StringIO):
    def __init__(self, tty: bool) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


def test_a_pipe_gets_a_progress_line_now_and_then() -> None:
    now = [0.0]
    out = Out(tty=False)
    printer = Printer(out, lambda: now[0])
    for amount in range(100):
        printer.event(Progress("s", "head", "copy", amount, 100, Unit.ITEMS))
        now[0] += 1
    assert out.getvalue().count("head copy") == 4
    assert "\r" not in out.getvalue()


def test_a_terminal_line_is_wiped_before_other_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = Out(tty=True)
    printer = Printer(out)
    printer.event(StepStarted("copy"))
    for node in ("head", "worker1", "worker2"):
        printer.event(Progress("copy", node, "fetch", 1, 2))
    printer.event(Note("copy", "head", "hello"))
    printer.event(StepFinished("copy", Outcome.DONE, 1))
    printer.event(RunFinished(0, "done"))
    screen = [line.split("\r")[-1] for line in out.getvalue().split("\n")]
    assert screen == ["copy:", "INFO    head     hello", "DONE      copy in 1.0 s", "done", ""]
    assert max(len(part) for line in out.getvalue().split("\n") for part in line.split("\r")) < 60
