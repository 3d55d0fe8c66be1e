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
        return cls(_colour(environment), ascii_only or not _draws_unicode(environment))


def cannot_draw(environment: Mapping[str, str]) -> bool:
    """Whether the terminal says of itself that it cannot place a cursor, or does not say what it is."""
    return environment.get("TERM", "") in ("", "dumb", "unknown", "emacs")


_TRUE_BY_NAME = ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "wezterm", "contour", "rio")
_WITHOUT_COLOUR = ("vt100", "vt102", "vt220", "vt320", "ansi-mono", "xterm-mono", "linux-m")


def _colour(environment: Mapping[str, str]) -> Colour:
    term = environment.get("TERM", "")
    if environment.get("NO_COLOR") or cannot_draw(environment) or term in _WITHOUT_COLOUR:
        return Colour.NONE
    if environment.get("TERM_PROGRAM") == "Apple_Terminal":
        return Colour.INDEXED  # it takes truecolor codes and draws other colours
    indexed = "256" in term or "direct" in term or term.startswith(_TRUE_BY_NAME)
    if term.startswith("screen") and not environment.get("TMUX"):
        # GNU screen before 5 draws nonsense for truecolor, and hands COLORTERM through from outside. tmux translates.
        return Colour.INDEXED if indexed else Colour.BASIC
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return Colour.TRUE
    if term.startswith(_TRUE_BY_NAME) or term.endswith("-direct"):
        return Colour.TRUE
    # Over ssh only TERM arrives: 256 is what each terminal of that name can do, whichever program it is.
    return Colour.INDEXED if indexed else Colour.BASIC


def _draws_unicode(environment: Mapping[str, str]) -> bool:
    if environment.get("TERM", "") in (*_WITHOUT_COLOUR, "linux"):
        return False  # the console's font has 512 characters, few of ours among them
    value = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    if environment.get("LANG", "") in _NO_LOCALE and not environment.get("LC_ALL") and value in _PYTHONS_OWN:
        return False  # Python itself put LC_CTYPE there because the user's locale is C (PEP 538)
    return "utf-8" in value.lower() or "utf8" in value.lower()


_NO_LOCALE = ("", "C", "POSIX")
_PYTHONS_OWN = ("C.UTF-8", "C.utf8")
