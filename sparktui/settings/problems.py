"""Problems of a whole file as one error that a person can act on."""

from __future__ import annotations

from collections.abc import Sequence

from sparktui.envfile import Problem
from sparktui.errors import SettingsError


class SettingsRefused(SettingsError):
    """All that is wrong with the settings at once.

    Attributes:
        problems: in file order; those without a line come first.
    """

    def __init__(self, problems: Sequence[Problem], where: str) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        # The first line is the first cause; how many there are comes last.
        lines = [text for each in self.problems for text in problem_lines(each)]
        lines += [f"{count} problem{'s' if count != 1 else ''}, nothing was started"]
        super().__init__(
            "\n".join([f"{where}, {lines[0]}", *(f"  {text}" for text in lines[1:])]),
            fix=f"edit {where} and run the same command again",
        )


def problem_lines(problem: Problem) -> list[str]:
    """A problem as text: line, reason, and the fixed line below where there is one."""
    where = f"line {problem.line}: " if problem.line else ""
    lines = [f"{where}{problem.reason}"]
    lines += [f"    write: {text}" for text in problem.fixed.split("\n")] if problem.fixed else []
    return lines
