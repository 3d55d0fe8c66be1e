"""build on real Engines, a real registry and real ssh: pinned, idempotent, and only what differs travels."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import Testbed

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(900)]
PROJECT = Path(__file__).resolve().parents[2]
HOME = "/home/spark/build-test"


class Checkout:
    """A copy of the project in the head's home, whose overlay a test may change."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed
        self.folder = bed.head.path(HOME)
        for name in ("sparktui", "overlay", "assets"):
            shutil.copytree(PROJECT / name, self.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.env = f"{HOME}/.env"
        self.set()

    def set(self, **changed: str) -> None:
        text = self.bed.env_text(IMAGE="sparktui:build-test", BUILD_ARGS="BRING_TO_LOCK=never", **changed)
        self.bed.head.write_file(self.env, text, mode=0o600)

    def build(self, *words: str, status: int = 0) -> list[dict[str, Any]]:
        done = self.bed.head.run(
            [sys.executable, "-m", "sparktui", "build", "--json", "--yes", "--env-file", self.env, *words],
            env={"PYTHONPATH": HOME, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=HOME,
            timeout=600,
            check=False,
        )
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def sent(self, events: list[dict[str, Any]]) -> dict[str, int]:
        found = {}
        for each in events:
            if each["kind"] == "node_outcome" and (match := re.search(r"([0-9]+) bytes sent", each["text"])):
                found[each["node"]] = int(match[1])
        return found


@pytest.fixture(scope="module")
def checkout(three_sparks: Testbed) -> Iterator[Checkout]:
    made = Checkout(three_sparks)
    yield made
    for node in three_sparks.nodes:
        node.docker("rmi", "--force", "sparktui:build-test", check=False)
    shutil.rmtree(made.folder)


def test_u17_the_base_is_asked_pinned_and_built_once(checkout: Checkout) -> None:
    events = checkout.build()
    asked = [each for each in events if each["kind"] == "question"]
    assert [each["question"] for each in asked] == ["base.digest"]
    digest = re.search(r"sha256:[0-9a-f]{64}", asked[0]["text"])
    assert digest and f"BASE_DIGEST={digest[0]}" in checkout.bed.head.path(checkout.env).read_text().replace('"', "")
    layers = {
        node.docker("image", "inspect", "-f", "{{json .RootFS}}", "sparktui:build-test") for node in checkout.bed.nodes
    }
    assert len(layers) == 1
    again = checkout.build()
    assert [each["outcome"] for each in again if each["kind"] == "step_finished"] == ["skipped"]
    assert not [each for each in again if each["kind"] == "command_shown"]


def test_one_changed_file_sends_its_layer_and_no_more(checkout: Checkout) -> None:
    size = int(checkout.bed.head.docker("image", "inspect", "-f", "{{.Size}}", "sparktui:build-test"))
    path = checkout.folder / "overlay/spark_overlay/node_view.py"
    path.write_text(path.read_text() + "\n# changed by a test\n")
    sent = checkout.sent(checkout.build())
    assert sent.keys() == {"worker1", "worker2"}
    assert all(0 < each < size / 20 for each in sent.values()), (sent, size)


def test_a_worker_with_another_image_is_repaired_and_the_other_gets_nothing(checkout: Checkout) -> None:
    worker = checkout.bed.workers[0]
    worker.docker("pull", checkout.bed.tiny_image)
    worker.docker("tag", checkout.bed.tiny_image, "sparktui:build-test")
    events = checkout.build()
    assert checkout.sent(events).keys() == {"worker1"}
    assert any("nothing to send" in each.get("text", "") for each in events if each.get("node") == "worker2")


def test_u20_another_architecture_is_refused_at_build(checkout: Checkout) -> None:
    from tests.testbed import images

    url = f"http://{checkout.bed.registry_address}"
    machine, images._ARCHITECTURE = images._ARCHITECTURE, {"x86_64": "arm64", "aarch64": "amd64"}
    try:
        images.push_image(url, "foreign", "1", images._tiny_rootfs(), environment=[], command=["/bin/sh"])
    finally:
        images._ARCHITECTURE = machine
    checkout.set(BASE_IMAGE=f"{checkout.bed.registry_address}/foreign:1")
    try:
        closing = checkout.build(status=1)[-1]
    finally:
        checkout.set()
    assert re.search(r"image is (amd64, node is arm64|arm64, node is amd64)", closing["text"])
