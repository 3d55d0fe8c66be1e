"""A container as data: what is created, and the command that a person would type for the same."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any

OWNER_LABEL = "sparktui.owner"
"""On every container, volume and image of ours, with the value `sparktui`; nothing without it is ever changed."""
PROFILE_LABEL = "sparktui.profile"
ROLE_LABEL = "sparktui.role"
RANK_LABEL = "sparktui.rank"
SPEC_LABEL = "sparktui.spec"
"""Hash of the spec that made the container, so that a changed option is seen."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind (`source` is an absolute path) or a named volume."""

    source: str
    target: str
    read_only: bool = False

    @property
    def text(self) -> str:
        return f"{self.source}:{self.target}" + (":ro" if self.read_only else "")


@dataclass(frozen=True, slots=True)
class HealthCheck:
    command: tuple[str, ...]
    interval_seconds: int
    timeout_seconds: int
    start_period_seconds: int
    retries: int


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Everything that `docker run` is told, in one value.

    `environment` holds no secret: a key travels in a 0600 file that is mounted.
    """

    name: str
    image: str
    labels: dict[str, str]
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    gpus_all: bool = False
    network: str = "host"
    ipc: str | None = None
    privileged: bool = False
    shm_bytes: int | None = None
    memory_bytes: int | None = None
    """The most that it may take; it is ended, and nothing else on the node, when it wants more."""
    memlock_unlimited: bool = False
    stack_bytes: int | None = None
    restart: str = "no"
    auto_remove: bool = False
    init: bool = False
    stop_timeout_seconds: int | None = None
    log_max_bytes: int = 64 * 1024 * 1024
    log_files: int = 2
    health: HealthCheck | None = None
    no_health: bool = False
    """Turns the image's own check off: it asks for an engine, which this container is not."""

    def run_argv(self) -> list[str]:
        """`docker run -d …`, one element an argument, never pulling.

        Source: Docker Engine API 1.41 and the CLI's flags of the same meaning.
        """
        argv = ["docker", "run", "--detach", "--pull=never", "--name", self.name, "--network", self.network]
        argv += ["--restart", self.restart] if self.restart != "no" else []
        argv += ["--rm"] if self.auto_remove else []
        argv += ["--init"] if self.init else []
        argv += ["--privileged"] if self.privileged else []
        argv += ["--ipc", self.ipc] if self.ipc else []
        argv += ["--gpus", "all"] if self.gpus_all else []
        argv += ["--shm-size", str(self.shm_bytes)] if self.shm_bytes is not None else []
        argv += ["--memory", str(self.memory_bytes)] if self.memory_bytes is not None else []
        argv += ["--ulimit", "memlock=-1:-1"] if self.memlock_unlimited else []
        argv += ["--ulimit", f"stack={self.stack_bytes}:{self.stack_bytes}"] if self.stack_bytes is not None else []
        argv += ["--stop-timeout", str(self.stop_timeout_seconds)] if self.stop_timeout_seconds is not None else []
        argv += ["--log-driver", "json-file", "--log-opt", f"max-size={self.log_max_bytes}"]
        argv += ["--log-opt", f"max-file={self.log_files}"]
        for device in self.devices:
            argv += ["--device", device]
        for mount in self.mounts:
            argv += ["--volume", mount.text]
        for key in sorted(self.labels):
            argv += ["--label", f"{key}={self.labels[key]}"]
        for key in sorted(self.environment):
            argv += ["--env", f"{key}={self.environment[key]}"]
        if self.health:
            argv += ["--health-cmd", shlex.join(self.health.command)]
            argv += ["--health-interval", f"{self.health.interval_seconds}s"]
            argv += ["--health-timeout", f"{self.health.timeout_seconds}s"]
            argv += ["--health-start-period", f"{self.health.start_period_seconds}s"]
            argv += ["--health-retries", str(self.health.retries)]
        argv += ["--no-healthcheck"] if self.no_health else []
        entrypoint = self.entrypoint or ()
        argv += ["--entrypoint", entrypoint[0]] if entrypoint else []
        return [*argv, self.image, *entrypoint[1:], *self.command]

    def create_body(self) -> dict[str, Any]:
        """The body of `POST /containers/create` that means the same as `run_argv()`."""
        ulimits = [{"Name": "memlock", "Soft": -1, "Hard": -1}] if self.memlock_unlimited else []
        if self.stack_bytes is not None:
            ulimits.append({"Name": "stack", "Soft": self.stack_bytes, "Hard": self.stack_bytes})
        entrypoint = self.entrypoint or ()
        command = [*entrypoint[1:], *self.command]
        host: dict[str, Any] = {
            "NetworkMode": self.network,
            "RestartPolicy": {"Name": self.restart, "MaximumRetryCount": 0},
            "AutoRemove": self.auto_remove,
            "Privileged": self.privileged,
            "Binds": [mount.text for mount in self.mounts] or None,
            "LogConfig": {
                "Type": "json-file",
                "Config": {"max-size": str(self.log_max_bytes), "max-file": str(self.log_files)},
            },
            "Devices": [
                {"PathOnHost": device, "PathInContainer": device, "CgroupPermissions": "rwm"} for device in self.devices
            ],
            "Ulimits": ulimits or None,
        }
        if self.init:
            host["Init"] = True
        if self.ipc:
            host["IpcMode"] = self.ipc
        if self.shm_bytes is not None:
            host["ShmSize"] = self.shm_bytes
        if self.memory_bytes is not None:
            host["Memory"] = self.memory_bytes
        if self.gpus_all:
            host["DeviceRequests"] = [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]
        body: dict[str, Any] = {
            "Image": self.image,
            "Labels": dict(self.labels),
            "Env": [f"{key}={self.environment[key]}" for key in sorted(self.environment)],
            "Cmd": command or None,
            "HostConfig": host,
        }
        if entrypoint:
            body["Entrypoint"] = [entrypoint[0]]
        if self.stop_timeout_seconds is not None:
            body["StopTimeout"] = self.stop_timeout_seconds
        if self.health:
            second = 1_000_000_000
            body["Healthcheck"] = {
                "Test": ["CMD-SHELL", shlex.join(self.health.command)],
                "Interval": self.health.interval_seconds * second,
                "Timeout": self.health.timeout_seconds * second,
                "StartPeriod": self.health.start_period_seconds * second,
                "Retries": self.health.retries,
            }
        if self.no_health:
            body["Healthcheck"] = {"Test": ["NONE"]}
        return body


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """A named volume of Docker's local driver."""

    name: str
    options: dict[str, str]
    labels: dict[str, str]

    def create_argv(self) -> list[str]:
        argv = ["docker", "volume", "create", "--driver", "local"]
        for key in sorted(self.options):
            argv += ["--opt", f"{key}={self.options[key]}"]
        for key in sorted(self.labels):
            argv += ["--label", f"{key}={self.labels[key]}"]
        return [*argv, self.name]
