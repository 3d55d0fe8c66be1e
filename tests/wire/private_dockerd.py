"""A real Docker Engine of our own: own data, own socket, no bridge, no iptables; gone without a trace."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import docker


class PrivateDockerd:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = str(folder / "docker.sock")
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> PrivateDockerd:
        command = [
            "dockerd",
            *("--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec")),
            *("--pidfile", str(self.folder / "docker.pid"), "-H", f"unix://{self.socket}"),
            *("--bridge=none", "--iptables=false", "--ip6tables=false", "--storage-driver=vfs"),
        ]
        log = (self.folder / "dockerd.log").open("ab")
        self._daemon = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        for _ in range(300):
            with contextlib.suppress(docker.errors.DockerException):
                docker.DockerClient(base_url=f"unix://{self.socket}", timeout=5).close()
                return self
            if self._daemon.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError((self.folder / "dockerd.log").read_text()[-2000:])

    def import_busybox(self, tag: str = "bb:1") -> None:
        archive = self.folder / "busybox.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add("/bin/busybox", "bin/busybox")
            for name in ("sh", "sleep", "echo", "cat"):
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        command = ["docker", "-H", f"unix://{self.socket}", "import", str(archive), tag]
        subprocess.run(command, check=True, timeout=60, capture_output=True)

    def freeze(self) -> None:
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._daemon is None:
            return
        self.thaw()
        with contextlib.suppress(docker.errors.DockerException):
            client = docker.DockerClient(base_url=f"unix://{self.socket}", timeout=30)
            for container in client.containers.list(all=True):
                with contextlib.suppress(docker.errors.DockerException):
                    container.remove(force=True)
            client.close()
        self._daemon.terminate()
        try:
            self._daemon.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait(timeout=10)
        self._daemon = None
        for line in Path("/proc/mounts").read_text().splitlines():
            if (mounted := line.split()[1]).startswith(f"{self.folder}/"):  # its default network's namespace stays
                subprocess.run(["umount", mounted], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
