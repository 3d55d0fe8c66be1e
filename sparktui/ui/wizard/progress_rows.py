"""How far a step is on each node: bar, share, amount of the whole, pace and time left. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from sparktui.events import Progress, Unit
from sparktui.printing import amount_text, plain, seconds_text
from sparktui.runs.view import StepState
from sparktui.ui.wizard.lines import BESIDE_COLUMNS, Lines
from sparktui.ui.wizard.rows import StepRow

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs


def progress_rows(lines: Lines, row: StepRow) -> None:
    step = row.ran
    if step is None or not step.progress or row.state not in (StepState.RUNNING, StepState.FAILED, StepState.CANCELLED):
        return
    lines.space()
    running = row.state is StepState.RUNNING
    names = max(len(each.node) for each in step.progress)
    rows = [(each, *_progress_words(each, lines.width, names, running)) for each in step.progress]
    # One length for all, so that the bars can be compared.
    longest = max(len(tail) for _, tail, _ in rows)
    bar_cells = max(8, min(24, lines.width - names - longest - 5))
    for each, tail, below in rows:
        bar = bar_of(_share(each), bar_cells, lines.glyphs, running)
        head = (f"  {each.node:<{names}} ", "bold")
        lines.add(Content.assemble(head, bar, " ", tail).truncate(lines.width, ellipsis=True))
        if below:
            lines.add(Content.styled(f"{' ' * (names + 3)}{below}", "$quiet"))


def _share(each: Progress) -> float | None:
    if each.amount is None or not each.total:
        return None
    return max(0.0, min(1.0, each.amount / each.total))


def _progress_words(each: Progress, width: int, names: int, running: bool) -> tuple[str, str]:
    """What stands behind the bar, and what below it."""
    share = _share(each)
    left = f"{seconds_text(each.seconds_left)} left" if running and each.seconds_left is not None else ""
    rate = f"{amount_text(each.rate_per_second, each.unit)}/s" if running and each.rate_per_second is not None else ""
    percent = f"{100 * share:3.0f} %" if share is not None else "  ?  "
    phase = plain(each.phase)
    if width >= BESIDE_COLUMNS:
        beside, below = [percent, _amount(each), rate, left, phase], ""
    elif each.unit is Unit.PHASES:
        beside, below = [percent, phase], ""
    else:
        beside, below = [percent, left], _fitting([_amount(each), rate, phase], width - names - 3)
    return "  ".join(filter(None, beside)), below


def _fitting(parts: Sequence[str], width: int) -> str:
    """As many of the parts as fit whole, first ones first; closer together where that lets all of them in."""
    close = " ".join(filter(None, parts))
    if len(close) <= width < len("  ".join(filter(None, parts))):
        return close
    text = ""
    for part in filter(None, parts):
        longer = f"{text}  {part}" if text else part
        if len(longer) <= width:
            text = longer
    return text


def _amount(each: Progress) -> str:
    if each.amount is None:
        return ""
    if each.unit is Unit.PHASES:
        return f"phase {each.amount:.0f} of {each.total:.0f}" if each.total else ""
    if not each.total:
        return amount_text(each.amount, each.unit)
    return f"{_unit_once(each.amount, each.total, each.unit)} of {amount_text(each.total, each.unit)}"


def _unit_once(amount: float, total: float, unit: Unit) -> str:
    """`12.4` of `65.0 GiB`: the unit stands once where it is the same."""
    text, whole = amount_text(amount, unit), amount_text(total, unit)
    return text.partition(" ")[0] if text.partition(" ")[2] == whole.partition(" ")[2] else text


def bar_of(share: float | None, width: int, glyphs: Glyphs, running: bool) -> Content:
    """Filled as far as `share`; dots where that is unknown."""
    style = "$accent" if running else "$quiet"
    if share is None:
        return Content.styled(glyphs.info * width, "$quiet")
    full = round(share * width)
    return Content.assemble((glyphs.full * full, style), (glyphs.light * (width - full), "$free"))
