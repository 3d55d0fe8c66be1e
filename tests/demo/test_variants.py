"""Other settings and other verbs than the usual ones: each script that they run has an answer."""

from __future__ import annotations

import time
from pathlib import Path

from sparktui.demo.cluster import IDLE_SECONDS, Cluster
from sparktui.demo.home import DemoHome
from sparktui.demo.machine import new_container
from tests.demo.conftest import Demo


def set_in_env(demo: Demo, **values: str) -> None:
    demo.home.make()
    with demo.home.env_file.open("a") as file:
        file.write("".join(f"{name}={value}\n" for name, value in values.items()))


def test_every_dry_run_has_its_answers_before_and_after_the_chain(demo: Demo) -> None:
    fresh = demo.run("up", "--dry-run")
    # pack and serve cannot say what they would run before there is a checkpoint.
    assert "an error that sparktui does not know" not in fresh.stdout + fresh.stderr
    assert "sparktui.remote.hub_child" in fresh.stdout
    demo.events("up", "--yes")
    again = demo.run("up", "--dry-run")
    assert again.returncode == 0, again.stderr
    assert "docker run" in again.stdout
    assert demo.run("stop", "--dry-run").returncode == 0
    for verb in ("plan", "talk", "status", "logs"):
        done = demo.run(verb)
        assert done.returncode == 0, done.stderr
        assert all(line.startswith("SIMULATED") for line in done.stdout.splitlines())


def test_built_on_each_node(demo: Demo) -> None:
    set_in_env(demo, BUILD_ON="each")
    events = demo.events("build", "--yes")
    done = {each["node"] for each in events if each["kind"] == "node_outcome" and each["outcome"] == "done"}
    assert done == {"head", "worker1", "worker2"}
    lines = {each["node"] for each in events if each["kind"] == "log_line" and each["text"].startswith("Step ")}
    assert lines == {"head", "worker1", "worker2"}


def test_a_second_build_sends_only_the_layers_that_differ(demo: Demo) -> None:
    demo.events("build", "--yes")
    set_in_env(demo, NFS_SERVER="ganesha")
    events = demo.events("build", "--yes")
    sent = [each for each in events if each["kind"] == "node_outcome" and each["node"] != "head"]
    assert {each["outcome"] for each in sent} == {"done"}
    amounts = [each["amount"] for each in events if each["kind"] == "progress" and each["phase"] == "ship"]
    assert max(amounts) < 100e6
    assert {each["outcome"] for each in demo.events("build") if each["kind"] == "step_finished"} == {"skipped"}


def test_without_a_share_each_worker_is_asked_for_its_own_copy(demo: Demo) -> None:
    set_in_env(demo, NFS_SHARE="0")
    events = demo.events("up", "--yes", status=1)
    assert events[-1]["kind"] == "run_finished"
    assert events[-1]["node"].startswith("worker")
    assert "NFS_SHARE" in events[-1]["fix"]


def test_the_process_goes_when_nobody_asks_and_no_engine_runs(tmp_path: Path) -> None:
    home = DemoHome(tmp_path / "demo")
    home.make()
    cluster = Cluster(home)
    assert not cluster._may_go()
    cluster._asked_at = time.monotonic() - IDLE_SECONDS - 1
    assert cluster._may_go()
    engine = new_container("dsv41-head", {"Labels": {"sparktui.role": "head"}}, "sha256:0", 1.0)
    engine.started_at = time.time()
    cluster._world.head.containers[engine.name] = engine
    assert not cluster._may_go()
    home.marker.unlink()
    assert cluster._may_go()


def test_the_state_is_kept_over_a_restart_of_the_process(demo: Demo) -> None:
    demo.events("up", "--yes")
    pid = demo.cluster_pid()
    demo.run("leave")
    rows = [each for each in demo.events("status") if each["kind"] == "finding"]
    assert demo.cluster_pid() != pid
    assert all(each["data"]["running"] for each in rows if each["check"] == "rank")
    assert [each["state"] for each in rows if each["check"] == "endpoint"] == ["OK"]
