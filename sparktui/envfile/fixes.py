"""Lines that would do: quoting a value, and the fixed spelling of a line that cannot be read."""

from __future__ import annotations

import re

from sparktui.envfile.lines import Problem
from sparktui.envfile.reader import Fix, Reader, Unread

_BARE = re.compile(r"[A-Za-z0-9_./:@%+,=^-]*")


def quoted(value: str) -> str:
    """`value` written so that bash and `parse_env` read it back unchanged, bare where nothing needs a quote.

    Raises:
        ValueError: it holds a NUL, which no environment can carry.
    """
    if "\0" in value:
        raise ValueError("a value cannot hold a NUL character")
    if _BARE.fullmatch(value):
        return value
    if "'" not in value:
        return f"'{value}'"
    if not re.search(r'[\\$`"!]', value):
        return f'"{value}"'
    return "'" + value.replace("'", "'\\''") + "'"


def fixed_line(unread: Unread) -> str:
    """What to write instead of a line that could not be read; empty where only a person knows.

    A proposal that could not be read either is never made.
    """
    for candidate in _candidates(unread):
        reader = Reader(candidate, {"HOME": "/", unread.name: ""})
        reader.read()
        if not reader.unread:
            return candidate
    return ""


def fixed_text(text: str, problems: tuple[Problem, ...]) -> str:
    """`text` (without byte-order mark and carriage returns: `EnvFile.text`) with every proposed line in its place."""
    lines = text.split("\n")
    for problem in problems:
        if problem.fixed and 0 < problem.line <= len(lines):
            indent = re.match(r"[ \t]*", lines[problem.line - 1])
            lines[problem.line - 1] = (indent.group() if indent else "") + problem.fixed
    return "\n".join(lines)


def _candidates(unread: Unread) -> list[str]:
    raw, name = unread.raw, unread.name
    if unread.fix is Fix.NONE:
        return []
    if unread.fix is Fix.COMMENT or not name:
        return [f"# {raw}"]
    if unread.fix is Fix.SPLIT:
        rest = raw[unread.cut :].lstrip("; \t")
        return [f"{raw[: unread.cut].rstrip()}\n{rest}"]
    if unread.fix is Fix.CUT:
        return [raw[: unread.cut] + raw[unread.cut + 1 :]]
    after = raw[unread.after_name :]
    if unread.fix is Fix.APPEND:
        return [f"{name}=${{{name}}}{after[2:]}"]
    value, comment = _split_comment(after.lstrip(" \t").removeprefix("=").strip(" \t"))
    written = [f"{name}={value}{comment}"] if unread.fix is Fix.JOIN else []
    return [*written, f"{name}={quoted(_unwrapped(value))}{comment}"]


def _unwrapped(value: str) -> str:
    """The text that was meant: without the parentheses of an array, without a quote that has no partner."""
    if value.startswith("(") and value.endswith(")"):
        value = value[1:-1].strip()
    for quote in "'\"":
        if value.startswith(quote) and (value.count(quote) == 1 or (value.endswith(quote) and value.count(quote) == 2)):
            return value.strip(quote)
    return value


def _split_comment(value: str) -> tuple[str, str]:
    match = re.search(r"[ \t]+#[^'\"]*$", value)
    return (value[: match.start()], value[match.start() :]) if match else (value, "")
