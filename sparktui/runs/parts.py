"""What a run is put together from: settings, links, steps. The product's are imported when first used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktui.runs.request import RunRequest

if TYPE_CHECKING:
    from sparktui.remote.link import NodeLink
    from sparktui.settings import Settings
    from sparktui.steps.step import Step


UNCHECKED = frozenset({"plan", "stop", "status", "talk", "logs", "monitor"})
"""Verbs that start nothing."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run needs from outside; a test gives its own."""

    load_settings: Callable[[RunRequest], Settings]
    open_links: Callable[[Settings], Awaitable[tuple[NodeLink, ...]]]
    step: Callable[[str], Step]
    trust_host_key: Callable[[str], None]
    """Given the known_hosts line of a key that a person confirmed."""


def product() -> Parts:
    """The real ones."""
    return Parts(_load_settings, _open_links, _step, _trust_host_key)


def _load_settings(request: RunRequest) -> Settings:
    from pathlib import Path

    from sparktui.engine.fitting import fit_problems
    from sparktui.settings import load_settings

    # What cannot fit is refused where it would be started; `plan` shows it, and a stop must never be refused.
    fit = None if set(request.verbs) & UNCHECKED else fit_problems
    return load_settings(Path(request.env_file), profile=request.profile, cli_overrides=request.overrides, fit=fit)


async def _open_links(settings: Settings) -> tuple[NodeLink, ...]:
    from sparktui.remote.fleet_calls import open_links

    return open_links(settings)


def _step(verb: str) -> Step:
    from sparktui.steps.catalog import step

    return step(verb)


def _trust_host_key(line: str) -> None:
    from pathlib import Path

    from sparktui.remote.known_hosts import trust_host_key

    trust_host_key(line, Path.home() / ".ssh" / "known_hosts")
