"""A small checkpoint on the head guest, settings over the cables, and the product's runner on real links."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparktui.events import Event, Finding, NodeOutcome, Note, RunFinished
from sparktui.remote.link import NodeLink
from sparktui.runs import parts
from sparktui.runs.execute import Execution
from sparktui.runs.request import RunRequest
from sparktui.settings import Settings, parse_settings
from sparktui.steps.catalog import step
from sparktui.steps.step import Context, Inspection
from tests.guests.disk import IMAGE
from tests.guests.machine import HOME, GuestCluster

MODEL = f"{HOME}/models/DeepSeek-V4.1-Flash-1017"
VOLUME = "dsv41-weights"
_LAY = """
mkdir -p "$1" && cd "$1" && echo '{"model_type": "tiny"}' >config.json && echo '{"weight_map": {}}' \
    >model.safetensors.index.json && head -c 3000000 /dev/urandom >model-00001-of-00001.safetensors
"""


@dataclass(frozen=True, slots=True)
class Told:
    """What a run said."""

    finished: RunFinished
    events: tuple[Event, ...]
    seconds: float

    def outcomes(self) -> dict[str, NodeOutcome]:
        return {each.node: each for each in self.events if isinstance(each, NodeOutcome)}

    def notes(self) -> str:
        return "\n".join(each.text for each in self.events if isinstance(each, Note))

    @property
    def text(self) -> str:
        return "\n".join(map(str, (*self.events, self.finished)))


class SharedWeights:
    def __init__(self, guests: GuestCluster) -> None:
        self.guests = guests
        guests.head.run(["/bin/sh", "-c", _LAY, "sh", MODEL])

    def settings(self, **changed: str) -> Settings:
        values = {
            "HEAD_IP": "10.78.200.1",
            "WORKER_IPS": "10.78.200.2 10.78.200.3",
            "WORKER_FABRIC_IPS": "10.0.22.2 10.0.23.3",
            "NFS_CLIENTS": "10.0.22.2,10.0.23.3",
            "WORKER_USER": "root",
            "MODEL_DIR": MODEL,
            "WORKER_DIR": f"{HOME}/dsv41",
            "IMAGE": IMAGE,
            "NFS_VOLUME": VOLUME,
        }
        text = "".join(f'{name}="{value}"\n' for name, value in (values | changed).items())
        return parse_settings(
            text, env_path=Path(f"{HOME}/dsv41/.env"), profile="three", cli_overrides={}, environment={"HOME": HOME}
        )

    async def run(self, verb: str = "share", **changed: str) -> Told:
        """The verb as the run's process does it, with links to the guests."""
        settings, events = self.settings(**changed), []

        def emit(event: Event) -> int:
            events.append(event)
            return len(events)

        async def open_links(of: Settings) -> tuple[NodeLink, ...]:
            return self._links(of)

        given = parts.Parts(lambda _: settings, open_links, step, lambda _: None)
        request = RunRequest(env_file=str(settings.env_path), verbs=(verb,), profile="three", yes=True)
        started = time.monotonic()
        execution = Execution(request, given, emit, ask_viewer=None, save_traceback=_print)
        finished = await execution.run(settings)
        return Told(finished, tuple(events), time.monotonic() - started)

    async def inspect(self, **changed: str) -> Inspection:
        settings = self.settings(**changed)
        links = self._links(settings)

        async def ask(question: Any) -> str:
            raise AssertionError(question)

        try:
            return await step("share").inspect(Context(settings=settings, links=links, ask=ask))
        finally:
            for link in links:
                await link.aclose()

    def _links(self, settings: Settings) -> tuple[NodeLink, ...]:
        return tuple(self.guests.link(node) for node in settings.nodes)


def rows(found: Inspection) -> dict[tuple[str, str], Finding]:
    return {(each.check, each.node): each for each in found.findings}


def _print(text: str) -> str:
    print(text)
    return "(above)"
