"""Files that a step writes on the head, inside the demo's folder: for real, so that everybody reads them alike."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_real(path: Path, data: bytes, mode: int) -> None:
    """Write beside, fsync, rename; `mode` holds from the first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{secrets.token_hex(6)}.part")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
