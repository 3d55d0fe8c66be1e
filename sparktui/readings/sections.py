"""One probe script, many answers: the text between `@name` lines.

A probe prints, for each thing it looks at, a line `@name` (lower case letters, digits, `.`, `_`, `-`) and then the
raw output. What stands before the first such line is dropped. A probe that wants to report a command's failure
prints `@name.exit` followed by the status, `@name.stderr` followed by the text.
"""

from __future__ import annotations

import re

_HEADER = re.compile(r"@([a-z0-9][a-z0-9._-]*)")


def sections(text: str) -> dict[str, str]:
    """Name -> raw text of the section, ending in its own newline; a repeated name is joined in order.

    A name that is missing means that the probe never came that far: unknown, not empty.
    """
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.split("\n"):
        header = _HEADER.fullmatch(line.rstrip("\r"))
        if header:
            current = found.setdefault(header[1], [])
        elif current is not None:
            current.append(line)
    return {name: _closed(lines) for name, lines in found.items()}


def _closed(lines: list[str]) -> str:
    while lines and not lines[-1]:
        lines = lines[:-1]
    return "\n".join(lines) + "\n" if lines else ""


def pairs(text: str) -> dict[str, str]:
    """`key<TAB>value` lines -> dict; lines without a tab are skipped, the last of a repeated key wins."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        key, tab, value = line.rstrip("\r").partition("\t")
        if tab and key:
            found[key] = value
    return found
