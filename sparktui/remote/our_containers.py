"""Containers of ours on one node: find, start, look, stop. Nothing without our label is ever touched."""

from __future__ import annotations

import dataclasses
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktui.cluster.container import OWNER_LABEL, PROFILE_LABEL, RANK_LABEL, ROLE_LABEL, SPEC_LABEL, ContainerSpec
from sparktui.errors import DockerUnavailable, SparktuiError, StepFailed
from sparktui.local_fault import local_fault
from sparktui.remote.link import NodeLink

if TYPE_CHECKING:
    import docker

CALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class OurContainer:
    """A container that carries our label.

    Attributes:
        status: the Engine's word: created, running, paused, restarting, removing, exited, dead.
        exit_code: of the last exit; None while it never exited.
        started_at: RFC 3339, as the Engine says.
    """

    name: str
    status: str
    role: str
    profile: str
    rank: int | None
    spec: str
    image: str
    exit_code: int | None
    oom_killed: bool
    started_at: str
    finished_at: str
    health: str | None
    error: str

    @property
    def running(self) -> bool:
        return self.status in ("running", "paused", "restarting")


def from_inspect(plain: dict[str, Any]) -> OurContainer:
    """Read `docker inspect` (Engine API 1.41 and later)."""
    state, labels = plain.get("State") or {}, (plain.get("Config") or {}).get("Labels") or {}
    rank = labels.get(RANK_LABEL, "")
    status = str(state.get("Status", ""))
    return OurContainer(
        name=str(plain.get("Name", "")).lstrip("/"),
        status=status,
        role=labels.get(ROLE_LABEL, ""),
        profile=labels.get(PROFILE_LABEL, ""),
        rank=int(rank) if rank.isdigit() else None,
        spec=labels.get(SPEC_LABEL, ""),
        image=str(plain.get("Image", "")),
        exit_code=state.get("ExitCode") if status in ("exited", "dead") else None,
        oom_killed=bool(state.get("OOMKilled")),
        started_at=str(state.get("StartedAt", "")),
        finished_at=str(state.get("FinishedAt", "")),
        health=(state.get("Health") or {}).get("Status"),
        error=str(state.get("Error") or ""),
    )


async def find(link: NodeLink) -> tuple[OurContainer, ...]:
    """All containers of ours on the node, running or not, sorted by name."""

    def work(client: docker.DockerClient) -> list[dict[str, Any]]:
        found = client.api.containers(all=True, filters={"label": f"{OWNER_LABEL}=sparktui"})
        inspected = []
        for each in found:
            plain = _inspect(client, each["Id"])
            if plain is not None:  # it may go between the two calls
                inspected.append(plain)
        return inspected

    engine = await link.docker()
    return tuple(
        sorted(map(from_inspect, await engine.call(work, deadline_seconds=CALL_SECONDS)), key=lambda each: each.name)
    )


async def look(link: NodeLink, name: str) -> OurContainer | None:
    """One container of ours; None when there is none of that name.

    Raises:
        StepFailed: the name is taken by a container that is not ours.
    """
    engine = await link.docker()
    plain = await engine.call(lambda client: _inspect(client, name), deadline_seconds=CALL_SECONDS)
    if plain is None:
        return None
    _refuse_foreign(link, name, plain)
    return from_inspect(plain)


async def glance(link: NodeLink, name: str) -> OurContainer | None:
    """As `look`, without Docker's SDK.

    Raises:
        StepFailed: the name is taken by a container that is not ours.
    """
    plain = await (await link.docker()).inspected(name)
    if plain is None:
        return None
    _refuse_foreign(link, name, plain)
    return from_inspect(plain)


async def start(link: NodeLink, spec: ContainerSpec) -> None:
    """Create and start; an exited container of ours with that name is replaced, a running one is an error."""
    existing = await look(link, spec.name)
    if existing is not None:
        if existing.running:
            raise StepFailed(f"container {spec.name} is already running", fix="sparktui stop", node=link.node.name)
        await remove(link, spec.name, stop_seconds=0)

    def work(client: docker.DockerClient) -> None:
        from docker.errors import APIError

        created = client.api.create_container_from_config(spec.create_body(), name=spec.name)
        try:
            client.api.start(created["Id"])
        except APIError:
            # A container that could not start is of no use and holds the name.
            client.api.remove_container(created["Id"], force=True)
            raise

    engine = await link.docker()
    from docker.errors import APIError, ImageNotFound

    try:
        await engine.call(work, deadline_seconds=120.0)
    except ImageNotFound as error:
        raise StepFailed(f"image {spec.image} is not here", fix="sparktui build", node=link.node.name) from error
    except APIError as error:
        raise StepFailed(
            f"Docker refused to start {spec.name}: {error.explanation}", fix="sparktui doctor", node=link.node.name
        ) from error


async def remove(link: NodeLink, name: str, *, stop_seconds: int) -> bool:
    """Stop (SIGTERM, then SIGKILL after `stop_seconds`) and remove. False when there was none."""

    def work(client: docker.DockerClient) -> bool:
        from docker.errors import APIError, NotFound

        try:
            if stop_seconds:
                client.api.stop(name, timeout=stop_seconds)
            client.api.remove_container(name, force=True)
        except NotFound:
            return False
        except APIError as error:
            if error.status_code == 409 and "already in progress" in str(error):  # --rm got there first
                return True
            raise
        return True

    if await look(link, name) is None:
        return False
    engine = await link.docker()
    return await engine.call(work, deadline_seconds=CALL_SECONDS + stop_seconds)


async def halt(link: NodeLink, name: str, *, stop_seconds: int) -> None:
    """Stop but keep, so that its log can still be read."""

    def work(client: docker.DockerClient) -> None:
        from docker.errors import NotFound

        try:
            client.api.stop(name, timeout=stop_seconds)
        except NotFound:
            return

    if await look(link, name) is not None:
        engine = await link.docker()
        await engine.call(work, deadline_seconds=CALL_SECONDS + stop_seconds)


async def last_lines(link: NodeLink, name: str, count: int) -> list[str]:
    """The container's last log lines; empty when it is gone."""

    def work(client: docker.DockerClient) -> bytes:
        from docker.errors import NotFound

        try:
            raw: bytes = client.api.logs(name, tail=count, stdout=True, stderr=True)
        except NotFound:
            return b""
        return raw

    engine = await link.docker()
    raw = await engine.call(work, deadline_seconds=CALL_SECONDS)
    return raw.decode("utf-8", "replace").splitlines()


def refusal(link: NodeLink, error: SparktuiError | OSError) -> SparktuiError:
    """As an error of the node; Docker's own refusals (APIError) are OSErrors and name neither node nor next step."""
    if isinstance(error, SparktuiError):
        return error
    if fault := local_fault(error):
        return fault  # the head's own limit, whichever node was asked
    return DockerUnavailable(f"its Docker Engine: {error}", fix="sparktui doctor", node=link.node.name)


async def run_once(link: NodeLink, spec: ContainerSpec, *, deadline_seconds: float) -> tuple[int, str]:
    """Start a short container, wait for its end, read its output, remove it. Its exit code and text.

    Raises:
        StepFailed: it could not start.
        DeadlineExceeded: it did not end in time (a dead mount, for one); it is left to Docker's force removal.
    """
    named = dataclasses.replace(spec, name=f"{spec.name}-{secrets.token_hex(4)}")
    await start(link, named)
    engine = await link.docker()

    def work(client: docker.DockerClient) -> tuple[int, str]:
        ended = client.api.wait(named.name, timeout=deadline_seconds)
        raw: bytes = client.api.logs(named.name, stdout=True, stderr=True)
        return int(ended["StatusCode"]), raw.decode("utf-8", "replace")

    try:
        return await engine.call(work, deadline_seconds=deadline_seconds)
    finally:
        await remove(link, named.name, stop_seconds=0)


def _inspect(client: docker.DockerClient, name: str) -> dict[str, Any] | None:
    from docker.errors import NotFound

    try:
        plain: dict[str, Any] = client.api.inspect_container(name)
    except NotFound:
        return None
    return plain


def _refuse_foreign(link: NodeLink, name: str, plain: dict[str, Any]) -> None:
    labels = (plain.get("Config") or {}).get("Labels") or {}
    if labels.get(OWNER_LABEL) != "sparktui":
        raise StepFailed(
            f"a container named {name} exists and is not sparktui's; it was left alone",
            fix=f"look at it with `docker inspect {name}`, then rename or remove it yourself",
            node=link.node.name,
        )
