"""What a node says of itself: memory, GPU, disks, host, Docker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.readings import df, docker, host, meminfo, nvidia_smi

SPARK = Path(__file__).resolve().parents[3] / "shared" / "data" / "spark"
needs_data = pytest.mark.skipif(not SPARK.is_dir(), reason="shared Spark data is not beside this checkout")
KIB = 1024
GIB = 1024**3

SERVING = """\
MemTotal:       127600748 kB
MemFree:          2911204 kB
MemAvailable:     6412048 kB
Buffers:             8012 kB
Cached:           4208044 kB
SwapTotal:       16777212 kB
SwapFree:        16700000 kB
AnonPages:        9120112 kB
Mapped:            683144 kB
Shmem:            1048576 kB
KReclaimable:      377572 kB
Slab:             1297932 kB
SReclaimable:      377572 kB
SUnreclaim:        920360 kB
KernelStack:        17808 kB
PageTables:         48212 kB
Percpu:             27520 kB
CmaTotal:          131072 kB
CmaFree:            69320 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
"""


def test_memory_of_a_serving_head() -> None:
    memory = meminfo.parse_meminfo(SERVING)
    assert memory is not None
    assert memory.total_bytes == 127_600_748 * KIB
    assert memory.page_cache_bytes == (4_208_044 - 1_048_576 + 8_012 + 377_572) * KIB
    assert memory.swap_used_bytes == 77_212 * KIB
    assert memory.used_bytes == (127_600_748 - 6_412_048) * KIB
    assert memory.cma_is_lost is False


def test_what_the_driver_holds_is_what_nobody_else_has() -> None:
    memory = meminfo.parse_meminfo(SERVING)
    assert memory is not None
    rest = 127_600_748 - 2_911_204 - 9_120_112 - 4_208_044 - 8_012 - 1_297_932 - 17_808 - 48_212 - 27_520
    gpu = 105_800 * 1024 * KIB
    assert memory.driver_held_bytes(gpu) == rest * KIB - gpu
    assert memory.driver_held_bytes(None) is None
    assert memory.driver_held_bytes(200 * GIB) == 0


def test_u37_the_kernel_that_lost_its_cma_area() -> None:
    lost = meminfo.parse_meminfo("MemTotal: 1 kB\nCmaTotal:  0 kB\nCmaFree:  69320 kB\n")
    absent = meminfo.parse_meminfo("MemTotal: 1 kB\n")
    assert lost is not None and lost.cma_is_lost is True
    assert absent is not None and absent.cma_is_lost is None


def test_no_meminfo_is_none_and_a_missing_line_is_none_not_zero() -> None:
    assert meminfo.parse_meminfo("cat: /proc/meminfo: Input/output error") is None
    partial = meminfo.parse_meminfo("MemTotal: 100 kB\nMemFree: 5 kB\n")
    assert partial is not None
    assert (partial.available_bytes, partial.page_cache_bytes, partial.swap_used_bytes) == (None, None, None)


@needs_data
def test_a_real_capture_where_the_driver_kept_eighty_gib() -> None:
    memory = meminfo.parse_meminfo((SPARK / "proc/meminfo.driver-retained.real-18-lines.txt").read_text())
    assert memory is not None
    held = memory.driver_held_bytes(0)
    assert held is not None and held > 75 * GIB


def test_pressure() -> None:
    text = (
        "some avg10=71.32 avg60=38.04 avg300=11.90 total=98211734\nfull avg10=64.10 avg60=33.51 avg300=10.02 total=8\n"
    )
    assert meminfo.parse_pressure(text) == meminfo.Pressure(71.32, 64.10, 33.51)
    assert meminfo.parse_pressure("") == meminfo.Pressure(None, None, None)


# nvidia-smi


@pytest.mark.parametrize(
    "cell",
    ["[N/A]", "N/A", "[Not Supported]", "Not Supported", "[Unknown Error]", "[Insufficient Permissions]", "", "x"],
)
def test_u59_every_spelling_of_not_available_is_none_and_not_zero(cell: str) -> None:
    assert nvidia_smi.number_or_none(cell) is None


@pytest.mark.parametrize(
    ("cell", "value"), [("12.61 W", 12.61), ("2418 MHz", 2418), ("2 %", 2), ("0", 0), ("96073", 96073)]
)
def test_numbers_with_and_without_units(cell: str, value: float) -> None:
    assert nvidia_smi.number_or_none(cell) == value


def test_a_gb10_row() -> None:
    row = "NVIDIA GB10, 580.142, 12.1, 67, 96, 48.20, 2405, 3003, Not Active, Active\n"
    (gpu,) = nvidia_smi.parse_gpus(row)
    assert gpu.is_gb10 and gpu.driver_version == "580.142"
    assert (gpu.temperature_celsius, gpu.utilization_percent, gpu.power_watts) == (67, 96, 48.2)
    assert (gpu.hardware_thermal_slowdown, gpu.software_thermal_slowdown) == (False, True)


def test_u81_other_makers_boxes_count_by_their_gpu() -> None:
    (gpu,) = nvidia_smi.parse_gpus("NVIDIA GB10, [N/A], 12.1, [N/A], 0, 10.8, 2405, 3003, Not Active, Not Active")
    assert gpu.is_gb10 and gpu.temperature_celsius is None


def test_an_error_text_is_no_gpu_and_says_why() -> None:
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    assert nvidia_smi.parse_gpus(text) == ()
    assert "driver" in (nvidia_smi.trouble(text, 9) or "")
    assert "not installed" in (nvidia_smi.trouble("bash: nvidia-smi: command not found", 127) or "")
    assert "no GPU" in (nvidia_smi.trouble("No devices were found", 6) or "")
    assert "wedged" in (nvidia_smi.trouble("", 124) or "")
    assert nvidia_smi.trouble("", 0) is None


def test_compute_processes_none_nothing_and_unknown_are_three_things() -> None:
    assert nvidia_smi.parse_compute_apps("\n") == ()
    assert nvidia_smi.parse_compute_apps("NVIDIA-SMI has failed") is None
    rows = nvidia_smi.parse_compute_apps("3150, python3, 218\n6330, sglang::scheduler, 96073\n")
    assert nvidia_smi.used_bytes(rows) == (218 + 96073) * 1024 * 1024
    assert nvidia_smi.used_bytes(()) == 0
    assert nvidia_smi.used_bytes(None) is None


def test_a_process_with_unknown_memory_makes_the_sum_unknown() -> None:
    rows = nvidia_smi.parse_compute_apps("6330, sglang::scheduler, [N/A]\n7, a, b, 12\n")
    assert rows is not None and rows[0].used_bytes is None and rows[1].name == "a, b"
    assert nvidia_smi.used_bytes(rows) is None


def test_list() -> None:
    assert nvidia_smi.parse_list("GPU 0: NVIDIA GB10 (UUID: GPU-1234)\n") == ("NVIDIA GB10",)
    assert nvidia_smi.parse_list("No devices were found") == ()


@needs_data
def test_all_scenarios_of_processes_are_read() -> None:
    text = (SPARK / "gpu/compute-apps.scenarios.constructed.csv").read_text()
    rows = nvidia_smi.parse_compute_apps(text)
    assert rows is not None and len(rows) == 6
    assert [row.name for row in rows if row.pid == 6330][2] is None  # another PID namespace: [Not Found]


# disks


DF = """\
Filesystem         1-blocks         Used    Available Capacity Mounted on
/dev/nvme0n1p2 3936818806784 199000000000 3500000000000       6% /
/dev/nvme0n1p2 3936818806784 199000000000 3500000000000       6% /
tmpfs            64000000000            0   64000000000       0% /dev/shm
10.0.22.1:/    3936818806784            0             0       0% /mnt/with space
"""


def test_u19_the_same_filesystem_is_counted_once() -> None:
    rows = df.parse_df(DF)
    assert [row.mount for row in rows] == ["/", "/", "/dev/shm", "/mnt/with space"]
    assert rows[0].available_bytes == 3_500_000_000_000
    assert len(df.distinct(rows)) == 3


def test_two_tmpfs_of_one_size_are_two() -> None:
    rows = df.parse_df("tmpfs 10 0 10 0% /a\ntmpfs 10 0 10 0% /b\n")
    assert len(df.distinct(rows)) == 2


def test_df_errors_are_no_rows() -> None:
    assert df.parse_df("df: /data: No such file or directory\n") == ()


# host


def test_uname_of_a_spark_and_of_a_text_that_is_none() -> None:
    text = (
        "Linux spark-a 6.17.0-1014-nvidia #14-Ubuntu SMP PREEMPT_DYNAMIC Tue Mar 17 aarch64 aarch64 aarch64 GNU/Linux"
    )
    assert host.parse_uname(text) == host.Uname("spark-a", "6.17.0-1014-nvidia", "aarch64")
    assert host.parse_uname("Linux host 6.1.0 x86_64") == host.Uname("host", "6.1.0", "x86_64")
    assert host.parse_uname("sh: uname: not found") == host.Uname(None, None, None)


def test_the_last_update_is_the_dgx_os_version() -> None:
    release = host.parse_release(
        'DGX_SWBUILD_VERSION="7.2.3"\nDGX_OTA_VERSION="7.4.0"\nDGX_OTA_VERSION="7.5.0"\nnoise\n'
    )
    assert host.dgx_os_version(release) == "7.5.0"
    assert host.dgx_os_version({}) is None


def test_u12_the_groups_of_the_session_and_of_the_file_are_two_things() -> None:
    session = host.parse_id("uid=1000(spark) gid=1000(spark) groups=1000(spark),4(adm),27(sudo)")
    assert (session.user, session.uid, session.groups) == ("spark", 1000, ("spark", "adm", "sudo"))
    assert host.group_members("root:x:0:\ndocker:x:999:spark,other\n", "docker") == ("spark", "other")
    assert host.group_members("docker:x:999:\n", "docker") == ()
    assert host.group_members("root:x:0:\n", "docker") is None


def test_processes() -> None:
    rows = host.parse_processes("   1     0 root     /sbin/init splash\n  77   1 spark python3 -m x y\nnoise\n")
    assert rows == (host.Process(1, 0, "root", "/sbin/init splash"), host.Process(77, 1, "spark", "python3 -m x y"))


# Docker


def test_u12_docker_s_refusals_are_told_apart() -> None:
    texts = {
        "permission": "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
        "absent": "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "missing": "/bin/sh: 1: docker: not found",
        "context": 'current context "desktop-linux" is not found on the file system',
        "runtime": "docker: Error response from daemon: unknown or invalid runtime name: nvidia",
    }
    assert {kind: docker.docker_trouble(text) for kind, text in texts.items()} == {kind: kind for kind in texts}
    assert docker.docker_trouble("something else") is None


def test_engine_info_from_json() -> None:
    answer = {
        "ServerVersion": "28.5.1",
        "Architecture": "aarch64",
        "Runtimes": {"runc": {}, "nvidia": {}},
        "DockerRootDir": "/var/lib/docker",
        "Driver": "overlay2",
        "CgroupVersion": "2",
        "MemTotal": 5,
    }
    info = docker.parse_info(json.dumps(answer))
    assert (info.server_version, info.has_nvidia_runtime, info.memory_bytes) == ("28.5.1", True, 5)
    assert docker.parse_info("[]").has_nvidia_runtime is None


@needs_data
@pytest.mark.parametrize(("name", "there"), [("registered", True), ("unregistered", False)])
def test_engine_info_from_the_human_form(name: str, there: bool) -> None:
    info = docker.parse_info((SPARK / f"host/docker-info.nvidia-{name}.constructed.txt").read_text())
    assert info.has_nvidia_runtime is there
    assert (info.architecture, info.root_dir, info.storage_driver) == ("aarch64", "/var/lib/docker", "overlay2")


def test_an_ended_container() -> None:
    facts = docker.container_facts(
        {
            "Name": "/dsv41-worker",
            "State": {"Status": "exited", "ExitCode": 137, "OOMKilled": True, "Error": ""},
            "Config": {"Image": "i:local", "Labels": {"sparktui.owner": "sparktui"}},
        }
    )
    assert (facts.name, facts.running, facts.exit_code, facts.oom_killed) == ("dsv41-worker", False, 137, True)
    assert facts.labels == {"sparktui.owner": "sparktui"}
    empty = docker.container_facts({})
    assert (empty.running, empty.exit_code, empty.oom_killed) == (None, None, None)


def test_u20_an_image_for_another_processor() -> None:
    facts = docker.image_facts(
        {"Architecture": "amd64", "RootFS": {"Layers": ["sha256:a"]}, "Config": {"Labels": None}}
    )
    assert docker.architecture_matches(facts.architecture, "aarch64") is False
    assert docker.architecture_matches("arm64", "aarch64") is True
    assert docker.architecture_matches(None, "aarch64") is None


def test_u50_the_options_tell_nfs_from_a_bind() -> None:
    nfs = docker.volume_facts({"Name": "w", "Options": {"type": "nfs", "o": "addr=10.0.22.1,ro", "device": ":/"}})
    bind = docker.volume_facts({"Name": "w", "Options": {"type": "none", "o": "bind", "device": "/m"}})
    assert (nfs.is_nfs, nfs.server) == (True, "10.0.22.1")
    assert (bind.is_nfs, bind.server) == (False, None)
    assert docker.volume_facts({"Options": None}).server is None


# whatever arrives


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["State", "Config", "Labels", "RootFS", "Layers", "Options", "Name", "Runtimes", "Health", "RepoDigests", "o"]


@given(st.dictionaries(st.sampled_from(KEYS), PLAIN))
def test_any_answer_of_docker_gives_facts(answer: dict[str, Any]) -> None:
    docker.engine_info(answer)
    docker.container_facts(answer)
    docker.image_facts(answer)
    docker.volume_facts(answer).server  # noqa: B018


LINES = st.sampled_from([*SERVING.splitlines(), *DF.splitlines(), "a, b, c", "uid=1(x) groups=1(x),", "docker:x:1"])


@given(st.lists(st.text(max_size=40) | LINES, max_size=12).map("\n".join))
def test_any_text_is_read_or_unknown(text: str) -> None:
    memory = meminfo.parse_meminfo(text)
    if memory is not None:
        held = memory.driver_held_bytes(0)
        assert held is None or held >= 0
    meminfo.parse_pressure(text)
    nvidia_smi.parse_gpus(text)
    nvidia_smi.parse_list(text)
    nvidia_smi.used_bytes(nvidia_smi.parse_compute_apps(text))
    nvidia_smi.trouble(text, 1)
    assert len(df.distinct(df.parse_df(text))) <= len(df.parse_df(text))
    host.parse_uname(text)
    host.parse_release(text)
    host.parse_id(text)
    host.group_members(text, "docker")
    host.parse_processes(text)
    docker.parse_info(text)
    docker.docker_trouble(text)
