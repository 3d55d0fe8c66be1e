"""A real sshd of our own on a loopback port, with its own host key, keys and configuration; gone without a trace."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

SSHD = "/usr/sbin/sshd"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_key(path: Path, *, kind: str = "ed25519", passphrase: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(command, check=True, timeout=30)
    return path


class PrivateSshd:
    """`options` are sshd_config lines put in front; the first value of a keyword wins there."""

    def __init__(self, folder: Path, options: tuple[str, ...] = ()) -> None:
        self.folder, self.port = folder, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        self.host_key = folder / "host_ed25519"
        if not self.host_key.exists():
            make_key(self.host_key)
        self.authorized = folder / "authorized_keys"
        self.authorized.touch()
        self._options = options
        self._daemon: subprocess.Popen[bytes] | None = None

    def authorize(self, key: Path) -> None:
        with self.authorized.open("a") as handle:
            handle.write(key.with_name(key.name + ".pub").read_text())

    def start(self) -> PrivateSshd:
        lines = [
            *self._options,
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            # Not a file: sshd reads that as the user, who may not enter this folder.
            "AuthorizedKeysFile none",
            f"AuthorizedKeysCommand /usr/bin/cat {self.authorized}",
            "AuthorizedKeysCommandUser root",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            f"PidFile {self.folder}/sshd.pid",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "LogLevel VERBOSE",
            # Bash that sshd starts reads ~/.bashrc, unless it believes to be inside another: what root's has in it here
            # is no part of a test. The accounts that tests make have their own.
            "Match User root",
            "SetEnv SHLVL=1",
        ]
        config = self.folder / "sshd_config"
        config.write_text("\n".join(lines) + "\n")
        log = (self.folder / "sshd.log").open("ab")
        self._daemon = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.05)
        raise RuntimeError((self.folder / "sshd.log").read_text())

    def children(self) -> list[int]:
        """Processes of open connections (all below the daemon)."""
        assert self._daemon is not None
        found, wanted = [], [self._daemon.pid]
        while wanted:
            parent = wanted.pop()
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                ids = [int(each) for each in task.read_text().split()]
                found += ids
                wanted += ids
        return found

    def signal_connections(self, number: int) -> None:
        for pid in self.children():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def stop(self) -> None:
        if self._daemon is None:
            return
        try:
            children = self.children()
        except OSError:
            children = []
        self._daemon.terminate()
        for pid in children:
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    break
        self._daemon.wait(timeout=10)
        self._daemon = None

    def known_hosts_line(self) -> str:
        kind, blob = self.host_key.with_name(self.host_key.name + ".pub").read_text().split()[:2]
        return f"[127.0.0.1]:{self.port} {kind} {blob}"


class TemporaryUser:
    """A login of its own with a given shell and home; removed again."""

    def __init__(self, name: str, shell: str, home: Path, *, password_hash: str = "*") -> None:
        self.name, self.home = name, home
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run(["userdel", "--force", name], check=False, capture_output=True)
        command = [
            "useradd",
            "--no-create-home",
            "--home-dir",
            str(home),
            "--shell",
            shell,
            "--password",
            password_hash,
            name,
        ]
        subprocess.run(command, check=True, timeout=30, capture_output=True)
        shutil.chown(home, name)

    def remove(self) -> None:
        # By force: its sshd session may still be closing.
        subprocess.run(["userdel", "--force", self.name], check=False, capture_output=True, timeout=30)
