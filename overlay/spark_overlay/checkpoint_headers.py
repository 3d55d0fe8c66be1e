"""All tensors of a checkpoint by its files' headers alone: names, types, shapes; and what is wrong with the files."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_overlay.engram_file import FileError
from spark_overlay.safetensors_source import INDEX, read_safetensors_header

ELEMENT_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """One tensor: its safetensors type (`F8_E4M3`) and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a tensor, or with a file (`tensor` is then the file's name)."""

    kind: str
    tensor: str
    text: str


@dataclass(frozen=True, slots=True)
class Headers:
    """A checkpoint's tensors in the order of its files.

    Attributes:
        fingerprint: SHA-256 in hex over config.json, the index, and each file's name, length and header.
    """

    tensors: tuple[Header, ...]
    faults: tuple[Fault, ...]
    fingerprint: str


def read(folder: Path) -> Headers:
    """Every header of the folder; nothing of the data is read.

    Raises:
        FileError: there is no checkpoint, or its index cannot be read.
    """
    digest = hashlib.sha256()
    index = _index(folder)
    for name in ("config.json", INDEX):
        path = folder / name
        digest.update(path.read_bytes() if path.exists() else b"-")
    files = sorted(set(index.values())) if index else sorted(path.name for path in folder.glob("*.safetensors"))
    if not files:
        raise FileError(f"{folder} holds no safetensors file", "download the checkpoint")
    tensors: list[Header] = []
    faults: list[Fault] = []
    for name in files:
        path = folder / name
        try:
            start, entries, raw = read_safetensors_header(path)
            size = path.stat().st_size
        except (FileError, OSError) as error:
            faults.append(Fault("file", name, error.what if isinstance(error, FileError) else str(error)))
            continue
        digest.update(f"{name} {size}\n".encode() + raw)
        found = list(_entries(name, entries, faults))
        tensors += found
        end = start + max((entries[each.name]["data_offsets"][1] for each in found), default=0)
        if size < end:
            faults.append(Fault("file", name, f"{path} has {size} bytes, its header promises {end}"))
    if index:
        faults += _against_index(index, tensors, {fault.tensor for fault in faults} - {each.file for each in tensors})
    return Headers(tuple(tensors), tuple(faults), digest.hexdigest())


def _index(folder: Path) -> dict[str, str]:
    path = folder / INDEX
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(file) for name, file in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{path} cannot be read: {error}", "download it again") from error


def _entries(file: str, entries: dict[str, Any], faults: list[Fault]) -> Iterator[Header]:
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        try:
            shape = tuple(int(each) for each in entry["shape"])
            lo, hi = entry["data_offsets"]
            wanted = math.prod(shape) * ELEMENT_BYTES[entry["dtype"]]
        except (KeyError, TypeError, ValueError) as error:
            faults.append(Fault("file", name, f"{file}: the entry of {name} cannot be read: {error!r}"))
            continue
        if hi - lo != wanted:
            faults.append(Fault("file", name, f"{file}: {name} takes {hi - lo} bytes, its shape needs {wanted}"))
            continue
        yield Header(name, entry["dtype"], shape, file)


def _against_index(index: dict[str, str], tensors: list[Header], broken: set[str]) -> Iterator[Fault]:
    there = {each.name: each.file for each in tensors}
    for name, file in index.items():
        if name not in there and file not in broken and name not in broken:
            yield Fault("file", name, f"the index says that {name} is in {file}, and it is not")
