"""build on real Engines, a real registry and real ssh: pinned, idempotent, and only what differs travels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktui.events import Question, State
from sparktui.settings import parse_settings
from sparktui.steps import serve_preflight
from sparktui.steps.build import look_everywhere
from sparktui.steps.step import Context
from tests.steps.checkout import IMAGE, Checkout
from tests.steps.host_link import HostLink
from tests.testbed import Testbed

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def checkout(three_sparks: Testbed) -> Iterator[Checkout]:
    made = Checkout(three_sparks)
    yield made
    made.remove()


def test_u17_the_base_is_asked_pinned_and_built_once(checkout: Checkout) -> None:
    events = checkout.build()
    asked = [each for each in events if each["kind"] == "question"]
    assert [each["question"] for each in asked] == ["base.digest"]
    digest = re.search(r"sha256:[0-9a-f]{64}", asked[0]["text"])
    assert digest and f"BASE_DIGEST={digest[0]}" in checkout.bed.head.path(checkout.env).read_text().replace('"', "")
    layers = {node.docker("image", "inspect", "-f", "{{json .RootFS}}", IMAGE) for node in checkout.bed.nodes}
    assert len(layers) == 1
    again = checkout.build()
    assert [each["outcome"] for each in again if each["kind"] == "step_finished"] == ["skipped"]
    assert not [each for each in again if each["kind"] == "command_shown"]


def test_one_changed_file_sends_its_layer_and_no_more(checkout: Checkout) -> None:
    size = int(checkout.bed.head.docker("image", "inspect", "-f", "{{.Size}}", IMAGE))
    path = checkout.folder / "overlay/spark_overlay/node_view.py"
    path.write_text(path.read_text() + "\n# changed by a test\n")
    sent = checkout.sent(checkout.build())
    assert sent.keys() == {"worker1", "worker2"}
    assert all(0 < each < size / 20 for each in sent.values()), (sent, size)


def test_a_worker_with_another_image_is_repaired_and_the_other_gets_nothing(checkout: Checkout) -> None:
    worker = checkout.bed.workers[0]
    worker.docker("pull", checkout.bed.tiny_image)
    worker.docker("tag", checkout.bed.tiny_image, IMAGE)
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


async def test_with_build_on_each_every_node_builds_its_own_and_nothing_is_sent(checkout: Checkout) -> None:
    """The layers of three builds differ in their times: what counts there is the overlay, the base and the exporter."""
    checkout.set(BUILD_ON="each", BASE_DIGEST=checkout.digest())
    try:
        path = checkout.folder / "overlay/spark_overlay/node_view.py"
        path.write_text(path.read_text() + "\n# changed once more\n")
        events = checkout.build()
        shown = {e["node"]: e["command"] for e in events if e["kind"] == "command_shown" and " build " in e["command"]}
        assert shown.keys() == {"head", "worker1", "worker2"}
        assert not [e for e in events if e["kind"] == "command_shown" and " load" in e["command"]]
        assert checkout.sent(events) == {}
        assert not (checkout.folder / "state/spool").exists() or not any((checkout.folder / "state/spool").iterdir())
        assert {e["node"] for e in events if e["kind"] == "log_line" and "Successfully tagged" in e["text"]} == set(
            shown
        )
        done = {e["node"]: e["text"] for e in events if e["kind"] == "node_outcome" and e["outcome"] == "done"}
        assert done.keys() == shown.keys()
        assert all("built" in text for text in done.values())

        settings = parse_settings(
            checkout.bed.head.read_file(checkout.env),
            env_path=Path(checkout.env),
            profile="three",
            environment={"HOME": "/home/spark"},
        )
        links = tuple(HostLink(*each) for each in zip(checkout.bed.nodes, settings.nodes, strict=True))
        try:
            found = await look_everywhere(Context(settings, links, never_asked))
            told = [(each.image.overlay, each.image.base, each.image.nfs) for each in found if each.image is not None]
            assert len(told) == 3
            assert len(set(told)) == 1
            assert all(told[0])
            rows = list(serve_preflight._images(settings, found))
            assert [(row.node, row.state) for row in rows] == [(link.node.name, State.OK) for link in links]
        finally:
            for link in links:
                await link.aclose()
        again = checkout.build()
        assert [each["outcome"] for each in again if each["kind"] == "step_finished"] == ["skipped"]
    finally:
        checkout.set()


async def never_asked(question: Question) -> str:
    raise AssertionError(question.question)
