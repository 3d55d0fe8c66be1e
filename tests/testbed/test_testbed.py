"""The simulated Sparks are what they claim to be, and leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed import HOME, Testbed, slots
from tests.testbed.fabric import LAN_NETDEV, NETDEVS, plan_fabric
from tests.testbed.processes import cgroup_dirs

pytestmark = pytest.mark.testbed
REPOSITORY = Path(__file__).resolve().parents[2]
SSH = ("ssh", "-n", "-i", f"{HOME}/.ssh/id_ed25519_shared", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")


def traces(slot: int) -> set[str]:
    """Everything on the host that belongs to a slot; empty when it is gone. (Another slot may be in use meanwhile.)"""
    folder = str(slots.slot_dir(slot))
    found = {f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder in line}
    netdevs = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    inner = [LAN_NETDEV, *(netdev.name for netdev in NETDEVS)]
    found |= {f"netdev {name}" for name in (f"spkhost{slot}", *inner) if f": {name}" in netdevs}
    for entry in (entry for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with contextlib.suppress(OSError):
            if folder.encode() in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                found.add(f"process {(entry / 'cmdline').read_bytes()!r}")
    found |= {f"cgroup {path}" for path in cgroup_dirs(slots.slot_cgroup(slot))}
    found |= {f"in {place}: {path.name}" for place in ("/run", "/dev") for path in Path(place).glob("*sparktui*")}
    found |= {"/dev/infiniband"} if Path("/dev/infiniband").exists() else set()
    return found | ({folder} if Path(folder).exists() else set())


def free_slot() -> int:
    """The highest: other test processes take the lowest, also one that was given up a moment ago."""
    return next(number for number in reversed(slots.SLOTS) if not slots.slot_dir(number).exists())


def ssh(testbed: Testbed, host: str, command: str) -> str:
    return testbed.head.run([*SSH, host, command]).stdout.strip()


def left_after_a_while(slot: int) -> set[str]:
    """What of a testbed is still there; the kernel takes a network namespace apart some time after its last process."""
    end = time.monotonic() + 20
    while (left := traces(slot)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


class TestAsItIs:
    """On the session's three; nothing here changes them for good."""

    def test_each_node_has_its_own_name_home_memory_and_shm(self, three_sparks: Testbed) -> None:
        for node in three_sparks.nodes:
            said = node.run(["sh", "-c", "hostname; echo ~; grep -c . /proc/meminfo; ls -A /dev/shm; ls /tmp"]).stdout
            assert said.split()[:2] == [node.name, HOME]
            node.write_file("/dev/shm/mine", "x")
            node.write_file("/tmp/mine", "x")
        others = [node.path("/dev/shm/mine").stat().st_dev for node in three_sparks.nodes]
        assert len(set(others)) == 3, "three /dev/shm, or SGLang's ranks believe that they share a host"
        for node in three_sparks.nodes:
            node.path("/dev/shm/mine").unlink()
            node.path("/tmp/mine").unlink()
        assert not Path("/tmp/mine").exists()

    def test_meminfo_is_a_sparks_and_changes_while_it_runs(self, three_sparks: Testbed) -> None:
        head = three_sparks.head
        before = head.read_file("/proc/meminfo").splitlines()[0]
        assert before == "MemTotal:       127600748 kB"
        head.set_meminfo(MemAvailable=900_000)
        try:
            assert "MemAvailable:     900000 kB" in head.run(["cat", "/proc/meminfo"]).stdout
            assert "MemAvailable:   119537664 kB" in three_sparks.workers[0].read_file("/proc/meminfo")
        finally:
            head.set_meminfo()

    def test_head_reaches_every_worker_by_name_lan_and_each_cable(self, three_sparks: Testbed) -> None:
        for worker in three_sparks.workers:
            pair = three_sparks.plan.between(1, worker.number)
            assert pair is not None
            for host in (worker.name, worker.address, pair[1], f"spark@{worker.name}"):
                assert ssh(three_sparks, host, "hostname") == worker.name

    def test_a_triangle_joins_p0_of_each_to_p1_of_the_next(self, three_sparks: Testbed) -> None:
        for node in three_sparks.nodes:
            for port in node.ports:
                assert port.cable is not None
                peer = next(
                    other
                    for node_other in three_sparks.nodes
                    for other in node_other.ports
                    if (other.cable, other.netdev.path) == (port.cable, port.netdev.path) and other.node != port.node
                )
                assert {port.netdev.cage, peer.netdev.cage} == {"p0", "p1"}
                greeting = f"exec 3<>/dev/tcp/{peer.address}/22; head -c 4 <&3"
                assert node.run(["bash", "-c", greeting], timeout=10).stdout == "SSH-"

    def test_rdma_tree_carries_the_addresses_of_its_netdevs(self, three_sparks: Testbed) -> None:
        for node in three_sparks.nodes:
            for port in node.ports:
                device = f"/sys/class/infiniband/{port.netdev.rdma}"
                assert node.run(["ls", f"{device}/device/net"]).stdout.split() == [port.netdev.name]
                assert node.read_file(f"{device}/ports/1/state") == "4: ACTIVE\n"
                assert node.read_file(f"{device}/ports/1/gid_attrs/types/3") == "RoCE v2\n"
                tail = node.read_file(f"{device}/ports/1/gids/3").strip().replace(":", "")[-8:]
                assert ".".join(str(byte) for byte in bytes.fromhex(tail)) == port.address
                in_net = node.run(["cat", f"/sys/class/net/{port.netdev.name}/phys_port_name"]).stdout.strip()
                assert in_net == port.netdev.cage
                assert f" {port.address}/" in node.run(["ip", "-o", "-4", "addr", "show", port.netdev.name]).stdout

    def test_gpu_answers_as_a_gb10(self, three_sparks: Testbed) -> None:
        ask = ["nvidia-smi", "--format=csv,noheader,nounits"]
        assert ssh(three_sparks, "spk2", "nvidia-smi -L").startswith("GPU 0: NVIDIA GB10 (UUID: GPU-")
        row = three_sparks.head.run([*ask, "--query-gpu=name,memory.total,power.draw,clocks.sm"]).stdout
        assert row == "NVIDIA GB10, [N/A], 12.61, 2418\n"
        apps = [*ask, "--query-compute-apps=pid,process_name,used_memory"]
        assert three_sparks.head.run(apps).stdout == ""
        three_sparks.head.set_gpu(apps=[(6330, "sglang::scheduler", 96073), (7121, "python3", None)])
        try:
            assert three_sparks.head.run(apps).stdout == "6330, sglang::scheduler, 96073\n7121, python3, [N/A]\n"
        finally:
            three_sparks.head.set_gpu(apps=[])
        refused = three_sparks.head.run([*ask, "--query-gpu=name,bogus"], check=False)
        assert refused.returncode == 2 and "bogus" in refused.stdout

    def test_the_full_option_list_starts(self, three_sparks: Testbed) -> None:
        """What the product's `docker run` asks for, on a machine without GPU, InfiniBand and CAP_SYS_RESOURCE."""
        head = three_sparks.head
        head.docker("pull", "--quiet", three_sparks.tiny_image)
        options = "--rm --network host --ipc host --privileged --gpus all --ulimit memlock=-1:-1 --init"
        options += " --ulimit stack=67108864:67108864 --device /dev/infiniband --shm-size 34359738368"
        said = head.docker("run", *options.split(), three_sparks.tiny_image, "ls", "/dev/infiniband")
        assert "uverbs0" in said.split() and "rdma_cm" in said.split()

    def test_containers_of_two_nodes_talk_over_a_cable(self, three_sparks: Testbed) -> None:
        head, worker = three_sparks.head, three_sparks.workers[0]
        pair = three_sparks.plan.between(1, 2)
        assert pair is not None
        for node in (head, worker):
            node.docker("pull", "--quiet", three_sparks.tiny_image)
        image = three_sparks.tiny_image
        serve = ("sh", "-c", "echo hello | nc -l -p 5555")
        worker.docker("run", "--detach", "--name", "listener", "--network", "host", image, *serve)
        try:
            ask = f"for i in 1 2 3 4 5 6 7 8 9; do nc -w 5 {pair[1]} 5555 && break; sleep 1; done"
            said = head.docker("run", "--rm", "--network", "host", image, "sh", "-c", ask)
        finally:
            worker.docker("rm", "--force", "listener")
        assert said == "hello\n"

    def test_an_image_is_pulled_by_digest_built_on_and_moved(self, three_sparks: Testbed) -> None:
        head, worker = three_sparks.head, three_sparks.workers[1]
        head.docker("pull", "--quiet", three_sparks.tiny_image)
        [by_digest] = json.loads(
            head.docker("image", "inspect", "--format", "{{json .RepoDigests}}", three_sparks.tiny_image)
        )
        head.write_file("/tmp/context/Dockerfile", f"FROM {by_digest}\nRUN echo built > /etc/proof\n")
        head.run(["docker", "build", "--quiet", "--tag", "proof:local", "/tmp/context"], env={"DOCKER_BUILDKIT": "0"})
        head.run(
            ["sh", "-c", f"docker save proof:local | {' '.join(SSH).replace(' -n', '')} {worker.name} docker load"]
        )
        assert worker.docker("run", "--rm", "--network", "none", "proof:local", "cat", "/etc/proof") == "built\n"
        identity = ("image", "inspect", "--format", "{{json .RootFS.Layers}}", "proof:local")
        assert head.docker(*identity) == worker.docker(*identity)
        for node in (head, worker):
            node.docker("rmi", "--force", "proof:local")

    def test_a_killed_command_leaves_nothing_running_in_the_node(self, three_sparks: Testbed) -> None:
        node = three_sparks.workers[1]
        process = node.popen(["sh", "-c", "echo started; exec sleep 4711"], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"started\n"
        process.kill()
        process.wait()
        process.stdout.close()
        for _ in range(50):
            if not node.run(["pgrep", "-f", "sleep 4711"], check=False).stdout:
                return
            time.sleep(0.05)
        pytest.fail("the inner process outlived its nsenter")


class TestAsItBreaks:
    """Each with a testbed of its own."""

    def test_pulled_cable_frozen_node_and_dead_node(self, sparks: Callable[..., Testbed]) -> None:
        testbed = sparks(3, registry=False)
        head, second, third = testbed.nodes
        testbed.pull_cable(head, second)
        for node, netdev, rdma in ((head, "enp1s0f0np0", "rocep1s0f0"), (second, "enp1s0f1np1", "rocep1s0f1")):
            assert "NO-CARRIER" in node.run(["ip", "link", "show", netdev]).stdout
            assert node.run(["cat", f"/sys/class/net/{netdev}/carrier"]).stdout == "0\n"
            assert node.read_file(f"/sys/class/infiniband/{rdma}/ports/1/state") == "1: DOWN\n"
        assert "NO-CARRIER" not in third.run(["ip", "link", "show", "enp1s0f0np0"]).stdout
        testbed.plug_cable(head, second)
        assert head.read_file("/sys/class/infiniband/rocep1s0f0/ports/1/state") == "4: ACTIVE\n"

        ask = [*SSH, "-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1", second.name, "true"]
        second.freeze()
        assert head.run(["bash", "-c", f"exec 3<>/dev/tcp/{second.address}/22"], timeout=10).returncode == 0
        assert head.run(ask, check=False, timeout=30).returncode == 255
        second.thaw()
        assert head.run(ask, timeout=30).returncode == 0

        third.write_file(f"{HOME}/kept", "on disk")
        third.kill()
        assert not third.is_on
        assert head.run([*SSH, third.name, "true"], check=False, timeout=30).returncode == 255
        testbed.reboot(third)
        assert ssh(testbed, third.name, "cat kept") == "on disk"
        assert third.docker("ps", "--quiet") == ""

        testbed.unplug_lan(third)
        pair = testbed.plan.between(1, 3)
        assert pair is not None and ssh(testbed, pair[1], "hostname") == third.name, "the fabric is another network"

    def test_sshd_can_forbid_forwarding_and_hosts_can_be_unknown(self, sparks: Callable[..., Testbed]) -> None:
        testbed = sparks(3, registry=False, known_hosts=False)
        unknown = testbed.head.run([*SSH, "spk2", "true"], check=False)
        assert unknown.returncode == 255 and "Host key verification failed" in unknown.stderr
        testbed.head.write_file(f"{HOME}/.ssh/known_hosts", testbed.known_hosts_line(testbed.workers[0]))
        testbed.workers[0].start_sshd("AllowStreamLocalForwarding no\nAllowTcpForwarding no\n")
        testbed.workers[0].wait_ready()
        forward = ["-L", "/tmp/d.sock:/run/docker.sock", "-o", "ExitOnForwardFailure=yes"]
        said = testbed.head.run([*SSH[:2], *forward, *SSH[2:], "spk2", "sleep 2"], check=False)
        asked = testbed.head.run(["docker", "-H", "unix:///tmp/d.sock", "version"], check=False)
        assert said.returncode in (0, 255) and asked.returncode != 0

    @pytest.mark.parametrize("kind", ["ring", "switch"])
    def test_four_nodes(self, sparks: Callable[..., Testbed], kind: str) -> None:
        testbed = sparks(4, kind, registry=False)
        reach = {"ring": {2: True, 3: False, 4: True}, "switch": {2: True, 3: True, 4: True}}[kind]
        for worker in testbed.workers:
            pair = testbed.plan.between(1, worker.number)
            assert (pair is not None) == reach[worker.number]
            if pair is not None:
                greeting = f"exec 3<>/dev/tcp/{pair[1]}/22; head -c 4 <&3"
                assert testbed.head.run(["bash", "-c", greeting], timeout=10).stdout == "SSH-"
        up = {port.netdev.name for port in testbed.head.ports if port.cable is not None}
        assert len(up) == (4 if kind == "ring" else 2)
        for netdev in NETDEVS:
            said = testbed.head.read_file(f"/sys/class/infiniband/{netdev.rdma}/ports/1/state")
            assert said == ("4: ACTIVE\n" if netdev.name in up else "1: DOWN\n")

    def test_gone_without_a_trace(self, sparks: Callable[..., Testbed]) -> None:
        started = time.monotonic()
        testbed = sparks(3, slot=free_slot())
        print(f"up: {time.monotonic() - started:.1f} s")
        for node in testbed.nodes:
            node.docker("pull", "--quiet", testbed.tiny_image)
            node.docker("run", "--detach", "--privileged", "--network", "host", testbed.tiny_image, "sleep", "1000")
        kinds = {trace.split()[0] for trace in traces(testbed.slot)}
        assert {"process", "netdev", "cgroup"} <= kinds, "the test would see them"
        started = time.monotonic()
        testbed.down()
        print(f"down: {time.monotonic() - started:.1f} s")
        assert left_after_a_while(testbed.slot) == set()
        with Testbed(3, slot=testbed.slot, registry=False) as another:
            testbed.down()
            assert another.head.run(["hostname"]).stdout == "spk1\n", "a second `down` is not somebody else's end"

    def test_a_crashed_owner_is_cleared_away_by_the_next_start(self) -> None:
        slot = free_slot()
        program = (
            f"import time; from tests.testbed import Testbed; t = Testbed(3, slot={slot}, registry=False).up();"
            "t.head.write_file('/home/spark/old', ''); print(t.slot, flush=True); time.sleep(600)"
        )
        crashed = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        assert crashed.stdout is not None
        assert int(crashed.stdout.readline()) == slot
        crashed.kill()
        crashed.wait()
        crashed.stdout.close()
        assert traces(slot), "a killed owner cannot clean up"
        with Testbed(3, slot=slot, registry=False) as testbed:
            assert not (testbed.head.home / "old").exists()
            assert testbed.head.run(["hostname"]).stdout == "spk1\n"
        assert left_after_a_while(slot) == set()

    def test_by_hand(self) -> None:
        slot = free_slot()

        def tool(*argv: str, status: int = 0) -> str:
            done = subprocess.run(
                [sys.executable, "-m", "tests.testbed", "--slot", str(slot), *argv],
                cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            assert done.returncode == status, done.stderr
            return done.stdout + done.stderr

        printed = tool("up", "--nodes", "4")
        try:
            assert 'WORKER_HOSTS="spk2 spk3 spk4"' in printed and 'TP_SIZE="4"' in printed
            assert "in use" in tool("up", status=1)
            assert tool("run", "spk3", "--", "hostname") == "spk3\n"
            assert tool("run", "spk1", "--", "cat", f"{HOME}/dsv41/.env.tp4") == tool("env")
            assert "no node spk9" in tool("run", "spk9", "--", "true", status=1)
            assert slot in slots.by_hand()
        finally:
            tool("down")
        assert left_after_a_while(slot) == set()


def test_impossible_fabrics_are_refused() -> None:
    with pytest.raises(ValueError, match="three nodes"):
        plan_fabric("triangle", 4)


def test_subnets_are_one_a_cable_and_path() -> None:
    for kind, nodes in (("triangle", 3), ("ring", 4)):
        plan = plan_fabric(kind, nodes)  # type: ignore[arg-type]
        subnets: dict[str, set[tuple[int, str]]] = {}
        for port in plan.ports:
            assert port.address is not None and port.cable is not None
            subnets.setdefault(port.address.rsplit(".", 1)[0], set()).add((port.cable, port.netdev.path))
        assert len(subnets) == 2 * nodes and all(len(wires) == 1 for wires in subnets.values())
        assert len({port.address for port in plan.ports}) == len(plan.ports)
