"""The sampler over real sshd on simulated Sparks: what it reads, what a wedge and a pulled cable look like."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import Testbed

pytestmark = pytest.mark.testbed
PROJECT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}
GIB_KB = 1024 * 1024
Picture = dict[str, Any]


class Watch:
    """A fleet that runs on the head; its pictures as they come."""

    def __init__(self, bed: Testbed, env_file: str) -> None:
        argv = [sys.executable, "-m", "tests.telemetry.watching", env_file]
        self.process = bed.head.popen(
            argv, env=ENVIRONMENT, cwd=str(PROJECT), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._pictures: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._pictures.put(line)
        self._pictures.put(None)

    def until(self, holds: Callable[[dict[str, Any], Picture], bool], seconds: float = 60.0) -> Picture:
        """The first picture for which this holds of (nodes by name, picture)."""
        end, last = time.monotonic() + seconds, None
        while (left := end - time.monotonic()) > 0:
            try:
                line = self._pictures.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                assert self.process.stderr is not None
                raise AssertionError(f"the watch ended: {self.process.stderr.read()[-3000:]}")
            last = json.loads(line)
            if holds({node["node"]: node for node in last["nodes"]}, last):
                return last
        raise AssertionError(f"it did not come in {seconds} s; last: {json.dumps(last)[:3000]}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait(timeout=10)


@pytest.fixture
def watch(three_sparks: Testbed) -> Iterator[tuple[Testbed, Watch]]:
    watch = Watch(three_sparks, three_sparks.write_env("watch.env"))
    try:
        yield three_sparks, watch
    finally:
        watch.close()
        for node in three_sparks.nodes:
            node.set_meminfo()


def live(nodes: dict[str, Any], *names: str) -> bool:
    return all(nodes[name]["freshness"] == "live" for name in names)


def alarms(picture: Picture) -> set[str]:
    return {alarm["id"] for alarm in picture["alarms"]}


def samplers(bed: Testbed) -> int:
    """Sampler shells on all nodes."""
    named = 'case $(tr "\\0" " " <"$f" 2>/dev/null) in "/bin/sh -c"*sparktui-[sg]*) n=$((n + 1));; esac'
    counted = f"n=0; for f in /proc/[0-9]*/cmdline; do {named}; done; echo $n"
    return sum(int(node.run(["sh", "-c", counted]).stdout) for node in bed.nodes)


def test_monitor_once_shows_every_node(three_sparks: Testbed) -> None:
    bed = three_sparks
    argv = [sys.executable, "-m", "sparktui", "monitor", "--once", "--json", "--env-file", bed.write_env("watch.env")]
    done = bed.head.run(argv, env=ENVIRONMENT, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    rows = {(each["node"], each["check"]): each for each in events if each["kind"] == "finding"}
    for name in ("head", "worker1", "worker2"):
        memory = rows[name, "memory"]
        assert memory["state"] == "OK" and memory["data"]["total_bytes"] == 127_600_748 * 1024
        for device in ("rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1"):
            assert "ACTIVE, 200 Gb/s" in rows[name, f"link.{device}"]["what"]
        assert "2418 MHz" in rows[name, "gpu"]["what"]
    assert events[-1]["kind"] == "run_finished" and events[-1]["exit_status"] == 0


def test_memory_traffic_and_errors_of_each_node(watch: tuple[Testbed, Watch]) -> None:
    bed, watching = watch
    watching.until(lambda nodes, _: live(nodes, "head", "worker1", "worker2"))
    worker = bed.workers[0]
    worker.set_meminfo(MemFree=1 * GIB_KB, MemAvailable=3 * GIB_KB)
    picture = watching.until(lambda _, now: "memory.available.worker1" in alarms(now))
    split = next(node for node in picture["nodes"] if node["node"] == "worker1")["split"]
    assert split["available_bytes"] == 3 * 1024**3 and split["held_bytes"] > 80 * 1024**3
    worker.set_meminfo()
    watching.until(lambda _, now: not alarms(now))
    # Words of four bytes: 250 million a second are a GB/s.
    stop = threading.Event()

    def send() -> None:
        words = 0
        while not stop.wait(0.2):
            words += 50_000_000
            worker.set_counter("rocep1s0f0", "port_xmit_data", words)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        sent = "sent_bytes_per_second"
        watching.until(lambda nodes, _: 0.4e9 < (_port(nodes["worker1"], "rocep1s0f0")[sent] or 0) < 2.5e9)
    finally:
        stop.set()
        sender.join()
    worker.set_counter("rocep1s0f0", "symbol_error", 3)
    picture = watching.until(lambda _, now: "errors.worker1.rocep1s0f0" in alarms(now))
    assert any("symbol_error" in alarm["what"] for alarm in picture["alarms"])
    worker.set_counter("rocep1s0f0", "symbol_error", 0)


def _port(node: dict[str, Any], device: str) -> dict[str, Any]:
    found = [port for port in node["ports"] or () if port["device"] == device]
    return found[0] if found else {"sent_bytes_per_second": None}


def test_a_pulled_cable_is_seen_at_both_ends(watch: tuple[Testbed, Watch]) -> None:
    bed, watching = watch
    first, second = bed.workers
    watching.until(lambda nodes, _: live(nodes, "head", "worker1", "worker2"))
    try:
        bed.pull_cable(first, second)
        watching.until(lambda _, now: len([each for each in alarms(now) if each.startswith("link.worker")]) == 2)
    finally:
        bed.plug_cable(first, second)
    watching.until(lambda _, now: not [each for each in alarms(now) if each.startswith("link.")])


def test_a_wedged_node_costs_its_own_row_and_comes_back(watch: tuple[Testbed, Watch]) -> None:
    bed, watching = watch
    watching.until(lambda nodes, _: live(nodes, "head", "worker1", "worker2"))
    worker = bed.workers[1]
    worker.set_meminfo(MemFree=GIB_KB // 2, MemAvailable=GIB_KB)
    watching.until(lambda nodes, _: (nodes["worker2"]["split"]["available_bytes"] or 0) == 1024**3)
    worker.freeze()
    try:
        watching.until(lambda nodes, _: nodes["worker2"]["freshness"] == "stale" and live(nodes, "head", "worker1"))
        picture = watching.until(lambda nodes, _: nodes["worker2"]["freshness"] == "gone")
        gone = [alarm for alarm in picture["alarms"] if alarm["id"] == "gone.worker2"]
        assert "probably wedged" in gone[0]["what"]
        assert all(node["freshness"] == "live" for node in picture["nodes"] if node["node"] != "worker2")
    finally:
        worker.set_meminfo()
        worker.thaw()
    watching.until(lambda nodes, _: live(nodes, "head", "worker1", "worker2"), seconds=120)


def test_a_watch_that_is_killed_leaves_no_sampler_behind(watch: tuple[Testbed, Watch]) -> None:
    bed, watching = watch
    watching.until(lambda nodes, _: live(nodes, "head", "worker1", "worker2"))
    assert samplers(bed) >= 3
    watching.close()
    end = time.monotonic() + 30
    while samplers(bed) and time.monotonic() < end:
        time.sleep(0.5)
    assert samplers(bed) == 0
