"""What a container on a node saw of the checkpoint and of its packed rows: one JSON line of node_view."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EngramFile:
    """One packed file as it should be and what is there of it.

    Attributes:
        total_bytes: size of the finished file.
        error: why what lies there is not this file; it is then left alone.
    """

    layer: int
    name: str
    total_bytes: int
    done: bool
    partial_bytes: int
    error: str
    fix: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """Hashes are None where the file could not be read.

    Attributes:
        engram_needed_bytes: what packing still has to write, with its reserve.
        engram_free_bytes: on the file system of the rows; None where nobody asked or nothing is to be packed.
    """

    config_sha256: str | None
    index_sha256: str | None
    sizes_bytes: Mapping[str, int]
    error: str
    engram: tuple[EngramFile, ...] = ()
    engram_error: str = ""
    engram_needed_bytes: int = 0
    engram_free_bytes: int | None = None

    @property
    def short_bytes(self) -> int:
        """How much is missing on the disk for the rows; 0 where it fits or is not known."""
        return 0 if self.engram_free_bytes is None else max(0, self.engram_needed_bytes - self.engram_free_bytes)

    @property
    def packed(self) -> bool:
        return not self.engram_error and all(each.done for each in self.engram)

    def difference(self, head: NodeView) -> str:
        """Why this is not the checkpoint that the head has; empty when it is."""
        if self.config_sha256 is None:
            return f"config.json is not there{': ' + self.error if self.error else ''}"
        if self.config_sha256 != head.config_sha256:
            return "config.json differs from the head's"
        if self.index_sha256 != head.index_sha256:
            return "the index file differs from the head's or is not there"
        wanted = {name: size for name, size in head.sizes_bytes.items() if name.endswith(".safetensors")}
        missing = sorted(name for name in wanted if name not in self.sizes_bytes)
        if missing:
            return f"{len(missing)} of {len(wanted)} weight files are missing, {missing[0]} first"
        wrong = sorted(name for name, size in wanted.items() if self.sizes_bytes[name] != size)
        if wrong:
            return f"{wrong[0]} has {self.sizes_bytes[wrong[0]]} bytes, the head's has {wanted[wrong[0]]}"
        return ""


def parse_node_view(text: str) -> NodeView | None:
    """The last JSON object in `text`; None when there is none."""
    for line in reversed(text.splitlines()):
        try:
            plain = json.loads(line)
        except ValueError:
            continue
        if isinstance(plain, dict) and "config_sha256" in plain:
            return _view(plain)
    return None


def _view(plain: dict[str, Any]) -> NodeView:
    engram = plain.get("engram")
    engram = engram if isinstance(engram, dict) else {}
    files = plain.get("files")
    return NodeView(
        config_sha256=_text_or_none(plain.get("config_sha256")),
        index_sha256=_text_or_none(plain.get("index_sha256")),
        sizes_bytes=_sizes(files),
        error=str(plain.get("error") or ""),
        engram=tuple(_file(each) for each in engram.get("files") or () if isinstance(each, dict)),
        engram_error=str(engram.get("error") or ""),
        engram_needed_bytes=_whole(engram.get("needed_bytes")),
        engram_free_bytes=_whole_or_none(engram.get("free_bytes")),
    )


def _sizes(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {str(name): size for name, size in value.items() if isinstance(size, int)}


def _file(plain: dict[str, Any]) -> EngramFile:
    return EngramFile(
        layer=_whole(plain.get("layer")),
        name=str(plain.get("file") or ""),
        total_bytes=_whole(plain.get("bytes")),
        done=plain.get("done") is True,
        partial_bytes=_whole(plain.get("partial_bytes")),
        error=str(plain.get("error") or ""),
        fix=str(plain.get("fix") or ""),
    )


def _whole(value: object) -> int:
    return _whole_or_none(value) or 0


def _whole_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
