"""doctor on RDMA, interfaces, kernel, caches, memory and GPU."""

from __future__ import annotations

import pytest

from sparktui.events import State
from tests.unit.doctor_answers import GIB, addresses, fabric, meminfo
from tests.unit.doctor_cluster import Cluster


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
