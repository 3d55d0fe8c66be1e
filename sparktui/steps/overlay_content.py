"""The overlay folder as a build context: its files, their hash, the tar that is sent to a builder."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

_LEFT_OUT = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache"}


def context_files(folder: Path) -> list[Path]:
    """The files that take part in the build, sorted by their path inside the folder."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not _LEFT_OUT & set(path.relative_to(folder).parts) and path.suffix != ".pyc"
    )


def content_hash(folder: Path) -> str:
    """16 hex digits over names, executable bits and bytes."""
    digest = hashlib.sha256()
    for path in context_files(folder):
        name = path.relative_to(folder).as_posix()
        runs = b"x" if path.stat().st_mode & 0o100 else b"-"
        data = path.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + runs + data)
    return digest.hexdigest()[:16]


def context_tar(folder: Path) -> bytes:
    """The context as a tar with fixed owners and times, so that the same overlay gives the same bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in context_files(folder):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = path.stat().st_size
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as source:
                tar.addfile(entry, source)
    return out.getvalue()
