"""Text that wraps with its own indent, so that what belongs together stays below each other."""

from __future__ import annotations

import textwrap

from textual.content import Content


def hanging(text: str, width: int, *, first: Content | str = "", indent: int = 0, style: str = "") -> list[Content]:
    """`text` in lines of at most `width` cells: the first behind `first`, the others behind `indent` blanks."""
    lead = Content(first) if isinstance(first, str) else first
    room = max(16, width - indent)
    pieces = textwrap.wrap(text, room, break_on_hyphens=False, drop_whitespace=True) or [""]
    pad = " " * max(0, indent - lead.cell_length)
    lines = [Content.assemble(lead, pad, (pieces[0], style))]
    lines += [Content.assemble(" " * indent, (piece, style)) for piece in pieces[1:]]
    return lines
