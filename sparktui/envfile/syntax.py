"""From a .env file's bytes to its values and everything that is wrong with it. Never runs a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparktui.envfile.fixes import fixed_line
from sparktui.envfile.lines import Assignment, EnvFile, Problem, Severity
from sparktui.envfile.reader import Reader

BOM = "\ufeff"


def parse_env(text: str, environment: Mapping[str, str] | None = None) -> EnvFile:
    """Read a file's text; values are those that bash would give.

    Args:
        text: the file, decoded; see `decode_env` for bytes.
        environment: what `$X` may refer to besides earlier lines; HOME is needed for `~`.
    """
    clean = without_foreign_marks(text)
    reader = Reader(clean, environment or {})
    reader.read()
    problems = [
        *_foreign_marks(text),
        *reader.warnings,
        *(Problem(each.line, each.reason, fixed_line(each), each.name) for each in reader.unread),
        *_duplicates(clean, reader.assignments),
    ]
    problems.sort(key=lambda each: each.line)
    return EnvFile(clean, tuple(reader.assignments), tuple(reader.broken), tuple(problems))


def decode_env(data: bytes) -> tuple[str, tuple[Problem, ...]]:
    """The text of a file's bytes, and a problem for the first line that is no UTF-8 (its bytes become U+FFFD)."""
    try:
        return data.decode("utf-8"), ()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = Problem(line, "this line is not UTF-8 text: save the file as UTF-8")
        return data.decode("utf-8", "replace"), (problem,)


def without_foreign_marks(text: str) -> str:
    """`text` without a byte-order mark and without carriage returns at line ends."""
    return "\n".join(line.rstrip("\r") for line in text.removeprefix(BOM).split("\n"))


def _foreign_marks(text: str) -> Iterator[Problem]:
    lines = text.removeprefix(BOM).split("\n")
    if text.startswith(BOM):
        reason = "an invisible byte-order mark stands before the first line"
        yield Problem(1, reason, lines[0].strip("\r \t"), severity=Severity.WARNING)
    ended = [number for number, line in enumerate(lines, 1) if line.endswith("\r")]
    if ended:
        others = f" (and on {len(ended) - 1} more)" if len(ended) > 1 else ""
        reason = f"a Windows line end{others}: bash would keep the carriage return in the value"
        yield Problem(ended[0], reason, lines[ended[0] - 1].strip("\r \t"), severity=Severity.WARNING)


def _duplicates(text: str, assignments: list[Assignment]) -> Iterator[Problem]:
    lines = text.split("\n")
    seen: dict[str, Assignment] = {}
    for each in assignments:
        earlier = seen.get(each.name)
        seen[each.name] = each
        # NAME=$NAME… adds to the line above on purpose.
        if earlier is None or each.name in each.uses:
            continue
        reason = f"{each.name} is set here and again on line {each.line}"
        fixed = f"# {lines[earlier.line - 1].lstrip()}" if earlier.line == earlier.last_line else ""
        if earlier.value == each.value:
            yield Problem(earlier.line, f"{reason}, to the same", fixed, each.name, Severity.WARNING)
        else:
            yield Problem(earlier.line, f"{reason}, to something else: the last would win", fixed, each.name)
