"""Where the files are that ship with sparktui: inside an installed wheel, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """The folder or file `name`: `assets`, `overlay`, …"""
    package = Path(__file__).parent
    installed = package / "shipped" / name
    return installed if installed.exists() else package.parent / name
