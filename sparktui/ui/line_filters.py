"""The last look at every line before it is sent: no character that the terminal cannot draw, no colour code where
none is wanted. Whatever a widget draws, of ours or of Textual, passes here."""

from __future__ import annotations

from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_TWINS = {
    " ": "\u00a0\u2002\u2003\u2007\u2008\u2009\u202f",
    "-": "─━┄┅┈┉╌╍═‐‑‒–—―▔╴╶╸╺−",
    "|": "│┃┆┇┊┋╎╏║▎▏▍▌▕▐▊▋▉╵╷╹╻",
    "+": "┌┍┎┏┐┑┒┓└┕┖┗┘┙┚┛├┝┞┟┠┡┢┣┤┥┦┧┨┩┪┫┬┭┮┯┰┱┲┳┴┵┶┷┸┹┺┻┼┽┾┿╀╁╂╃╄╅╆╇╈╉╊╋╔╗╚╝╠╣╦╩╬╭╮╯╰",
    "_": "▁▂",
    "#": "█▇▆▅▄▃▀■▓",
    "%": "▒",
    ".": "░·․",
    "*": "●•◆★✓✔",
    "o": "○◌◦◇",
    "~": "◐◑◒◓…≈",
    "x": "✖✗✘×",
    "!": "▲⚠",
    ">": "▸▶►▹→❯›»",
    "<": "◂◀◄←❮‹«",
    "^": "↑△▴⌃⭘",
    "v": "↓▼▽▾⌄",
    "'": "‘’",
    '"': "“”",
}
_TABLE = {ord(each): twin for twin, drawn in _TWINS.items() for each in drawn}


def in_ascii(text: str) -> str:
    """The same columns in ASCII; what has no twin becomes a question mark a column."""
    if text.isascii():
        return text
    twins = text.translate(_TABLE)
    if twins.isascii():
        return twins
    return "".join(each if each.isascii() else "?" * cell_len(each) for each in twins)


class AsciiOnly(LineFilter):
    """Every character has its twin in ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(in_ascii(text), style, control) for text, style, control in segments]


@lru_cache(2048)
def without_colour(style: Style) -> Style:
    """Bold, underline and reverse stay; a background of its own becomes reverse, so that a choice is still seen."""
    filled = style.bgcolor is not None and not style.bgcolor.is_default
    return Style(
        bold=style.bold,
        italic=style.italic,
        underline=style.underline,
        strike=style.strike,
        reverse=True if filled or style.reverse else None,
        meta=style.meta or None,
    )


class NoColours(LineFilter):
    """No colour code at all, not even the default's."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, None if style is None else without_colour(style), control)
            for text, style, control in segments
        ]
