"""The few drawn characters of the screens, each with its plain twin. A glyph always stands beside a word."""

from __future__ import annotations

from dataclasses import dataclass

from sparktui.events import State
from sparktui.runs.view import StepState


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One character each, but for the sets that draw lines, and `braille`: whether charts may use it."""

    todo: str = "○"
    running: str = "◐"
    done: str = "●"
    blocked: str = "◌"
    failed: str = "✖"
    warn: str = "▲"
    unknown: str = "?"
    info: str = "·"
    pointer: str = "▸"
    horizontal: str = "─"
    cable: str = "━"
    full: str = "█"
    dark: str = "▓"
    medium: str = "▒"
    light: str = "░"
    up: str = "↑"
    down: str = "↓"
    ellipsis: str = "…"
    times: str = "×"
    degree: str = "°"
    floor: str = "┃"
    box: str = "╭╮╰╯─│"
    """Corners from the upper left, then the horizontal and the vertical side."""
    wire: str = "┏┓┗┛━┃"
    """A cable, in the order of `box`."""
    no_link: str = "╌╎"
    """A cable without a link: horizontal, vertical."""
    braille: bool = True

    def of_step(self, state: StepState) -> str:
        return {
            StepState.UNKNOWN: self.unknown,
            StepState.CHECKING: self.running,
            StepState.TODO: self.todo,
            StepState.RUNNING: self.running,
            StepState.DONE: self.done,
            StepState.BLOCKED: self.blocked,
            StepState.FAILED: self.failed,
            StepState.CANCELLED: self.blocked,
        }[state]

    def of_finding(self, state: State) -> str:
        return {
            State.OK: self.done,
            State.WARN: self.warn,
            State.FAIL: self.failed,
            State.UNKNOWN: self.unknown,
            State.INFO: self.info,
        }[state]


UNICODE = Glyphs()
ASCII = Glyphs(
    todo="o",
    running="~",
    done="*",
    blocked="-",
    failed="x",
    warn="!",
    unknown="?",
    info=".",
    pointer=">",
    horizontal="-",
    cable="=",
    full="#",
    dark="%",
    medium="+",
    light=".",
    up="^",
    down="v",
    ellipsis="~",
    times="x",
    degree=" ",
    floor="|",
    box="++++-|",
    wire="++++=|",
    no_link=".:",
    braille=False,
)
