"""The API key: read from a 0600 file, put into SGLang's arguments in the engine's own process, and kept out of every
log line.

It never stands in argv, in the environment or in launch.json; API_KEY_FILE holds only the path.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Callable
from typing import Any

MASK = "••••••"
_PLAIN_MIN = 6
"""Shorter keys are masked only next to their name: replacing them everywhere would garble the log."""


class KeyFileError(Exception):
    """The key file cannot be used: `what` is wrong and `fix` says what to do. Never holds the key."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def read_key(path: str | None) -> str | None:
    """The key in `path`, or None when no file is named. Raises KeyFileError for an open, empty or unusable file."""
    if not path:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise KeyFileError(f"API_KEY_FILE {path} cannot be read: {error.strerror}", "mount the key file") from error
    with os.fdopen(handle, encoding="utf-8", errors="replace") as file:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise KeyFileError(f"API_KEY_FILE {path} is readable by others", f"chmod 600 {path} on the host")
        key = file.read(4097).strip()
    if not key or len(key) > 4096 or not key.isascii() or not key.isprintable() or " " in key:
        raise KeyFileError(
            f"API_KEY_FILE {path} holds no usable key", "write one line of printable ASCII without spaces"
        )
    return key


def masked_key(key: str) -> str:
    """The mask and the key's last 2 characters; the mask alone for a short one."""
    return MASK + key[-2:] if len(key) >= _PLAIN_MIN else MASK


def masker(key: str) -> Callable[[str], str]:
    """A function that replaces every spelling of `key` (as it is, as Python repr, as JSON) by the mask and its last 2
    characters.
    """
    shown = masked_key(key)
    spellings = sorted({key, repr(key)[1:-1], json.dumps(key)[1:-1]}, key=len, reverse=True)

    def mask(text: str) -> str:
        for spelling in spellings:
            if spelling not in text:
                continue
            if len(key) >= _PLAIN_MIN:
                text = text.replace(spelling, shown)
            else:
                for before in ("api_key=", "api_key': ", 'api_key": ', "Bearer "):
                    for quote in ("'", '"', ""):
                        text = text.replace(f"{before}{quote}{spelling}", f"{before}{quote}{shown}")
        return text

    return mask


def mask_log_records(key: str) -> None:
    """Every record that Python's logging makes in this process from now on has the key masked, whatever handler prints
    it: its message and the text of its exception.

    A record that cannot be formatted says so, without its text: nothing is raised into the code that logs, and
    nothing passes unmasked.
    """
    mask = masker(key)
    make = logging.getLogRecordFactory()

    def masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            clean = mask(text := record.getMessage())
        except Exception as error:  # whatever the argument's own __str__ raises
            record.msg, record.args = f"[a log record that cannot be formatted: {type(error).__name__}]", ()
        else:
            if clean != text:
                record.msg, record.args = clean, ()
        if record.exc_info and not record.exc_text:
            # A formatter that finds this text prints it and makes none of its own.
            record.exc_text = _masked_exception(record.exc_info, mask)
        return record

    logging.setLogRecordFactory(masked)


def _masked_exception(exc_info: Any, mask: Callable[[str], str]) -> str:
    try:
        return mask(logging.Formatter().formatException(exc_info))
    except Exception as error:
        return f"[an exception that cannot be shown: {type(error).__name__}]"
