"""A style sheet that is parsed once.

Textual parses all CSS again at each change of mode and theme before the first picture, four times in all, which was
half the time of a start. Parsing anew changes something only where a variable did.
"""

from __future__ import annotations

from textual.css.stylesheet import Stylesheet


class ParsedOnce(Stylesheet):
    """As Textual's, but `reparse()` does nothing while the variables are those of the last parse."""

    def __init__(self, *, variables: dict[str, str]) -> None:
        super().__init__(variables=variables)
        self._fresh = True
        self._given = dict(variables)

    def set_variables(self, variables: dict[str, str]) -> None:
        if variables != self._given:
            self._given, self._fresh = dict(variables), False
            super().set_variables(variables)

    def reparse(self) -> None:
        if not self._fresh:
            super().reparse()
            self._fresh = True
