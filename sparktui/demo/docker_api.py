"""A simulated node's Docker Engine: the part of the Engine API 1.47 that the product uses."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparktui.demo.faults import DISK_FULL, DOCKER_HANGS, OFF, RANK_DIES, SLOW
from sparktui.demo.http import Reply, Request, as_json
from sparktui.demo.images import NO_SPACE, base_digest
from sparktui.demo.machine import Container, Machine, new_container

if TYPE_CHECKING:
    from sparktui.demo.world import World

API_VERSION = "1.47"
ENGINE_VERSION = "28.5.1"
_FOLLOW_SECONDS = 0.1
_LONGEST_SILENCE_SECONDS = 3600
_NEVER = "0001-01-01T00:00:00Z"


class NoAnswer(Exception):
    """The connection is to be closed without a word (the node is off)."""


class DockerApi:
    """Answers requests for one machine."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._routes: list[tuple[str, re.Pattern[str], Callable[..., Awaitable[Reply]]]] = []
        for method, pattern, handler in (
            ("GET", r"/_ping", self._ping),
            ("HEAD", r"/_ping", self._ping),
            ("GET", r"/version", self._version),
            ("GET", r"/info", self._info),
            ("GET", r"/images/json", self._images),
            ("GET", r"/images/(.+)/json", self._image),
            ("GET", r"/distribution/(.+)/json", self._distribution),
            ("GET", r"/containers/json", self._containers),
            ("POST", r"/containers/create", self._create),
            ("GET", r"/containers/([^/]+)/json", self._container),
            ("GET", r"/containers/([^/]+)/logs", self._logs),
            ("GET", r"/containers/([^/]+)/stats", self._stats),
            ("GET", r"/containers/([^/]+)/top", self._top),
            ("POST", r"/containers/([^/]+)/start", self._start),
            ("POST", r"/containers/([^/]+)/stop", self._stop),
            ("POST", r"/containers/([^/]+)/kill", self._kill),
            ("POST", r"/containers/([^/]+)/wait", self._wait),
            ("DELETE", r"/containers/([^/]+)", self._remove),
            ("GET", r"/volumes", self._volumes),
            ("POST", r"/volumes/create", self._create_volume),
            ("GET", r"/volumes/([^/]+)", self._volume),
            ("DELETE", r"/volumes/([^/]+)", self._remove_volume),
        ):
            self._routes.append((method, re.compile(rf"(?:/v1\.\d+)?{pattern}"), handler))

    @property
    def machine(self) -> Machine:
        return self._world.machine(self._name)

    async def __call__(self, request: Request) -> Reply:
        faults = self._world.faults(self._name)
        if OFF in faults:
            raise NoAnswer
        if DOCKER_HANGS in faults:
            await self._silence()
        if SLOW in faults:
            await asyncio.sleep(self._world.pause(1.0))
        self._world.refresh(self.machine)
        for method, pattern, handler in self._routes:
            match = pattern.fullmatch(request.path)
            if match and method == request.method:
                return await handler(request, *match.groups())
        return _refused(501, f"the simulated Docker Engine does not know {request.method} {request.path}")

    async def _silence(self) -> None:
        """Until it is mended; then nobody waits for this answer any more."""
        for _ in range(_LONGEST_SILENCE_SECONDS):
            await asyncio.sleep(1.0)
            if DOCKER_HANGS not in self._world.faults(self._name):
                break
        raise NoAnswer

    # -- the Engine ---------------------------------------------------------------------------------------------

    async def _ping(self, request: Request) -> Reply:
        return Reply(200, b"OK", "text/plain")

    async def _version(self, request: Request) -> Reply:
        return as_json(
            {
                "Version": ENGINE_VERSION,
                "ApiVersion": API_VERSION,
                "MinAPIVersion": "1.24",
                "Os": "linux",
                "Arch": "arm64",
                "KernelVersion": "6.17.0-1018-nvidia",
            }
        )

    async def _info(self, request: Request) -> Reply:
        machine = self.machine
        return as_json(
            {
                "ServerVersion": ENGINE_VERSION,
                "Architecture": "aarch64",
                "KernelVersion": "6.17.0-1018-nvidia",
                "OperatingSystem": "Ubuntu 24.04.3 LTS",
                "Driver": "overlay2",
                "DockerRootDir": "/var/lib/docker",
                "Runtimes": {"runc": {}, "nvidia": {}},
                "CgroupVersion": "2",
                "Name": machine.hostname,
                "MemTotal": 130_663_165_952,
                "Containers": len(machine.containers),
            }
        )

    # -- images -------------------------------------------------------------------------------------------------

    async def _images(self, request: Request) -> Reply:
        return as_json([{**image, "Labels": image["Config"]["Labels"]} for image in self.machine.images.values()])

    async def _image(self, request: Request, name: str) -> Reply:
        image = self.machine.image(name)
        return as_json(image) if image else _refused(404, f"No such image: {name}")

    async def _distribution(self, request: Request, name: str) -> Reply:
        await asyncio.sleep(self._world.pause(0.6))
        return as_json({"Descriptor": {"digest": base_digest(name), "size": 4_711}, "Platforms": []})

    # -- containers ---------------------------------------------------------------------------------------------

    async def _containers(self, request: Request) -> Reply:
        everything = request.query.get("all", "0").lower() in ("1", "true")
        filters = json.loads(request.query.get("filters", "{}"))
        rows = []
        for each in self.machine.containers.values():
            if not (everything or each.running) or not _fits(each, filters):
                continue
            rows.append(
                {
                    "Id": each.id,
                    "Names": [f"/{each.name}"],
                    "Image": each.body.get("Image"),
                    "ImageID": each.image_id,
                    "Labels": each.labels,
                    "State": each.status,
                    "Status": each.status,
                    "Created": int(each.created_at),
                }
            )
        return as_json(rows)

    async def _create(self, request: Request) -> Reply:
        body, name = request.json(), request.query.get("name", "")
        image = self.machine.image(str(body.get("Image")))
        if image is None:
            return _refused(404, f"No such image: {body.get('Image')}")
        if self.machine.container(name):
            return _refused(409, f'Conflict. The container name "/{name}" is already in use')
        if DISK_FULL in self._world.faults(self._name) and body.get("Labels", {}).get("sparktui.role") != "view":
            return _refused(500, f"mkdir /var/lib/docker/overlay2: {NO_SPACE}")
        container = new_container(name, body, image["Id"], self._world.speed)
        self.machine.containers[name] = container
        self._world.save()
        return as_json({"Id": container.id, "Warnings": []}, 201)

    async def _container(self, request: Request, name: str) -> Reply:
        found = self.machine.container(name)
        return as_json(_inspected(found)) if found else _no_container(name)

    async def _start(self, request: Request, name: str) -> Reply:
        found = self.machine.container(name)
        if found is None:
            return _no_container(name)
        if found.running:
            return Reply(304)
        faults = self._world.faults(self._name)
        found.doomed, found.slow = RANK_DIES in faults and found.is_engine, SLOW in faults
        found.kept = dict(self.machine.packed) if found.role == "pack" else {}
        found.started_at, found.finished_at, found.exit_code = time.time(), None, None
        self._world.save()
        return Reply(204)

    async def _stop(self, request: Request, name: str) -> Reply:
        found = self.machine.container(name)
        if found is None:
            return _no_container(name)
        if not found.running:
            return Reply(304)
        await asyncio.sleep(self._world.pause(1.2 if found.is_engine else 0.3))
        self._world.stop(self.machine, found, 0 if found.is_engine else 143)
        return Reply(204)

    async def _kill(self, request: Request, name: str) -> Reply:
        found = self.machine.container(name)
        if found is None:
            return _no_container(name)
        self._world.stop(self.machine, found, 137)
        return Reply(204)

    async def _wait(self, request: Request, name: str) -> Reply:
        found = self.machine.container(name)
        if found is None:
            return _no_container(name)
        while found.running:
            await asyncio.sleep(0.05)
            self._world.refresh(self.machine)
        return as_json({"StatusCode": found.exit_code or 0})

    async def _remove(self, request: Request, name: str) -> Reply:
        found = self.machine.container(name)
        if found is None:
            return _no_container(name)
        if found.running and request.query.get("force", "").lower() not in ("1", "true"):
            return _refused(409, f"cannot remove container {name}: container is running")
        self._world.stop(self.machine, found, 137)
        self.machine.containers.pop(found.name, None)
        self._world.save()
        return Reply(204)

    async def _stats(self, request: Request, name: str) -> Reply:
        found = self.machine.container(name)
        if found is None:
            return _no_container(name)
        busy = int(time.time() * 1.3e9) if found.running else 0
        usage = {"cpu_usage": {"total_usage": busy}, "system_cpu_usage": int(time.time() * 2e10), "online_cpus": 20}
        return as_json(
            {"read": _stamp(time.time()), "cpu_stats": usage, "precpu_stats": {}, "pids_stats": {"current": 9}}
        )

    async def _top(self, request: Request, name: str) -> Reply:
        found = self.machine.container(name)
        if found is None:
            return _no_container(name)
        rows = [["nvidia", str(4700 + n), f"sglang::{word}"] for n, word in enumerate(("launch", "scheduler", "detok"))]
        return as_json({"Titles": ["UID", "PID", "CMD"], "Processes": rows if found.running else []})

    async def _logs(self, request: Request, name: str) -> Reply:
        found = self.machine.container(name)
        if found is None:
            return _no_container(name)
        follow = request.query.get("follow", "0").lower() in ("1", "true")
        stream = self._log_chunks(found, request.query, follow=follow)
        if follow:
            return Reply(200, content_type="application/vnd.docker.multiplexed-stream", stream=stream)
        whole = b"".join([chunk async for chunk in stream])
        return Reply(200, whole, "application/vnd.docker.multiplexed-stream")

    async def _log_chunks(self, container: Container, query: dict[str, str], *, follow: bool) -> AsyncIterator[bytes]:
        tail, since = query.get("tail", "all"), float(query.get("since") or 0)
        sent: int | None = None
        while True:
            ended = not container.running
            lines = [each for each in self._said(container) if each[0] >= since]
            if sent is None:
                sent = max(len(lines) - int(tail), 0) if tail.isdigit() else 0
            if lines[sent:]:
                yield b"".join(_frame(text) for _, text in lines[sent:])
                sent = len(lines)
            if ended or not follow:
                return
            await asyncio.sleep(_FOLLOW_SECONDS)
            self._world.refresh(self.machine)

    def _said(self, container: Container) -> list[tuple[float, str]]:
        if container.started_at is None:
            return []
        return self._world.play(self.machine, container).until(time.time())

    # -- volumes ------------------------------------------------------------------------------------------------

    async def _volumes(self, request: Request) -> Reply:
        return as_json({"Volumes": list(self.machine.volumes.values()), "Warnings": []})

    async def _create_volume(self, request: Request) -> Reply:
        body = request.json()
        name = str(body.get("Name"))
        volume = self.machine.volumes.setdefault(
            name,
            {
                "Name": name,
                "Driver": "local",
                "Mountpoint": f"/var/lib/docker/volumes/{name}/_data",
                "Options": body.get("DriverOpts") or {},
                "Labels": body.get("Labels") or {},
                "Scope": "local",
                "CreatedAt": _stamp(time.time()),
            },
        )
        self._world.save()
        return as_json(volume, 201)

    async def _volume(self, request: Request, name: str) -> Reply:
        found = self.machine.volumes.get(name)
        return as_json(found) if found else _refused(404, f"get {name}: no such volume")

    async def _remove_volume(self, request: Request, name: str) -> Reply:
        if self.machine.volumes.pop(name, None) is None:
            return _refused(404, f"get {name}: no such volume")
        self._world.save()
        return Reply(204)


def _fits(container: Container, filters: dict[str, Any]) -> bool:
    labels = container.labels
    for wanted in filters.get("label", []):
        name, equals, value = wanted.partition("=")
        if name not in labels or (equals and labels[name] != value):
            return False
    names = filters.get("name", [])
    if names and not any(name in container.name for name in names):
        return False
    volumes = filters.get("volume", [])
    binds = [bind.partition(":")[0] for bind in (container.body.get("HostConfig") or {}).get("Binds") or ()]
    return not volumes or any(volume in binds for volume in volumes)


def _inspected(container: Container) -> dict[str, Any]:
    body = container.body
    config = {name: body.get(name) for name in ("Image", "Labels", "Env", "Cmd", "Entrypoint", "Healthcheck")}
    return {
        "Id": container.id,
        "Name": f"/{container.name}",
        "Created": _stamp(container.created_at),
        "Image": container.image_id,
        "Config": {**config, "Tty": False},
        "HostConfig": body.get("HostConfig") or {},
        "RestartCount": 0,
        "State": {
            "Status": container.status,
            "Running": container.running,
            "Paused": False,
            "Restarting": False,
            "OOMKilled": False,
            "Dead": False,
            "Pid": 4700 if container.running else 0,
            "ExitCode": container.exit_code or 0,
            "Error": "",
            "StartedAt": _stamp(container.started_at),
            "FinishedAt": _stamp(container.finished_at),
        },
    }


def _stamp(at: float | None) -> str:
    if at is None:
        return _NEVER
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _frame(text: str) -> bytes:
    data = text.encode() + b"\n"
    return b"\x01\0\0\0" + len(data).to_bytes(4, "big") + data


def _refused(status: int, text: str) -> Reply:
    return as_json({"message": text}, status)


def _no_container(name: str) -> Reply:
    return _refused(404, f"No such container: {name}")
