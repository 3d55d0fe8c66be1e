"""A Docker Engine in memory: enough of the SDK's client (high and low level) for tests of steps.

What is modelled: containers (create, start, stop, kill, wait, remove, list, inspect, logs), images (get, list, tag,
remove), volumes (create, get, list, remove), info and version, and the Engine's refusals as docker.errors (404, 409).
A container that starts does nothing unless `on_start[name]` is set: that function is given it and may set status,
exit code and log. A key that ends in `*` stands for all names that begin so (short looks have random ends).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import docker
import requests


def _refusal(status: int, text: str, kind: type[docker.errors.APIError] | None = None) -> docker.errors.APIError:
    response = requests.Response()
    response.status_code = status
    response.reason = text
    return (kind or docker.errors.APIError)(text, response=response, explanation=text)


def _matches(labels: dict[str, str], filters: dict[str, Any] | None) -> bool:
    wanted = (filters or {}).get("label", [])
    for each in [wanted] if isinstance(wanted, str) else wanted:
        key, separator, value = each.partition("=")
        if key not in labels or (separator and labels[key] != value):
            return False
    return True


@dataclass
class MemoryContainer:
    """Also what `client.containers.get()` returns: `attrs`, `status`, `labels` and the usual verbs."""

    engine: MemoryEngine
    name: str
    id: str
    body: dict[str, Any]
    status: str = "created"
    exit_code: int = 0
    oom_killed: bool = False
    log: list[str] = field(default_factory=list)
    started_at: str = "2025-01-01T00:00:01Z"
    finished_at: str = "0001-01-01T00:00:00Z"

    @property
    def short_id(self) -> str:
        return self.id[:12]

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.body.get("Labels") or {})

    @property
    def attrs(self) -> dict[str, Any]:
        image = self.engine.images.get(self.body["Image"])
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Image": image.id if image else self.body["Image"],
            "Created": "2025-01-01T00:00:00Z",
            "Config": {key: self.body.get(key) for key in self.body if key != "HostConfig"},
            "HostConfig": self.body.get("HostConfig", {}),
            "State": {
                "Status": self.status,
                "Running": self.status == "running",
                "ExitCode": self.exit_code,
                "OOMKilled": self.oom_killed,
                "Error": "",
                "Pid": 4242 if self.status == "running" else 0,
                "StartedAt": self.started_at,
                "FinishedAt": self.finished_at,
            },
        }

    @property
    def image(self) -> MemoryImage:
        return self.engine.image(self.body["Image"])

    def reload(self) -> None:
        self.engine.found(self.id)

    def start(self) -> None:
        self.status = "running"
        self.engine.actions.append(f"start {self.name}")
        if behave := self.engine.behaviour(self.name):
            behave(self)

    def stop(self, timeout: int | None = None) -> None:
        self.engine.actions.append(f"stop {self.name}")
        if self.status == "running":
            self.status, self.exit_code = "exited", 0
        self._auto_remove()

    def kill(self, signal: str | int | None = None) -> None:
        if self.status != "running":
            raise _refusal(409, f"Container {self.id} is not running")
        self.engine.actions.append(f"kill {self.name}")
        self.status, self.exit_code = "exited", 137
        self._auto_remove()

    def _auto_remove(self) -> None:
        if self.body.get("HostConfig", {}).get("AutoRemove"):
            self.engine.containers.pop(self.name, None)

    def wait(self, timeout: float | None = None, condition: str | None = None) -> dict[str, Any]:
        if self.status == "running":
            raise requests.exceptions.ReadTimeout(f"{self.name} is still running")
        return {"StatusCode": self.exit_code, "Error": None}

    def remove(self, force: bool = False, v: bool = False) -> None:
        if self.status == "running" and not force:
            raise _refusal(409, f"You cannot remove a running container {self.id}")
        self.engine.actions.append(f"remove {self.name}")
        self.engine.containers.pop(self.name, None)

    def logs(self, tail: int | str = "all", **_: Any) -> bytes:
        lines = self.log if tail == "all" else self.log[-int(tail) :]
        return "".join(f"{line}\n" for line in lines).encode()


@dataclass
class MemoryImage:
    engine: MemoryEngine
    id: str
    tags: list[str]
    labels: dict[str, str]
    layers: list[str]
    digests: list[str] = field(default_factory=list)
    architecture: str = "arm64"
    size: int = 1000

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "Id": self.id,
            "RepoTags": self.tags,
            "RepoDigests": self.digests,
            "Architecture": self.architecture,
            "Os": "linux",
            "Size": self.size,
            "Config": {"Labels": self.labels, "Env": []},
            "RootFS": {"Type": "layers", "Layers": self.layers},
        }

    def tag(self, repository: str, tag: str | None = None, **_: Any) -> bool:
        self.tags.append(f"{repository}:{tag or 'latest'}")
        self.engine.images[self.tags[-1]] = self
        return True

    def reload(self) -> None: ...


@dataclass
class MemoryVolume:
    engine: MemoryEngine
    name: str
    options: dict[str, str]
    labels: dict[str, str]

    @property
    def id(self) -> str:
        return self.name

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "Name": self.name,
            "Driver": "local",
            "Options": self.options or None,
            "Labels": self.labels or None,
            "Mountpoint": f"/var/lib/docker/volumes/{self.name}/_data",
        }

    def remove(self, force: bool = False) -> None:
        for container in self.engine.containers.values():
            binds = container.body.get("HostConfig", {}).get("Binds") or []
            if any(bind.split(":")[0] == self.name for bind in binds):
                raise _refusal(409, f"volume is in use - [{container.id}]")
        self.engine.actions.append(f"remove volume {self.name}")
        self.engine.volumes.pop(self.name, None)


class MemoryEngine:
    """The model, and (as `client`) what SDK code is given."""

    def __init__(self, node: str = "head") -> None:
        self.node = node
        self.containers: dict[str, MemoryContainer] = {}
        self.images: dict[str, MemoryImage] = {}
        """By every tag and by id."""
        self.volumes: dict[str, MemoryVolume] = {}
        self.actions: list[str] = []
        """What was changed, in order: `create NAME`, `start NAME`, …"""
        self.on_start: dict[str, Callable[[MemoryContainer], None]] = {}
        self.broken: Exception | None = None
        """Raised by every call, for an Engine that is absent or refuses."""
        self.information: dict[str, Any] = {"ServerVersion": "28.0.0", "Architecture": "aarch64", "Runtimes": {}}
        self._numbers = itertools.count(1)
        self.client = _Client(self)

    def add_image(
        self,
        tag: str,
        *,
        labels: dict[str, str] | None = None,
        layers: Iterable[str] = (),
        image_id: str = "",
        digests: Iterable[str] = (),
        architecture: str = "arm64",
        size: int = 1000,
    ) -> MemoryImage:
        made = image_id or "sha256:" + hashlib.sha256(tag.encode()).hexdigest()
        image = MemoryImage(self, made, [tag], dict(labels or {}), list(layers), list(digests), architecture, size)
        self.images[tag] = self.images[made] = image
        return image

    def add_container(
        self, name: str, image: str = "sparktui:1", *, labels: dict[str, str] | None = None, status: str = "running"
    ) -> MemoryContainer:
        if image not in self.images:
            self.add_image(image)
        container = self.create({"Image": image, "Labels": dict(labels or {}), "HostConfig": {}}, name)
        container.status = status
        self.actions.clear()
        return container

    def create(self, body: dict[str, Any], name: str) -> MemoryContainer:
        if name in self.containers:
            raise _refusal(409, f'Conflict. The container name "/{name}" is already in use')
        self.image(body["Image"])
        identity = hashlib.sha256(f"{name}{next(self._numbers)}".encode()).hexdigest()
        self.containers[name] = MemoryContainer(self, name, identity, body)
        self.actions.append(f"create {name}")
        return self.containers[name]

    def behaviour(self, name: str) -> Callable[[MemoryContainer], None] | None:
        for key, behave in self.on_start.items():
            if key == name or (key.endswith("*") and name.startswith(key[:-1])):
                return behave
        return None

    def found(self, name_or_id: str) -> MemoryContainer:
        for container in self.containers.values():
            if name_or_id in (container.name, container.id, container.short_id):
                return container
        raise _refusal(404, f"No such container: {name_or_id}", docker.errors.NotFound)

    def image(self, reference: str) -> MemoryImage:
        image = self.images.get(reference) or self.images.get(f"{reference}:latest")
        if image is None:
            image = next((each for each in self.images.values() if reference in each.digests), None)
        if image is None:
            raise _refusal(404, f"No such image: {reference}", docker.errors.ImageNotFound)
        return image

    def volume(self, name: str) -> MemoryVolume:
        if name not in self.volumes:
            raise _refusal(404, f"get {name}: no such volume", docker.errors.NotFound)
        return self.volumes[name]


class _Containers:
    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    def get(self, name: str) -> MemoryContainer:
        return self._engine.found(name)

    def list(self, all: bool = False, filters: dict[str, Any] | None = None, **_: Any) -> list[MemoryContainer]:
        names = (filters or {}).get("name")
        wanted = [names] if isinstance(names, str) else names
        return [
            each
            for each in self._engine.containers.values()
            if (all or each.status == "running")
            and _matches(each.labels, filters)
            and (not wanted or any(name.strip("^/$") in each.name for name in wanted))
        ]


class _Images:
    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    def get(self, reference: str) -> MemoryImage:
        return self._engine.image(reference)

    def list(
        self, name: str | None = None, all: bool = False, filters: dict[str, Any] | None = None
    ) -> list[MemoryImage]:
        distinct = {each.id: each for each in self._engine.images.values()}
        return [
            each
            for each in distinct.values()
            if _matches(each.labels, filters)
            and (name is None or any(tag == name or tag.rpartition(":")[0] == name for tag in each.tags))
        ]

    def remove(self, image: str, force: bool = False, noprune: bool = False) -> None:
        found = self._engine.image(image)
        self._engine.actions.append(f"remove image {image}")
        for key in [key for key, each in self._engine.images.items() if each is found]:
            del self._engine.images[key]


class _Volumes:
    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    def get(self, name: str) -> MemoryVolume:
        return self._engine.volume(name)

    def list(self, filters: dict[str, Any] | None = None) -> list[MemoryVolume]:
        return [each for each in self._engine.volumes.values() if _matches(each.labels, filters)]

    def create(
        self,
        name: str,
        driver: str = "local",
        driver_opts: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
    ) -> MemoryVolume:
        if name not in self._engine.volumes:  # as the Engine does: an existing name keeps its old options (U50)
            self._engine.volumes[name] = MemoryVolume(self._engine, name, dict(driver_opts or {}), dict(labels or {}))
            self._engine.actions.append(f"create volume {name}")
        return self._engine.volumes[name]


class _Api:
    """The low-level calls that take plain API bodies."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._version = "1.41"
        self.timeout = 60.0

    def create_container_from_config(self, config: dict[str, Any], name: str | None = None, **_: Any) -> dict[str, Any]:
        return {"Id": self._engine.create(config, name or f"unnamed{next(self._engine._numbers)}").id, "Warnings": []}

    def start(self, container: str) -> None:
        self._engine.found(container).start()

    def stop(self, container: str, timeout: int | None = None) -> None:
        self._engine.found(container).stop(timeout)

    def kill(self, container: str, signal: str | int | None = None) -> None:
        self._engine.found(container).kill(signal)

    def remove_container(self, container: str, v: bool = False, link: bool = False, force: bool = False) -> None:
        self._engine.found(container).remove(force=force)

    def inspect_container(self, container: str) -> dict[str, Any]:
        return self._engine.found(container).attrs

    def inspect_image(self, image: str) -> dict[str, Any]:
        return self._engine.image(image).attrs

    def inspect_volume(self, name: str) -> dict[str, Any]:
        return self._engine.volume(name).attrs

    def volumes(self, filters: dict[str, Any] | None = None) -> dict[str, Any]:
        found = _Volumes(self._engine).list(filters=filters)
        return {"Volumes": [each.attrs for each in found] or None, "Warnings": None}

    def create_volume(
        self,
        name: str,
        driver: str = "local",
        driver_opts: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        return _Volumes(self._engine).create(name, driver, driver_opts, labels).attrs

    def remove_volume(self, name: str) -> None:
        self._engine.volume(name).remove()

    def images(self, **_: Any) -> list[dict[str, Any]]:
        return [each.attrs for each in _Images(self._engine).list()]

    def wait(self, container: str, **_: Any) -> dict[str, Any]:
        return self._engine.found(container).wait()

    def logs(self, container: str, tail: int | str = "all", **_: Any) -> bytes:
        return self._engine.found(container).logs(tail=tail)

    def containers(self, all: bool = False, filters: dict[str, Any] | None = None, **_: Any) -> list[dict[str, Any]]:
        return [
            {
                "Id": each.id,
                "Names": [f"/{each.name}"],
                "Image": each.body["Image"],
                "ImageID": each.attrs["Image"],
                "Labels": each.labels,
                "State": each.status,
                "Status": each.status,
            }
            for each in _Containers(self._engine).list(all=all, filters=filters)
        ]


class _Client:
    def __init__(self, engine: MemoryEngine) -> None:
        self.containers, self.images, self.volumes = _Containers(engine), _Images(engine), _Volumes(engine)
        self.api = _Api(engine)
        self._engine = engine

    def info(self) -> dict[str, Any]:
        return dict(self._engine.information)

    def version(self) -> dict[str, Any]:
        return {"Version": self._engine.information["ServerVersion"], "ApiVersion": "1.41", "Arch": "arm64"}

    def ping(self) -> bool:
        return True

    def close(self) -> None: ...
