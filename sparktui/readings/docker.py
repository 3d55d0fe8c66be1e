"""What a Docker Engine says of itself, of a container, an image, a volume."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _strings(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): str(each) for key, each in value.items() if each is not None}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """`docker info`."""

    server_version: str | None = None
    architecture: str | None = None
    """As the kernel says it: `aarch64`, `x86_64`."""
    kernel: str | None = None
    operating_system: str | None = None
    storage_driver: str | None = None
    root_dir: str | None = None
    runtimes: tuple[str, ...] | None = None
    cgroup_version: str | None = None
    hostname: str | None = None
    memory_bytes: int | None = None

    @property
    def has_nvidia_runtime(self) -> bool | None:
        return None if self.runtimes is None else "nvidia" in self.runtimes


_HUMAN = re.compile(r"\s*([A-Z][A-Za-z /]+):\s+(\S.*)")


def engine_info(answer: Mapping[str, Any]) -> EngineInfo:
    """From the API's JSON (`client.info()` or `docker info --format '{{json .}}'`)."""
    runtimes = answer.get("Runtimes")
    return EngineInfo(
        server_version=_text(answer.get("ServerVersion")),
        architecture=_text(answer.get("Architecture")),
        kernel=_text(answer.get("KernelVersion")),
        operating_system=_text(answer.get("OperatingSystem")),
        storage_driver=_text(answer.get("Driver")),
        root_dir=_text(answer.get("DockerRootDir")),
        runtimes=tuple(sorted(map(str, runtimes))) if isinstance(runtimes, Mapping) else None,
        cgroup_version=_text(answer.get("CgroupVersion")),
        hostname=_text(answer.get("Name")),
        memory_bytes=_number(answer.get("MemTotal")),
    )


def parse_info(text: str) -> EngineInfo:
    """From `docker info`, JSON or the human form; all None when it is neither."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, Mapping):
        return engine_info(answer)
    read = {m[1]: m[2].strip() for line in text.split("\n") if (m := _HUMAN.fullmatch(line.rstrip("\r")))}
    runtimes = read.get("Runtimes")
    return EngineInfo(
        server_version=read.get("Server Version"),
        architecture=read.get("Architecture"),
        kernel=read.get("Kernel Version"),
        operating_system=read.get("Operating System"),
        storage_driver=read.get("Storage Driver"),
        root_dir=read.get("Docker Root Dir"),
        runtimes=tuple(sorted(runtimes.split())) if runtimes else None,
        cgroup_version=read.get("Cgroup Version"),
        hostname=read.get("Name"),
    )


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """The parts of `docker inspect CONTAINER` that decide something."""

    name: str | None
    status: str | None
    """`created`, `running`, `exited`, `dead`, …"""
    exit_code: int | None
    oom_killed: bool | None
    error: str | None
    started_at: str | None
    finished_at: str | None
    health: str | None
    image_id: str | None
    image: str | None
    labels: dict[str, str]

    @property
    def running(self) -> bool | None:
        return None if self.status is None else self.status == "running"


def container_facts(answer: Mapping[str, Any]) -> ContainerFacts:
    state = _mapping(answer.get("State"))
    config = _mapping(answer.get("Config"))
    oom = state.get("OOMKilled")
    name = _text(answer.get("Name"))
    return ContainerFacts(
        name=name.removeprefix("/") if name else None,
        status=_text(state.get("Status")),
        exit_code=_number(state.get("ExitCode")),
        oom_killed=oom if isinstance(oom, bool) else None,
        error=_text(state.get("Error")),
        started_at=_text(state.get("StartedAt")),
        finished_at=_text(state.get("FinishedAt")),
        health=_text(_mapping(state.get("Health")).get("Status")),
        image_id=_text(answer.get("Image")),
        image=_text(config.get("Image")),
        labels=_strings(config.get("Labels")),
    )


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """The parts of `docker image inspect` that name an image by content, not by the Engine's own Id."""

    image_id: str | None
    architecture: str | None
    """Docker's word: `arm64`, `amd64`."""
    layers: tuple[str, ...]
    labels: dict[str, str]
    repo_digests: tuple[str, ...]
    size_bytes: int | None


def image_facts(answer: Mapping[str, Any]) -> ImageFacts:
    layers = _mapping(answer.get("RootFS")).get("Layers")
    digests = answer.get("RepoDigests")
    return ImageFacts(
        image_id=_text(answer.get("Id")),
        architecture=_text(answer.get("Architecture")),
        layers=tuple(map(str, layers)) if isinstance(layers, list) else (),
        labels=_strings(_mapping(answer.get("Config")).get("Labels")),
        repo_digests=tuple(map(str, digests)) if isinstance(digests, list) else (),
        size_bytes=_number(answer.get("Size")),
    )


DOCKER_ARCHITECTURE = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "amd64", "amd64": "amd64"}
"""uname's word -> Docker's word."""


def architecture_matches(image: str | None, machine: str | None) -> bool | None:
    """Does an image of this architecture run on this machine (both spellings accepted)? None for unknown."""
    if image is None or machine is None:
        return None
    return DOCKER_ARCHITECTURE.get(image, image) == DOCKER_ARCHITECTURE.get(machine, machine)


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """`docker volume inspect`: the driver is `local` for bind and NFS alike, the options tell them apart."""

    name: str | None
    options: dict[str, str]
    labels: dict[str, str]

    @property
    def is_nfs(self) -> bool:
        return self.options.get("type", "").startswith("nfs")

    @property
    def server(self) -> str | None:
        """The address an NFS volume mounts from."""
        for part in self.options.get("o", "").split(","):
            if part.startswith("addr="):
                return part[5:] or None
        return None


def volume_facts(answer: Mapping[str, Any]) -> VolumeFacts:
    return VolumeFacts(_text(answer.get("Name")), _strings(answer.get("Options")), _strings(answer.get("Labels")))


def docker_trouble(stderr: str) -> str | None:
    """Why docker did not answer, one word for each kind; None for a text we do not know.

    `permission`: the socket refuses this user. `absent`: no daemon behind it. `missing`: no docker command.
    `context`: the chosen context does not exist. `runtime`: the nvidia runtime is not registered.
    """
    text = stderr.lower()
    if "permission denied" in text and "docker" in text:
        return "permission"
    if "cannot connect to the docker daemon" in text or "is the docker daemon running" in text:
        return "absent"
    if "docker: command not found" in text or "docker: not found" in text:
        return "missing"
    if "context" in text and ("not found" in text or "does not exist" in text):
        return "context"
    if "unknown or invalid runtime name: nvidia" in text:
        return "runtime"
    return None
