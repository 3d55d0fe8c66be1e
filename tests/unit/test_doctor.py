"""doctor: what a user reads for each situation, from nodes that answer by script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from sparktui.errors import DockerUnavailable, NodeUnreachable, SparktuiError, StepFailed
from sparktui.events import Finding, Question, State
from sparktui.readings.checkpoint_listing import RECORD_FILE, HubFile, Listing
from sparktui.remote.hub import HubRefused
from sparktui.settings import Settings, parse_settings
from sparktui.steps.doctor import Doctor
from sparktui.steps.doctor_checks.machine import check_login
from sparktui.steps.doctor_checks.probe import ProbeAnswer
from sparktui.steps.doctor_checks.report import NodeReport
from sparktui.steps.step import Context
from tests.scripted_link import ScriptedLink
from tests.unit.doctor_answers import GIB, addresses, df, fabric, meminfo, probe_text

MODEL = "/srv/DeepSeek-V4.1-Flash-1017"
IMAGE = "dsv41-3x-spark:local"
FULL = Listing(
    "deepseek-ai/DeepSeek-V4.1-Flash-1017",
    "1bae0e1",
    "1bae0e1" + "0" * 33,
    (HubFile("config.json", 10), HubFile("model-00001-of-00001.safetensors", 510_310_549_965)),
)


def settings_for(**changed: str) -> Settings:
    values = {
        "HEAD_IP": "10.0.0.1",
        "WORKER_IPS": "10.0.0.2 10.0.0.3",
        "WORKER_HOSTS": "spark2 spark3",
        "MODEL_DIR": MODEL,
        "API_KEY": "a-long-enough-key",
    } | changed
    text = "".join(f'{name}="{value}"\n' for name, value in values.items())
    return parse_settings(text, env_path=Path("/srv/.env"), profile="three", environment={"HOME": "/home/user"})


class Cluster:
    """Three scripted Sparks, all well unless a test changes them, and doctor's answer about them."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings_for(**settings)
        self.links = [ScriptedLink(node) for node in self.settings.nodes]
        for link in self.links:
            self.says(link)
            link.engine.add_image(IMAGE, layers=["a", "b"], labels={"sparktui.overlay": "x"})
            link.engine.information |= {"DockerRootDir": "/var/lib/docker"}
        self.hub: Listing | SparktuiError = FULL

    def says(self, link: ScriptedLink, exits: Mapping[str, int] | None = None, **parts: str | None) -> None:
        link.answer("checkpoint_script", stdout=probe_text(link.node.rank, dict(exits or {}), **parts))

    def everywhere(self, **parts: str | None) -> None:
        for link in self.links:
            self.says(link, **parts)

    def context(self, only: str | None = None) -> Context:
        async def ask(question: Question) -> str:
            raise AssertionError(f"doctor asked {question.question}")

        return Context(self.settings, tuple(self.links), ask, only_node=only)

    async def _hub(self, settings: Settings) -> Listing:
        if isinstance(self.hub, SparktuiError):
            raise self.hub
        return self.hub

    async def run(self, only: str | None = None) -> tuple[list[Finding], SparktuiError | None]:
        found: list[Finding] = []
        try:
            async for event in Doctor(self._hub).run(self.context(only)):
                assert isinstance(event, Finding)
                found.append(event)
        except SparktuiError as error:
            return found, error
        return found, None

    async def row(self, check: str, node: str = "head") -> Finding:
        found, _ = await self.run()
        rows = [each for each in found if each.check == check and each.node == node]
        assert rows, f"no row {check} for {node} among {sorted({each.check for each in found})}"
        return rows[0]


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


@pytest.mark.parametrize(
    "text",
    [
        "user ada is not in group docker, which owns /var/run/docker.sock (docker says: permission denied)",
        "group docker was added to ada, but this session is older: reconnect (docker says: permission denied)",
    ],
)
async def test_u12_docker_permission_has_two_texts_and_keeps_dockers_own(text: str) -> None:
    cluster = Cluster()
    cluster.links[1].engine.broken = DockerUnavailable(text, fix="log in again", node="worker1")
    row = await cluster.row("docker.permission", "worker1")
    assert (row.state, row.what, row.fix) == (State.FAIL, text, "log in again")


async def test_u13_an_unreadable_socket_is_not_an_empty_list() -> None:
    cluster = Cluster()
    cluster.links[1].engine.broken = DockerUnavailable("the Docker Engine is not running", node="worker1")
    row = await cluster.row("containers.other", "worker1")
    assert row.state is State.UNKNOWN
    assert "cannot read" in row.what
    assert (await cluster.row("image", "worker1")).state is State.UNKNOWN
    nothing = await Cluster().row("containers.other", "worker1")
    assert (nothing.state, nothing.what) == (State.OK, "no other container runs")


async def test_other_containers_with_the_gpu_are_named() -> None:
    cluster = Cluster()
    container = cluster.links[1].engine.add_container("ollama", "ollama/ollama:latest")
    container.body["HostConfig"] = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}
    row = await cluster.row("containers.other", "worker1")
    assert row.state is State.WARN
    assert "ollama (ollama/ollama:latest)" in row.what


async def test_u14_cdi_mode_warns_before_serve() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], cdi='mode = "cdi"\n')
    row = await cluster.row("docker.gpu", "worker1")
    assert row.state is State.WARN
    assert "--gpus" in row.what


async def test_u17_images_that_differ_are_shown_as_a_pattern() -> None:
    cluster = Cluster()
    cluster.links[2].engine.images.clear()
    cluster.links[2].engine.add_image(IMAGE, layers=["a", "other"])
    found, error = await cluster.run()
    row = next(each for each in found if each.check == "image.same")
    assert row.state is State.FAIL
    assert row.what.startswith("image differs: A A B")
    assert row.node == "worker2"
    assert error is not None


async def test_u20_an_image_of_another_architecture_fails_now() -> None:
    cluster = Cluster()
    cluster.links[1].engine.images.clear()
    cluster.links[1].engine.add_image(IMAGE, layers=["a", "b"], labels={"sparktui.overlay": "x"}, architecture="amd64")
    row = await cluster.row("image", "worker1")
    assert row.state is State.FAIL
    assert "is amd64, the node is aarch64" in row.what


async def test_a_machine_that_is_no_spark_is_a_warning_only() -> None:
    cluster = Cluster()
    for link in cluster.links:
        link.engine.images[IMAGE].architecture = "amd64"
        cluster.says(link, uname="Linux box 6.1.0 x86_64\n", release='PRETTY_NAME="Debian 12"\n')
    found, error = await cluster.run()
    assert error is None
    rows = [each for each in found if each.check == "arch"]
    assert {each.state for each in rows} == {State.WARN}
    assert "not a DGX Spark: x86_64" in rows[0].what


async def test_u22_another_docker_context_is_named_with_its_source() -> None:
    cluster = Cluster()
    meta = json.dumps({"Name": "desktop-linux", "Endpoints": {"docker": {"Host": "unix:///home/user/d.sock"}}})
    choice = f'DOCKER_HOST\t\nDOCKER_CONTEXT\t\nconfig\t"currentContext": "desktop-linux"\ncontext\t{meta}\n'
    cluster.says(cluster.links[0], docker_choice=choice)
    row = await cluster.row("docker.context")
    assert row.state is State.WARN
    assert "unix:///home/user/d.sock" in row.what
    assert "currentContext" in row.what
    cluster.says(cluster.links[0], docker_choice="DOCKER_HOST\tssh://box\nDOCKER_CONTEXT\t\nconfig\t\n")
    assert "ssh://box" in (await cluster.row("docker.context")).what


async def test_u19_disk_names_what_is_short_and_deducts_what_is_there() -> None:
    cluster = Cluster()
    small = df(300 * GIB)
    cluster.says(cluster.links[0], df_model=small, df_engram=small, df_docker=small)
    row = await cluster.row("disk")
    assert row.state is State.FAIL
    assert "475 GiB checkpoint" in row.what
    assert "65 GiB Engram rows" in row.what
    assert "has 300 GiB: short by 242 GiB" in row.what, "475.3 + 65.1 + 2 kept free - 300, counted once"

    there = f"@checkpoint.folder\npresent\n@checkpoint.files\n{470 * GIB}\tmodel-00001-of-00001.safetensors\n"
    there = there.replace(str(470 * GIB), "10").replace("model-00001-of-00001.safetensors", "config.json")
    parts = f"@checkpoint.parts\n{470 * GIB}\tmodel-00001-of-00001.safetensors.partial\n"
    cluster.says(cluster.links[0], df_model=small, df_engram=small, df_docker=small, checkpoint=there + parts)
    row = await cluster.row("disk")
    assert row.state is State.OK
    assert "5.3 GiB checkpoint" in row.what


async def test_disks_that_are_different_are_not_added_up() -> None:
    cluster = Cluster()
    big, small = df(500 * GIB, source="/dev/sda1", mount="/srv"), df(80 * GIB)
    cluster.says(cluster.links[0], df_model=big, df_engram=small, df_docker=small)
    assert (await cluster.row("disk")).state is State.OK


async def test_an_image_that_only_may_not_fit_is_a_warning() -> None:
    cluster = Cluster()
    cluster.links[1].engine.images.clear()
    disk = df(100 * GIB)
    cluster.says(cluster.links[1], df_model=disk, df_engram=disk, df_docker=disk)
    row = await cluster.row("disk", "worker1")
    assert row.state is State.WARN
    assert "estimate" in row.cause


async def test_disk_without_an_answer_is_unknown() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], exits={"df.engram": 124}, df_engram="")
    assert (await cluster.row("disk", "worker1")).state is State.UNKNOWN


async def test_u23_a_wrong_pin_names_device_and_right_index() -> None:
    cluster = Cluster(NCCL_IB_GID_INDEX="3", NCCL_IB_HCA="rocep1s0f0,roceP2p1s0f1")
    cluster.says(cluster.links[0], fabric=fabric(0, index={"roceP2p1s0f1": 4}))
    row = await cluster.row("rdma.gid")
    assert row.state is State.FAIL
    assert "pin 3 is wrong on roceP2p1s0f1 (is 4)" in row.what
    held = {each["device"]: each["index"] for each in row.data["table"]}
    assert (held["rocep1s0f0"], held["roceP2p1s0f1"]) == (3, 4)


async def test_u25_each_rank_has_its_own_index() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], fabric=fabric(1, index=dict.fromkeys(("rocep1s0f0", "rocep1s0f1"), 5)))
    assert (await cluster.row("rdma.gid")).data["index"] == 3
    row = await cluster.row("rdma.gid", "worker1")
    assert (row.state, row.data["index"]) == (State.OK, 5)
    assert "rank 1" in row.what


async def test_u38_no_gid_for_the_given_address_proposes_the_ones_there_are() -> None:
    cluster = Cluster(WORKER_FABRIC_IPS="10.0.0.2 192.168.1.2")
    row = await cluster.row("rdma.gid", "worker1")
    assert row.state is State.FAIL
    assert "did you mean" in row.what
    assert "192.168.0.2" in row.what


async def test_u31_an_interface_that_a_node_lacks_fails_there_and_offers_others() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], addresses=addresses(1, enP7s7="", eth0="10.0.0.2"))
    row = await cluster.row("fabric.iface", "worker1")
    assert row.state is State.FAIL
    assert "GLOO_SOCKET_IFNAME=enP7s7" in row.what
    assert "eth0 10.0.0.2" in row.fix
    found, _ = await cluster.run()
    examples = [each for each in found if each.check == "settings.example"]
    assert any("enP7s7" in each.what for each in examples)


async def test_u41_an_unused_port_is_information_a_planned_one_a_failure() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[0], fabric=fabric(0, down=("rocep1s0f0", "roceP2p1s0f0")))
    cluster.says(cluster.links[1], fabric=fabric(1, down=("rocep1s0f1", "roceP2p1s0f1")))
    found, _ = await cluster.run()
    row = next(each for each in found if each.check == "rdma.link" and each.state is State.FAIL)
    assert "no link on both ends (cable)" in row.what


async def test_no_rdma_device_says_to_plug_the_cable() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], fabric="/sys/class/net/enP7s7/mtu\t1500\n")
    row = await cluster.row("rdma.devices", "worker1")
    assert row.state is State.FAIL
    assert "cable" in row.fix
    off = Cluster(NCCL_IB_DISABLE="1")
    off.says(off.links[1], fabric="/sys/class/net/enP7s7/mtu\t1500\n")
    assert (await off.row("rdma.devices", "worker1")).state is State.INFO


async def test_u37_the_kernel_that_loses_cma_fails_by_its_sign() -> None:
    cluster = Cluster()
    cluster.says(
        cluster.links[1],
        uname="Linux s 7.0.0-1019-nvidia aarch64\n",
        meminfo=meminfo(CmaTotal=0, CmaFree=4096),
    )
    row = await cluster.row("kernel.rdma", "worker1")
    assert row.state is State.FAIL
    assert "7.0.0-1019-nvidia" in row.what
    assert "kho=off" in row.fix


async def test_u46_a_compilers_cache_on_nfs_fails_per_path() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], caches="nfs4\t/home/user/.triton\next2/ext3\t/home/user/.cache/flashinfer\n")
    found, _ = await cluster.run()
    rows = [each for each in found if each.check == "caches.local"]
    assert [each.what for each in rows] == ["/home/user/.triton is on nfs4: it must be node-local"]


async def test_u48_a_path_that_never_answers_is_unknown_and_costs_nothing_else() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[0], exits={"checkpoint": 124}, checkpoint="")
    row = await cluster.row("checkpoint")
    assert row.state is State.UNKNOWN
    assert "no answer in time" in row.what
    assert (await cluster.row("memory")).state is State.OK


async def test_u53_a_large_page_cache_before_serve_warns_with_the_line_to_copy() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], meminfo=meminfo(Cached=90_000_000, MemFree=20_000_000))
    row = await cluster.row("memory.cache", "worker1")
    assert row.state is State.WARN
    assert "drop_caches" in row.fix


@pytest.mark.parametrize(
    ("available", "state"), [(7_500_000, State.OK), (3_000_000, State.WARN), (1_500_000, State.FAIL)]
)
async def test_u58_headroom_has_floors(available: int, state: State) -> None:
    cluster = Cluster()
    cluster.says(cluster.links[0], meminfo=meminfo(MemAvailable=available))
    assert (await cluster.row("memory")).state is state


async def test_u59_memory_is_one_bar_that_adds_up_to_the_total() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], gpu_apps="4242, sglang::scheduler, 20480\n", meminfo=meminfo(MemFree=80_000_000))
    row = await cluster.row("memory", "worker1")
    split = row.data["split"]
    assert split["GPU processes"] == 20 * GIB
    assert sum(split.values()) == row.data["total_bytes"]
    assert "N/A" not in row.what


async def test_u61_a_large_reserve_is_information() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], minfree="4194304\n")
    row = await cluster.row("memory.reserve", "worker1")
    assert row.state is State.INFO
    assert "4.0 GiB" in row.what


async def test_memory_that_the_driver_keeps_without_a_process_is_named() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], meminfo=meminfo(MemFree=3_000_000, MemAvailable=8_000_000))
    row = await cluster.row("memory.driver", "worker1")
    assert row.state is State.WARN
    assert "held by the GPU driver" in row.what


async def test_a_wedged_driver_is_unknown_and_a_busy_gpu_names_its_user() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], exits={"gpu": 124, "gpu.short": 124, "gpu.apps": 124}, gpu="", gpu_short="")
    row = await cluster.row("gpu.present", "worker1")
    assert row.state is State.UNKNOWN
    assert "wedged" in row.what
    cluster.says(cluster.links[1], gpu_apps="77, python3, 1024\n")
    row = await cluster.row("gpu.busy", "worker1")
    assert row.state is State.WARN
    assert "python3 (77, 1.0 GiB)" in row.what


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
