"""A saved image as a file: which of its members a node still needs, and a tar of just those.

`docker save` writes a tar with `manifest.json`, whose `Layers` list names each layer's member, bottom first. A load
skips a layer that the node has already, before it opens the member; so that member may be absent (Engine 20.10 and
later, graph-driver stores).
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

from sparktui.errors import StepFailed

CHUNK_BYTES = 1 << 20
_BLOCK = 512


def needed_members(saved: Path, shared_layers: int) -> list[tarfile.TarInfo]:
    """The members to send to a node that has the lowest `shared_layers` layers.

    Raises:
        StepFailed: the file is no image of one name.
    """
    with tarfile.open(saved) as tar:
        try:
            manifest = json.loads((tar.extractfile("manifest.json") or _missing()).read())
            layers = list(manifest[0]["Layers"])
        except (KeyError, IndexError, ValueError) as error:
            raise StepFailed(f"{saved} is not a saved image", fix="run sparktui build again", node="head") from error
        # The same content twice is one member: it stays when a layer above needs it.
        skipped = set(layers[:shared_layers]) - set(layers[shared_layers:])
        members = tar.getmembers()
        targets = {member.linkname for member in members if member.issym() or member.islnk()}
        return [m for m in members if m.name not in skipped or any(t.endswith(m.name) for t in targets)]


def total_bytes(members: list[tarfile.TarInfo]) -> int:
    return sum(member.size for member in members)


def tar_of(saved: Path, members: list[tarfile.TarInfo]) -> Iterator[bytes]:
    """The bytes of a tar that holds only `members`, read from `saved` in chunks."""
    with saved.open("rb") as source:
        for member in members:
            yield member.tobuf(tarfile.PAX_FORMAT)
            if not member.isreg() or not member.size:
                continue
            source.seek(member.offset_data)
            left = member.size
            while left:
                chunk = source.read(min(CHUNK_BYTES, left))
                if not chunk:
                    raise StepFailed(f"{saved} ended early", fix="run sparktui build again", node="head")
                left -= len(chunk)
                yield chunk
            yield b"\0" * (-member.size % _BLOCK)
    yield b"\0" * (2 * _BLOCK)


def _missing() -> tarfile.ExFileObject:
    raise KeyError("manifest.json")
