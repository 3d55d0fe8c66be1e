"""What the terminal can show, decided once from the environment and the command line, before Textual is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Colour(StrEnum):
    TRUE = "truecolor"
    INDEXED = "256"
    BASIC = "standard"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Terminal:
    """Attributes:
    colour: how many colours may be sent.
    ascii_only: only characters that every terminal draws.
    """

    colour: Colour = Colour.TRUE
    ascii_only: bool = False

    @property
    def named_colours(self) -> bool:
        """The terminal's own 16 colours, by name: its palette is the user's."""
        return self.colour in (Colour.BASIC, Colour.NONE)

    @classmethod
    def of(cls, environment: Mapping[str, str], *, ascii_only: bool = False) -> Terminal:
        return cls(_colour(environment), ascii_only or not _speaks_unicode(environment))


def _colour(environment: Mapping[str, str]) -> Colour:
    term = environment.get("TERM", "")
    if environment.get("NO_COLOR") or term in ("dumb", "vt100", "vt220"):
        return Colour.NONE
    if environment.get("TERM_PROGRAM") == "Apple_Terminal":
        return Colour.INDEXED  # it says truecolor and draws other colours
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return Colour.TRUE
    if "256" in term or term in ("xterm-kitty", "alacritty", "foot", "wezterm", "xterm-ghostty"):
        return Colour.INDEXED if "256" in term else Colour.TRUE
    return Colour.BASIC


def _speaks_unicode(environment: Mapping[str, str]) -> bool:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        value = environment.get(name, "")
        if value:
            return "utf-8" in value.lower() or "utf8" in value.lower()
    return False
