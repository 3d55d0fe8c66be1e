"""Draws how far each rank's boot is: one line a rank, or a ladder of rungs with the time each took."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparktui.engine.ladder import Boot, Change, Load, RankBoot, Trouble
from sparktui.engine.phases import Phase
from sparktui.printing import plain
from sparktui.ui.widgets.drawing import Piece, Row, filled, fitted, row_width
from sparktui.ui.widgets.figures import duration

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs

RUNGS = tuple(phase for phase in Phase if phase is not Phase.NOTHING)
RUNG_COLUMN = 13
SMALLEST_COLUMN = 13
NOBODY: Row = (("nobody has asked the ranks yet", "$quiet"),)
NOTHING: Row = (("no engine container on any node; serve begins one", "$quiet"),)
NOT_READ: Row = (("their boot is not read while it serves; l shows the logs", "$quiet"),)
ASKING: Row = (("the ranks are being asked", "$quiet"),)


def boot_rows(boots: Sequence[RankBoot], now: float, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """A ladder where it fits (rungs down, ranks across), else a line a rank with its rungs as marks."""
    if not boots:
        return [NOBODY]
    unseen = _unseen_rows(boots, width, glyphs)
    if all(boot.phase is Phase.NOTHING and boot.read and not boot.exited for boot in boots):
        if not unseen:
            return [NOTHING if all(boot.asked for boot in boots) else ASKING]
        return [*_lines(boots, now, (), width, glyphs), *unseen][:height]
    dark = {boot.rank for boot in boots if boot.unseen}
    troubles = [each for each in Boot(tuple(boots)).troubles(now) if each.kind == "exited" or each.rank not in dark]
    if not any(boot.changes for boot in boots):
        return [
            *_lines(boots, now, troubles, width, glyphs),
            NOT_READ,
            *_trouble_rows(troubles, width, glyphs),
            *unseen,
        ][:height]
    below = [*_trouble_rows(troubles, width, glyphs), *unseen, *_cited(boots, troubles, width, glyphs)]
    column = (width - RUNG_COLUMN) // len(boots)
    if column >= SMALLEST_COLUMN and height >= len(RUNGS) + 1 + len(below):
        ladder = _ladder(boots, now, troubles, min(column, 26), glyphs)
        figures = [row for boot in boots if (row := _figures_row(boot, width, glyphs))]
        room = height - len(ladder) - len(below)
        return [*ladder, *(figures if len(figures) < room else ()), *below]
    shown = list(boots)
    lines = _lines(shown, now, troubles, width, glyphs)
    if len(lines) > height:
        lines = [*lines[: height - 1], ((f"and {len(lines) - height + 1} more", "$quiet"),)]
    return [*lines, *below[: max(0, height - len(lines))]]


def _mark(boot: RankBoot, troubles: Sequence[Trouble]) -> str:
    """`late`, `stuck` or empty."""
    return next((each.kind for each in troubles if each.rank == boot.rank and each.kind != "exited"), "")


def _entered(boot: RankBoot) -> Change | None:
    return boot.changes[-1] if boot.changes else None


def state_text(boot: RankBoot) -> str:
    """The word that counts most: how it ended, else `up`, else the rung it is on."""
    if boot.exited:
        if boot.oom_killed:
            return "out of memory"
        return "ended" if boot.exit_code is None else f"ended, exit status {boot.exit_code}"
    if boot.up:
        return "ready" if boot.is_head else "up"
    if not boot.read:
        return "runs"
    return boot.phase.title if boot.asked else "unknown"


def moves(boot: RankBoot) -> bool:
    """A second more changes how it is shown."""
    return bool(boot.changes and not boot.up and not boot.exited) or (bool(boot.unseen) and not boot.exited)


def _last_seen(boot: RankBoot, now: float) -> str:
    """Empty while it can be asked, and of one that has ended: that stays true."""
    if not boot.unseen or boot.exited:
        return ""
    return "not seen yet" if boot.seen_at is None else f"last seen {duration(max(0.0, now - boot.seen_at))} ago"


def _load(boot: RankBoot) -> Load | None:
    if boot.phase not in (Phase.WEIGHTS, Phase.DRAFT):
        return None
    return boot.figures.draft if boot.figures.target.ended else boot.figures.target


def _detail(boot: RankBoot) -> str:
    """Shards or graphs so far."""
    load = _load(boot)
    if load is not None and load.shards_total:
        return f"{load.shards_done}/{load.shards_total} shards"
    figures = boot.figures
    if boot.phase is Phase.GRAPHS and figures.graphs_total:
        return f"batch {figures.graph_batch}, {figures.graphs_total} graphs"
    return ""


def _seconds_here(boot: RankBoot, now: float) -> float | None:
    entered = _entered(boot)
    return None if entered is None else max(0.0, now - entered.at_seconds)


def _style_of(boot: RankBoot, mark: str) -> str:
    if boot.exited:
        return "$error bold"
    if mark:
        return "$warning bold"
    return "$success" if boot.up else ""


def _last_rung(boot: RankBoot) -> Phase:
    return Phase.READY if boot.is_head else Phase.SERVER


def _glyph(boot: RankBoot, rung: Phase, glyphs: Glyphs) -> Piece:
    if rung > _last_rung(boot):
        return (" ", "")
    if boot.exited and rung == boot.phase:
        return (glyphs.failed, "$error bold")
    if boot.unseen and boot.phase == rung:
        return (glyphs.unknown, "$warning bold")
    if boot.phase > rung or boot.up:
        return (glyphs.done, "$success")
    if boot.phase == rung:
        return (glyphs.running, "$accent bold")
    return (glyphs.todo, "$quiet")


def _lines(boots: Sequence[RankBoot], now: float, troubles: Sequence[Trouble], width: int, glyphs: Glyphs) -> list[Row]:
    """`rank 0 head  ●●●●◐○○○○○○  weights 12/76 shards  41 s`; what does not fit goes for all ranks alike."""
    rows: list[Row] = []
    for rank_word, rungs in ((True, True), (True, False), (False, False)):
        if rungs and not any(boot.changes for boot in boots):
            continue  # no ladder was read
        rows = []
        names = [f"rank {boot.rank} {boot.node}" if rank_word else boot.node for boot in boots]
        column = max(map(len, names))
        fits = True
        for boot, name in zip(boots, names, strict=True):
            left: list[Piece] = [(name.ljust(column), "bold"), ("  ", "")]
            if rungs:
                left += [*(_glyph(boot, rung, glyphs) for rung in RUNGS), ("  ", "")]
            left += _state(boot, now, _mark(boot, troubles))
            right = _timing(boot, now)
            fits = fits and row_width(left) + row_width(right) + 2 <= width
            rows.append(filled(left, right, width, glyphs.ellipsis))
        if fits:
            break
    return rows


def _state(boot: RankBoot, now: float, mark: str) -> list[Piece]:
    state: list[Piece] = [(state_text(boot), _style_of(boot, mark))]
    if seen := _last_seen(boot, now):
        return [(state_text(boot), "$quiet"), (f" {seen}", "$warning bold")]
    if mark:
        state.append((f" {mark}", "$warning bold"))
    if not boot.exited and not boot.up and (detail := _detail(boot)):
        state.append((f" {detail}", ""))
    return state


def _timing(boot: RankBoot, now: float) -> list[Piece]:
    if boot.exited or boot.unseen:
        return []
    if boot.ready and boot.ready.boot_seconds is not None:
        return [(f"in {duration(boot.ready.boot_seconds)}", "$quiet")]
    here = None if boot.up else _seconds_here(boot, now)
    return [] if here is None else [(duration(here), "$quiet")]


def _ladder(
    boots: Sequence[RankBoot], now: float, troubles: Sequence[Trouble], column: int, glyphs: Glyphs
) -> list[Row]:
    header: list[Piece] = [(" " * RUNG_COLUMN, "")]
    header += [(f"{boot.rank} {boot.node}"[: column - 1].ljust(column), "bold") for boot in boots]
    rows: list[Row] = [tuple(header)]
    for rung in RUNGS:
        row: list[Piece] = [(rung.title.ljust(RUNG_COLUMN), "$quiet")]
        for boot in boots:
            glyph, style = _glyph(boot, rung, glyphs)
            texts, text_style = _cell(boot, rung, now, _mark(boot, troubles))
            text = next((text for text in texts if len(text) <= column - 3), texts[-1])
            row += [(glyph, style), (f" {text}"[: column - 2].ljust(column - 1), text_style)]
        rows.append(tuple(row))
    return rows


def _cell(boot: RankBoot, rung: Phase, now: float, mark: str) -> tuple[tuple[str, ...], str]:
    """The time a rung took; on the present one what goes on. Wordings from the longest to the shortest."""
    if rung > _last_rung(boot):
        return ("",), ""
    if boot.phase == rung:
        if boot.exited:
            return (("out of memory", "OOM killed") if boot.oom_killed else (f"exit {_status(boot)}",)), "$error bold"
        if seen := _last_seen(boot, now):
            return (seen, seen.removeprefix("last ").removesuffix(" ago"), "unseen"), "$warning bold"
        if boot.up:
            return ("ready" if boot.is_head else "up",), "$success"
        here = duration(_seconds_here(boot, now))
        if mark:
            return (f"{mark} {here}", mark), "$warning bold"
        load = _load(boot)
        if load is not None and load.shards_total:
            shards = f"{load.shards_done}/{load.shards_total}"
            return (f"{shards} {here}", shards), "bold"
        return (here,), "bold"
    taken = boot.seconds_in(rung)
    return (duration(taken) if taken is not None else "",), "$quiet"


def _status(boot: RankBoot) -> str:
    return "?" if boot.exit_code is None else str(boot.exit_code)


def _figures_row(boot: RankBoot, width: int, glyphs: Glyphs) -> Row:
    """What is in place, in GiB; empty until the engine has said something."""
    figures = boot.figures
    parts: list[str] = []
    for word, load in (("weights", figures.target), ("draft", figures.draft)):
        if load.used_gib is not None:
            parts.append(f"{word} {load.used_gib:.1f}")
    if figures.graph_gib is not None:
        parts.append(f"graphs {figures.graph_gib:.1f}")
    left = next(
        (
            value
            for value in (
                figures.free_gib,
                figures.draft.available_after_gib,
                figures.target.available_after_gib,
                figures.target.available_before_gib,
            )
            if value is not None
        ),
        None,
    )
    free = "" if left is None else f"{left:.1f} GiB left"
    name = (boot.node.ljust(RUNG_COLUMN), "bold")
    for said in (parts, parts[:2], parts[:1], []):
        text = "; ".join(part for part in (f"{', '.join(said)} GiB" if said else "", free) if part)
        if len(text) + RUNG_COLUMN <= width:
            return (name, (text, "$quiet")) if text else ()
    return ()


def _trouble_rows(troubles: Sequence[Trouble], width: int, glyphs: Glyphs) -> list[Row]:
    """Cause, then next step, each on as many rows as it takes."""
    rows: list[Row] = []
    for each in troubles[:2]:
        glyph, style = (glyphs.failed, "$error bold") if each.kind == "exited" else (glyphs.warn, "$warning bold")
        rows += _wrapped(f"{glyph} {each.node}: {each.text}", style, width)
        rows += _wrapped(f"  next: {each.fix}", "", width)
    return rows


def _unseen_rows(boots: Sequence[RankBoot], width: int, glyphs: Glyphs) -> list[Row]:
    """Why a rank cannot be asked: one row a node."""
    rows: list[Row] = []
    for boot in boots:
        if boot.unseen:
            text = f"{glyphs.unknown} {boot.node}: {plain(boot.unseen)}"
            rows.append(fitted(((text, "$warning bold"),), width, glyphs.ellipsis))
    return rows


def _wrapped(text: str, style: str, width: int) -> list[Row]:
    return [((line, style),) for line in textwrap.wrap(text, max(8, width), subsequent_indent="  ")]


def _cited(boots: Sequence[RankBoot], troubles: Sequence[Trouble], width: int, glyphs: Glyphs) -> list[Row]:
    """The line that caused the newest change, or the last one of the rank in trouble."""
    if troubles and troubles[0].line:
        text = f"{troubles[0].node}: {plain(troubles[0].line)}"
        return [fitted(((text, "$quiet"),), width, glyphs.ellipsis)]
    newest = max(
        ((boot.changes[-1].at_seconds, boot) for boot in boots if boot.changes), key=lambda pair: pair[0], default=None
    )
    if newest is None:
        return []
    boot, change = newest[1], newest[1].changes[-1]
    text = f"{boot.node} {change.phase.title}: {plain(change.line)}"
    return [fitted(((text, "$quiet"),), width, glyphs.ellipsis)]
