"""Where things are on a node: the folders that containers mount. Every one of them is ours or the checkpoint."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktui.cluster.node import Node

if TYPE_CHECKING:
    from sparktui.settings import Settings

MODEL_PATH = "/models/DeepSeek-V4.1-Flash-1017"
ENGRAM_PATH = "/engram"
STATE_PATH = "/state"
CACHE_PATH = "/root/.cache"
KEY_PATH = "/run/secrets/sparktui-api-key"
"""In the container; the file on the head has mode 0600."""


@dataclass(frozen=True, slots=True)
class NodeFolders:
    """Absolute paths on one node.

    Attributes:
        model: the checkpoint, or the name of the Docker volume that mounts it.
        model_is_volume: which of the two.
        engram: packed rows, on the node's own disk.
        state: what the engine writes for later boots.
        cache: compiled kernels; never shared between nodes (two writers corrupt it).
    """

    model: str
    model_is_volume: bool
    engram: str
    state: str
    cache: str

    @property
    def to_make(self) -> tuple[str, ...]:
        """Folders that have to exist before a container starts, else Docker makes them for root."""
        return (self.engram, self.state, self.cache)

    def as_on_node(self, text: str) -> str:
        """What a container said, with the node's own paths in place of the container's."""
        text = _in_container(ENGRAM_PATH).sub(lambda _: self.engram, text)
        return text if self.model_is_volume else _in_container(MODEL_PATH).sub(lambda _: self.model, text)


def _in_container(path: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w/.-]){re.escape(path)}(?![\w.-])")


def node_folders(settings: Settings, node: Node) -> NodeFolders:
    if node.is_head:
        state = f"{settings.state_dir}/engine"
        return NodeFolders(settings.model_dir, False, settings.engram_dir, state, f"{settings.state_dir}/cache")
    base = settings.worker_dir.rstrip("/")
    return NodeFolders(
        model=settings.nfs_volume if settings.nfs_share else settings.worker_model_path,
        model_is_volume=settings.nfs_share,
        engram=settings.worker_engram_path,
        state=f"{base}/state",
        cache=f"{base}/cache",
    )


def key_file(settings: Settings) -> str:
    """The file on the head that holds the API key, when there is one."""
    return f"{settings.state_dir}/api-key"
