"""The env file's text as it is shown: changed lines marked, secrets masked."""

from __future__ import annotations

from textual.content import Content

from sparktui.envfile import Problem
from sparktui.ui.first_start.env_text import Made
from sparktui.ui.glyphs import Glyphs
from sparktui.ui.secret_lines import masked_text
from sparktui.ui.wrapping import hanging

_MARGIN = 6


def file_view(made: Made, glyphs: Glyphs, width: int) -> tuple[Content, tuple[int, ...]]:
    """The whole file, and the rows of what differs from the example or is wrong: those have a mark in the margin."""
    template = set(made.template.split("\n"))
    wrong = {each.line for each in made.problems if each.line}
    rows: list[Content] = []
    marks: list[int] = []
    for number, (shown, raw) in enumerate(
        zip(masked_text(made.text).split("\n"), made.text.split("\n"), strict=False), 1
    ):
        mark, style = (" ", "$quiet" if raw.startswith("#") else "")
        if number in wrong:
            mark, style = glyphs.warn, "$warning"
        if raw not in template:
            mark, style = glyphs.pointer, "$accent"
        if mark != " ":
            marks.append(len(rows))
        lead = Content.assemble((f"{mark} ", style), (f"{number:3} ", "$quiet"))
        rows += hanging(shown, width, first=lead, indent=_MARGIN, style=style)
    return Content("\n").join(rows), tuple(marks)


def problem_lines(problem: Problem, page: str, glyphs: Glyphs, width: int) -> list[Content]:
    """A problem by its line, with the fix and the group that asks for it."""
    where = f"line {problem.line}: " if problem.line else ""
    belongs = f" (group {page})" if page else ""
    lead = Content.styled(f"{glyphs.failed} ", "$error")
    lines = hanging(f"{where}{problem.reason}{belongs}", width, first=lead, indent=2)
    if problem.fixed:
        lines += hanging(problem.fixed, width, first=Content.styled("  write: ", "$quiet"), indent=9, style="bold")
    return lines
