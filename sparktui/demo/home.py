"""Where the simulated cluster lives: one folder that holds its settings, its state and everything its nodes write."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparktui.errors import SettingsError

SPEED_VARIABLE = "SPARKTUI_DEMO_SPEED"
"""How much faster than usual the simulated time runs; tests set it."""
_MARKER = "demo.json"
_LONGEST_SOCKET_PATH = 100
"""A Unix socket's path may have 104 bytes on macOS and 108 on Linux."""
_CACHE_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# A simulated checkpoint: files with holes. Do not back up.\n"
)

ENV_TEXT = """\
# SIMULATED: three DGX Sparks that exist only in this folder. `sparktui demo --fresh` makes it anew.
HEAD_IP=192.168.20.11
WORKER_IPS='192.168.20.12 192.168.20.13'
WORKER_HOSTS='nvidia@spark-b nvidia@spark-c'
WORKER_FABRIC_IPS='10.10.0.2 10.10.4.3'
FABRIC_IFACE=enp1s0f0np0
NCCL_SOCKET_IFNAME=enP7s7
GLOO_SOCKET_IFNAME=enP7s7
# What one Spark's memory allows with nobody watching.
CONTEXT_LENGTH=32768
"""


@dataclass(frozen=True, slots=True)
class DemoHome:
    """The folder and what is where in it."""

    root: Path

    @property
    def env_file(self) -> Path:
        return self.root / ".env"

    @property
    def marker(self) -> Path:
        return self.root / _MARKER

    @property
    def state_file(self) -> Path:
        return self.root / "cluster.json"

    @property
    def faults_file(self) -> Path:
        return self.root / "faults.json"

    @property
    def model_dir(self) -> Path:
        return self.root / "head" / "models" / "DeepSeek-V4.1-Flash-1017"

    @property
    def sockets(self) -> Path:
        """A folder whose path is short enough for sockets: this one, or a private one where this one is too deep."""
        if len(os.fsencode(self.root / "worker63.docker.sock")) < _LONGEST_SOCKET_PATH:
            return self.root
        name = hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"sparktui-demo-{os.getuid()}-{name}"

    @property
    def rpc_socket(self) -> Path:
        return self.sockets / "cluster.sock"

    def docker_socket(self, node: str) -> Path:
        return self.sockets / f"{node}.docker.sock"

    def holds(self, path: str | Path) -> bool:
        """Whether a path lies inside: nothing else is ever written."""
        return Path(os.path.normpath(path)).is_relative_to(self.root)

    def port(self) -> int:
        return int(self._said().get("port", 0))

    def _said(self) -> dict[str, Any]:
        try:
            said = json.loads(self.marker.read_bytes())
        except (OSError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}

    def make(self, *, with_settings: bool = True) -> None:
        """Make what is missing; what is there stays."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._said():
            if any(each.name not in ("CACHEDIR.TAG",) for each in self.root.iterdir()):
                raise SettingsError(
                    f"{self.root} is not empty and no simulated cluster",
                    fix="move it away; nothing in it was touched",
                )
            (self.root / "CACHEDIR.TAG").write_text(_CACHE_TAG)
            write_plain(self.marker, {"v": 1, "port": free_port()})
        if with_settings and not self.env_file.exists():
            self.env_file.write_text(ENV_TEXT)

    def renew_port(self) -> None:
        """Another port where somebody has taken ours; only while no simulated cluster runs."""
        if not _is_free(self.port()):
            write_plain(self.marker, {**self._said(), "port": free_port()})

    def forget(self) -> None:
        """Delete the simulated cluster: only a folder that carries our marker."""
        if self.root.exists() and self._said():
            shutil.rmtree(self.root)
        if self.sockets != self.root:
            shutil.rmtree(self.sockets, ignore_errors=True)

    def check(self) -> None:
        """Raises SettingsError for a folder that is no simulated cluster's."""
        if not self._said():
            raise SettingsError(f"{self.root} is no simulated cluster", fix="sparktui demo, without --env-file")


def default_home(environment: Mapping[str, str] | None = None) -> DemoHome:
    """$XDG_CACHE_HOME/sparktui/demo, else ~/.cache/sparktui/demo."""
    around = os.environ if environment is None else environment
    cache = around.get("XDG_CACHE_HOME") or ""
    base = Path(cache) if cache.startswith("/") else Path(around.get("HOME") or Path.home()) / ".cache"
    return DemoHome(Path(os.path.normpath(base / "sparktui" / "demo")))


def speed(environment: Mapping[str, str] | None = None) -> float:
    """1 unless SPARKTUI_DEMO_SPEED says otherwise."""
    try:
        value = float((os.environ if environment is None else environment).get(SPEED_VARIABLE, "1"))
    except ValueError:
        return 1.0
    return value if 0.05 <= value <= 1000 else 1.0


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def write_plain(path: Path, plain: object) -> None:
    """Write beside, then rename; 0600."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(plain, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
