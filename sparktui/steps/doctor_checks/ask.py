"""Ask one node everything, once: the probe and the Docker calls at the same time. Never raises for a dead node."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sparktui.cluster.node import Node
from sparktui.errors import SparktuiError
from sparktui.remote.link import NodeLink
from sparktui.steps.doctor_checks.docker_calls import ask_docker, docker_commands
from sparktui.steps.doctor_checks.probe import (
    PROBE_DEADLINE_SECONDS,
    ProbeAnswer,
    probe_script,
    probe_values,
    read_probe,
)
from sparktui.steps.doctor_checks.report import DockerAnswer, NodeReport
from sparktui.steps.shown import ssh_prefix, typed
from sparktui.steps.step import Command

if TYPE_CHECKING:
    from sparktui.remote.ssh_keys import Login
    from sparktui.settings import Settings

USUAL_DOCKER_ROOT = "/var/lib/docker"


async def ask_node(settings: Settings, link: NodeLink) -> NodeReport:
    probe, docker = await asyncio.gather(_probe(settings, link), _docker(settings, link))
    report = NodeReport(settings, link.node, ProbeAnswer())
    report = replace(report, failure=probe) if isinstance(probe, SparktuiError) else replace(report, probe=probe)
    ask_login = getattr(link, "login", None)
    if ask_login is not None and report.failure is None:
        report = await _with_login(report, ask_login)
    if isinstance(docker, SparktuiError):
        return replace(report, docker_failure=docker)
    report = replace(report, docker=docker)
    root = docker.info.root_dir
    if root and root != USUAL_DOCKER_ROOT and report.failure is None:
        report = replace(report, docker_space=await _space(link, root))
    return report


async def _probe(settings: Settings, link: NodeLink) -> ProbeAnswer | SparktuiError:
    try:
        answer = await link.script(
            probe_script(), deadline_seconds=PROBE_DEADLINE_SECONDS, values=probe_values(settings, link.node)
        )
    except SparktuiError as error:
        return error
    return read_probe(answer.stdout, answer.noise_lines)


async def _docker(settings: Settings, link: NodeLink) -> DockerAnswer | SparktuiError:
    try:
        return await ask_docker(link, settings.image)
    except SparktuiError as error:
        return error


async def _with_login(report: NodeReport, ask_login: Callable[[], Awaitable[Login]]) -> NodeReport:
    """Which key opened the door; the connection is open by now, so this asks nobody."""
    try:
        login = await ask_login()
    except SparktuiError:
        return report
    return replace(report, login=login.text.removeprefix("OK "), login_warnings=login.warnings)


async def _space(link: NodeLink, root: str) -> str | None:
    try:
        answer = await link.run(["df", "-PB1", root], deadline_seconds=5.0)
    except SparktuiError:
        return None
    return answer.stdout if answer.ok else None


def commands_for(settings: Settings, node: Node) -> list[Command]:
    """What `ask_node` runs, as a person on the head would type it."""
    values = probe_values(settings, node)
    assigned = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    shell = "/bin/sh" if node.is_head else f"{ssh_prefix(node)} /bin/sh"
    script = f"{shell} <<'SPARKTUI'\n{assigned}{probe_script()}SPARKTUI"
    rows = [Command(node.name, script, "everything that is read on the node, in one go")]
    rows += [Command(node.name, typed(node, argv), "what Docker says") for argv in docker_commands(settings.image)]
    return rows
