"""Where each node's unified memory went: a bar a node, its parts in figures, and the floor it must stay above."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparktui.telemetry.sample import Freshness, MemorySplit, NodeSample
from sparktui.ui.widgets.drawing import Drawing, Piece, Row, filled, row_width
from sparktui.ui.widgets.figures import GIB, freshness_text, gib

if TYPE_CHECKING:
    from sparktui.ui.glyphs import Glyphs

CALM_PSI_PERCENT = 1.0
"""Below this the share of stalled time is not worth a word."""
CALM_SWAP_BYTES = GIB // 20
MOST_ROWS_A_NODE = 4
ROOMY = 46


class MemoryPane(Drawing):
    """`show(nodes)`; the floor of each node is in its sample."""

    BORDER_TITLE = "memory"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        self.nodes: tuple[NodeSample, ...] = ()
        super().__init__(id=id, classes=classes)

    def show(self, nodes: tuple[NodeSample, ...]) -> None:
        if nodes != self.nodes:
            self.nodes = nodes
            self.redraw()

    def rows(self, width: int, height: int, glyphs: Glyphs) -> Sequence[Row]:
        return memory_rows(self.nodes, width, height, glyphs)

    def height_wanted(self, width: int) -> int:
        return MOST_ROWS_A_NODE * max(1, len(self.nodes))


def memory_rows(nodes: Sequence[NodeSample], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """As many rows a node as there is room for: one line each, then a bar, then its parts in words, then air."""
    if not nodes:
        return [(("no node was asked yet", "$quiet"),)]
    legend = _legend(glyphs, width)
    each = min(MOST_ROWS_A_NODE, height // len(nodes))
    if each < 1:
        shown = nodes[: max(1, height - 1)]
        more = len(nodes) - len(shown)
        return [*(_one_line(node, width, glyphs, nodes) for node in shown), ((f"and {more} more", "$quiet"),)]
    rows: list[Row] = []
    for node in nodes:
        if each == 1:
            rows.append(_one_line(node, width, glyphs, nodes))
            continue
        rows += [_head_line(node, width, glyphs), _bar(node, width, glyphs)]
        if each >= 3:
            rows.append(_parts_line(node, width, glyphs))
        if each >= MOST_ROWS_A_NODE:
            rows.append(())
    if (each < 3 or width < ROOMY) and len(rows) < height:
        rows.append(legend)
    return rows


def _name(node: NodeSample) -> Piece:
    return (node.node, "bold")


def danger(split: MemorySplit) -> bool:
    """Less is available than the floor."""
    return (
        split.available_bytes is not None
        and split.floor_bytes is not None
        and split.available_bytes < (split.floor_bytes)
    )


def _available(
    node: NodeSample, glyphs: Glyphs, *, floor: bool, column: int = 0, word: str = "available"
) -> list[Piece]:
    split = node.split
    quiet = node.freshness is not Freshness.LIVE
    low = danger(split)
    style = "$error bold" if low else "$quiet" if quiet else ""
    pieces: list[Piece] = [
        (f"{glyphs.failed} " if low else "  ", style),
        (f"{gib(split.available_bytes):>{column}} GiB", style),
    ]
    pieces.append((f" {word}", "$error" if low else "$quiet"))
    if floor and split.floor_bytes is not None:
        pieces.append((f", {'below' if low else 'floor'} {gib(split.floor_bytes)}", "$error" if low else "$quiet"))
    return pieces


def _unrest(node: NodeSample, glyphs: Glyphs) -> list[Piece]:
    """What is not calm, in words: age, swap, pressure."""
    pieces: list[Piece] = []
    late = freshness_text(node)
    if late:
        pieces.append((late, "$error bold" if node.freshness is Freshness.GONE else "$warning"))
    swap = node.split.swap_used_bytes
    if swap is not None and swap >= CALM_SWAP_BYTES:
        pieces.append((f"swap {gib(swap)} GiB", "$warning"))
    if node.stalled_percent is not None and node.stalled_percent >= CALM_PSI_PERCENT:
        pieces.append((f"stalled {node.stalled_percent:.0f} %", "$warning"))
    return pieces


def _spaced(pieces: Sequence[Piece]) -> list[Piece]:
    spaced: list[Piece] = []
    for piece in pieces:
        spaced += [("  ", ""), piece]
    return spaced


def _head_line(node: NodeSample, width: int, glyphs: Glyphs) -> Row:
    left = [_name(node), *_spaced(_unrest(node, glyphs))]
    right: list[Piece] = []
    for floor, word in ((True, "available"), (False, "available"), (False, "left")):
        right = _available(node, glyphs, floor=floor, word=word)
        if row_width(left) + row_width(right) + 1 <= width:
            break
    return filled(left, right, width, glyphs.ellipsis)


def _one_line(node: NodeSample, width: int, glyphs: Glyphs, nodes: Sequence[NodeSample]) -> Row:
    """Name, a short bar, what is available; unrest takes the bar's place."""
    names = max(len(each.node) for each in nodes)
    right = _available(node, glyphs, floor=False, column=5, word="available" if width >= ROOMY else "left")
    unrest = _unrest(node, glyphs)
    room = width - names - 2 - row_width(right) - 1
    left: list[Piece] = [(node.node.ljust(names), "bold"), ("  ", "")]
    if unrest:
        left += _spaced(unrest)[1:]
    elif room >= 6:
        left += _bar(node, room, glyphs)
    return filled(left, right, width, glyphs.ellipsis)


def _parts(split: MemorySplit, glyphs: Glyphs) -> list[tuple[str, str, str, str, int | None]]:
    """(glyph, style, word, short word, bytes), left to right as in the bar."""
    return [
        (glyphs.full, "$held", "weights + driver", "held", split.held_bytes),
        (glyphs.dark, "$processes", "processes", "processes", split.processes_bytes),
        (glyphs.medium, "$cache", "page cache", "cache", split.page_cache_bytes),
        (glyphs.light, "$free", "free", "free", split.free_bytes),
    ]


def _bar(node: NodeSample, width: int, glyphs: Glyphs) -> Row:
    """The parts as shares of the total; the floor is a mark as far from the right end as must stay available."""
    split = node.split
    parts = _parts(split, glyphs)
    known = [value for *_, value in parts if value is not None]
    if not split.total_bytes or len(known) < len(parts):
        word = " unknown "
        side = max(0, width - len(word)) // 2
        text = glyphs.info * side + word + glyphs.info * max(0, width - len(word) - side)
        return ((text[:width], "$quiet"),)
    cells: list[Piece] = []
    edge = 0
    passed = 0
    dimmed = node.freshness is not Freshness.LIVE
    for number, (glyph, style, _, _, value) in enumerate(parts):
        passed += value or 0
        end = width if number == len(parts) - 1 else round(passed / split.total_bytes * width)
        if value and end == edge and edge < width:
            end = edge + 1  # what is there is seen
        end = min(width, max(edge, end))
        cells += [(glyph, "$border" if dimmed else style)] * (end - edge)
        edge = end
    if split.floor_bytes is not None and width >= 6:
        at = min(width - 1, max(0, round((1 - split.floor_bytes / split.total_bytes) * width)))
        cells[at] = (glyphs.floor, "$error bold" if danger(split) else "$warning bold")
    return _joined(cells)


def _joined(cells: Sequence[Piece]) -> Row:
    """Neighbours of one style become one piece."""
    joined: list[Piece] = []
    for text, style in cells:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        else:
            joined.append((text, style))
    return tuple(joined)


def _parts_line(node: NodeSample, width: int, glyphs: Glyphs) -> Row:
    if node.problem and node.freshness is not Freshness.LIVE:
        return ((node.problem, "$quiet"),)
    row: Row = ()
    for wording in range(4):
        pieces: list[Piece] = []
        for glyph, style, word, short, value in _parts(node.split, glyphs):
            named = (f" {word} ", f" {word} ", f" {short} ", "")[wording]
            pieces += [(glyph, style), (named, "$quiet"), (gib(value), ""), ("   " if wording == 0 else "  ", "")]
        row = tuple(pieces[:-1])
        if row_width(row) <= width:
            break
    total = f"of {gib(node.split.total_bytes)} GiB"
    return filled(row, [(total, "$quiet")], width) if row_width(row) + len(total) + 2 <= width else row


def _legend(glyphs: Glyphs, width: int) -> Row:
    """The words for the glyphs, the floor's as long as it fits."""
    for whole, gap, floor in ((True, " ", True), (False, " ", True), (False, "", True), (False, "", False)):
        pieces: list[Piece] = []
        for glyph, style, word, short, _ in _parts(MemorySplit(), glyphs):
            pieces += [(glyph, style), (f"{gap}{word if whole else short} {gap}", "$quiet")]
        if floor:
            pieces += [(glyphs.floor, "$warning bold"), (f"{gap}floor", "$quiet")]
        if row_width(pieces) <= width:
            return tuple(pieces)
    return ()
