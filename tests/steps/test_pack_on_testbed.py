"""pack on real Engines: killed at half way and gone on with, foreign files left alone, the disk asked first."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_overlay import engram_check, engram_pack
from spark_overlay.engram_layout import layout_from_config
from spark_overlay.safetensors_source import read_config

from sparktui.readings.checkpoint_listing import HubFile, Listing
from sparktui.remote import checkpoint_folder
from tests.overlay.checkpoints import write_checkpoint
from tests.testbed import Testbed
from tests.testbed.node import HOME
from tests.testbed.processes import descendants

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(600)]
PROJECT = Path(__file__).resolve().parents[2]
PLACE = "pack-test"
IMAGE = "sparktui:pack-test"
REVISION = "1bae0e1" + "0" * 33
LAYER = 1
GIB = 1 << 30


class Packing:
    """A cluster whose nodes have an image and the checkpoint, and sparktui on its head."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed
        self.env = bed.write_env(
            "pack.env",
            IMAGE=IMAGE,
            MODEL_DIR=f"{HOME}/{PLACE}/model",
            COMMON_MODEL=f"{HOME}/{PLACE}/common",
            WORKER_MODEL_DIR=f"{HOME}/{PLACE}/model",
            ENGRAM_DIR=f"{HOME}/{PLACE}/engram",
            WORKER_ENGRAM_DIR=f"{HOME}/{PLACE}/engram",
            BUILD_ARGS="BRING_TO_LOCK=never",
        )
        self.ranks = dict(zip(("head", "worker1", "worker2"), bed.nodes, strict=True))
        model = self.folder("head") / "model"
        write_checkpoint(model, vocab=30011, layers=(LAYER,))  # 63 MB a rank
        files = tuple(HubFile(path.name, path.stat().st_size) for path in model.iterdir())
        checkpoint_folder.write_record(model, Listing("owner/model", "1bae0e1", REVISION, files))
        for name in ("worker1", "worker2"):
            shutil.copytree(model, self.folder(name) / "model", copy_function=os.link)
        status, events = self.run("build", "--yes")
        assert status == 0, events[-3:]

    def folder(self, node: str) -> Path:
        return self.ranks[node].home / PLACE

    def engram(self, node: str) -> Path:
        return self.folder(node) / "engram"

    def file(self, node: str) -> Path:
        rank = list(self.ranks).index(node)
        return self.engram(node) / f"engram-l{LAYER}-r{rank}of3.bin"

    def partial(self, node: str) -> Path:
        return self.file(node).with_name(self.file(node).name + ".partial")

    def whole_bytes(self, node: str) -> int:
        return self.job(node).header.file_bytes

    def job(
        self, node: str, *, rank: int | None = None, tp: int = 3, revision: str = REVISION, out: Path | None = None
    ) -> engram_pack.Job:
        model = self.folder("head") / "model"
        layout = layout_from_config(read_config(model))
        assert layout is not None
        mine = list(self.ranks).index(node) if rank is None else rank
        return engram_pack.plan(model, out or self.engram(node), layout, mine, tp, revision)[0]

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "sparktui", *words, "--json", "--env-file", self.env]

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        done = self.bed.head.run(self.argv(*words), env=self.environment, check=False, timeout=400)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def popen(self, *words: str) -> subprocess.Popen[str]:
        return self.bed.head.popen(
            self.argv(*words), env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )

    def stop_at_half(self, node: str) -> tuple[int, int]:
        """Hold a node's packer when half is written: its process as this machine numbers it, and the bytes."""
        partial, half, end = self.partial(node), self.whole_bytes(node) // 2, time.monotonic() + 120
        while not partial.exists():
            assert time.monotonic() < end, "no packer began"
            time.sleep(0.005)
        spark = self.ranks[node]
        assert spark.pid is not None
        pid = next(each for each in descendants(spark.pid) if _is_packer(each))
        while partial.exists() and partial.stat().st_size < half:
            assert time.monotonic() < end, "the packer stands still"
            time.sleep(0.001)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.2)  # a write that is under way ends
        return pid, partial.stat().st_size

    def check(self) -> None:
        """Every page and row of every node's file, by the packer's own check against the checkpoint."""
        for node in self.ranks:
            result = engram_check.check(self.file(node), self.folder("head") / "model", None)
            assert (result["bad_pages"], result["bad_rows"], result["pages"] > 0) == (0, 0, True), result
            assert not self.partial(node).exists()

    def containers(self) -> list[str]:
        listed = ("ps", "--all", "--quiet", "--filter", "name=dsv41-pack")
        return [line for spark in self.ranks.values() for line in spark.docker(*listed).split()]


def _is_packer(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"python3") and b"spark_overlay.engram" in words


@pytest.fixture(scope="module")
def cluster(three_sparks: Testbed) -> Iterator[Packing]:
    made = Packing(three_sparks)
    yield made
    for spark in three_sparks.nodes:
        spark.docker("rmi", "--force", IMAGE, check=False)
        shutil.rmtree(spark.home / PLACE)


@pytest.fixture
def packing(cluster: Packing) -> Iterator[Packing]:
    """Nothing packed yet; nothing left afterwards."""
    yield cluster
    for node, spark in cluster.ranks.items():
        spark.docker("rm", "--force", "dsv41-pack", check=False)
        shutil.rmtree(cluster.engram(node), ignore_errors=True)


def test_a_packer_killed_at_half_way_goes_on_there(packing: Packing) -> None:
    viewer = packing.popen("pack")
    _, at_kill = packing.stop_at_half("worker1")
    packing.ranks["worker1"].docker("kill", "--signal", "KILL", "dsv41-pack")
    output, _ = viewer.communicate(timeout=120)
    closing = json.loads(output.splitlines()[-1])
    assert (viewer.returncode, closing["node"]) == (1, "worker1"), closing
    assert "137" in closing["text"]
    assert "goes on where it stopped" in closing["fix"]
    assert not packing.file("worker1").exists()

    status, events = packing.run("pack")
    assert status == 0, events[-3:]
    first = next(e for e in events if e["kind"] == "progress" and e["node"] == "worker1")
    again = at_kill - first["amount"]
    assert at_kill >= packing.whole_bytes("worker1") // 2
    assert again <= 0.05 * first["total"], f"{again} of {first['total']} bytes are packed again"
    packing.check()
    assert not packing.containers()


def test_a_run_killed_at_half_way_loses_nothing(packing: Packing) -> None:
    viewer = packing.popen("pack")
    packer, _ = packing.stop_at_half("worker1")
    inode = packing.partial("worker1").stat().st_ino
    assert viewer.stdout is not None
    started = json.loads(viewer.stdout.readline())
    assert started["kind"] == "run_started"
    packing.bed.head.run(["kill", "-9", str(started["pid"])])
    viewer.communicate(timeout=60)
    assert viewer.returncode != 0

    second = packing.popen("pack")
    assert second.stdout is not None
    seen: list[dict[str, Any]] = []
    for line in second.stdout:
        seen.append(json.loads(line))
        if seen[-1]["kind"] == "note" and "an earlier run goes on" in seen[-1]["text"]:
            assert seen[-1]["node"] == "worker1"
            os.kill(packer, signal.SIGCONT)
    assert second.wait(timeout=60) == 0, seen[-3:]
    assert not [e for e in seen if e["kind"] == "command_shown" and e["node"] == "worker1"], "no second packer"
    assert packing.file("worker1").stat().st_ino == inode, "the very file of the first run was finished"
    packing.check()
    assert not packing.containers()


@pytest.mark.parametrize(
    ("foreign", "reason"),
    [
        ({"revision": "f" * 40}, f"checkpoint revision {'f' * 40}, wanted {REVISION}"),
        ({"rank": 2}, "rank 2, wanted 1"),
        ({"tp": 4}, "tp 4, wanted 3"),
        ({}, "no packed Engram file"),
    ],
    ids=["revision", "rank", "tp", "none"],
)
def test_a_foreign_file_is_named_and_left(
    packing: Packing, foreign: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    place = packing.file("worker1")
    place.parent.mkdir()
    if foreign:
        job = packing.job("worker1", **foreign, out=tmp_path)
        engram_pack.pack(job, lambda _: None)
        shutil.move(job.path, place)
    else:
        place.write_bytes(b"somebody's notes\n" * 500)
    before = (place.read_bytes(), place.stat().st_mtime_ns, place.stat().st_ino)

    status, events = packing.run("pack")
    closing = events[-1]
    assert (status, closing["node"]) == (1, "worker1"), events[-3:]
    assert f"{HOME}/{PLACE}/engram/{place.name}" in closing["text"], "the name that the node has for it"
    assert reason in closing["text"]
    assert "moving" in closing["fix"]
    assert (place.read_bytes(), place.stat().st_mtime_ns, place.stat().st_ino) == before
    assert not [e for e in events if e["kind"] == "command_shown"], "no node began"
    others = [packing.engram(node) for node in ("head", "worker2")]
    assert [path for folder in others if folder.exists() for path in folder.iterdir()] == []


def test_a_full_disk_is_named_before_anything_is_written(packing: Packing) -> None:
    spark, inner = packing.ranks["worker2"], f"{HOME}/{PLACE}/engram"
    spark.run(["mkdir", "-p", inner])
    spark.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", inner])
    try:
        status, events = packing.run("pack")
        assert (status, events[-1]["node"]) == (1, "worker2"), events[-3:]
        short = (packing.whole_bytes("worker2") + engram_pack.SPACE_RESERVE_BYTES - (64 << 20)) / GIB
        assert events[-1]["text"].startswith(f"{short:.2f} GiB short in {inner}")
        assert not [e for e in events if e["kind"] == "command_shown"], "no node began"
        assert spark.run(["ls", "-A", inner]).stdout == ""
        assert not list(packing.engram("head").glob("*")) and not list(packing.engram("worker1").glob("*"))
        shown = packing.bed.head.run(
            [word for word in packing.argv("pack") if word != "--json"], env=packing.environment, check=False
        )
        assert any(f"worker2: {short:.2f} GiB short" in line for line in shown.stdout.splitlines()), shown.stdout
    finally:
        spark.run(["umount", inner])
    status, events = packing.run("pack")
    assert status == 0, events[-3:]
    packing.check()
