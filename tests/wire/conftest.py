from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktui.cluster.node import Node
from sparktui.remote.ssh import SshLink
from sparktui.remote.ssh_login import SshAccess
from tests.wire.private_dockerd import PrivateDockerd
from tests.wire.private_sshd import PrivateSshd, TemporaryUser, make_key


class Wire:
    """A home with ~/.ssh, a real sshd that knows its key, and links made from them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.ssh = self.home / ".ssh"
        self.ssh.mkdir(parents=True, mode=0o700)
        self.daemons: list[PrivateSshd] = []
        self.links: list[SshLink] = []

    def key(self, name: str = "id_ed25519", **options: Any) -> Path:
        return make_key(self.ssh / name, **options)

    def sshd(self, *options: str, key: Path | None = None, known: bool = True, name: str = "node") -> PrivateSshd:
        daemon = PrivateSshd(self.folder / f"sshd-{name}", options)
        if key is not None:
            daemon.authorize(key)
        self.daemons.append(daemon.start())
        if known:
            with (self.ssh / "known_hosts").open("a") as handle:
                handle.write(daemon.known_hosts_line() + "\n")
        return daemon

    def access(self, **options: Any) -> SshAccess:
        return SshAccess(**{"home": self.home, "home_is_other": True, **options})

    def link(self, port: int | None, *, host: str = "127.0.0.1", user: str | None = "root", **options: Any) -> SshLink:
        socket = options.pop("docker_socket", "/var/run/docker.sock")
        node = Node("worker1", 1, "127.0.0.1", ssh_host=host, ssh_user=user, ssh_port=port)
        self.links.append(SshLink(node, self.access(**options), docker_socket=socket))
        return self.links[-1]


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    made = Wire(tmp_path)
    yield made
    for link in made.links:
        await link.aclose()
    for daemon in made.daemons:
        daemon.stop()


@pytest.fixture
def login_user(request: pytest.FixtureRequest) -> Iterator[Callable[..., TemporaryUser]]:
    """Makes a real account with a login shell; removed with the test."""
    made: list[TemporaryUser] = []
    # Not below tmp_path: other accounts may not enter root's temporary folder.
    base = Path("/var/tmp") / f"sparktui-wire-{id(request):x}"

    def make(name: str, shell: str, **options: str) -> TemporaryUser:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        base.mkdir(mode=0o755, exist_ok=True)
        made.append(TemporaryUser(name, shutil.which(shell) or shell, base / name, **options))
        return made[-1]

    yield make
    for user in made:
        user.remove()
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateDockerd]:
    engine = PrivateDockerd(tmp_path_factory.mktemp("dockerd"))
    try:
        engine.start()
        engine.import_busybox()
        yield engine
    finally:
        engine.stop()
