"""Three or four simulated Sparks on this machine: real sshd, real Docker Engines, a real registry, cables to pull."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.testbed import images, slots, sysfs
from tests.testbed.fabric import LAN_NETDEV, Fabric, Port, lan_mac, mac, plan_fabric
from tests.testbed.images import SGLANG, TINY
from tests.testbed.node import HOME, SimulatedSpark, TestbedError

REGISTRY_PORT = 15000
RECIPE_DIR = f"{HOME}/dsv41"
MODEL = "DeepSeek-V4.1-Flash-1017"


class Testbed:
    """A simulated cluster; `with Testbed() as testbed:` brings it up and removes every trace of it.

    Attributes:
        nodes: spk1 … spkN; `head` is the first, `workers` the others.
        base_image: the tag that BASE_IMAGE takes, at a registry that every node reaches.
        tiny_image: a busybox image at the same registry, for speed.
    """

    __test__ = False

    def __init__(
        self,
        nodes: int = 3,
        fabric: Fabric | None = None,
        *,
        slot: int | None = None,
        known_hosts: bool = True,
        registry: bool = True,
        engine: bool = True,
        by_hand: bool = False,
    ) -> None:
        """Plan it; nothing runs yet.

        Args:
            fabric: triangle for three nodes and ring for four, unless said otherwise.
            known_hosts: whether the head already knows the other nodes' host keys.
            engine: bind the cached SGLang environment at /opt/sglang in every container, where the cache has it.
            by_hand: it outlives this process, until `python -m tests.testbed down`.
        """
        self.plan = plan_fabric(fabric or {3: "triangle", 4: "ring"}.get(nodes, "switch"), nodes)  # type: ignore[arg-type]
        self.slot = slots.claim(slot)
        self.known_hosts, self.registry, self.by_hand = known_hosts, registry, by_hand
        self.folder = slots.slot_dir(self.slot)
        self.subnet = f"10.78.{self.slot}"
        self.host_netdev = f"spkhost{self.slot}"
        self._gone = False
        self._switch: subprocess.Popen[bytes] | None = None
        self._switch_pid: int | None = None
        engine_dir = images.cache_dir() / "engine-0.5.23"
        self.binds: list[dict[str, Any]] = []
        if engine and engine_dir.is_dir():
            self.binds.append({"source": str(engine_dir), "target": "/opt/sglang", "read_only": True})
        self.nodes = self._make_nodes(nodes)
        self.head, self.workers = self.nodes[0], self.nodes[1:]

    # -- life -----------------------------------------------------------------------------------------------------

    def up(self) -> Testbed:
        """Bring everything up; on any failure every trace is removed before the error is raised."""
        try:
            cached = images.ensure_registry_cache() if self.registry else None
            self._start_switch()
            self._lay_out(cached)
            with ThreadPoolExecutor(len(self.nodes)) as pool:
                list(pool.map(SimulatedSpark.boot, self.nodes))
            self._wire_host()
            for node in self.nodes:
                self._wire(node)
                node.start_daemons()
            if self.registry:
                self._start_registry()
            for node in self.nodes:
                node.wait_ready()
            if self.by_hand:
                slots.leave_running(self.slot)
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        """Remove it; twice is fine."""
        if self._gone:
            return  # the slot may be somebody else's by now
        slots.remove(self.slot)
        self._gone = True
        if self._switch is not None:
            self._switch.wait()
            self._switch = None
        for node in self.nodes:
            node.forget()

    def __enter__(self) -> Testbed:
        return self.up()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @classmethod
    def attach(cls, slot: int = 0) -> Testbed:
        """Take hold of a testbed that another process brought up.

        Raises:
            TestbedError: there is none in that slot.
        """
        folder = slots.slot_dir(slot)
        try:
            fabric, nodes = (folder / "shape").read_text().split()
        except FileNotFoundError:
            raise TestbedError(f"no testbed in slot {slot}: `python -m tests.testbed up` makes one") from None
        found = cls.__new__(cls)
        found.plan = plan_fabric(fabric, int(nodes))  # type: ignore[arg-type]
        found.slot, found.folder, found.subnet = slot, folder, f"10.78.{slot}"
        found.host_netdev, found.registry, found.binds, found._switch = f"spkhost{slot}", True, [], None
        found._gone, found.known_hosts, found.by_hand = False, True, True
        found._switch_pid = int((folder / "switch.pid").read_text())
        found.nodes = found._make_nodes(int(nodes))
        found.head, found.workers = found.nodes[0], found.nodes[1:]
        for node in found.nodes:
            node.pid = int((node.folder / "pid").read_text()) if (node.folder / "pid").exists() else None
        return found

    def reboot(self, node: SimulatedSpark) -> None:
        """Cut a node's power and start it again: its disks stay, /run and /dev/shm do not."""
        node.kill()
        node.boot()
        self._wire(node)
        node.start_daemons()
        if node is self.head and self.registry:
            self._start_registry()
        node.wait_ready()

    # -- cables ---------------------------------------------------------------------------------------------------

    def pull_cable(self, node: SimulatedSpark, other: SimulatedSpark | None = None) -> None:
        """Pull the cable between two nodes (or to the switch): no carrier, RDMA ports DOWN at both ends."""
        self._set_cable(node, other, up=False)

    def plug_cable(self, node: SimulatedSpark, other: SimulatedSpark | None = None) -> None:
        self._set_cable(node, other, up=True)

    def unplug_lan(self, node: SimulatedSpark) -> None:
        """Cut the node from the management network (the fabric stays)."""
        self._in_switch(f"link set dev lan{node.number} down")

    def plug_lan(self, node: SimulatedSpark) -> None:
        self._in_switch(f"link set dev lan{node.number} up")

    # -- settings -------------------------------------------------------------------------------------------------

    @property
    def registry_address(self) -> str:
        return f"{self.head.address}:{REGISTRY_PORT}"

    @property
    def base_image(self) -> str:
        return f"{self.registry_address}/{SGLANG[0]}:{SGLANG[1]}"

    @property
    def tiny_image(self) -> str:
        return f"{self.registry_address}/{TINY[0]}:{TINY[1]}"

    def env(self, **changed: str) -> dict[str, str]:
        """Settings of this cluster by the product's names; `changed` wins."""
        count = len(self.nodes)
        pairs = [self.plan.between(1, node.number) or (self.head.address, node.address) for node in self.workers]
        values = {
            "HEAD_IP": self.head.address,
            "WORKER_IPS": " ".join(node.address for node in self.workers),
            "WORKER_HOSTS": " ".join(node.name for node in self.workers),
            "WORKER_USER": "root",
            "SSH_IDENTITY": f"{HOME}/.ssh/id_ed25519_shared",
            "WORKER_DIR": RECIPE_DIR,
            "WORKER_FABRIC_IPS": " ".join(worker for _, worker in pairs),
            "NFS_SERVER_IPS": " ".join(head for head, _ in pairs),
            "MODEL_DIR": f"{HOME}/models/{MODEL}",
            "COMMON_MODEL": f"/var/tmp/{MODEL}",
            "WORKER_MODEL_DIR": f"{HOME}/models/{MODEL}",
            "ENGRAM_DIR": f"{HOME}/dsv41-engram",
            "WORKER_ENGRAM_DIR": f"{RECIPE_DIR}/engram",
            "NFS_SHARE": "0",
            "BASE_IMAGE": self.base_image,
            "NNODES": str(count),
            "TP_SIZE": str(count),
            "NCCL_SOCKET_IFNAME": LAN_NETDEV,
            "GLOO_SOCKET_IFNAME": LAN_NETDEV,
        }
        return values | changed

    def env_text(self, **changed: str) -> str:
        return "".join(f'{name}="{value}"\n' for name, value in self.env(**changed).items())

    def write_env(self, name: str | None = None, **changed: str) -> str:
        """Write the settings where a user keeps them on the head, and return that path (as the head sees it)."""
        inner = f"{RECIPE_DIR}/{name or ('.env.tp4' if len(self.nodes) == 4 else '.env')}"
        self.head.write_file(inner, self.env_text(**changed), mode=0o600)
        return inner

    # -- inside ---------------------------------------------------------------------------------------------------

    def _make_nodes(self, count: int) -> list[SimulatedSpark]:
        return [
            SimulatedSpark(
                number=number,
                name=f"spk{number}",
                folder=self.folder / f"spk{number}",
                address=f"{self.subnet}.{number}",
                ports=self.plan.of(number),
                cgroup=f"{slots.slot_cgroup(self.slot)}/spk{number}",
            )
            for number in range(1, count + 1)
        ]

    def _start_switch(self) -> None:
        self._switch = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, slots.MARK: str(self.folder)},
        )  # fmt: skip
        self._switch_pid = self._switch.pid
        (self.folder / "switch.pid").write_text(str(self._switch.pid))
        (self.folder / "shape").write_text(f"{self.plan.kind} {len(self.nodes)}")
        mine = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{self._switch.pid}/ns/net").readlink() == mine:
            os.sched_yield()
        lines = ["link add name lan type bridge", "link set dev lan up"]
        for bridge in sorted({_bridge(self.plan.kind, port) for node in self.nodes for port in node.ports}):
            lines += [f"link add name {bridge} mtu 9000 type bridge", f"link set dev {bridge} up"]
        self._in_switch(*lines)

    def _lay_out(self, cached: Path | None) -> None:
        if shutil.disk_usage(self.folder).free < 1 << 30:
            raise TestbedError(f"less than 1 GiB free in {self.folder}")
        names = [f"{node.address}\t{node.name} {node.name}.local" for node in self.nodes]
        names += [
            f"{port.address}\t{node.name}-{port.netdev.name}"
            for node in self.nodes
            for port in node.ports
            if port.address
        ]
        hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost\n" + "\n".join(names) + "\n"
        driver = _storage_driver(self.folder)
        for node in self.nodes:
            node.lay_out(hosts=hosts, registries=[f"{self.subnet}.0/24"], storage_driver=driver, binds=self.binds)
        secret = self.head.home / ".ssh/id_ed25519_shared"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "testbed", "-f", str(secret)], check=True, timeout=30
        )
        public = secret.with_suffix(".pub").read_text()
        for node in self.nodes:
            (node.home / ".ssh/authorized_keys").write_text(public)
        if self.known_hosts:
            (self.head.home / ".ssh/known_hosts").write_text(
                "".join(self.known_hosts_line(node) for node in self.nodes)
            )
        if cached is not None:
            folder = self.head.folder / "registry"
            for name in ("upper", "work", "store"):
                (folder / name).mkdir(parents=True)
            if driver == "overlay2":
                (folder / "lower").write_text(str(cached))  # node_init lays an overlay: the cache stays as it is
            else:
                shutil.copytree(cached, folder / "store", dirs_exist_ok=True)
            (folder / "config.yml").write_text(images.registry_config(folder / "store", f"0.0.0.0:{REGISTRY_PORT}"))

    def known_hosts_line(self, node: SimulatedSpark) -> str:
        addresses = [node.name, node.address, *(port.address for port in node.ports if port.address)]
        return f"{','.join(addresses)} {node.host_key}\n"

    def _start_registry(self) -> None:
        config = self.head.folder / "registry/config.yml"
        self.head.start_daemon(["docker-registry", "serve", str(config)], log="registry.log")
        images.wait_answering(f"http://{self.registry_address}")

    def _wire_host(self) -> None:
        self._in_switch(
            f"link add name host type veth peer name {self.host_netdev} netns {os.getpid()}",
            "link set dev host master lan",
            "link set dev host up",
        )
        _ip([f"addr add {self.subnet}.254/24 dev {self.host_netdev}", f"link set dev {self.host_netdev} up"])

    def _wire(self, node: SimulatedSpark) -> None:
        outside = [
            f"link add name lan{node.number} type veth peer name {LAN_NETDEV} netns {node.pid}",
            f"link set dev lan{node.number} master lan",
            f"link set dev lan{node.number} up",
        ]
        inside = [
            f"link set dev {LAN_NETDEV} address {lan_mac(node.number)}",
            f"addr add {node.address}/24 dev {LAN_NETDEV}",
            f"link set dev {LAN_NETDEV} up",
        ]
        for port in node.ports:
            peer, netdev = _peer(port), port.netdev.name
            outside.append(f"link add name {peer} mtu 9000 type veth peer name {netdev} netns {node.pid}")
            outside.append(f"link set dev {peer} master {_bridge(self.plan.kind, port)}")
            outside += [f"link set dev {peer} up"] if port.cable is not None else []
            inside.append(f"link set dev {netdev} mtu 9000 address {mac(node.number, port.netdev.mac_offset)}")
            inside += [f"addr add {port.address}/24 dev {netdev}"] if port.address else []
            inside.append(f"link set dev {netdev} up")
        self._in_switch(*outside)
        _ip(inside, of=node.pid)

    def _set_cable(self, node: SimulatedSpark, other: SimulatedSpark | None, *, up: bool) -> None:
        cables = {port.cable for port in node.ports if port.cable is not None}
        if other is not None:
            cables &= {port.cable for port in other.ports}
        if not cables:
            raise TestbedError(f"no cable between {node.name} and {other.name if other else 'the switch'}")
        cable = min(cables)
        for end in self.nodes:
            for port in end.ports:
                if port.cable == cable:
                    self._in_switch(f"link set dev {_peer(port)} {'up' if up else 'down'}")
                    sysfs.set_rdma_link(end.folder / "sys-class", port, up=up)

    def _in_switch(self, *lines: str) -> None:
        _ip(lines, of=self._switch_pid)


def _ip(lines: Sequence[str], of: int | None = None) -> None:
    """Run `ip` commands in the network namespace of process `of` (or here)."""
    enter = ["nsenter", "--target", str(of), "--net"] if of is not None else []
    done = subprocess.run(
        [*enter, "ip", "-batch", "-"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if done.returncode != 0:
        raise TestbedError(f"ip: {done.stderr.strip()}")


def _peer(port: Port) -> str:
    return f"n{port.node}{port.netdev.cage}{port.netdev.path}"


def _bridge(kind: str, port: Port) -> str:
    """The wire of a port: a bridge a (cable, path) in the switch's namespace, so that a pulled cable has no carrier."""
    if port.cable is None:
        return "unplugged"
    return f"fabric{port.netdev.path}" if kind == "switch" else f"cable{port.cable}{port.netdev.path}"


def _storage_driver(folder: Path) -> str:
    found = subprocess.run(
        ["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, timeout=10, check=True
    )
    known = Path("/proc/filesystems").read_text()
    return "overlay2" if "overlay" in known and found.stdout.strip() not in ("overlayfs", "overlay") else "vfs"


__all__ = ["RECIPE_DIR", "Testbed"]
