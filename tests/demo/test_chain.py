"""The whole chain on the simulated cluster, as a person or an agent runs it."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from pathlib import Path

from sparktui.engine.phases import TITLES, Phase
from tests.demo.conftest import Demo


def outcomes(events: list[dict[str, object]]) -> dict[object, object]:
    return {each["step"]: each["outcome"] for each in events if each["kind"] == "step_finished"}


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_the_chain_ends_with_a_green_smoke_and_a_second_one_has_nothing_to_do(demo: Demo) -> None:
    before = time.time()
    events = demo.events("up", "--yes")
    assert set(outcomes(events).values()) == {"done"}
    assert all(each["simulated"] is True for each in events)
    smoke = {each["check"]: each["state"] for each in events if each["kind"] == "finding" and each["step"] == "smoke"}
    names = ("arithmetic", "json", "tool", "picture", "cut", "reasoning", "loop", "placeholder", "thinking")
    assert smoke == dict.fromkeys(names, "OK")
    for node, phases in (("head", Phase), ("worker2", [each for each in Phase if each <= Phase.SERVER])):
        seen = {
            each["phase"]
            for each in events
            if each["kind"] == "progress" and each["step"] == "serve" and each["node"] == node
        }
        assert {TITLES[phase] for phase in phases if phase is not Phase.NOTHING} <= seen
    warned = [each for each in events if each.get("state") == "WARN" and each.get("step") == "doctor"]
    assert [each["node"] for each in warned if each["check"] == "memory.cache"] == ["worker2"]
    loads = [(each["step"], each["node"], each["state"]) for each in events if each.get("check") == "load"]
    assert loads == [("serve", "head", "OK")]
    fails = [each for each in events if each.get("state") in ("FAIL", "UNKNOWN")]
    assert not fails
    amounts = [each["total"] for each in events if each["kind"] == "progress" and each["step"] == "download"]
    assert set(amounts) == {510_310_549_975}

    again = outcomes(demo.events("up", "--yes"))
    assert [step for step, outcome in again.items() if outcome == "skipped"] == [
        "download",
        "build",
        "share",
        "pack",
        "serve",
    ]
    assert time.time() - before < 180

    # Nothing but the demo's own folder was written, and what looks like 476 GiB takes no room.
    for name in ("HOME", "TMPDIR"):
        assert files_below(Path(demo.environment[name])) == set()
    assert {path.name for path in Path(demo.environment["XDG_CACHE_HOME"]).iterdir()} == {"sparktui"}
    blocks = sum(path.lstat().st_blocks for path in demo.home.root.rglob("*"))
    assert blocks * 512 < 20 * 1024 * 1024


def test_text_says_simulated_on_each_line_and_json_in_each_object(demo: Demo) -> None:
    done = demo.run("doctor")
    assert done.returncode == 0
    assert all(line.startswith("SIMULATED ") for line in done.stdout.splitlines())
    assert "sparktui demo VERB" in done.stdout
    failed = demo.run("donwload")
    assert failed.returncode == 2
    assert all(line.startswith("SIMULATED ") for line in (failed.stdout + failed.stderr).splitlines())
    assert "did you mean" in failed.stderr


def test_stop_leaves_nothing_running_and_the_port_closed(demo: Demo) -> None:
    demo.events("up", "--yes")
    port = demo.home.port()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
        assert json.load(answer)["data"][0]["id"] == "deepseek-v4.1-flash"
    demo.events("stop")
    rows = [each for each in demo.events("status", "--json") if each["kind"] == "finding"]
    assert {each["node"]: each["data"]["running"] for each in rows if each["check"] == "rank"} == {
        "head": False,
        "worker1": False,
        "worker2": False,
    }
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
        raise AssertionError("something still listens")
    except OSError:
        pass
    pid = demo.cluster_pid()
    assert demo.run("leave").returncode == 0
    until = time.time() + 10
    while Path(f"/proc/{pid}").exists() and time.time() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
    assert not list(demo.home.root.glob("*.sock"))


def test_a_run_and_the_cluster_that_are_killed_cost_nothing_that_was_done(demo: Demo) -> None:
    going = demo.start("up", "--yes", "--json")
    assert going.stdout is not None
    run_pid = 0
    for line in going.stdout:
        event = json.loads(line)
        run_pid = int(event.get("pid", run_pid))
        if event["kind"] == "step_started" and event["step"] == "pack":
            break
    os.kill(run_pid, signal.SIGKILL)
    os.kill(demo.cluster_pid(), signal.SIGKILL)
    going.communicate(timeout=30)
    again = outcomes(demo.events("up", "--yes"))
    assert [again[step] for step in ("download", "build", "share")] == ["skipped"] * 3
    assert again["smoke"] == "done"


def test_a_download_that_is_killed_goes_on_where_it_was(demo: Demo) -> None:
    going = demo.start("download", "--json")
    assert going.stdout is not None
    run_pid, reached = 0, 0.0
    for line in going.stdout:
        event = json.loads(line)
        run_pid = int(event.get("pid", run_pid))
        if event["kind"] == "progress" and (event["amount"] or 0) > 1e11:
            reached = event["amount"]
            break
    os.kill(run_pid, signal.SIGKILL)
    going.communicate(timeout=30)
    events = demo.events("download")
    first = next(each["amount"] for each in events if each["kind"] == "progress")
    assert first >= reached
    assert outcomes(events) == {"download": "done"}


def test_it_begins_anew_only_when_asked_and_refuses_a_folder_that_is_not_its_own(demo: Demo) -> None:
    demo.events("download")
    assert demo.home.model_dir.is_dir()
    assert demo.run("--fresh", "doctor").returncode == 0
    assert not demo.home.model_dir.exists()
    assert demo.run("doctor", "--env-file", "/x/.env").returncode == 2
    demo.run("leave")
    demo.home.marker.unlink()
    (demo.home.root / "mine.txt").write_text("keep")
    refused = demo.run("--fresh", "doctor")
    assert refused.returncode == 2
    assert (demo.home.root / "mine.txt").read_text() == "keep"
