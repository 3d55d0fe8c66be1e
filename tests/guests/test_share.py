"""Weights over the kernel's NFS between three machines: the share step as it runs on Sparks, and what breaks it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from sparktui.events import Outcome, State
from sparktui.steps import stop, views
from tests.guests.disk import IMAGE
from tests.guests.machine import Guest, GuestCluster
from tests.guests.shared_weights import MODEL, VOLUME, SharedWeights, rows

pytestmark = [pytest.mark.testbed, pytest.mark.guests, pytest.mark.timeout(600)]
LOOK_SECONDS = 40.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a shell can take seconds on an emulated processor of a busy machine."""
    monkeypatch.setattr(views, "SHORT_SECONDS", 90.0)
    monkeypatch.setattr(stop, "LOOK_SECONDS", 90.0)


@pytest.fixture(scope="module")
def weights(guests: GuestCluster) -> SharedWeights:
    return SharedWeights(guests)


@pytest.fixture
def reader(guests: GuestCluster) -> Iterator[str]:
    """A container on worker1 that keeps the volume mounted, as a serving engine does."""
    worker = guests.workers[0]
    entry = ("--entrypoint", "python3", IMAGE, "-c", "import time; time.sleep(1e6)")
    worker.docker("run", "-d", "--net=host", "--no-healthcheck", "--name", "reader", "-v", f"{VOLUME}:/m:ro", *entry)
    yield "reader"
    worker.docker("rm", "-f", "reader", check=False)


def volume(worker: Guest) -> dict[str, str]:
    return dict(json.loads(worker.docker("volume", "inspect", VOLUME))[0])


def exporter_id(guests: GuestCluster) -> str:
    return guests.head.docker("ps", "--quiet", "--no-trunc", "--filter", "name=^/dsv41-nfs$").strip()


async def test_share_mounts_over_each_cable_and_every_worker_proves_it(
    guests: GuestCluster, weights: SharedWeights
) -> None:
    told = await weights.run()
    assert told.finished.exit_status == 0, told.text
    assert {node: each.outcome for node, each in told.outcomes().items()} == {
        "worker1": Outcome.DONE, "worker2": Outcome.DONE,
    }  # fmt: skip
    for worker, server in zip(guests.workers, ("10.0.22.1", "10.0.23.1"), strict=True):
        assert f"addr={server}," in volume(worker)["Options"]["o"]
        assert volume(worker)["Labels"]["sparktui.owner"] == "sparktui"
    code = (
        "import hashlib, pathlib; p = pathlib.Path('/m/model-00001-of-00001.safetensors')\n"
        "print(hashlib.sha256(p.read_bytes()).hexdigest())\ntry: pathlib.Path('/m/x').write_text('x')\n"
        "except OSError as e: print(e.strerror)"
    )
    # no :ro here: the mount itself and the server refuse
    run = ("run", "--rm", "--net=none", "-v", f"{VOLUME}:/m", "--entrypoint", "python3", IMAGE, "-c", code)
    wanted = guests.head.run(["sha256sum", f"{MODEL}/model-00001-of-00001.safetensors"]).stdout.split()[0]
    assert guests.workers[0].docker(*run).split("\n")[:2] == [wanted, "Read-only file system"]


async def test_u43_a_second_run_changes_nothing(guests: GuestCluster, weights: SharedWeights) -> None:
    before = exporter_id(guests), [volume(each)["CreatedAt"] for each in guests.workers]
    found = await weights.inspect()
    assert found.done, found.findings
    told = await weights.run()
    assert told.finished.exit_status == 0, told.text
    assert (exporter_id(guests), [volume(each)["CreatedAt"] for each in guests.workers]) == before


async def test_stop_never_ends_the_exporter(guests: GuestCluster, weights: SharedWeights) -> None:
    before = exporter_id(guests)
    assert before
    told = await weights.run("stop")
    assert told.finished.exit_status == 0, told.text
    assert exporter_id(guests) == before


async def test_u50_a_changed_option_makes_the_volume_anew_but_not_under_a_reader(
    guests: GuestCluster, weights: SharedWeights, reader: str
) -> None:
    moved = {
        "NFS_SERVER_IPS": "10.78.200.1 10.0.23.1",
        "NFS_CLIENTS": "10.0.22.2,10.0.23.3",
    }
    found = await weights.inspect(**moved)
    assert rows(found)["weights", "worker1"].state is State.WARN
    assert "other options" in rows(found)["weights", "worker1"].what
    told = await weights.run(**moved)
    assert told.finished.exit_status == 1
    assert told.finished.node == "worker1"
    assert reader in told.finished.text
    assert "addr=10.0.22.1," in volume(guests.workers[0])["Options"]["o"]
    guests.workers[0].docker("rm", "-f", reader)
    # The LAN's addresses are in no ACL yet: the volume is made anew, and the proof fails with the reason.
    told = await weights.run(**moved)
    assert told.finished.exit_status == 1
    assert "addr=10.78.200.1," in volume(guests.workers[0])["Options"]["o"]
    assert "HEAD_IP" in told.notes()
    for part in ("10.78.200.1", "allowed are 10.0.22.2, 10.0.23.3", "the exporter's last word: "):
        assert part in told.finished.text, told.text
    assert "NFS_CLIENTS" in told.finished.fix
    told = await weights.run()
    assert told.finished.exit_status == 0, told.text
    assert "addr=10.0.22.1," in volume(guests.workers[0])["Options"]["o"]


async def test_u48_a_dead_server_under_a_hard_mount_costs_one_row_and_comes_back(
    guests: GuestCluster, weights: SharedWeights, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "LOOK_SECONDS", LOOK_SECONDS)
    guests.head.set_cable("enp1s0f0np0", up=False)
    try:
        started = time.monotonic()
        found = await weights.inspect()
        assert time.monotonic() - started < LOOK_SECONDS + 60
    finally:
        guests.head.set_cable("enp1s0f0np0", up=True)
    assert rows(found)["weights", "worker1"].state is State.UNKNOWN, found.findings
    assert rows(found)["weights", "worker2"].state is State.OK, found.findings
    assert not found.done
    monkeypatch.undo()
    found = await weights.inspect()
    assert found.done, found.findings
    names = guests.workers[0].docker("ps", "--all", "--format", "{{.Names}}").split()
    assert names == [reader], "a look that hung was left behind"
