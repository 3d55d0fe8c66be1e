"""How many old runs are kept: an NVMe full of logs disturbs the Engram reads."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

from sparktui.runs.request import read_process, run_folders

KEPT_RUNS = 20
KEPT_BYTES = 64 * 1024 * 1024
_STARTING_SECONDS = 120
"""A folder this young may belong to a run that has not said yet who it is."""


def prune(state_dir: Path, *, kept_runs: int = KEPT_RUNS, kept_bytes: int = KEPT_BYTES) -> list[Path]:
    """Delete the oldest runs beyond the limits, never the newest nor one whose process lives; what was deleted."""
    try:
        folders = run_folders(state_dir)
    except OSError:
        return []
    sizes = {folder: _size(folder) for folder in folders}
    deleted: list[Path] = []
    for folder in folders[:-1]:
        left = len(folders) - len(deleted)
        if left <= kept_runs and sum(sizes.values()) <= kept_bytes:
            break
        if _is_active(folder):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            deleted.append(folder)
            del sizes[folder]
    return deleted


def _is_active(folder: Path) -> bool:
    process = read_process(folder)
    if process is not None:
        return process.alive
    try:
        return abs(time.time() - folder.stat().st_mtime) < _STARTING_SECONDS
    except OSError:
        return False


def _size(folder: Path) -> int:
    """Of what can be read: another user's run counts nothing, and is not deleted."""
    total = 0
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                total += path.lstat().st_size
    return total
