"""The same job on four nodes with the four profile: real SGLang at TP=4, from the same checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spine import journals
from tests.spine.cluster import Spine, spine
from tests.testbed import Testbed

pytestmark = [pytest.mark.testbed, pytest.mark.engine, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def cluster(tiny_model: Path) -> Iterator[Spine]:
    # EP 1: the tiny model has no experts to divide. The real one is refused there, the CPU device lifts that check.
    with Testbed(4, "switch") as testbed, spine(testbed, tiny_model, FABRIC_IFACE="enp1s0f0np0") as made:
        yield made


def test_four_bare_nodes_to_a_green_smoke(cluster: Spine) -> None:
    status, events = cluster.events("up", "--yes", "--profile", "four", timeout=1200)
    assert status == 0, events[-3:]
    assert all(how in ("done", "skipped") for how in journals.outcomes(events).values())
    smoke = {e["check"]: e["state"] for e in events if e["kind"] == "finding" and e["step"] == "smoke"}
    assert {name for name, state in smoke.items() if state != "OK"} == {"picture"}, smoke
    assert smoke["picture"] == "INFO"
    assert sorted(cluster.engines()) == ["spk1", "spk2", "spk3", "spk4"]
    assert cluster.testbed.head.path(f"{cluster.recipe}/state-tp4/runs").is_dir()
    assert not cluster.testbed.head.path(f"{cluster.recipe}/state").exists(), "three Sparks' state is not touched"


def test_stop(cluster: Spine) -> None:
    done = cluster.sparktui("stop", "--profile", "four")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not cluster.engines()
