"""Three scripted Sparks, all well unless a test changes them, and doctor's answer about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparktui.errors import SparktuiError
from sparktui.events import Finding, Question
from sparktui.readings.checkpoint_listing import HubFile, Listing
from sparktui.settings import Settings, parse_settings
from sparktui.steps.doctor import Doctor
from sparktui.steps.step import Context
from tests.scripted_link import ScriptedLink
from tests.unit.doctor_answers import probe_text

MODEL = "/srv/DeepSeek-V4.1-Flash-1017"
IMAGE = "dsv41-3x-spark:local"
FULL = Listing(
    "deepseek-ai/DeepSeek-V4.1-Flash-1017",
    "1bae0e1",
    "1bae0e1" + "0" * 33,
    (HubFile("config.json", 10), HubFile("model-00001-of-00001.safetensors", 510_310_549_965)),
)


def settings_for(**changed: str) -> Settings:
    values = {
        "HEAD_IP": "10.0.0.1",
        "WORKER_IPS": "10.0.0.2 10.0.0.3",
        "WORKER_HOSTS": "spark2 spark3",
        "MODEL_DIR": MODEL,
        "API_KEY": "a-long-enough-key",
    } | changed
    text = "".join(f'{name}="{value}"\n' for name, value in values.items())
    return parse_settings(text, env_path=Path("/srv/.env"), profile="three", environment={"HOME": "/home/user"})


class Cluster:
    """Three scripted Sparks, all well unless a test changes them, and doctor's answer about them."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings_for(**settings)
        self.links = [ScriptedLink(node) for node in self.settings.nodes]
        for link in self.links:
            self.says(link)
            link.engine.add_image(IMAGE, layers=["a", "b"], labels={"sparktui.overlay": "x"})
            link.engine.information |= {"DockerRootDir": "/var/lib/docker"}
        self.hub: Listing | SparktuiError = FULL

    def says(self, link: ScriptedLink, exits: Mapping[str, int] | None = None, **parts: str | None) -> None:
        link.answer("checkpoint_script", stdout=probe_text(link.node.rank, dict(exits or {}), **parts))

    def everywhere(self, **parts: str | None) -> None:
        for link in self.links:
            self.says(link, **parts)

    def context(self, only: str | None = None) -> Context:
        async def ask(question: Question) -> str:
            raise AssertionError(f"doctor asked {question.question}")

        return Context(self.settings, tuple(self.links), ask, only_node=only)

    async def _hub(self, settings: Settings) -> Listing:
        if isinstance(self.hub, SparktuiError):
            raise self.hub
        return self.hub

    async def run(self, only: str | None = None) -> tuple[list[Finding], SparktuiError | None]:
        found: list[Finding] = []
        try:
            async for event in Doctor(self._hub).run(self.context(only)):
                assert isinstance(event, Finding)
                found.append(event)
        except SparktuiError as error:
            return found, error
        return found, None

    async def row(self, check: str, node: str = "head") -> Finding:
        found, _ = await self.run()
        rows = [each for each in found if each.check == check and each.node == node]
        assert rows, f"no row {check} for {node} among {sorted({each.check for each in found})}"
        return rows[0]
