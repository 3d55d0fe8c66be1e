"""Which files of a checkpoint hold Engram tables, and their other tensors: the tables are never read at weight load.

On the real checkpoint two files of 95 GiB hold one table each and a few small tensors. SGLang's readers take whole
files, into the page cache or into memory, so such a file never reaches them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from spark_overlay.engram_file import FileError
from spark_overlay.safetensors_source import read_safetensors_header

TABLES = (".engram.embed.weight", ".engram.embed.scale")


def is_table(name: str) -> bool:
    return name.endswith(TABLES)


def holds_table(path: str) -> bool:
    """False too for a file whose header cannot be read: the engine's own reader says what is wrong with it."""
    try:
        return any(is_table(name) for name in read_safetensors_header(Path(path))[1])
    except FileError:
        return False


def parted(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Files without a table and files with one, each in the given order."""
    with_table = {path: holds_table(path) for path in paths}
    return [path for path, holds in with_table.items() if not holds], [
        path for path, holds in with_table.items() if holds
    ]


def other_tensors(paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """(name, tensor on the CPU) of all that is no table, each read by its own bytes alone."""
    import safetensors

    for path in paths:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                if not is_table(name):
                    yield name, file.get_tensor(name)
