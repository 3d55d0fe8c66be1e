"""What can be said without a node: the settings' own warnings; and which Docker a plain `docker` on the head means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparktui.envfile import Severity
from sparktui.events import Finding, State
from sparktui.remote.docker_access import context_endpoint, daemon_in_use
from sparktui.steps.doctor_checks.report import STEP, NodeReport

if TYPE_CHECKING:
    from sparktui.settings import Settings


def check_settings(settings: Settings) -> Iterator[Finding]:
    """settings.example for values that are still the example's, settings.notice for the rest."""
    for notice in settings.notices:
        check = "settings.example" if "example" in notice.reason else "settings.notice"
        where = f"line {notice.line}" if notice.line else "default"
        state = State.INFO if notice.severity in (Severity.NOTE, Severity.INFO) else State.WARN
        yield Finding(STEP, check, "head", state, settings.mask(notice.reason), where, notice.fixed)


def check_daemon_choice(report: NodeReport) -> Iterator[Finding]:
    """docker.context: another daemon (Desktop, rootless, remote) has neither the GPU nor /dev/infiniband."""
    text = report.probe.text("docker.choice")
    if text is None:
        return
    environment: dict[str, str] = {}
    config, endpoints = None, {}
    for line in text.split("\n"):
        name, tab, value = line.partition("\t")
        if not tab:
            continue
        if name == "config" and value:
            config = f"{{{value}}}"
        elif name == "context":
            found = context_endpoint(value)
            if found:
                endpoints[found[0]] = found[1]
        else:
            environment[name] = value
    choice = daemon_in_use(environment, config, endpoints)
    if choice.is_system:
        yield report.finding("docker.context", State.OK, f"the system's Docker ({choice.source})")
    else:
        yield report.finding(
            "docker.context",
            State.WARN,
            f"a plain `docker` here talks to {choice.endpoint or 'nothing'}: {choice.source}",
            cause="another daemon has neither the GPU nor /dev/infiniband; sparktui itself uses the system's socket",
            fix="docker context use default; unset DOCKER_HOST DOCKER_CONTEXT",
        )
