"""The settings as the screen shows them: the file's text, the changes that are not saved yet, and what is wrong."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparktui.envfile import Problem, Severity, decode_env, parse_env, updated_text
from sparktui.errors import SettingsError

if TYPE_CHECKING:
    from sparktui.cluster.profile import Profile
    from sparktui.settings import Settings

OTHER_NOTES = {"environment": "the environment", "command line": "the command line"}


@dataclass(frozen=True, slots=True)
class Line:
    """One setting.

    Attributes:
        value: as the file holds it, the default where it holds none; a secret's plain text is not in here.
        default: the profile's, as a file would hold it; `defaults` has every shipped profile's where they differ.
        origin: `line 12`, `default of three`, or how it was derived.
        line: 0 where the file does not set it.
        changed: it will be written when the changes are saved.
    """

    name: str
    group: str
    meaning: str
    value: str
    default: str
    origin: str
    defaults: tuple[tuple[str, str], ...] = ()
    line: int = 0
    facts: str = ""
    choices: tuple[str, ...] = ()
    secret: bool = False
    changed: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Book:
    """The file as it was read, and the changes on top.

    Attributes:
        text: the file's; what was read, decoded.
        changes: name to new value; None takes the line out, so that the default counts.
    """

    path: Path
    text: str
    profile: Profile
    changes: Mapping[str, str | None] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    home: str = ""

    def edited(self) -> str:
        """The text with the changes.

        Raises:
            SettingsError: one cannot be written into this file.
        """
        return updated_text(self.text, self.changes) if self.changes else self.text

    def with_change(self, name: str, value: str | None) -> Book:
        """This change as well; one that is no change is dropped."""
        if value is not None:
            value = self.spelled(name, value)
        written = _values(self.text).get(name)
        changes = {key: each for key, each in self.changes.items() if key != name}
        if value != written:
            changes[name] = value
        return replace(self, changes=changes)

    def without_change(self, name: str) -> Book:
        changes = {key: each for key, each in self.changes.items() if key != name}
        return replace(self, changes=changes)

    def spelled(self, name: str, value: str) -> str:
        """A path with its home written out: between the quotes of a file neither ~ nor $HOME would be expanded."""
        from sparktui.settings.load import PATHS

        value = value.strip()
        if name in PATHS:
            for short in ("~", "$HOME"):
                if value == short or value.startswith(f"{short}/"):
                    return self.home + value[len(short) :]
        return value

    def value_of(self, name: str) -> str:
        """The value that would count, a secret's too: for the editor only."""
        changed = self.changes.get(name)
        if changed is not None:
            return changed
        from sparktui.settings.model import default_text

        written = None if name in self.changes else _values(self.text).get(name)
        return default_text(name, self.profile) if written is None else written


def _values(text: str) -> dict[str, str]:
    return parse_env(text, {"HOME": "$HOME"}).values


def read_book(path: Path, profile_name: str | None, settings: Settings | None) -> Book:
    """Read the file; its own values say the profile where none was asked for. Imports pydantic: call it in a thread.

    Raises:
        SettingsError: it cannot be read.
    """
    from sparktui.cluster.profile import infer_profile, named_profile

    text = read_text(path)
    asked = named_profile(profile_name) if profile_name else None
    profile = settings.profile if settings is not None else asked or infer_profile(_values(text))
    origins = settings.origins if settings is not None else {}
    return Book(path, text, profile, origins=origins, home=os.environ.get("HOME") or str(Path.home()))


def read_text(path: Path) -> str:
    """The file's text.

    Raises:
        SettingsError: it cannot be read.
    """
    try:
        text, undecoded = decode_env(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}", fix=f"ls -l {path}") from error
    if undecoded:
        raise SettingsError(undecoded[0].reason, fix=f"mend line {undecoded[0].line} of {path}")
    return text


def problems_of(book: Book, environment: Mapping[str, str], asked_profile: str | None) -> tuple[Problem, ...]:
    """What the real rules say of the edited text, the memory sheet included. Call it in a thread."""
    from sparktui.engine.fitting import fit_problems
    from sparktui.settings import SettingsRefused, parse_settings

    try:
        settings = parse_settings(
            book.edited(), env_path=book.path, profile=asked_profile, environment=environment, fit=fit_problems
        )
    except SettingsRefused as refused:
        return refused.problems
    except SettingsError as error:
        return (Problem(0, error.what),)
    except ValueError as error:
        return (Problem(0, str(error)),)
    return settings.notices


def lines_of(book: Book, problems: tuple[Problem, ...]) -> tuple[Line, ...]:
    """Every setting in the order of the groups."""
    from sparktui.settings import setting_rows
    from sparktui.settings.fields import masked

    read = parse_env(book.text, {"HOME": "$HOME"})
    wrong: dict[str, str] = {}
    for each in problems:
        if each.severity is Severity.ERROR and each.name:
            wrong.setdefault(each.name, each.reason)
    found = []
    for row in setting_rows(book.profile):
        value = book.value_of(row.name)
        line = 0 if book.changes.get(row.name, "") is None else read.lines.get(row.name, 0)
        changed = row.name in book.changes
        derived = book.origins.get(row.name, "")
        origin = f"line {line}" if line else f"default of {book.profile.name}"
        if changed:
            origin = "not saved yet"
        elif not line and derived and not derived.startswith(("line", "profile")):
            origin = OTHER_NOTES.get(derived, derived)
        facts = [row.unit] if row.unit else []
        if row.low is not None and row.high is not None:
            facts.append(f"{row.low:.10g} to {row.high:.10g}")
        if row.choices:
            facts.append("one of " + ", ".join(choice or "nothing" for choice in row.choices))
        found.append(
            Line(
                name=row.name,
                group=row.group,
                meaning=row.meaning,
                value=(masked(value) if value else "") if row.secret else value,
                default=row.default,
                origin=origin,
                defaults=_defaults(row.name),
                line=line,
                facts=", ".join(facts),
                choices=row.choices,
                secret=row.secret,
                changed=changed,
                problem=wrong.get(row.name, ""),
            )
        )
    return tuple(found)


def _defaults(name: str) -> tuple[tuple[str, str], ...]:
    """(profile, default) of the shipped profiles; empty where all have the same."""
    from sparktui.cluster.profile import PROFILES
    from sparktui.settings.model import default_text

    found = tuple((profile.name, default_text(name, profile)) for profile in PROFILES.values())
    return found if len({value for _, value in found}) > 1 else ()


def matches(line: Line, wanted: str) -> bool:
    """Whether all words of a filter are in the setting's name, group, meaning or value."""
    text = f"{line.name} {line.group} {line.meaning} {line.value}".lower()
    return all(word in text for word in wanted.lower().split())


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the diff: what stood there, and what will; None where there is no such line."""

    number: int
    old: str | None
    new: str | None


def diff(old: str, new: str) -> tuple[Change, ...]:
    """The lines that differ, by their number in the new text, secrets masked."""
    before, after = old.split("\n"), new.split("\n")
    shown_before, shown_after = _masked_lines(old), _masked_lines(new)
    found = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if kind == "equal":
            continue
        for offset in range(max(old_to - old_from, new_to - new_from)):
            was = shown_before[old_from + offset] if old_from + offset < old_to else None
            now = shown_after[new_from + offset] if new_from + offset < new_to else None
            found.append(Change(new_from + offset + 1, was, now))
    return tuple(found)


def _masked_lines(text: str) -> list[str]:
    from sparktui.ui.secret_lines import masked_text

    return masked_text(text).split("\n")


def new_errors(before: tuple[Problem, ...], after: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Errors that a change brings: what was wrong already does not stop another change."""
    known = {(each.name, each.reason) for each in before}
    return tuple(each for each in after if each.severity is Severity.ERROR and (each.name, each.reason) not in known)
