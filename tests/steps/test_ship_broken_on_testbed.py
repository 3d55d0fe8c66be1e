"""A worker's sshd, Engine or `docker load` killed in the middle of ship: named, the other served, gone on with."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.steps.checkout import IMAGE, Checkout
from tests.testbed import Testbed
from tests.testbed.node import SimulatedSpark
from tests.testbed.processes import descendants

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(900)]
MIDDLE_BYTES = 8 << 20
MEGABYTES = 48


@pytest.fixture(scope="module")
def checkout(three_sparks: Testbed) -> Iterator[Checkout]:
    made = Checkout(three_sparks)
    made.build()
    yield made
    made.remove()


def processes(node: SimulatedSpark, wanted: Callable[[list[str]], bool]) -> list[int]:
    """The node's processes by their command line, as this machine numbers them."""
    assert node.pid is not None
    found = []
    for pid in descendants(node.pid):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue
        if wanted(words):
            found.append(pid)
    return found


def held_in_the_middle(node: SimulatedSpark) -> int:
    """Stop the node's `docker load` when it has taken a part of the image; its process."""
    end = time.monotonic() + 300
    while not (found := processes(node, lambda words: words[0].endswith("docker") and words[-1] == "load")):
        assert time.monotonic() < end, "no load began"
        time.sleep(0.02)
    taken = 0
    while taken < MIDDLE_BYTES:
        assert time.monotonic() < end, "the load stands still"
        text = Path(f"/proc/{found[0]}/io").read_text()
        taken = int(text.split("rchar: ")[1].split()[0])
    os.kill(found[0], signal.SIGSTOP)
    return found[0]


def kill_sshd(node: SimulatedSpark, load: int) -> Callable[[], object]:
    for pid in processes(node, lambda words: "sshd" in words[0]):
        os.kill(pid, signal.SIGKILL)
    os.kill(load, signal.SIGCONT)
    node.path("/run/sshd.pid").unlink(missing_ok=True)
    return node.start_sshd


def kill_dockerd(node: SimulatedSpark, load: int) -> Callable[[], object]:
    for pid in processes(node, lambda words: words[0].endswith("dockerd")):
        os.kill(pid, signal.SIGKILL)
    node.path("/run/docker.pid").unlink(missing_ok=True)
    node.path("/run/docker.sock").unlink(missing_ok=True)
    os.kill(load, signal.SIGCONT)
    return node.start_dockerd


def kill_load(node: SimulatedSpark, load: int) -> Callable[[], object]:
    os.kill(load, signal.SIGKILL)
    return lambda: None


@pytest.mark.parametrize("kill", [kill_sshd, kill_dockerd, kill_load], ids=["sshd", "dockerd", "load"])
def test_a_worker_that_breaks_is_named_and_only_it_is_served_again(
    checkout: Checkout, kill: Callable[[SimulatedSpark, int], Callable[[], object]]
) -> None:
    broken = checkout.bed.workers[0]
    missing = checkout.ballast(MEGABYTES)
    viewer = checkout.start_build()
    heal = kill(broken, held_in_the_middle(broken))
    try:
        output, _ = viewer.communicate(timeout=300)
    finally:
        heal()
        broken.wait_ready()
    events = [json.loads(line) for line in output.splitlines()]
    closing = events[-1]
    assert (viewer.returncode, closing["kind"], closing["node"]) == (1, "run_finished", "worker1"), events[-4:]
    assert "the image did not arrive: " in closing["text"]
    assert closing["text"].strip()[-1] != ":", "and why"
    sent = checkout.sent(events)
    assert sent.keys() == {"worker2"}, "the other worker is served"
    assert not [e for e in events if "refused" in str(e.get("text"))], "nobody refused anything"

    again = checkout.build()
    sent = checkout.sent(again)
    size = int(checkout.bed.head.docker("image", "inspect", "-f", "{{.Size}}", IMAGE))
    assert sent.keys() == {"worker1"}
    assert missing <= sent["worker1"] < missing + (size - missing) / 10, (sent, missing, size)
    assert any("nothing to send" in e.get("text", "") for e in again if e.get("node") == "worker2")
    layers = {node.docker("image", "inspect", "-f", "{{json .RootFS}}", IMAGE) for node in checkout.bed.nodes}
    assert len(layers) == 1
