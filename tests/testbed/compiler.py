"""A C++ compiler for image builds on simulated Sparks: their base has none, and a real one takes its time each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

IN_CONTAINER = "/opt/testbed-compiler"
STAND_IN = Path(__file__).parent / "compiler_stand_in.sh"


def binds() -> list[dict[str, Any]]:
    """The stand-in and the library that it hands out; that is compiled here where the cache lacks it."""
    from tests.overlay.row_store_library import built

    found = {"g++": STAND_IN, "librow_store.so": built().library}
    return [
        {"source": str(path), "target": f"{IN_CONTAINER}/{name}", "read_only": True} for name, path in found.items()
    ]


def environment() -> dict[str, str]:
    return {"CXX": f"{IN_CONTAINER}/g++"}
