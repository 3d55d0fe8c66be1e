"""The checkpoint's folder on this machine (the head): sizes, our record, free space. Blocking; run it in a thread."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from sparktui.readings.checkpoint import INDEX_NAME
from sparktui.readings.checkpoint_listing import (
    PARTIAL_FOLDER,
    PARTIAL_SUFFIX,
    RECORD_FILE,
    RECORD_FOLDER,
    Listing,
    parse_listing,
)


@dataclass(frozen=True, slots=True)
class FolderSizes:
    """path (relative, POSIX) -> bytes: files under their own name, and what has come of others."""

    final_bytes: dict[str, int]
    partial_bytes: dict[str, int]

    @property
    def total_bytes(self) -> int:
        return sum(self.final_bytes.values()) + sum(self.partial_bytes.values())


def scan(model_dir: Path) -> FolderSizes:
    """Sizes of every file in the folder; an absent folder is an empty one."""
    final: dict[str, int] = {}
    partial: dict[str, int] = {}
    for root, folders, files in os.walk(model_dir):
        if Path(root) == model_dir:
            folders[:] = [name for name in folders if name not in (RECORD_FOLDER, ".cache", ".git")]
        for name in files:
            path = Path(root) / name
            with contextlib.suppress(OSError):
                final[path.relative_to(model_dir).as_posix()] = path.stat().st_size
    parts = model_dir / PARTIAL_FOLDER
    for path in parts.rglob(f"*{PARTIAL_SUFFIX}") if parts.is_dir() else ():
        with contextlib.suppress(OSError):
            partial[path.relative_to(parts).as_posix().removesuffix(PARTIAL_SUFFIX)] = path.stat().st_size
    return FolderSizes(final, partial)


def read_index(model_dir: Path) -> str | None:
    """The text of the index file; None when there is none."""
    try:
        return (model_dir / INDEX_NAME).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def read_record(model_dir: Path) -> Listing | None:
    """The listing that an earlier download resolved and kept."""
    try:
        return parse_listing((model_dir / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def write_record(model_dir: Path, listing: Listing) -> None:
    target = model_dir / RECORD_FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f"{target.name}.{secrets.token_hex(6)}.new")
    with beside.open("w", encoding="utf-8") as out:
        out.write(listing.to_json())
        out.flush()
        os.fsync(out.fileno())
    beside.replace(target)


def remove_spent_parts(model_dir: Path) -> None:
    """After completion: part files that no longer belong to anything, then their empty folders."""
    parts = model_dir / PARTIAL_FOLDER
    if not parts.is_dir():
        return
    for path in sorted(parts.rglob("*"), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
    with contextlib.suppress(OSError):
        parts.rmdir()


def free_bytes(path: Path) -> int | None:
    """What an ordinary user may still write on the file system that `path` is or will be on; None when unknown."""
    for each in (path, *path.parents):
        try:
            return os.statvfs(each).f_bavail * os.statvfs(each).f_frsize
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def point_link(link: Path, target: Path) -> str:
    """Make `link` a symbolic link to `target`. Returns '' or why it was left alone (something else is there)."""
    if link == target or link.resolve() == target.resolve():
        return ""
    if link.exists() and not link.is_symlink():
        return f"{link} exists and is not a link"
    link.parent.mkdir(parents=True, exist_ok=True)
    beside = link.with_name(f"{link.name}.{secrets.token_hex(6)}.new")
    try:
        beside.symlink_to(target)
        beside.replace(link)
    except OSError as error:
        return f"{link}: {error.strerror or error}"
    return ""


def available_memory_bytes() -> int | None:
    """MemAvailable of this machine, for the message after a kill."""
    from sparktui.readings.meminfo import parse_meminfo

    try:
        memory = parse_meminfo(Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return memory.available_bytes if memory else None
