"""A simulated node's state: what lies on it and what runs. Plain data that goes to JSON and back."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparktui.cluster.container import RANK_LABEL, ROLE_LABEL

GIB = 1024**3
DISK_BYTES = 3_936_818_806_784
"""Size of the root file system: one NVMe of 4 TB."""
DISK_USED_BYTES = 412_316_860_416
FULL_DISK_LEFT_BYTES = 1_234_567_168


@dataclass
class Container:
    """A container as it was created, and what became of it. Times are seconds since the epoch.

    Attributes:
        body: what was given to create it.
        speed: how much faster than usual its time runs.
        doomed, slow: faults that the node had when it was started.
        kept: packed bytes that were there before a packer began.
        extra: lines that came while it ran, with their time; not kept.
    """

    id: str
    name: str
    body: dict[str, Any]
    image_id: str
    created_at: float
    speed: float
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    doomed: bool = False
    slow: bool = False
    kept: dict[str, int] = field(default_factory=dict)
    extra: list[tuple[float, str]] = field(default_factory=list)

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.body.get("Labels") or {})

    @property
    def role(self) -> str:
        return self.labels.get(ROLE_LABEL, "")

    @property
    def rank(self) -> int:
        text = self.labels.get(RANK_LABEL, "")
        return int(text) if text.isdigit() else 0

    @property
    def is_engine(self) -> bool:
        return self.role in ("head", "worker")

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.body.get("Env") or () if "=" in pair)

    @property
    def command(self) -> list[str]:
        return list(self.body.get("Cmd") or ())

    @property
    def running(self) -> bool:
        return self.started_at is not None and self.finished_at is None

    @property
    def status(self) -> str:
        if self.started_at is None:
            return "created"
        return "running" if self.finished_at is None else "exited"

    def end(self, at: float, exit_code: int) -> None:
        if self.running:
            self.finished_at, self.exit_code = at, exit_code

    def whole(self, name: str, default: int) -> int:
        """A number of its environment."""
        text = self.environment.get(name, "")
        return int(text) if text.isdigit() else default


@dataclass
class Machine:
    """One node.

    Attributes:
        files: path to bytes written through the link outside the demo's folder.
        packed: packed Engram file to bytes that are there.
        cache_bytes: page cache.
        sent, received: RDMA bytes by device since the node was made.
    """

    name: str
    rank: int
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)
    volumes: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    packed: dict[str, int] = field(default_factory=dict)
    cache_bytes: float = 0.0
    sent: dict[str, float] = field(default_factory=dict)
    received: dict[str, float] = field(default_factory=dict)
    network_sent: float = 0.0
    network_received: float = 0.0
    disk_read: float = 0.0
    started_at: float = field(default_factory=lambda: time.time() - 400_000)

    @property
    def is_head(self) -> bool:
        return self.rank == 0

    @property
    def hostname(self) -> str:
        return f"spark-{'abcdefgh'[self.rank % 8]}"

    def image(self, reference: str) -> dict[str, Any] | None:
        """By tag, id, digest, or tag with digest."""
        for image in self.images.values():
            names = {*image["RepoTags"], *image["RepoDigests"], image["Id"], image["Id"].removeprefix("sha256:")}
            if reference in names:
                return image
            name, at, digest = reference.partition("@")
            if at and f"{name.rpartition(':')[0] or name}@{digest}" in image["RepoDigests"]:
                return image
        return None

    def add_image(self, image: Mapping[str, Any]) -> None:
        """A tag names one image only."""
        for other in self.images.values():
            other["RepoTags"] = [tag for tag in other["RepoTags"] if tag not in image["RepoTags"]]
        self.images[image["Id"]] = dict(image)

    def container(self, name_or_id: str) -> Container | None:
        found = self.containers.get(name_or_id.lstrip("/"))
        return found or next((each for each in self.containers.values() if each.id == name_or_id), None)

    def engine(self) -> Container | None:
        """The engine that runs."""
        return next((each for each in self.containers.values() if each.is_engine and each.running), None)

    def running(self, role: str) -> Container | None:
        return next((each for each in self.containers.values() if each.role == role and each.running), None)

    def to_plain(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self)
        for each in plain["containers"].values():
            each["extra"] = []
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Machine:
        known = {each.name for each in dataclasses.fields(cls)}
        values = {name: value for name, value in plain.items() if name in known}
        values["containers"] = {name: Container(**each) for name, each in values.get("containers", {}).items()}
        return cls(**values)


def new_container(name: str, body: dict[str, Any], image_id: str, speed: float) -> Container:
    return Container(secrets.token_hex(32), name, body, image_id, time.time(), speed)
