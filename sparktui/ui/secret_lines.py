"""An env file's text with its secrets as dots; lines stay where they are. Pure."""

from __future__ import annotations

import re

from sparktui.envfile import parse_env


def masked_text(text: str) -> str:
    """The text with each secret's value masked, also in lines that are commented out or cannot be read."""
    from sparktui.settings import SECRET_NAMES
    from sparktui.settings.fields import masked

    read = parse_env(text, {"HOME": "/"})
    text = read.text
    spots = [
        (each.start, each.end, masked(each.value))
        for each in read.assignments
        if each.name in SECRET_NAMES and each.value
    ]
    spots += [(each.start, each.end, f"{each.name}={masked('')}") for each in read.broken if each.name in SECRET_NAMES]
    for start, end, shown in sorted(spots, reverse=True):
        text = text[:start] + shown.replace("\n", " ") + "\n" * text[start:end].count("\n") + text[end:]
    names = "|".join(map(re.escape, sorted(SECRET_NAMES)))
    return re.sub(
        rf"^([ \t]*#[ \t]*(?:export[ \t]+)?(?:{names})=)(?=\S).*$", rf"\1{masked('')}", text, flags=re.MULTILINE
    )
