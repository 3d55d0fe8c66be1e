"""One simulated Spark: its folder on the host, its namespaces, its sshd and its Docker Engine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.testbed import compiler, gpu_stand_in, sysfs
from tests.testbed.fabric import LAN_NETDEV, Port
from tests.testbed.meminfo import meminfo_text
from tests.testbed.processes import cgroup_remove, descendants, only_child, wait_gone
from tests.testbed.slots import MARK

HERE = Path(__file__).parent
HOME = "/home/spark"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class TestbedError(RuntimeError):
    """The testbed could not do what was asked; the text names the daemon or command and shows its last lines."""

    __test__ = False


class SimulatedSpark:
    """A node. `folder` is its folder on the host; `pid` its first process as the host numbers it, or None when off.

    Everything under `/home`, `/tmp`, `/var/tmp`, `/run` and `/dev` is the node's own; the rest is the host's.
    """

    def __init__(
        self, *, number: int, name: str, folder: Path, address: str, ports: tuple[Port, ...], cgroup: str
    ) -> None:
        self.number = number
        self.name = name
        self.folder = folder
        self.address = address
        self.ports = ports
        self.cgroup = cgroup
        self.pid: int | None = None
        self._holder: subprocess.Popen[bytes] | None = None
        self.home = folder / "fs/home/spark"

    # -- build and boot -------------------------------------------------------------------------------------------

    def lay_out(
        self, *, hosts: str, registries: Sequence[str], storage_driver: str, binds: Sequence[dict[str, Any]]
    ) -> None:
        """Make the node's folder: everything its namespaces will bind."""
        for name in ("mnt/cgroup", "mnt/dev", "log", "etc", "bin", "sbin", "docker", "fs/tmp", "fs/var/tmp"):
            (self.folder / name).mkdir(parents=True)
        for name in ("fs/tmp", "fs/var/tmp"):
            (self.folder / name).chmod(0o1777)
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        sysfs.build_class_tree(self.folder / "sys-class", self.number, self.ports)
        (self.folder / "meminfo").write_text(meminfo_text())
        others = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")]
        accounts = [f"root:x:0:0:root:{HOME}:/bin/bash", f"spark:x:0:0:spark:{HOME}:/bin/bash", *others]
        (self.folder / "etc/passwd").write_text("\n".join(accounts) + "\n")
        (self.folder / "etc/hosts").write_text(hosts)
        (self.folder / "etc/hostname").write_text(self.name + "\n")
        self._write_json("gpu.json", gpu_stand_in.DEFAULT_STATE)
        self._write_json(
            "runtime.json",
            {
                "runc": shutil.which("runc") or "/usr/sbin/runc",
                "drop_capabilities": ["CAP_SYS_RESOURCE"],
                "binds": [*compiler.binds(), *binds],
                "environment": compiler.environment(),
            },
        )
        self._write_json(
            "daemon.json",
            {
                "data-root": str(self.folder / "docker"),
                "exec-root": "/run/docker",
                "pidfile": "/run/docker.pid",
                "hosts": ["unix:///run/docker.sock"],
                "bridge": "none",
                "iptables": False,
                "ip-forward": False,
                "storage-driver": storage_driver,
                "insecure-registries": list(registries),
                "cgroup-parent": self.cgroup,
                "runtimes": {"nvidia": {"path": str(self.folder / "sbin/nvidia-container-runtime")}},
                "shutdown-timeout": 5,
                "max-concurrent-downloads": 4,
            },
        )
        for source, target in (
            ("gpu_stand_in.py", "bin/nvidia-smi"),
            ("runtime_wrapper.py", "sbin/runc"),
            ("runtime_wrapper.py", "sbin/nvidia-container-runtime"),
        ):
            # The folder is written in: /usr/local/bin is an overlay, where a program cannot find it by its own path.
            program = (HERE / source).read_text().replace("@NODE_FOLDER@", str(self.folder))
            (self.folder / target).write_text(program)
            (self.folder / target).chmod(0o755)
        hook = self.folder / "sbin/nvidia-container-runtime-hook"
        hook.write_text("#!/bin/sh\nexit 0\n")
        hook.chmod(0o755)
        key = self.folder / "etc/ssh_host_ed25519_key"
        _host("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(key))
        self.write_sshd_config("")

    @property
    def host_key(self) -> str:
        """Type and key of the node's sshd, as known_hosts wants them."""
        return " ".join((self.folder / "etc/ssh_host_ed25519_key.pub").read_text().split()[:2])

    def boot(self) -> None:
        """Start the namespaces (not yet the daemons)."""
        for name in ("registry/store", "mnt/cgroup", "mnt/dev"):
            if (self.folder / name).parent.exists():
                (self.folder / name).mkdir(exist_ok=True)
        holder = subprocess.Popen(
            ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--net", "--uts", "--ipc",
             "--propagation", "private", "/bin/sh", str(HERE / "node_init.sh"), str(self.folder), self.name,
             *_kept_in_view()],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=(self.folder / "log/boot.log").open("wb"),
            env={"PATH": PATH, MARK: str(self.folder.parent)}, start_new_session=True,
        )  # fmt: skip
        assert holder.stdout is not None
        with holder.stdout as said:
            if said.readline() != b"ready\n":
                holder.wait()
                raise TestbedError(f"{self.name}: namespaces failed: {self._tail('boot.log')}")
        self._holder = holder
        self.pid = only_child(holder.pid)
        (self.folder / "pid").write_text(f"{self.pid}\n")

    def start_daemons(self) -> None:
        """Start sshd and dockerd; `wait_ready` waits for both."""
        self.start_sshd()
        self.start_dockerd()

    def write_sshd_config(self, extra: str) -> None:
        (self.folder / "etc/sshd_config").write_text(
            extra
            + ("" if extra.endswith("\n") or not extra else "\n")
            + f"""Port 22
ListenAddress 0.0.0.0
HostKey {self.folder}/etc/ssh_host_ed25519_key
PidFile /run/sshd.pid
AuthorizedKeysFile .ssh/authorized_keys
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 200
MaxSessions 100
PrintMotd no
UseDNS no
Subsystem sftp internal-sftp
"""
        )

    def start_sshd(self, extra: str | None = None) -> None:
        """Start (or start anew) sshd; `extra` lines of its configuration win: `AllowStreamLocalForwarding no`."""
        if extra is not None:
            self.write_sshd_config(extra)
        self.stop_daemon("/run/sshd.pid")
        self.start_daemon(["/usr/sbin/sshd", "-D", "-e", "-f", f"{self.folder}/etc/sshd_config"], log="sshd.log")

    def start_dockerd(self) -> None:
        argv = ["env", f"PATH={self.folder}/sbin:{PATH}", "dockerd", "--config-file", f"{self.folder}/daemon.json"]
        self.start_daemon(argv, log="dockerd.log")

    def stop_daemon(self, pid_file: str, deadline_seconds: float = 15.0) -> None:
        """End the daemon that wrote `pid_file` in the node, if any, and wait for its end."""
        path = self.path(pid_file)
        if not path.exists():
            return
        inner = path.read_text().strip()
        self.run(["kill", inner], check=False)
        deadline = time.monotonic() + deadline_seconds
        while self.path(f"/proc/{inner}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        path.unlink(missing_ok=True)

    def start_daemon(self, argv: Sequence[str], *, log: str) -> None:
        """Start a program that stays, child of the node's first process; its output goes to `folder/log/LOG`."""
        redirect = 'log=$1; shift; exec "$@" >>"$log" 2>&1 </dev/null'
        self.run(["setsid", "--fork", "/bin/sh", "-c", redirect, "sh", str(self.folder / "log" / log), *argv])

    def wait_ready(self, deadline_seconds: float = 120.0) -> None:
        deadline = time.monotonic() + deadline_seconds
        waiting = {"sshd": self._sshd_answers, "dockerd": self._dockerd_answers}
        while waiting:
            waiting = {name: answers for name, answers in waiting.items() if not answers()}
            if waiting and time.monotonic() > deadline:
                logs = "\n".join(self._tail(f"{name}.log") for name in waiting)
                raise TestbedError(f"{self.name}: not ready in {deadline_seconds:.0f} s: {', '.join(waiting)}\n{logs}")
            if waiting:
                time.sleep(0.05)

    # -- entering it ----------------------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        return self.pid is not None and Path(f"/proc/{self.pid}").exists()

    def enter_argv(self, argv: Sequence[str], *, cwd: str = HOME, env: Mapping[str, str] | None = None) -> list[str]:
        """The command on the host that runs `argv` inside the node, as a login of its user would see it."""
        if self.pid is None:
            raise TestbedError(f"{self.name} is off")
        settings = {"HOME": HOME, "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash", "PATH": PATH}
        settings |= {"LANG": "C.UTF-8", "TERM": os.environ.get("TERM", "xterm-256color")} | dict(env or {})
        assignments = [f"{name}={value}" for name, value in settings.items()]
        # --pdeathsig: the inner process ends when its nsenter is killed (a pid namespace separates the two).
        return [
            *("nsenter", "--target", str(self.pid), "--mount", "--uts", "--ipc", "--net", "--pid"),
            f"--wd={_inside(self.pid, cwd)}",
            *("--", "setpriv", "--pdeathsig", "KILL", "env", "-i", *assignments, *argv),
        ]  # fmt: skip

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = HOME,
        timeout: float = 60.0,
        stdin: str | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the node and return what it printed.

        Raises:
            TestbedError: a non-zero status while `check`, with the last lines of its standard error.
            subprocess.TimeoutExpired: it did not end in `timeout` seconds (it is killed).
        """
        done = subprocess.run(
            self.enter_argv(argv, cwd=cwd, env=env),
            input=stdin, stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            last = (done.stderr or done.stdout).strip()[-2000:]
            raise TestbedError(f"{self.name}: {' '.join(argv)}: status {done.returncode}\n{last}")
        return done

    def popen(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = HOME, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a command in the node; `options` go to subprocess.Popen. Killing it kills the inner process too."""
        return subprocess.Popen(self.enter_argv(argv, cwd=cwd, env=env), **options)

    def send_signal(self, process: subprocess.Popen[Any], number: signal.Signals) -> None:
        """Signal the inner process of a `popen`, which `process.send_signal` (nsenter) would not reach."""
        os.kill(only_child(process.pid), number)

    def path(self, inner: str) -> Path:
        """A path of the node as the host can open it (while the node is on)."""
        return Path(f"/proc/{self.pid}/root{inner}")

    def write_file(self, inner: str, content: str | bytes, mode: int = 0o644) -> Path:
        path = self.path(inner)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    def read_file(self, inner: str) -> str:
        return self.path(inner).read_text()

    def docker(self, *argv: str, timeout: float = 120.0, check: bool = True, stdin: str | None = None) -> str:
        """`docker …` in the node; its standard output."""
        return self.run(["docker", *argv], timeout=timeout, check=check, stdin=stdin).stdout

    @property
    def docker_url(self) -> str:
        """For the Docker SDK of a test on the host."""
        return f"unix:///proc/{self.pid}/root/run/docker.sock"

    # -- what a test changes --------------------------------------------------------------------------------------

    def set_meminfo(self, **changed_kb: int) -> None:
        """Change /proc/meminfo at once (names as in the file, kB); unnamed fields are those of an idle node."""
        data = meminfo_text(**changed_kb).encode()
        with (self.folder / "meminfo").open("r+b", buffering=0) as file:  # the mount holds this very inode
            file.write(data)
            file.truncate()

    def set_gpu(self, *, apps: Sequence[tuple[int, str, int | None]] | None = None, **changed: Any) -> None:
        """Change what nvidia-smi answers: `apps` (pid, name, MiB or None), `fail` text, `hang_seconds`, `fields`."""
        state = json.loads((self.folder / "gpu.json").read_text())
        if apps is not None:
            state["apps"] = [{"pid": pid, "name": name, "mib": mib} for pid, name, mib in apps]
        for name, value in changed.items():
            if name == "fields":
                state["fields"] |= value
            else:
                state[name] = value
        self._write_json("gpu.json", state)

    def set_runtime(
        self, *, binds: Sequence[dict[str, Any]] | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Bind mounts ({source, target, read_only}) and variables for every later container of the node."""
        state = json.loads((self.folder / "runtime.json").read_text())
        if binds is not None:
            state["binds"] = [*compiler.binds(), *binds]
        if environment is not None:
            state["environment"] = compiler.environment() | dict(environment)
        self._write_json("runtime.json", state)

    def set_counter(self, rdma: str, counter: str, value: int) -> None:
        sysfs.set_counter(self.folder / "sys-class", rdma, counter, value)

    def port(self, netdev: str) -> Port:
        return next(port for port in self.ports if port.netdev.name == netdev)

    def set_gids(self, netdev: str, address: str | None, *, link_local: bool = True) -> None:
        """Rewrite a port's GID table: an index that moved, an address that is gone."""
        sysfs.set_gids(self.folder / "sys-class", self.port(netdev), self.number, address, link_local=link_local)

    def freeze(self) -> None:
        """Stop every process, as a memory wedge does: the kernel still answers ping and TCP, nothing else does."""
        for pid in self._all_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._all_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Cut its power: every process, container, mount, namespace and netdev of it ends now; its folders stay."""
        if self.pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        wait_gone(self.pid)
        self.forget()
        cgroup_remove(self.cgroup)
        (self.folder / "pid").unlink(missing_ok=True)

    def forget(self) -> None:
        """The node's processes were ended by somebody else (the slot's removal): reap and be off."""
        if self._holder is not None:
            self._holder.wait()
        self._holder, self.pid = None, None

    # -- inside ---------------------------------------------------------------------------------------------------

    def _all_pids(self) -> list[int]:
        return [] if self.pid is None else [pid for pid in descendants(self.pid) if pid != self.pid]

    def _sshd_answers(self) -> bool:
        return self.path("/run/sshd.pid").exists()

    def _dockerd_answers(self) -> bool:
        import socket

        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.settimeout(5)
            client.connect(str(self.path("/run/docker.sock")))
            client.sendall(b"GET /_ping HTTP/1.0\r\nHost: d\r\n\r\n")
            return b" 200 " in client.recv(64)
        return False

    def _write_json(self, name: str, value: Any) -> None:
        path = self.folder / name
        beside = path.with_name(f".{name}.new")
        beside.write_text(json.dumps(value, indent=1))
        beside.rename(path)

    def _tail(self, log: str, lines: int = 12) -> str:
        path = self.folder / "log" / log
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else f"(no {log})"


def _kept_in_view() -> list[str]:
    """The checkout and the interpreter, where they lie below a folder that every node has of its own."""
    wanted = {str(HERE.parents[1]), sys.prefix, sys.base_prefix}
    own = ("/tmp/", "/var/tmp/", "/home/")
    return sorted(path for path in wanted if path.startswith(own))


def _inside(pid: int, cwd: str) -> str:
    return f"/proc/{pid}/root{cwd}"


def _host(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise TestbedError(f"{' '.join(argv)}: {done.stderr.strip()}")


__all__ = ["HOME", "LAN_NETDEV", "SimulatedSpark", "TestbedError"]
