"""Which code a running cluster has: one of another version is replaced at the next use."""

from __future__ import annotations

from pathlib import Path

from sparktui import __version__


def _stamp() -> str:
    newest = max(path.stat().st_mtime_ns for path in Path(__file__).parent.glob("*.py"))
    return f"{__version__} {newest}"


STAMP = _stamp()
