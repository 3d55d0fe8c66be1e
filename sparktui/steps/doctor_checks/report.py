"""What doctor knows of one node after asking it once: the probe's answer, the Engine's, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktui.cluster.node import Node
from sparktui.errors import SparktuiError
from sparktui.events import Finding, State
from sparktui.readings.docker import EngineInfo, ImageFacts
from sparktui.readings.host import parse_uname
from sparktui.steps.doctor_checks.probe import ProbeAnswer

if TYPE_CHECKING:
    from sparktui.settings import Settings

STEP = "doctor"


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A running container; `uses_gpu` is None where the Engine does not say."""

    name: str
    image: str
    ours: bool
    role: str
    profile: str
    uses_gpu: bool | None


@dataclass(frozen=True, slots=True)
class DockerAnswer:
    """One set of Engine calls. `image` is None where the image is not on the node."""

    info: EngineInfo
    containers: tuple[RunningContainer, ...]
    image: ImageFacts | None


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node. `failure` says why there is no probe; then nothing else of the node is known."""

    settings: Settings
    node: Node
    probe: ProbeAnswer
    failure: SparktuiError | None = None
    docker: DockerAnswer | None = None
    docker_failure: SparktuiError | None = None
    login: str = ""
    """How the login worked: `user@host via key (found by: …)`."""
    login_warnings: tuple[str, ...] = ()
    docker_space: str | None = None
    """`df` of the Engine's own folder, where that is not the usual one."""

    @property
    def machine(self) -> str | None:
        """uname's architecture."""
        return parse_uname(self.probe.text("uname") or "").machine

    @property
    def is_arm(self) -> bool:
        return self.machine in ("aarch64", "arm64")

    def finding(
        self, check: str, state: State, what: str, *, cause: str = "", fix: str = "", **data: object
    ) -> Finding:
        return Finding(STEP, check, self.node.name, state, what, cause, fix, dict(data))

    def unknown(self, check: str, part: str, subject: str) -> Finding:
        """The row for a source that gave nothing: a hang and a failure are two texts, neither is OK."""
        if self.probe.hung(part):
            return self.finding(check, State.UNKNOWN, f"{subject}: no answer in time")
        words = self.probe.parts.get(f"{part}.stderr", "").strip().splitlines()
        return self.finding(check, State.UNKNOWN, f"{subject} cannot be read", cause=words[-1] if words else "")
