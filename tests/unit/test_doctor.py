"""doctor as a whole: dead nodes, exit status, dry run, one node alone; where its answers come from."""

from __future__ import annotations

import pytest

from sparktui.errors import NodeUnreachable, StepFailed
from sparktui.events import State
from sparktui.readings.checkpoint_listing import RECORD_FILE
from sparktui.remote.hub import HubRefused
from sparktui.steps.doctor import Doctor
from sparktui.steps.doctor_checks.machine import check_login
from sparktui.steps.doctor_checks.probe import ProbeAnswer
from sparktui.steps.doctor_checks.report import NodeReport
from tests.unit.doctor_answers import addresses
from tests.unit.doctor_cluster import FULL, MODEL, Cluster, settings_for


async def test_a_healthy_cluster_has_no_failure_and_asks_each_node_once() -> None:
    cluster = Cluster()
    found, error = await cluster.run()
    assert error is None, error
    assert not [each for each in found if each.state in (State.FAIL, State.UNKNOWN)]
    for link in cluster.links:
        assert len([each for each in link.asked if each.kind in ("run", "script")]) == 1, "one script a node"
        assert len([each for each in link.asked if each.kind == "docker"]) == 1, "one set of Docker calls a node"
        assert all(each.deadline_seconds for each in link.asked)
    assert {each.node for each in found} == {"head", "worker1", "worker2"}
    stable = {"ssh.login", "docker.engine", "docker.permission", "gpu.present", "gpu.busy", "containers.other", "arch"}
    stable |= {"rdma.devices", "rdma.link", "rdma.gid", "checkpoint", "image", "disk", "memory", "fabric.iface"}
    assert stable <= {each.check for each in found}


async def test_a_dead_node_costs_its_own_row_and_ends_with_status_3() -> None:
    cluster = Cluster()
    cluster.links[2].unreachable("spark3 port 22 did not answer in 15 s")
    found, error = await cluster.run()
    assert isinstance(error, NodeUnreachable)
    assert error.exit_status == 3
    assert error.lines()[0] == "worker2: spark3 port 22 did not answer in 15 s"
    rows = [each for each in found if each.node == "worker2"]
    assert [(each.check, each.state) for each in rows] == [("ssh.login", State.FAIL)]
    others = [each for each in found if each.node == "worker1" and each.check != "rdma.link"]
    assert others
    assert not [each for each in others if each.state in (State.FAIL, State.UNKNOWN)]


async def test_a_silent_node_is_unknown_never_ok() -> None:
    cluster = Cluster()
    cluster.links[1].silent()
    found, error = await cluster.run()
    assert error is not None
    assert error.exit_status == 3
    rows = [each for each in found if each.node == "worker1"]
    assert [(each.check, each.state, each.what) for each in rows] == [("ssh.login", State.UNKNOWN, "no answer")]


async def test_a_failed_check_ends_with_status_1_cause_and_node_first() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], gpu="", gpu_short="", exits={"gpu": 127, "gpu.short": 127})
    _, error = await cluster.run()
    assert isinstance(error, StepFailed)
    assert error.exit_status == 1
    assert error.lines()[0] == "worker1: nvidia-smi is not installed"


@pytest.mark.parametrize(("strict", "fails"), [("0", False), ("1", True)])
async def test_a_warning_fails_doctor_where_the_settings_ask_for_that(strict: str, fails: bool) -> None:
    cluster = Cluster(API_KEY="", DOCTOR_STRICT=strict)
    found, error = await cluster.run()
    warned = [each for each in found if each.state is State.WARN]
    assert warned and not [each for each in found if each.state is State.FAIL]
    assert isinstance(error, StepFailed) == fails
    inspected = await Doctor(cluster._hub).inspect(cluster.context())
    assert inspected.done != fails
    if error is not None:
        assert error.exit_status == 1 and error.what.startswith(warned[0].what)


async def test_settings_without_effect_are_one_row_of_information() -> None:
    cluster = Cluster(REMOTE_TIMEOUT="60", DSV41_WO_A_W8="1", DOCTOR_STRICT="1")
    found, error = await cluster.run()
    rows = [each for each in found if "REMOTE_TIMEOUT" in each.what or "DSV41_WO_A_W8" in each.what]
    assert [(each.check, each.state) for each in rows] == [("settings.notice", State.INFO)]
    assert rows[0].what == "known, no effect here: REMOTE_TIMEOUT, DSV41_WO_A_W8"
    assert error is None or rows[0].what not in error.what


async def test_the_dry_run_is_the_very_script() -> None:
    cluster = Cluster()
    planned = await Doctor(cluster._hub).plan(cluster.context())
    assert not any(link.asked for link in cluster.links), "a dry run asks no node"
    await cluster.run()
    for link in cluster.links:
        script = next(each for each in link.asked if each.kind == "script")
        text = next(row.text for row in planned if row.node == link.node.name)
        assert script.text in text
        for name, value in script.values.items():
            assert f"{name}={value}" in text
    assert next(row for row in planned if row.node == "worker1").text.startswith("ssh spark2 /bin/sh")


def _changing_words(text: str) -> list[str]:
    words = ("netplan", "sysctl -w", "apt", "ip link set", "chmod", "tee ", "sed -i", "systemctl re", "mkfs", "usermod")
    return [word for word in words if word in text]


async def test_u35_doctor_changes_nothing() -> None:
    planned = await Doctor().plan(Cluster().context())
    for row in planned:
        assert not _changing_words(row.text)
        removals = [line for line in row.text.split("\n") if "rm " in line]
        assert removals in ([], ['rm -rf "$scratch"']), "only its own scratch folder"


async def test_u09_lines_printed_on_login_are_a_warning() -> None:
    settings = settings_for()
    report = NodeReport(settings, settings.nodes[2], ProbeAnswer({}, noise_lines=4))
    rows = list(check_login(report))
    assert rows[-1].state is State.WARN
    assert "worker2 prints 4 lines on login; rsync" in rows[-1].what


async def test_u04_an_address_that_no_node_has_offers_those_it_has() -> None:
    cluster = Cluster(HEAD_IP="10.0.0.77")
    row = await cluster.row("address")
    assert row.state is State.FAIL
    assert "10.0.0.77" in row.what
    assert "10.0.0.1 (enP7s7)" in row.fix


async def test_an_unreadable_source_is_unknown_never_ok() -> None:
    for part, check in {
        "uname": "arch",
        "addresses": "address",
        "fabric": "rdma.gid",
        "meminfo": "memory",
        "checkpoint": "checkpoint",
        "gpu.apps": "gpu.busy",
    }.items():
        cluster = Cluster()
        cluster.says(cluster.links[0], **{part.replace(".", "_"): None})
        assert (await cluster.row(check)).state is State.UNKNOWN, part


async def test_the_checkpoint_is_judged_by_sizes_and_only_where_it_lives() -> None:
    cluster = Cluster()
    files = "10\tconfig.json\n510310549965\tmodel-00001-of-00001.safetensors\n"
    index = '@checkpoint.index\n"model-00001-of-00001.safetensors"\n'
    cluster.links[0].put_file(f"{MODEL}/{RECORD_FILE}", FULL.to_json())
    cluster.says(cluster.links[0], checkpoint=f"@checkpoint.folder\npresent\n@checkpoint.files\n{files}{index}")
    found, _ = await cluster.run()
    rows = [each for each in found if each.check == "checkpoint"]
    assert [(each.node, each.state) for each in rows] == [("head", State.OK)]
    assert "hub" not in {each.check for each in found}, "a recorded revision is not asked for again"

    short = files.replace("510310549965", "510310549964")
    cluster.says(cluster.links[0], checkpoint=f"@checkpoint.folder\npresent\n@checkpoint.files\n{short}")
    row = await cluster.row("checkpoint")
    assert row.state is State.WARN
    assert "wrong size" in row.what


async def test_without_shared_weights_each_node_is_checked() -> None:
    found, error = await Cluster(NFS_SHARE="0").run()
    assert error is None
    assert {each.node for each in found if each.check == "checkpoint"} == {"head", "worker1", "worker2"}


async def test_a_hub_that_is_away_is_unknown_and_stops_nothing() -> None:
    cluster = Cluster()
    cluster.hub = HubRefused("the public hub does not answer", kind="unreachable")
    found, error = await cluster.run()
    assert error is None
    row = next(each for each in found if each.check == "hub")
    assert row.state is State.UNKNOWN
    disk = next(each for each in found if each.check == "disk" and each.node == "head")
    assert "published sizes" in disk.cause


async def test_one_node_alone_asks_no_other() -> None:
    cluster = Cluster()
    found, error = await cluster.run(only="worker1")
    assert error is None
    assert {each.node for each in found if each.check not in ("settings.example", "hub")} == {"worker1"}
    assert cluster.links[2].asked == []


async def test_inspect_counts_and_names_the_first_failure() -> None:
    cluster = Cluster()
    inspection = await Doctor(cluster._hub).inspect(cluster.context())
    assert inspection.done
    cluster.says(cluster.links[1], addresses=addresses(1, enP7s7="10.0.0.9"))
    inspection = await Doctor(cluster._hub).inspect(cluster.context())
    assert not inspection.done
    assert inspection.summary.startswith("worker1: WORKER_IPS says 10.0.0.2")
