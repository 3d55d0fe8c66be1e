"""The answers of a first start: one frozen value, kept beside the env file until it is saved. Secrets are not in it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

FORMAT = 1
PAGES = ("profile", "sparks", "ssh", "network", "watch", "keys", "save")
"""The groups in order."""
SECRETS = ("API_KEY", "HF_TOKEN")
"""Settings that the draft never holds."""


class KeyChoice(StrEnum):
    RANDOM = "random"
    OWN = "own"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Draft:
    """Attributes:
    answers: setting name to the text that a person typed; what only was proposed is not in it.
    unattended: nobody watches; None before it was asked.
    given: names of the secrets that were typed or shown, never what they are.
    """

    profile: str = "three"
    page: str = PAGES[0]
    answers: Mapping[str, str] = field(default_factory=dict)
    unattended: bool = True
    key: KeyChoice = KeyChoice.RANDOM
    given: frozenset[str] = frozenset()

    def with_answer(self, name: str, text: str) -> Draft:
        return replace(self, answers={**self.answers, name: text})

    def without_answer(self, name: str) -> Draft:
        return replace(self, answers={key: value for key, value in self.answers.items() if key != name})


def draft_path(env_file: Path) -> Path:
    """Beside the env file, with a name that .gitignore covers."""
    return env_file.with_name(".env.first-start.bak")


def to_text(draft: Draft) -> str:
    plain = {
        "v": FORMAT,
        "profile": draft.profile,
        "page": draft.page,
        "answers": dict(draft.answers),
        "unattended": draft.unattended,
        "key": draft.key.value,
        "given": sorted(draft.given),
    }
    return json.dumps(plain, indent=1) + "\n"


def from_text(text: str) -> Draft:
    """A draft as it was kept; what cannot be read counts as not answered."""
    try:
        plain: Any = json.loads(text)
    except ValueError:
        return Draft()
    if not isinstance(plain, dict) or plain.get("v") != FORMAT:
        return Draft()
    answers = plain.get("answers")
    kept = {
        name: value
        for name, value in (answers.items() if isinstance(answers, dict) else ())
        if isinstance(name, str) and isinstance(value, str)
    }
    given = plain.get("given")
    profile, page, unattended = plain.get("profile"), plain.get("page"), plain.get("unattended")
    return Draft(
        profile=next((each for each in ("four", "four-ring") if each == profile), "three"),
        page=page if page in PAGES else PAGES[0],
        answers=kept,
        unattended=unattended if isinstance(unattended, bool) else True,
        key=next((each for each in KeyChoice if each.value == plain.get("key")), KeyChoice.RANDOM),
        given=frozenset(name for name in SECRETS if isinstance(given, list) and name in given),
    )


def read_draft(path: Path) -> Draft | None:
    """The draft of an earlier start, or None."""
    try:
        return from_text(path.read_text(errors="replace"))
    except OSError:
        return None


def keep_draft(path: Path, draft: Draft) -> None:
    """Write beside, fsync, rename; 0600.

    Raises:
        OSError: the folder cannot be written.
    """
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.bak")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(to_text(draft))
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def drop_draft(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
