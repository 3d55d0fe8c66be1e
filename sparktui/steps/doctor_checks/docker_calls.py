"""doctor's one set of Docker calls on a node, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparktui.cluster.container import OWNER_LABEL, PROFILE_LABEL, ROLE_LABEL
from sparktui.events import Finding, State
from sparktui.readings.docker import EngineInfo, ImageFacts, architecture_matches, engine_info, image_facts
from sparktui.remote.link import NodeLink
from sparktui.steps.amounts import bytes_text
from sparktui.steps.doctor_checks.report import DockerAnswer, NodeReport, RunningContainer

if TYPE_CHECKING:
    import docker

CALLS_DEADLINE_SECONDS = 15.0
NOT_BUILT_FIX = "sparktui build"


async def ask_docker(link: NodeLink, image: str) -> DockerAnswer:
    """Engine info, running containers and our image, in one go.

    Raises:
        DockerUnavailable, DeadlineExceeded, NodeUnreachable: as the link says.
    """

    def work(client: docker.DockerClient) -> tuple[EngineInfo, list[dict[str, Any]], ImageFacts | None]:
        from docker.errors import ImageNotFound, NotFound

        info = engine_info(client.info())
        inspected = []
        for row in client.api.containers():
            try:
                inspected.append(client.api.inspect_container(row["Id"]))
            except NotFound:  # it ended between the two calls
                continue
        try:
            facts = image_facts(client.api.inspect_image(image))
        except (ImageNotFound, NotFound):
            facts = None
        return info, inspected, facts

    engine = await link.docker()
    info, inspected, facts = await engine.call(work, deadline_seconds=CALLS_DEADLINE_SECONDS)
    return DockerAnswer(info, tuple(_container(each) for each in inspected), facts)


def docker_commands(image: str) -> list[list[str]]:
    """The same calls as a person would type them."""
    return [["docker", "info"], ["docker", "ps", "--no-trunc"], ["docker", "image", "inspect", image]]


def _container(plain: dict[str, Any]) -> RunningContainer:
    config, host = plain.get("Config") or {}, plain.get("HostConfig") or {}
    labels = config.get("Labels") or {}
    requests = host.get("DeviceRequests")
    gpu = None
    if isinstance(host, dict) and host:
        asked = [
            each
            for each in requests or []
            if "gpu" in str(each.get("Capabilities")) or "gpu" in str(each.get("DeviceIDs"))
        ]
        gpu = bool(asked) or host.get("Runtime") == "nvidia" or bool(host.get("Privileged"))
    return RunningContainer(
        name=str(plain.get("Name", "")).lstrip("/"),
        image=str(config.get("Image", "")),
        ours=labels.get(OWNER_LABEL) == "sparktui",
        role=labels.get(ROLE_LABEL, ""),
        profile=labels.get(PROFILE_LABEL, ""),
        uses_gpu=gpu,
    )


def check_engine(report: NodeReport) -> Iterator[Finding]:
    """docker.engine, docker.permission: absent, stopped, not permitted and slow are different rows."""
    failure = report.docker_failure
    if failure is not None:
        permission = any(word in failure.what for word in ("is not in group", "session is older", "ermission denied"))
        if permission:
            yield report.finding("docker.permission", State.FAIL, failure.what, fix=failure.fix)
            yield report.finding(
                "docker.engine", State.UNKNOWN, "cannot read Docker: this login may not use its socket"
            )
        elif failure.exit_status == 3:
            yield report.finding("docker.engine", State.UNKNOWN, failure.what, fix=failure.fix)
        else:
            yield report.finding("docker.engine", State.FAIL, failure.what, fix=failure.fix)
        return
    if report.docker is None:
        yield report.finding("docker.engine", State.UNKNOWN, "no answer")
        return
    info = report.docker.info
    version = info.server_version or "of unknown version"
    yield report.finding("docker.permission", State.OK, "this login may use Docker")
    yield report.finding(
        "docker.engine", State.OK, f"Docker Engine {version}", version=info.server_version, root=info.root_dir
    )


def check_toolkit(report: NodeReport) -> Iterator[Finding]:
    """docker.gpu: a container toolkit in CDI mode refuses `--gpus`. (A GPU container is the deciding test: serve.)"""
    mode = (report.probe.text("cdi") or "").partition("=")[2].strip().strip('"')
    if mode == "cdi":
        yield report.finding(
            "docker.gpu",
            State.WARN,
            "the NVIDIA container runtime is in CDI mode, where --gpus does not work",
            fix='set mode = "auto" in /etc/nvidia-container-runtime/config.toml',
            mode=mode,
        )


def check_containers(report: NodeReport) -> Iterator[Finding]:
    """containers.other, containers.ours: 'nothing runs' and 'cannot be read' look different."""
    if report.docker is None:
        yield report.finding("containers.other", State.UNKNOWN, "cannot read Docker")
        return
    others = [each for each in report.docker.containers if not each.ours]
    busy = [each for each in others if each.uses_gpu]
    rows = [{"name": each.name, "image": each.image, "gpu": each.uses_gpu} for each in others]
    if busy:
        names = ", ".join(f"{each.name} ({each.image})" for each in busy)
        yield report.finding(
            "containers.other",
            State.WARN,
            f"other containers can use the GPU: {names}",
            cause="GPU memory is the node's memory: what they take is missing for the model",
            fix="stop them yourself before serve; sparktui does not touch them",
            containers=rows,
        )
    elif others:
        names = ", ".join(each.name for each in others)
        yield report.finding("containers.other", State.INFO, f"other containers run: {names}", containers=rows)
    else:
        yield report.finding("containers.other", State.OK, "no other container runs")
    ours = [each for each in report.docker.containers if each.ours]
    if ours:
        names = ", ".join(f"{each.name} ({each.role or 'no role'}, profile {each.profile or '?'})" for each in ours)
        yield report.finding("containers.ours", State.INFO, f"ours run: {names}")


def check_image(report: NodeReport) -> Iterator[Finding]:
    """image: absent is no fault before build; the wrong architecture is one, now and not at serve."""
    name = report.settings.image
    if report.docker is None:
        yield report.finding("image", State.UNKNOWN, "cannot read Docker")
        return
    facts = report.docker.image
    if facts is None:
        yield report.finding("image", State.INFO, f"{name} is not built yet", fix=NOT_BUILT_FIX)
        return
    machine = report.machine or report.docker.info.architecture
    if architecture_matches(facts.architecture, machine) is False:
        yield report.finding(
            "image",
            State.FAIL,
            f"image {name} is {facts.architecture}, the node is {machine}",
            cause="it would die with `exec format error`",
            fix=NOT_BUILT_FIX,
        )
        return
    size = bytes_text(facts.size_bytes)
    yield report.finding("image", State.OK, f"{name}, {facts.architecture}, {size}", labels=facts.labels)


def check_same_image(reports: list[NodeReport]) -> Iterator[Finding]:
    """image.same: one image on all nodes, by content: layers and our overlay's label, never the Engine's own Id."""
    known = [(each, each.docker.image) for each in reports if each.docker and each.docker.image]
    kinds: dict[tuple[object, ...], str] = {}
    letters = []
    for each, facts in known:
        key = (facts.layers, facts.labels.get("sparktui.overlay"), facts.labels.get("sparktui.engine.lock"))
        letters.append((each, kinds.setdefault(key, chr(ord("A") + len(kinds)))))
    if len(kinds) > 1:
        pattern = " ".join(letter for _, letter in letters)
        odd = next(each for each, letter in letters if letter != letters[0][1])
        names = ", ".join(f"{each.node.name} {letter}" for each, letter in letters)
        yield odd.finding("image.same", State.FAIL, f"image differs: {pattern} ({names})", fix=NOT_BUILT_FIX)
    elif len(known) > 1:
        yield known[0][0].finding("image.same", State.OK, f"the same image on {len(known)} nodes")
