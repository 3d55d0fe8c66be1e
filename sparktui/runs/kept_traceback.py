"""An error that nobody foresaw: its traceback goes into a file for whoever mends it, never onto a screen."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

NAME = "traceback.txt"


def keep_traceback(folder: Path, text: str, mask: Callable[[str], str], *, append: bool = False) -> str:
    """Write it (0600, secrets masked) into `folder`; the file's path.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / NAME
    folder.mkdir(parents=True, exist_ok=True)
    how = os.O_APPEND if append else os.O_TRUNC
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600), "w") as file:
        file.write(mask(text))
    return str(path)
