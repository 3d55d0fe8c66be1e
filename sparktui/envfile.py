"""The syntax of a .env file: the plain subset of what bash would source, read without ever running anything.

Read: comments, `export`, quotes of both kinds, backslashes, `$X` and `${X}` of earlier lines or the environment,
`~` where bash expands it in an assignment. Values are those that bash gives. Everything else is a problem with its
line, the reason and a line that would do. Source: bash(1), QUOTING and EXPANSION; a test compares with bash itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

BOM = "\ufeff"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPORT = re.compile(r"export[ \t]+(?=[A-Za-z_])")
_END_OF_WORD = " \t\n"
_BREAKS_WORD = {
    "|": "a pipe",
    "&": "a background job",
    ";": "a second command",
    "<": "a redirection",
    ">": "a redirection",
    "(": "an array or a subshell",
    ")": "a closing parenthesis",
}
SHELL_OWN = frozenset(
    """
    BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_COMPAT BASH_ENV
    BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_REMATCH BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO
    BASH_VERSION BASH_XTRACEFD COMP_CWORD COMP_KEY COMP_LINE COMP_POINT COMP_TYPE COMP_WORDBREAKS COMP_WORDS COPROC
    DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD HOSTNAME HOSTTYPE IFS LINENO MACHTYPE MAPFILE
    OLDPWD OPTARG OPTERR OPTIND OSTYPE PIPESTATUS POSIXLY_CORRECT PPID PS4 PWD RANDOM READLINE_LINE READLINE_POINT
    REPLY SECONDS SHELL SHELLOPTS SHLVL SRANDOM TERM TIMEFORMAT UID _
    """.split()
)
"""Variables that bash sets or treats in its own way: the value in a file would not be the value that arrives."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to put right in the file.

    Attributes:
        line: 1 for the first line, 0 where no line is to blame (a missing name, a command-line value).
        reason: one sentence, holding no value of a secret.
        fixed: the line (or lines) to write instead; empty where only a person knows.
        name: the setting it is about, empty where it is none.
    """

    line: int
    reason: str
    fixed: str = ""
    name: str = ""
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `NAME=value`. `start` and `end` bound the value's own text in `EnvFile.text`."""

    name: str
    value: str
    line: int
    start: int
    end: int
    uses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that could not be read; `name` is empty where it is no assignment."""

    name: str
    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class EnvFile:
    """A file as read. `text` is what was read, without byte-order mark and carriage returns at line ends."""

    text: str
    assignments: tuple[Assignment, ...]
    broken: tuple[BrokenLine, ...]
    problems: tuple[Problem, ...]

    @property
    def values(self) -> dict[str, str]:
        """Name to value; the last line of a name wins, as in bash."""
        return {each.name: each.value for each in self.assignments}

    @property
    def lines(self) -> dict[str, int]:
        """Name to the line that its value comes from."""
        return {each.name: each.line for each in self.assignments}

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(each for each in self.problems if each.severity is Severity.ERROR)


class _Unreadable(Exception):
    def __init__(self, reason: str, at: int, fix: str = "quote") -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.fix = fix


def parse_env(text: str, environment: Mapping[str, str] | None = None) -> EnvFile:
    """Read a file's text.

    Args:
        text: the file, decoded; see `decode_env` for bytes.
        environment: what `$X` may refer to besides earlier lines; HOME is needed for `~`.
    """
    problems: list[Problem] = []
    clean = _without_foreign_marks(text, problems)
    reader = _Reader(clean, dict(environment or {}), problems)
    reader.read()
    _report_duplicates(clean, reader.assignments, problems)
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


def quoted(value: str) -> str:
    """`value` written so that bash and this module read it back unchanged, bare where nothing needs a quote.

    Raises:
        ValueError: it holds a NUL, which no environment can carry.
    """
    if "\0" in value:
        raise ValueError("a value cannot hold a NUL character")
    if re.fullmatch(r"[A-Za-z0-9_./:@%+,=^-]*", value):
        return value
    if "'" not in value:
        return f"'{value}'"
    if not re.search(r'[\\$`"!]', value):
        return f'"{value}"'
    return "'" + value.replace("'", "'\\''") + "'"


def nearest(name: str, known: frozenset[str]) -> str | None:
    """The known name that `name` was probably meant to be, or None."""
    import difflib

    close = difflib.get_close_matches(name.upper(), sorted(known), n=1, cutoff=0.75)
    return close[0] if close else None


def _without_foreign_marks(text: str, problems: list[Problem]) -> str:
    if text.startswith(BOM):
        text = text.removeprefix(BOM)
        first = text.split("\n", 1)[0].rstrip("\r")
        problems.append(
            Problem(1, "an invisible byte-order mark stands before the first line", first, severity=Severity.WARNING)
        )
    if "\r" in text:
        lines = text.split("\n")
        ended = [number for number, line in enumerate(lines, 1) if line.endswith("\r")]
        if ended:
            others = f" (and {len(ended) - 1} more lines)" if len(ended) > 1 else ""
            problems.append(
                Problem(
                    ended[0],
                    f"Windows line end{others}: bash would keep the carriage return in the value",
                    lines[ended[0] - 1].rstrip("\r"),
                    severity=Severity.WARNING,
                )
            )
            text = "\n".join(line.rstrip("\r") for line in lines)
    return text


def _report_duplicates(text: str, assignments: list[Assignment], problems: list[Problem]) -> None:
    lines = text.split("\n")
    seen: dict[str, Assignment] = {}
    for each in assignments:
        earlier = seen.get(each.name)
        seen[each.name] = each
        if earlier is None:
            continue
        ambiguous = earlier.value != each.value and each.name not in each.uses
        reason = f"{each.name} is set here and again on line {each.line}" + (
            ", with another value: the last one would win" if ambiguous else "; the last one wins"
        )
        fixed = f"# {lines[earlier.line - 1].lstrip()}" if each.name not in each.uses else ""
        problems.append(
            Problem(earlier.line, reason, fixed, each.name, Severity.ERROR if ambiguous else Severity.WARNING)
        )


class _Reader:
    """One pass over the text, statement by statement."""

    def __init__(self, text: str, environment: dict[str, str], problems: list[Problem]) -> None:
        self.text = text
        self.environment = environment
        self.problems = problems
        self.known = dict(environment)
        self.assignments: list[Assignment] = []
        self.broken: list[BrokenLine] = []
        self.position = 0
        self.uses: set[str] = set()

    def read(self) -> None:
        while self.position < len(self.text):
            character = self.text[self.position]
            if character in " \t\n":
                self.position += 1
            elif character == "#":
                self.position = self._line_end(self.position)
            else:
                self._statement()

    def _statement(self) -> None:
        start = self.position
        match = _EXPORT.match(self.text, start)
        exported = match is not None
        name_match = NAME.match(self.text, match.end() if match else start)
        name = name_match.group() if name_match else ""
        after = name_match.end() if name_match else start
        try:
            if not name or self.text[after : after + 1] != "=":
                raise self._no_assignment(start, name, after, exported)
            if name in SHELL_OWN:
                raise _Unreadable(f"{name} is a variable of the shell itself and cannot be a setting", start, "comment")
            self.position = after + 1
            self.uses = set()
            value = self._word(exported)
            self._rest_of_line(after + 1)
        except _Unreadable as problem:
            self._give_up(problem, start, name, after)
            return
        end = self.value_end
        self.known[name] = value
        line = self._line(start)
        self.assignments.append(Assignment(name, value, line, after + 1, end, frozenset(self.uses)))

    def _no_assignment(self, start: int, name: str, after: int, exported: bool) -> _Unreadable:
        rest = self.text[after : self._line_end(after)]
        if name and re.match(r"[ \t]+=", rest):
            return _Unreadable("bash allows no space before the equals sign", start, "join")
        if name and rest.startswith("+="):
            return _Unreadable("appending with += is not read here", start, "append")
        if name and rest.startswith("["):
            return _Unreadable("arrays are not read here", start, "comment")
        if exported and name and not rest.strip():
            return _Unreadable(f"export {name} sets no value", start, "comment")
        return _Unreadable("this is a command, and the file is only read, never run", start, "comment")

    def _word(self, exported: bool) -> str:
        parts: list[str] = []
        tilde_may_start = True
        while self.position < len(self.text):
            character = self.text[self.position]
            if character in _END_OF_WORD:
                break
            if character == "~" and tilde_may_start and (home := self._tilde()) is not None:
                parts.append(home)
                tilde_may_start = False
                continue
            tilde_may_start = character == ":"
            if character == "'":
                parts.append(self._single())
            elif character == '"':
                parts.append(self._double())
            elif character == "\\":
                parts.append(self._escape())
            elif character == "$":
                parts.append(self._dollar(quoted=False))
            elif character == "`":
                raise _Unreadable("a command between backticks is not run here", self.position)
            elif character in _BREAKS_WORD:
                raise _Unreadable(f"{character} outside quotes is {_BREAKS_WORD[character]} in bash", self.position)
            elif character == "{" and exported:
                raise _Unreadable("a brace outside quotes may be expanded after export", self.position)
            else:
                parts.append(character)
                self.position += 1
        self.value_end = self.position
        return "".join(parts)

    def _tilde(self) -> str | None:
        """HOME for a `~` that bash would expand; None for one that it leaves alone."""
        following = self.text[self.position + 1 : self.position + 2]
        if following in ("", "/", ":", " ", "\t", "\n"):
            if "HOME" not in self.known:
                raise _Unreadable("~ needs HOME, which is not set", self.position)
            self.position += 1
            return self.known["HOME"]
        if following in ("'", '"', "\\"):
            return None
        raise _Unreadable("~ followed by a name is not read here: write the path", self.position)

    def _single(self) -> str:
        end = self.text.find("'", self.position + 1)
        if end < 0:
            raise _Unreadable("a single quote is opened and never closed", self.position)
        inner = self.text[self.position + 1 : end]
        self.position = end + 1
        return inner

    def _double(self) -> str:
        opened = self.position
        self.position += 1
        parts: list[str] = []
        while self.position < len(self.text):
            character = self.text[self.position]
            if character == '"':
                self.position += 1
                return "".join(parts)
            if character == "\\":
                following = self.text[self.position + 1 : self.position + 2]
                parts.append({"\n": "", "$": "$", "`": "`", '"': '"', "\\": "\\"}.get(following, "\\" + following))
                self.position += 2
            elif character == "$":
                parts.append(self._dollar(quoted=True))
            elif character == "`":
                raise _Unreadable("a command between backticks is not run here", self.position)
            else:
                parts.append(character)
                self.position += 1
        raise _Unreadable("a double quote is opened and never closed", opened)

    def _escape(self) -> str:
        following = self.text[self.position + 1 : self.position + 2]
        self.position += 2
        if not following:
            self.position = len(self.text)
            return "\\"
        return "" if following == "\n" else following

    def _dollar(self, quoted: bool) -> str:
        start = self.position
        following = self.text[start + 1 : start + 2]
        if following == "(":
            what = "arithmetic" if self.text.startswith("((", start + 1) else "a command in $( )"
            raise _Unreadable(f"{what} is not evaluated here: write the value itself", start)
        if following == "[":
            raise _Unreadable("arithmetic is not evaluated here: write the value itself", start)
        if not quoted and following in ("'", '"'):
            raise _Unreadable(f"$ before {following} means something else in bash", start)
        if following == "{":
            match = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}").match(self.text, start)
            if match is None:
                raise _Unreadable("of ${ } only a plain name is read here", start)
            self.position = match.end()
            return self._lookup(match[1], start)
        name = NAME.match(self.text, start + 1)
        if name:
            self.position = name.end()
            return self._lookup(name.group(), start)
        if following and following in "0123456789@*#?-$!":
            raise _Unreadable(f"${following} is a variable of the shell itself", start)
        self.position += 1
        return "$"

    def _lookup(self, name: str, at: int) -> str:
        self.uses.add(name)
        if name in self.known and name not in SHELL_OWN:
            return self.known[name]
        if name in SHELL_OWN:
            raise _Unreadable(f"${name} is a variable of the shell itself: write the value", at)
        self.problems.append(
            Problem(self._line(at), f"${name} is not set before this line, so it is empty", severity=Severity.WARNING)
        )
        return ""

    def _rest_of_line(self, value_start: int) -> None:
        """After a value only blanks and a comment may follow."""
        end = self._line_end(self.position)
        rest = self.text[self.position : end]
        stripped = rest.lstrip(" \t")
        if not stripped or (stripped.startswith("#") and len(stripped) < len(rest)):
            self.position = end
            return
        if self.value_end == value_start:
            raise _Unreadable("bash allows no space after the equals sign", self.position, "join")
        raise _Unreadable(
            "a value with spaces needs quotes: bash would take the rest as a command", self.position, "quote"
        )

    def _give_up(self, problem: _Unreadable, start: int, name: str, after: int) -> None:
        # A quote that is never closed would swallow the file: only its own line is given up.
        end = self._line_end(start)
        at = self._line_end(problem.at) if "\n" not in self.text[start : problem.at] else end
        del at
        raw = self.text[start:end]
        fixed = _fixed_line(problem.fix, raw, name, self.text[after:end])
        self.problems.append(Problem(self._line(start), problem.reason, fixed, name))
        self.broken.append(BrokenLine(name, self._line(start), start, end))
        self.position = end

    def _line(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1

    def _line_end(self, position: int) -> int:
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end


def _fixed_line(kind: str, raw: str, name: str, after_name: str) -> str:
    if kind == "comment" or not name:
        return f"# {raw}"
    if kind == "append":
        appended = after_name[2:].strip()
        return f'{name}="${{{name}}} "{quoted(appended.strip(chr(34) + chr(39)))}'
    value = after_name.lstrip(" \t").removeprefix("=").strip(" \t")
    value, comment = _split_comment(value)
    bare = value[1:-1].strip() if value.startswith("(") and value.endswith(")") else value
    for quote in "'\"":
        if bare.startswith(quote) and (bare.count(quote) == 1 or (bare.endswith(quote) and bare.count(quote) == 2)):
            bare = bare.strip(quote)
    return f"{name}={quoted(bare)}{comment}"


def _split_comment(value: str) -> tuple[str, str]:
    match = re.search(r"[ \t]+#[^'\"]*$", value)
    return (value[: match.start()], value[match.start() :]) if match else (value, "")
