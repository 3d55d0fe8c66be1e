"""Guests that are a small cluster with kernels of their own: a head and two workers, joined by cables as in a triangle.

Each is QEMU's emulated processor (no KVM needed) with Debian's kernel, sshd, a Docker Engine that has our image and the
kernel's NFS. `mgmt0` is for the tests alone; `enP7s7` is the LAN; the `enp…` netdevs are cables that can be pulled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparktui.cluster.node import Node
from sparktui.remote.ssh import SshLink
from sparktui.remote.ssh_login import SshAccess
from tests.guests.disk import ensure_disk
from tests.guests.kernel import GuestKernel, ensure_kernel
from tests.testbed.requirements import SEARCH

HOME = "/home/spark"
INIT = Path(__file__).with_name("guest_init.sh")
BOOT_SECONDS = 240.0
MEMORY_MIB = 1536


@dataclass(frozen=True, slots=True)
class Nic:
    """One end of a link: `link` names the host's socket that both ends share; `peer` is a host route, if any."""

    netdev: str
    address: str
    link: str
    serves: bool
    peer: str = ""


@dataclass(slots=True)
class Guest:
    """One machine. Commands run in it as root, through ssh on a port of this host's loopback."""

    name: str
    number: int
    folder: Path
    nics: tuple[Nic, ...]
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self, kernel: GuestKernel, disk: Path) -> None:
        work = self.folder / self.name
        work.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        netdevs = [f"{self._mac(0)} mgmt0 10.0.2.15/24", *(self._line(i, nic) for i, nic in enumerate(self.nics, 1))]
        (work / "env").write_text(
            f"NAME={self.name}\nFOLDER={self.folder}\nMODULES={kernel.modules}\n"
            f"NETDEVS={shlex.quote(chr(10).join(netdevs))}\n"
        )
        command = (
            f"console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on guest_init={INIT} guest_env={work}/env"
        )
        argv = [
            shutil.which("qemu-system-x86_64", path=SEARCH) or "qemu-system-x86_64",
            *(
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                "Nehalem,check=off",
                "-smp",
                "1",
                "-m",
                str(MEMORY_MIB),
                "-no-reboot",
            ),
            *("-display", "none", "-nodefaults", "-serial", f"file:{work}/console.log"),
            *("-qmp", f"unix:{work}/qmp.sock,server=on,wait=off"),
            *("-kernel", str(kernel.image), "-initrd", str(kernel.initramfs), "-append", command),
            *("-device", "virtio-rng-pci"),
            *("-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"),
            *("-drive", f"file={disk},format=raw,if=virtio,snapshot=on"),
            *("-netdev", f"user,id=mgmt,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-10.0.2.15:22"),
            *("-device", f"virtio-net-pci,netdev=mgmt,mac={self._mac(0)},romfile="),
        ]
        for index, nic in enumerate(self.nics, 1):
            path = self.folder / f"{nic.link}.sock"
            argv += [
                "-netdev",
                f"stream,id=n{index},server={'on' if nic.serves else 'off'},addr.type=unix,addr.path={path}",
            ]
            argv += ["-device", f"virtio-net-pci,netdev=n{index},id={nic.netdev},mac={self._mac(index)},romfile="]
            end = time.monotonic() + 20
            while not nic.serves and not path.exists() and time.monotonic() < end:
                time.sleep(0.05)
        log = (work / "qemu.log").open("wb")
        # snapshot=on keeps what is written in TMPDIR until the end
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(work)}
        )

    def wait_ready(self, deadline_seconds: float = BOOT_SECONDS) -> None:
        console = self.folder / self.name / "console.log"
        end = time.monotonic() + deadline_seconds
        while f"guest {self.name} is ready" not in (text := _text(console)):
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > end:
                said = _text(self.folder / self.name / "qemu.log")
                raise RuntimeError(f"{self.name} did not come up:\n{text[-3000:]}\n{said[-1000:]}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Cut its power: its disk is a throw-away snapshot."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=30)
            self.process = None

    def run(
        self, argv: Sequence[str], *, timeout: float = 120.0, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there in /home/spark.

        Raises:
            AssertionError: a non-zero status while `check`, with what it said.
            subprocess.TimeoutExpired: it did not end in time.
        """
        inner = f"cd {HOME} && exec env HOME={HOME} LANG=C.UTF-8 {shlex.join(argv)}"
        done = subprocess.run(
            ["ssh", "-F", "none", "-i", str(self.folder / "keys/id_ed25519"), "-p", str(self.port),
             "-o", f"UserKnownHostsFile={self.folder}/keys/known_hosts", "-o", "HostKeyAlias=guest",
             "-o", "BatchMode=yes", "-o", "ConnectTimeout=30",
             "-o", f"ControlPath={self.folder}/{self.name}/ssh.sock", "-o", "ControlMaster=auto",
             "-o", "ControlPersist=60", "root@127.0.0.1", inner],
            input=stdin, stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{self.name}: {argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def docker(self, *argv: str, timeout: float = 120.0, check: bool = True) -> str:
        return self.run(["docker", *argv], timeout=timeout, check=check).stdout

    def write(self, path: str, text: str) -> None:
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod 600 "$1"'
        self.run(["/bin/sh", "-c", script, "sh", path], stdin=text)

    def set_cable(self, netdev: str, *, up: bool) -> None:
        """Pull or plug the cable at this end: no frame passes in either direction."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(str(self.folder / self.name / "qmp.sock"))
            answers = client.makefile("r")
            answers.readline()
            for command, arguments in (("qmp_capabilities", {}), ("set_link", {"name": netdev, "up": up})):
                client.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
                answer: dict[str, Any] = {}
                while not answer.keys() & {"return", "error"}:
                    answer = json.loads(answers.readline())
                assert "return" in answer, answer

    def _mac(self, index: int) -> str:
        return f"52:54:00:5a:{self.number:02x}:{0xA0 + index:02x}"

    def _line(self, index: int, nic: Nic) -> str:
        return f"{self._mac(index)} {nic.netdev} {nic.address} {nic.peer}".rstrip()


@dataclass(frozen=True, slots=True)
class GuestCluster:
    """`link` is the product's own, over ssh, for the head as well: this test machine is no node."""

    head: Guest
    workers: tuple[Guest, Guest]

    @property
    def guests(self) -> tuple[Guest, ...]:
        return (self.head, *self.workers)

    def link(self, node: Node) -> SshLink:
        guest = self.guests[node.rank]
        reached = dataclasses.replace(node, ssh_host="127.0.0.1", ssh_user="root", ssh_port=guest.port)
        folder = guest.folder
        access = SshAccess(home=folder / "home", home_is_other=True, identity=folder / "keys/id_ed25519",
                           connect_seconds=60.0)  # fmt: skip
        return SshLink(reached, access)


@contextlib.contextmanager
def guest_cluster() -> Iterator[GuestCluster]:
    """Three machines up and reachable; all gone afterwards, with everything they wrote."""
    kernel, disk = ensure_kernel(), ensure_disk()
    with tempfile.TemporaryDirectory(prefix="guests-", dir="/var/tmp") as name:
        folder = Path(name)
        _lay_ssh(folder)
        head = Guest("head", 1, folder, (
            Nic("enP7s7", "10.78.200.1/32", "lan2", True, "10.78.200.2"),
            Nic("enP7s8", "10.78.200.1/32", "lan3", True, "10.78.200.3"),
            Nic("enp1s0f0np0", "10.0.22.1/24", "cable2", True),
            Nic("enp1s0f1np1", "10.0.23.1/24", "cable3", True),
        ))  # fmt: skip
        workers = tuple(
            Guest(f"worker{n - 1}", n, folder, (
                Nic("enP7s7", f"10.78.200.{n}/24", f"lan{n}", False),
                Nic("enp1s0f0np0", f"10.0.2{n}.{n}/24", f"cable{n}", False),
            ))
            for n in (2, 3)
        )  # fmt: skip
        cluster = GuestCluster(head, (workers[0], workers[1]))
        try:
            for guest in cluster.guests:
                guest.start(kernel, disk)
            _know_hosts(folder, cluster)
            for guest in cluster.guests:
                guest.wait_ready()
            yield cluster
        finally:
            for guest in cluster.guests:
                guest.stop()


def _lay_ssh(folder: Path) -> None:
    """One key pair, one host key: known by every address of the cluster."""
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    for name in ("id_ed25519", "host_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "guests", "-f", str(keys / name)],
            check=True, timeout=30,
        )  # fmt: skip
    host_key = " ".join((keys / "host_key.pub").read_text().split()[:2])
    (keys / "known_hosts").write_text(f"guest,10.78.200.2,10.78.200.3 {host_key}\n")
    (folder / "sshd_config").write_text(
        f"Port 22\nHostKey {keys}/host_key\nAuthorizedKeysFile {keys}/id_ed25519.pub\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUseDNS no\n"
        "MaxSessions 100\nPidFile /run/sshd.pid\nSubsystem sftp internal-sftp\n"
    )


def _know_hosts(folder: Path, cluster: GuestCluster) -> None:
    host_key = " ".join((folder / "keys/host_key.pub").read_text().split()[:2])
    (folder / "home/.ssh").mkdir(parents=True, mode=0o700)
    lines = [f"[127.0.0.1]:{guest.port} {host_key}\n" for guest in cluster.guests]
    (folder / "home/.ssh/known_hosts").write_text("".join(lines))


def _text(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(errors="replace")
    return ""
