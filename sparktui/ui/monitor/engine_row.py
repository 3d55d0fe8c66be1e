"""The endpoint in one or a few lines: what it does now and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparktui.telemetry.sample import EndpointState, Serving
from sparktui.ui.widgets.drawing import Piece, Row, fitted, row_width
from sparktui.ui.widgets.figures import number, percent

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs


def engine_fields(serving: Serving) -> list[tuple[str, str]]:
    """(word, figure), most wanted first."""
    ttft = serving.ttft_seconds
    return [
        ("decode", f"{number(serving.decode_tokens_per_second, 1):>5} tok/s"),
        ("running", f"{number(serving.running_requests):>2}"),
        ("queued", f"{number(serving.queued_requests):>2}"),
        ("prefill", f"{number(serving.prefill_tokens_per_second):>5} tok/s"),
        ("KV used", f"{percent(serving.kv_used_fraction):>5}"),
        ("accept", f"{number(serving.accept_length, 2)} tokens"),
        ("first token", "?" if ttft is None else f"{ttft * 1000:.0f} ms" if ttft < 10 else f"{ttft:.0f} s"),
    ]


def _state(serving: Serving, glyphs: Glyphs) -> list[Piece]:
    glyph, style = {
        EndpointState.READY: (glyphs.done, "$success bold"),
        EndpointState.STARTING: (glyphs.running, "$accent bold"),
        EndpointState.DOWN: (glyphs.failed, "$error bold") if serving.was_ready else (glyphs.todo, "$quiet"),
        EndpointState.HANGS: (glyphs.failed, "$error bold"),
        EndpointState.UNKNOWN: (glyphs.unknown, "$quiet"),
    }[serving.state]
    pieces: list[Piece] = [("endpoint ", "$quiet"), (f"{glyph} {serving.state.value}", style)]
    if serving.problem:
        pieces.append((f"  {serving.problem}", "$warning" if serving.was_ready else "$quiet"))
    elif serving.models:
        pieces.append((f"  {', '.join(serving.models)}", "$quiet"))
    if serving.url and serving.url not in serving.problem:
        pieces.append((f"  {serving.url}", "$quiet"))
    return pieces


def engine_rows(serving: Serving, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """State, then the fields in columns of one width."""
    state = _state(serving, glyphs)
    needed = 3 if serving.problem else 2
    while len(state) > needed and row_width(state) > width:
        state.pop()  # half an address helps nobody
    rows: list[Row] = [fitted(state, width, glyphs.ellipsis)]
    fields = [
        ((f"{word} ", "$quiet"), (figure, "bold" if word == "decode" else ""))
        for word, figure in engine_fields(serving)
    ]
    column = max(row_width(field) for field in fields) + 2
    across = max(1, width // column)
    for first in range(0, len(fields), across):
        pieces: list[Piece] = []
        for field in fields[first : first + across]:
            pieces += [*field, (" " * (column - row_width(field)), "")]
        rows.append(tuple(pieces[:-1]))
    return rows[:height]
