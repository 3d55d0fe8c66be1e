"""An image's identity by content: the same on every node, whatever store its Engine uses.

Docker's two image stores define an image's Id differently and a load loses its RepoDigests, so neither is compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OVERLAY_LABEL = "sparktui.overlay"
BASE_LABEL = "sparktui.base"
NFS_LABEL = "sparktui.nfs"
_CONFIG_KEYS = ("Env", "Entrypoint", "Cmd", "Labels", "WorkingDir", "User", "ExposedPorts", "Volumes", "Healthcheck")


@dataclass(frozen=True, slots=True)
class ImageIdentity:
    """What makes two copies of an image the same.

    Attributes:
        content: 16 hex digits over architecture, configuration and layer digests.
        layers: the uncompressed layers' digests, bottom first.
        overlay: hash of the overlay that it was built from; empty where the label lacks.
        base: the base image, with its digest.
        nfs: which exporter's programs it holds: kernel, ganesha, both, none.
        local_id: this node's own name for it, as its containers carry it; never compared between nodes.
    """

    content: str
    layers: tuple[str, ...]
    architecture: str
    overlay: str
    base: str
    nfs: str
    size_bytes: int
    local_id: str = ""


def image_identity(plain: Mapping[str, Any]) -> ImageIdentity:
    """Read `docker image inspect` (one element of its list)."""
    config = plain.get("Config") or {}
    labels = config.get("Labels") or {}
    layers = tuple((plain.get("RootFS") or {}).get("Layers") or ())
    architecture = str(plain.get("Architecture") or "")
    # An Engine may print an absent value as null, as an empty list or not at all.
    kept = {key: config.get(key) for key in _CONFIG_KEYS if config.get(key)}
    told = json.dumps([architecture, plain.get("Os"), kept, layers], sort_keys=True)
    return ImageIdentity(
        content=hashlib.sha256(told.encode()).hexdigest()[:16],
        layers=layers,
        architecture=architecture,
        overlay=str(labels.get(OVERLAY_LABEL) or ""),
        base=str(labels.get(BASE_LABEL) or ""),
        nfs=str(labels.get(NFS_LABEL) or ""),
        size_bytes=int(plain.get("Size") or 0),
        local_id=str(plain.get("Id") or ""),
    )
