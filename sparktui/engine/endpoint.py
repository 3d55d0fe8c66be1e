"""Where the served model answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparktui.settings import Settings


def local_url(settings: Settings) -> str:
    """The endpoint as the head itself reaches it."""
    host = "127.0.0.1" if settings.host in ("", "0.0.0.0", "::") else settings.host
    return f"http://{host}:{settings.port}"
