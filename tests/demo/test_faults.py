"""What is broken on purpose: it is named, on its node, and it costs nothing else."""

from __future__ import annotations

import re

from tests.demo.conftest import Demo


def test_a_node_that_is_off_is_named_and_the_others_are_checked(demo: Demo) -> None:
    assert demo.run("fault", "worker2", "off").returncode == 0
    events = demo.events("doctor", status=3)
    rows = [each for each in events if each["kind"] == "finding"]
    off = [each for each in rows if each["node"] == "worker2" and each["check"] != "rdma.link"]
    assert [each["check"] for each in off] == ["ssh.login"]
    assert "no answer from" in off[0]["what"]
    assert any(each["node"] == "worker1" and each["check"] == "gpu.present" for each in rows)
    assert demo.run("mend").returncode == 0
    demo.events("doctor")
    assert demo.run("fault", "head", "off").returncode == 2
    assert demo.run("fault", "worker1", "tired").returncode == 2


def test_a_docker_engine_that_hangs_costs_its_own_row_and_five_seconds(demo: Demo) -> None:
    demo.events("doctor")
    demo.run("fault", "worker1", "docker-hangs")
    events = demo.events("status", status=3)
    ranks = [each for each in events if each["kind"] == "finding" and each["check"] == "rank"]
    # Nobody waits for it: the others' rows come first.
    assert [each["node"] for each in ranks] == ["head", "worker2", "worker1"]
    assert [each["state"] for each in ranks] == ["INFO", "INFO", "UNKNOWN"]
    assert "the Docker Engine did not answer in 5 s" in ranks[2]["what"]
    for verb in ("doctor", "stop"):
        said = demo.run(verb).stdout
        assert re.search(r"worker1.*the Docker Engine did not answer in 5 s", said), (verb, said)


def test_a_full_disk_fails_doctor_on_that_node(demo: Demo) -> None:
    demo.run("fault", "worker2", "disk-full")
    events = demo.events("doctor", status=1)
    failed = [each for each in events if each["kind"] == "finding" and each["state"] == "FAIL"]
    assert [(each["node"], each["check"]) for each in failed] == [("worker2", "disk")]
    assert "short by" in failed[0]["what"]


def test_a_rank_that_dies_during_its_boot_is_blamed_with_its_cause_and_a_mended_one_boots(demo: Demo) -> None:
    demo.run("fault", "worker1", "rank-dies")
    events = demo.events("up", "--yes", status=1)
    closing = events[-1]
    assert closing["kind"] == "run_finished"
    assert closing["node"] == "worker1"
    assert "the GPU ran out of memory" in closing["text"]
    demo.run("mend", "worker1")
    events = demo.events("up", "--yes")
    assert events[-1]["exit_status"] == 0
    # What breaks later does not reach into the past of what runs.
    demo.run("fault", "worker1", "rank-dies")
    rows = demo.events("status")
    assert all(each["data"]["running"] for each in rows if each["kind"] == "finding" and each["check"] == "rank")


def test_a_slow_node_is_late_and_not_lost(demo: Demo) -> None:
    demo.run("fault", "worker2", "slow")
    assert {each["node"] for each in demo.events("doctor") if each["kind"] == "finding"} >= {"head", "worker2"}
