"""stop on real Engines: only what is ours and of this profile goes, what is left is named, the exporter stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed import Testbed
from tests.testbed.node import SimulatedSpark

pytestmark = pytest.mark.testbed
PROJECT = Path(__file__).resolve().parents[2]
ORPHAN = "/home/spark/sglang::sched"
SEGMENT = "/dev/shm/psm_leftover"


def stop(bed: Testbed, env_file: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "sparktui", "stop", "--env-file", env_file]
    environment = {"PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}
    return bed.head.run(argv, env=environment, check=False, timeout=120)


def names(node: SimulatedSpark) -> set[str]:
    return set(node.docker("ps", "--all", "--format", "{{.Names}}").split())


def run_container(bed: Testbed, node: SimulatedSpark, name: str, role: str, profile: str) -> None:
    labels = ["sparktui.owner=sparktui", f"sparktui.role={role}", f"sparktui.profile={profile}"] if role else []
    options = [word for label in labels for word in ("--label", label)]
    node.docker("run", "--detach", "--network", "none", "--name", name, *options, bed.tiny_image, "sleep", "600")


@pytest.fixture
def busy(three_sparks: Testbed) -> Iterator[tuple[Testbed, str]]:
    """Containers of ours, of another profile and of somebody else."""
    bed = three_sparks
    worker = bed.workers[0]
    for node in (bed.head, worker):
        node.docker("pull", bed.tiny_image)
    try:
        run_container(bed, worker, "dsv41-worker", "worker", "three")
        run_container(bed, worker, "dsv41-check", "check", "three")
        run_container(bed, worker, "dsv41-pack", "pack", "four")
        run_container(bed, worker, "somebody", "", "")
        run_container(bed, bed.head, "dsv41-nfs", "nfs", "three")
        yield bed, bed.write_env("stop.env")
    finally:
        for node in bed.nodes:
            node.run(["sh", "-c", f"pkill -x sglang::sched; rm -f {ORPHAN} {SEGMENT}; :"])
            for name in names(node):
                node.docker("rm", "--force", name)


def test_stop_ends_ours_and_names_what_is_left(busy: tuple[Testbed, str]) -> None:
    bed, env_file = busy
    first, second = bed.workers
    first.run(["sh", "-c", f"echo x > {SEGMENT}"])
    second.run(["cp", "/bin/sleep", ORPHAN])
    orphan = second.popen([ORPHAN, "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    done = stop(bed, env_file)
    assert names(first) == {"dsv41-pack", "somebody"}, "another profile's and a stranger's stay"
    assert names(bed.head) == {"dsv41-nfs"}, "workers may have it mounted"
    assert not first.path(SEGMENT).exists(), "shared memory that no process maps is freed"
    assert done.returncode == 1
    assert "worker2" in done.stdout
    assert "sglang::sched" in done.stdout, "an orphan that holds memory is named"
    orphan.kill()
    orphan.wait(timeout=10)
    again = stop(bed, env_file)
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_stranger_with_our_name_is_left_and_named(busy: tuple[Testbed, str]) -> None:
    bed, env_file = busy
    run_container(bed, bed.head, "dsv41-head", "", "")
    done = stop(bed, env_file)
    assert "dsv41-head" in names(bed.head)
    assert "dsv41-head" in done.stdout
    assert names(bed.workers[0]) == {"dsv41-pack", "somebody"}
