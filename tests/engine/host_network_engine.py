"""A real Docker Engine in the host's network, with mounts and processes of its own: all of it ends with one process.

Inside, /run is private, so its socket is the system's name (`/var/run/docker.sock`) and the product's own command lines
reach it unchanged. Its data may lie in a cache; everything else is below `folder`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.testbed.node import PATH
from tests.testbed.processes import cgroup_remove, only_child

TESTBED = Path(__file__).resolve().parents[1] / "testbed"
CGROUP = "/sparktui-image-from-lock"
# The name server's file may lie in /run.
_INIT = """set -eu
mount --make-rprivate /
mount -t proc proc /proc
resolv=$(readlink -f /etc/resolv.conf)
cp "$resolv" "$1/resolv.conf"
mount -t tmpfs -o mode=755 tmpfs /run
[ -e "$resolv" ] || { mkdir -p "$(dirname "$resolv")" && cp "$1/resolv.conf" "$resolv"; }
exec tini -- dockerd --config-file "$1/daemon.json" >>"$1/dockerd.log" 2>&1
"""


class HostNetworkEngine:
    """`with HostNetworkEngine(folder, data) as engine:`; `folder` is a scratch folder, `data` outlives it."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder, self.data = folder, data
        self._holder: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __enter__(self) -> HostNetworkEngine:
        (self.folder / "sbin").mkdir(parents=True)
        self.data.mkdir(parents=True, exist_ok=True)
        self.set_runtime(binds=(), environment={})
        wrapper = (TESTBED / "runtime_wrapper.py").read_text().replace("@NODE_FOLDER@", str(self.folder))
        hook = "#!/bin/sh\nexit 0\n"  # with it the Engine takes `--gpus all`
        for name, text in (("runc", wrapper), ("nvidia-container-runtime-hook", hook)):
            (self.folder / "sbin" / name).write_text(text)
            (self.folder / "sbin" / name).chmod(0o755)
        (self.folder / "daemon.json").write_text(json.dumps(self._configuration()))
        self._holder = subprocess.Popen(
            [*("setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child", "--pid", "--mount"),
             *("--propagation", "private", "/bin/sh", "-c", _INIT, "sh", str(self.folder))],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(self.folder / "boot.log").open("wb"),
            env={"PATH": f"{self.folder}/sbin:{PATH}"}, start_new_session=True,
        )  # fmt: skip
        try:
            self._wait_answering(120.0)
            for left in self.docker("ps", "--all", "--quiet").split():  # of a run that was killed
                self.docker("rm", "--force", left)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove its containers, end it, and leave no process, mount or cgroup."""
        if self._holder is None:
            return
        try:
            if self._pid and self._holder.poll() is None:
                for left in self._docker("ps", "--all", "--quiet", timeout=60).stdout.split():
                    self._docker("rm", "--force", left, timeout=120)
                os.kill(self._pid, signal.SIGTERM)
            self._holder.wait(30 if self._pid else 0)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait(30)
        self._holder, self._pid = None, 0
        cgroup_remove(CGROUP)

    def run(
        self, argv: Sequence[str], *, timeout: float = 120.0, output: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command line beside the Engine, as its machine's user types it; `output` takes what it prints."""
        enter = ["nsenter", "--target", str(self._pid), "--mount", "--pid", "--wd=/", "--"]
        enter += ["setpriv", "--pdeathsig", "KILL"]
        environment = {"PATH": PATH, "HOME": str(self.folder), "LANG": "C.UTF-8"}
        with (output or Path(os.devnull)).open("w") as told:
            return subprocess.run(
                [*enter, *argv], stdin=subprocess.DEVNULL, text=True, timeout=timeout, check=False,
                stdout=told if output else subprocess.PIPE, stderr=told if output else subprocess.PIPE,
                env=environment,
            )  # fmt: skip

    def docker(self, *argv: str, timeout: float = 120.0) -> str:
        """`docker …`; its standard output."""
        done = self._docker(*argv, timeout=timeout)
        assert done.returncode == 0, f"docker {' '.join(argv)}: {done.stderr[-2000:]}"
        return done.stdout

    def set_runtime(self, *, binds: Sequence[dict[str, Any]], environment: Mapping[str, str]) -> None:
        """Binds and variables of every later container; they reach its bundle alone, no image and no build's layer."""
        path = self.folder / "runtime.json"
        path.touch(mode=0o600)  # a proxy's address may hold a password
        told = {
            "runc": shutil.which("runc", path=PATH) or "/usr/sbin/runc",
            "drop_capabilities": ["CAP_SYS_RESOURCE"],
            "binds": list(binds),
            "environment": dict(environment),
        }
        path.write_text(json.dumps(told))

    def _docker(self, *argv: str, timeout: float) -> subprocess.CompletedProcess[str]:
        return self.run(["docker", "--host", "unix:///var/run/docker.sock", *argv], timeout=timeout)

    def _configuration(self) -> dict[str, Any]:
        return {
            "data-root": str(self.data),
            "exec-root": "/run/docker",
            "pidfile": "/run/docker.pid",
            "hosts": ["unix:///run/docker.sock"],
            "bridge": "none",
            "iptables": False,
            "ip-forward": False,
            "storage-driver": "overlay2",
            "cgroup-parent": CGROUP,
            "shutdown-timeout": 10,
        }

    def _wait_answering(self, deadline_seconds: float) -> None:
        assert self._holder is not None
        self._pid = only_child(self._holder.pid)
        deadline = time.monotonic() + deadline_seconds
        while self._docker("version", timeout=30).returncode:
            logs = "".join(
                (self.folder / name).read_text(errors="replace")[-2000:]
                for name in ("boot.log", "dockerd.log")
                if (self.folder / name).exists()
            )
            assert self._holder.poll() is None and time.monotonic() < deadline, f"no Docker Engine: {logs}"
            time.sleep(0.3)
