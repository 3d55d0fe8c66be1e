"""The env file's text as it is shown: changed lines marked, secrets masked."""

from __future__ import annotations

from textual.content import Content

from sparktui.envfile import Problem
from sparktui.ui.first_start.env_text import Made
from sparktui.ui.glyphs import Glyphs
from sparktui.ui.secret_lines import masked_text


def text_content(made: Made, glyphs: Glyphs) -> Content:
    """The whole file; what differs from the example has a mark in the margin, problems theirs."""
    template = set(made.template.split("\n"))
    wrong = {each.line for each in made.problems if each.line}
    shown = masked_text(made.text).split("\n")
    lines = []
    for number, (line, raw) in enumerate(zip(shown, made.text.split("\n"), strict=False), 1):
        mark, style = ("  ", "$quiet" if line.startswith("#") else "")
        if raw not in template:
            mark, style = (f"{glyphs.pointer} ", "$accent")
        if number in wrong:
            mark, style = (f"{glyphs.warn} ", "$warning")
        lines.append(Content.assemble((mark, style), (f"{number:3} ", "$quiet"), (line, style)))
    return Content("\n").join(lines)


def problem_content(problem: Problem, page: str, glyphs: Glyphs) -> Content:
    where = f"line {problem.line}: " if problem.line else ""
    fixed = f"  write: {problem.fixed}" if problem.fixed else ""
    belongs = f"  (group {page})" if page else ""
    return Content.assemble(
        (f"{glyphs.failed} ", "$error"), where, problem.reason, (fixed, "bold"), (belongs, "$quiet")
    )
