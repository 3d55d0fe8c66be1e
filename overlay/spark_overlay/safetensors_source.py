"""Reading one Engram table out of a checkpoint folder: where its tensors lie, and their bytes by row.

A safetensors file is a little-endian u64 header length, that many bytes of JSON (name -> dtype, shape, data_offsets),
then the data.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_overlay.engram_file import FileError

INDEX = "model.safetensors.index.json"
HEADER_LIMIT_BYTES = 512 * 1024 * 1024
FINGERPRINT_SAMPLES = 64
SAMPLE_BYTES = 4096
_FIX = "complete the download, then pack again"
READ_FIX = "dmesg on this node and, with a share, on the head says why; check that disk, then sparktui pack"


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a two-dimensional one-byte tensor lies: `offset` is absolute in `path`."""

    path: Path
    offset: int
    rows: int
    row_bytes: int
    dtype: str

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class EngramSource:
    """Layer `layer`'s table as the checkpoint stores it."""

    layer: int
    weight: TensorPlace
    scale: TensorPlace


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"{path} is missing", "mount or share the checkpoint, then pack again") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error}", _FIX) from error
    if not isinstance(config, dict):
        raise FileError(f"{path} holds no JSON object", _FIX)
    return config


def read_safetensors_header(path: Path) -> tuple[int, dict[str, Any], bytes]:
    """(absolute offset of the data, the entries, the raw header bytes). Raises FileError for a file that is cut or
    none.
    """
    try:
        with path.open("rb") as file:
            start = file.read(8)
            if len(start) < 8:
                raise FileError(f"{path} is shorter than its header", _FIX)
            length = struct.unpack("<Q", start)[0]
            if length > HEADER_LIMIT_BYTES:
                raise FileError(f"{path} is no safetensors file (header of {length} bytes)", _FIX)
            raw = file.read(length)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}", _FIX) from error
    if len(raw) < length:
        raise FileError(f"{path} ends inside its header", _FIX)
    try:
        entries = json.loads(raw)
    except ValueError as error:
        raise FileError(f"{path}: its header is no JSON: {error}", _FIX) from error
    return 8 + length, entries, start + raw


def _files_of(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    index = folder / INDEX
    if index.exists():
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {name: folder / weight_map[name] for name in names if name in weight_map}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileError(f"{index} cannot be read: {error}", _FIX) from error
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        entries = read_safetensors_header(path)[1]
        found.update({name: path for name in names if name in entries})
    return found


def find_engram(folder: Path, layer: int, rows: int, weight_bytes: int, scale_bytes: int) -> EngramSource:
    """Layer `layer`'s two tensors, their shapes and the file's length checked. Raises FileError."""
    names = (f"layers.{layer}.engram.embed.weight", f"layers.{layer}.engram.embed.scale")
    files = _files_of(folder, names)
    places = []
    for name, row_bytes in zip(names, (weight_bytes, scale_bytes), strict=True):
        if name not in files:
            raise FileError(f"{folder} has no tensor {name}", _FIX)
        path = files[name]
        start, entries, _ = read_safetensors_header(path)
        entry = entries.get(name)
        if not isinstance(entry, dict):
            raise FileError(f"{path} has no tensor {name}, though the index names it", _FIX)
        lo, hi = entry["data_offsets"]
        if list(entry["shape"]) != [rows, row_bytes] or hi - lo != rows * row_bytes:
            raise FileError(
                f"{path}: {name} has shape {entry['shape']} in {hi - lo} bytes, wanted [{rows}, {row_bytes}]", _FIX
            )
        if path.stat().st_size < start + hi:
            raise FileError(f"{path} has {path.stat().st_size} bytes, its header promises {start + hi}", _FIX)
        places.append(TensorPlace(path, start + lo, rows, row_bytes, str(entry["dtype"])))
    return EngramSource(layer, places[0], places[1])


def read_up_to(handle: int, offset: int, length: int, path: Path, fix: str = READ_FIX) -> bytes:
    """`length` bytes at `offset` of the open file `path`, fewer where it ends; a short read is continued.

    Raises FileError that names file, offset and errno, with `fix`.
    """
    parts = []
    while length:
        try:
            part = os.pread(handle, length, offset)
        except OSError as error:
            reason = f"{error.strerror or error} (errno {error.errno})"
            raise FileError(f"{path}: read at byte {offset} failed: {reason}", fix) from error
        if not part:
            break
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_exactly(
    handle: int, offset: int, length: int, path: Path, fix: str = READ_FIX, short_fix: str = _FIX
) -> bytes:
    """The same for a file that must not end before. Raises FileError, for its end with `short_fix`."""
    data = read_up_to(handle, offset, length, path, fix)
    if len(data) < length:
        missing = length - len(data)
        raise FileError(f"{path} ends at byte {offset + len(data)}, {missing} more were expected", short_fix)
    return data


def fingerprint(source: EngramSource) -> bytes:
    """SHA-256 (32 bytes) over dtypes, shapes and 64 samples of 4 KiB spread evenly over each tensor.

    The same on every node, whatever the folder is called; another checkpoint of equal shape differs in nearly every
    sample. Raises FileError for a read that fails, OSError for a file that cannot be opened.
    """
    digest = hashlib.sha256()
    for place in (source.weight, source.scale):
        digest.update(f"{source.layer} {place.dtype} {place.rows} {place.row_bytes}\n".encode())
        handle = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = min(SAMPLE_BYTES, place.bytes)
            for sample in range(FINGERPRINT_SAMPLES):
                at = (place.bytes - size) * sample // (FINGERPRINT_SAMPLES - 1)
                digest.update(read_exactly(handle, place.offset + at, size, place.path))
            os.posix_fadvise(handle, place.offset, place.bytes, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
    return digest.digest()
