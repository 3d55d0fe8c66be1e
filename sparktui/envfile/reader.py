"""One pass over a .env file's text: the plain subset of what bash would source, never run.

Read: comments, `export`, quotes of both kinds, backslashes, `$X` and `${X}` of earlier lines or the environment,
`~` where bash expands it in an assignment. Source: bash(1), QUOTING and EXPANSION; a test compares with bash itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sparktui.envfile.lines import Assignment, BrokenLine, Problem, Severity

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JOINED_NAME = re.compile(r"(?:\\\n)*[A-Za-z_](?:\\\n|[A-Za-z0-9_])*")
"""bash takes a backslash and the end of its line away before it reads a name."""
_EXPORT = re.compile(r"export[ \t]+(?=[A-Za-z_])")
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200b\u2028\u2029\ufeff]")
_BREAKS_WORD = {
    "|": "a pipe",
    "&": "a background job",
    ";": "the start of a second command",
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
    """.split()  # noqa: SIM905
)
"""Variables that bash sets or treats in its own way: the value in a file would not be the value that arrives."""


class Fix(StrEnum):
    """How an unreadable line is to be put right."""

    QUOTE = "quote"
    JOIN = "join"
    APPEND = "append"
    COMMENT = "comment"
    SPLIT = "split"
    CUT = "cut"
    NONE = "none"


class Unreadable(Exception):
    """Why a statement cannot be read, where, and how it can be put right."""

    def __init__(self, reason: str, at: int, fix: Fix = Fix.QUOTE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Unread:
    """A line given up. `raw` is its text; `after_name` and `cut` are positions in it."""

    reason: str
    line: int
    raw: str
    name: str
    after_name: int
    cut: int
    fix: Fix


class Reader:
    """The pass, statement by statement. Afterwards `assignments`, `broken`, `unread` and `warnings` are filled."""

    def __init__(self, text: str, environment: Mapping[str, str]) -> None:
        self.text = text
        self.known = dict(environment)
        self.assignments: list[Assignment] = []
        self.broken: list[BrokenLine] = []
        self.unread: list[Unread] = []
        self.warnings: list[Problem] = []
        self.position = 0
        self.value_end = 0
        self.uses: set[str] = set()
        self.quoted_line_end = False

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
                raise Unreadable(
                    f"{name} is a variable of the shell itself and cannot be a setting", start, Fix.COMMENT
                )
            self.position = after + 1
            self.uses = set()
            self.quoted_line_end = False
            value = self._word(exported)
            self._rest_of_line(after + 1)
            if invisible := _INVISIBLE.search(value):
                code = f"U+{ord(invisible.group()):04X}"
                raise Unreadable(f"the value holds an invisible character ({code})", start, Fix.NONE)
        except Unreadable as problem:
            self._give_up(problem, start, name, after)
            return
        end = self.value_end
        self.known[name] = value
        self.assignments.append(
            Assignment(name, value, self._line(start), self._line(end), after + 1, end, frozenset(self.uses))
        )

    def _no_assignment(self, start: int, name: str, after: int, exported: bool) -> Unreadable:
        rest = self.text[after : self._line_end(after)]
        if name and re.match(r"[ \t]+=", rest):
            return Unreadable("bash allows no space before the equals sign", start, Fix.JOIN)
        if name and rest.startswith("+="):
            return Unreadable("appending with += is not read here", start, Fix.APPEND)
        if name and rest.startswith("["):
            return Unreadable("arrays are not read here", start, Fix.COMMENT)
        if exported and name and not rest.strip():
            return Unreadable(f"export {name} sets no value", start, Fix.COMMENT)
        return Unreadable("this is a command, and the file is only read, never run", start, Fix.COMMENT)

    def _word(self, exported: bool) -> str:
        parts: list[str] = []
        tilde_may_start = True
        while self.position < len(self.text):
            character = self.text[self.position]
            if character in " \t\n":
                break
            if self.text.startswith("\\\n", self.position):
                self.position += 2
                self.quoted_line_end = False
                continue
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
                raise Unreadable(
                    "a command between backticks is not run here: write its result, or quote it to keep the text",
                    self.position,
                )
            elif character in _BREAKS_WORD:
                raise self._breaks_word(character)
            elif character == "{" and exported:
                raise Unreadable("a brace outside quotes may be expanded after export", self.position)
            else:
                parts.append(character)
                self.position += 1
        self.value_end = self.position
        return "".join(parts)

    def _breaks_word(self, character: str) -> Unreadable:
        rest = self.text[self.position + 1 : self._line_end(self.position)].strip(" \t")
        if character == ";" and (not rest or rest.startswith("#")):
            return Unreadable("no semicolon ends a line here", self.position, Fix.CUT)
        if character == ";" and re.match(r"(export[ \t]+)?[A-Za-z_][A-Za-z0-9_]*=", rest):
            return Unreadable("one setting a line", self.position, Fix.SPLIT)
        return Unreadable(f"{character} outside quotes is {_BREAKS_WORD[character]} in bash", self.position)

    def _tilde(self) -> str | None:
        """HOME for a `~` that bash would expand; None for one that it leaves alone."""
        following = self.text[self.position + 1 : self.position + 2]
        if following in ("", "/", ":", " ", "\t", "\n"):
            if "HOME" not in self.known:
                raise Unreadable("~ needs HOME, which is not set", self.position)
            self.position += 1
            return self.known["HOME"]
        if following in ("'", '"', "\\") and not self.text.startswith("\\\n", self.position + 1):
            return None
        raise Unreadable("~ followed by a name is not read here: write the path", self.position)

    def _single(self) -> str:
        end = self.text.find("'", self.position + 1)
        if end < 0:
            raise Unreadable("a single quote is opened and never closed", self.position)
        inner = self.text[self.position + 1 : end]
        self.position = end + 1
        self.quoted_line_end = self.quoted_line_end or "\n" in inner
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
                raise Unreadable(
                    "a command between backticks is not run here: write its result, or quote it to keep the text",
                    self.position,
                )
            else:
                parts.append(character)
                self.position += 1
        raise Unreadable("a double quote is opened and never closed", opened)

    def _escape(self) -> str:
        following = self.text[self.position + 1 : self.position + 2]
        self.position += 2
        if not following:
            self.position = len(self.text)
            # bash drops the file's last backslash on a line that began between single quotes, else keeps it.
            return "" if self.quoted_line_end else "\\"
        return "" if following == "\n" else following

    def _dollar(self, quoted: bool) -> str:
        start = self.position
        following = self.text[start + 1 : start + 2]
        if following == "(":
            what = "arithmetic" if self.text.startswith("((", start + 1) else "a command in $( )"
            raise Unreadable(f"{what} is not run here: write its result, or quote it to keep the text", start)
        if following == "[":
            raise Unreadable("arithmetic is not run here: write its result, or quote it to keep the text", start)
        if not quoted and following in ("'", '"'):
            raise Unreadable(f"$ before {following} means something else in bash", start)
        if following == "{":
            match = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}").match(self.text, start)
            if match is None:
                raise Unreadable("of ${ } only a plain name is read here", start)
            self.position = match.end()
            return self._lookup(match[1], start)
        name = _JOINED_NAME.match(self.text, start + 1)
        if name:
            self.position = name.end()
            return self._lookup(name.group().replace("\\\n", ""), start)
        if self.text.startswith("\\\n", start + 1):
            raise Unreadable("a $ before the end of a line is not read here", start)
        if following and following in "0123456789@*#?-$!":
            raise Unreadable(f"${following} is a variable of the shell itself", start)
        self.position += 1
        return "$"

    def _lookup(self, name: str, at: int) -> str:
        self.uses.add(name)
        if name in SHELL_OWN or (name == "PATH" and name not in self.known):
            raise Unreadable(f"${name} is a variable of the shell itself: write the value", at)
        if name in self.known:
            return self.known[name]
        self.warnings.append(
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
            raise Unreadable("bash allows no space after the equals sign", self.position, Fix.JOIN)
        if re.match(r"(export[ \t]+)?[A-Za-z_][A-Za-z0-9_]*=", stripped):
            raise Unreadable("one setting a line, or quotes around a value with spaces", self.position, Fix.SPLIT)
        raise Unreadable("a value with spaces needs quotes: bash would take the rest as a command", self.position)

    def _give_up(self, problem: Unreadable, start: int, name: str, after: int) -> None:
        # A quote that is never closed would swallow the file: only the statement's first line is given up.
        end = self._line_end(start)
        raw = self.text[start:end]
        fix = problem.fix if problem.at < end else Fix.NONE
        self.unread.append(
            Unread(problem.reason, self._line(problem.at), raw, name, after - start, problem.at - start, fix)
        )
        self.broken.append(BrokenLine(name, self._line(start), start, end))
        self.position = end

    def _line(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1

    def _line_end(self, position: int) -> int:
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end
