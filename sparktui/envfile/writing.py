"""Changing a .env file without losing anything: comments and order stay, the old file is kept beside it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path

from sparktui.envfile.fixes import quoted
from sparktui.envfile.lines import EnvFile
from sparktui.envfile.syntax import decode_env, parse_env
from sparktui.errors import SettingsError

PRIVATE_MODE = 0o600
_ANY_HOME = {"HOME": "/"}
"""Only where values stand matters for a change, not what `~` is."""


def updated_text(text: str, changes: Mapping[str, str | None]) -> str:
    """`text` with these settings changed, everything else as it was.

    A value is written where its name was last set, else below its commented-out line, else at the end. None comments
    the name's lines out. A byte-order mark and Windows line ends go.

    Raises:
        SettingsError: the change would not be what is read afterwards (an invisible character, a broken line).
        ValueError: a value holds a NUL.
    """
    for name, value in changes.items():
        text = _removed(text, name) if value is None else _with_value(text, name, value)
    read = parse_env(text, _ANY_HOME)
    for name, value in changes.items():
        if read.values.get(name) != value:
            problem = next((each for each in read.errors if each.name == name), None)
            reason = problem.reason if problem else "another line of the file stands in the way"
            raise SettingsError(
                f"{name} cannot be written: {reason}", fix="mend that line, or the value, and save again"
            )
    return read.text


def save(
    path: Path, changes: Mapping[str, str | None], *, secret_names: Collection[str] = (), template: str = ""
) -> Path | None:
    """Write the changes to a file, atomically, and keep the old one as `NAME.bak`.

    The file's mode and owner stay; it becomes 0600 when it holds a secret.

    Args:
        secret_names: settings whose presence makes the file private.
        template: the text to begin with where there is no file yet.

    Returns:
        the backup's path, or None where there was no file.

    Raises:
        SettingsError: it cannot be read or written, or a broken line stands in the way.
    """
    # Through a link, so that the link stays one.
    target = path.resolve()
    try:
        old = target.read_bytes() if target.exists() else None
        text = template
        if old is not None:
            text, undecoded = decode_env(old)
            if undecoded:
                raise SettingsError(undecoded[0].reason, fix=f"mend line {undecoded[0].line} of {path}")
        new = updated_text(text, changes)
        mode = _mode(target, parse_env(new, _ANY_HOME), secret_names)
        backup = None
        if old is not None:
            backup = target.with_name(target.name + ".bak")
            _write_beside(backup, old, mode, owner_of=target)
        _write_beside(target, new.encode(), mode, owner_of=target)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written: {error.strerror}", fix=f"ls -ld {path} {path.parent}"
        ) from error
    return backup


def _mode(target: Path, file: EnvFile, secret_names: Collection[str]) -> int:
    if any(file.values.get(name) for name in secret_names):
        return PRIVATE_MODE
    return target.stat().st_mode & 0o777 if target.exists() else 0o644


def _write_beside(target: Path, data: bytes, mode: int, owner_of: Path) -> None:
    # What a kill leaves behind may hold a secret: the name is one that .gitignore covers.
    beside = target.with_name(f"{target.name}.{secrets.token_hex(4)}.bak")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_MODE)
    try:
        with os.fdopen(handle, "wb") as stream:
            if owner_of.exists():
                was = owner_of.stat()
                # Only root may give a file away; for anybody else it is their own already.
                with contextlib.suppress(PermissionError):
                    os.fchown(stream.fileno(), was.st_uid, was.st_gid)
            os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _with_value(text: str, name: str, value: str) -> str:
    read = parse_env(text, _ANY_HOME)
    text = read.text
    spots = [(each.start, each.end, quoted(value)) for each in read.assignments if each.name == name]
    spots += [(each.start, each.end, f"{name}={quoted(value)}") for each in read.broken if each.name == name]
    if spots:
        start, end, written = max(spots)
        return text[:start] + written + text[end:]
    line = f"{name}={quoted(value)}\n"
    commented = list(re.finditer(rf"^[ \t]*#[ \t]*(export[ \t]+)?{re.escape(name)}=.*\n?", text, re.MULTILINE))
    if commented and not _inside_a_value(read, commented[-1].start()):
        place = commented[-1].end()
        before = text[:place] if text[:place].endswith("\n") else text[:place] + "\n"
        return before + line + text[place:]
    return (text if text.endswith("\n") or not text else text + "\n") + line


def _inside_a_value(read: EnvFile, position: int) -> bool:
    return any(each.start <= position < each.end for each in read.assignments)


def _removed(text: str, name: str) -> str:
    read = parse_env(text, _ANY_HOME)
    lines = read.text.split("\n")
    for each in read.assignments:
        if each.name == name:
            for number in range(each.line - 1, each.last_line):
                lines[number] = f"# {lines[number]}"
    return "\n".join(lines)
