"""A real Docker Engine, on this machine and behind a real sshd."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import docker
import pytest

from sparktui.cluster.node import Node
from sparktui.engine.launch import container_name
from sparktui.errors import DeadlineExceeded, DockerUnavailable
from sparktui.remote import docker as docker_of_node
from sparktui.remote.docker import load_image_argv, save_image_argv
from sparktui.remote.docker_tunnel import TunnelledEngine
from sparktui.remote.link import NodeLink
from sparktui.remote.local import LocalLink
from sparktui.telemetry.rank_lives import RankLives
from sparktui.telemetry.sample import Life
from tests.wire.conftest import Wire
from tests.wire.private_dockerd import PrivateDockerd
from tests.wire.private_sshd import TemporaryUser

pytestmark = pytest.mark.testbed
WAYS = {"local": (), "forwarded": (), "dialled": ("AllowStreamLocalForwarding no",)}


@pytest.fixture(params=list(WAYS))
async def node(request: pytest.FixtureRequest, wire: Wire, dockerd: PrivateDockerd) -> AsyncIterator[NodeLink]:
    """The same Engine reached in all three ways."""
    if request.param == "local":
        link = LocalLink(Node("head", 0, "127.0.0.1"), docker_socket=dockerd.socket)
        yield link
        await link.aclose()
        return
    daemon = wire.sshd(*WAYS[request.param], key=wire.key())
    made = wire.link(daemon.port, docker_socket=dockerd.socket)
    engine = await made.docker()
    assert isinstance(engine, TunnelledEngine)
    assert engine.way == ("forwarded" if request.param == "forwarded" else "docker system dial-stdio")
    assert Path(engine.socket).parent.stat().st_mode & 0o777 == 0o700
    yield made


def start(client: docker.DockerClient, name: str, command: str) -> str:
    body = {
        "Image": "bb:1",
        "Cmd": ["/bin/sh", "-c", command],
        "HostConfig": {"NetworkMode": "host"},
        "Labels": {"sparktui.owner": "sparktui"},
    }
    made = client.api.create_container_from_config(body, name)
    client.api.start(made["Id"])
    return str(made["Id"])


async def test_the_engine_is_used_the_same_in_every_way(node: NodeLink) -> None:
    engine = await node.docker()
    version = await engine.call(lambda client: client.version()["Version"], deadline_seconds=30)
    assert version[0].isdigit()
    many = await asyncio.gather(
        *(engine.call(lambda client: client.images.get("bb:1").tags, deadline_seconds=60) for _ in range(8))
    )
    assert many == [["bb:1"]] * 8
    with pytest.raises(docker.errors.ImageNotFound):
        await engine.call(lambda client: client.images.get("nothing:1"), deadline_seconds=30)


async def test_log_lines_come_whole_from_both_streams_and_follow(node: NodeLink) -> None:
    engine = await node.docker()
    name = f"talks-{id(node)}"
    command = "echo first; echo second >&2; sleep 1; echo third; sleep 600"
    await engine.call(lambda client: start(client, name, command), deadline_seconds=60)
    try:
        seen = []
        follower = engine.lines(name, since_seconds=None, tail=None, follow=True)
        async for line in follower:
            seen.append(line)
            if line == "third":
                break
        await follower.aclose()  # type: ignore[attr-defined]
        assert sorted(seen) == ["first", "second", "third"] and seen[-1] == "third"
        ended = [line async for line in engine.lines(name, since_seconds=None, tail=1, follow=False)]
        assert ended == ["third"]
    finally:
        await engine.call(lambda client: client.api.remove_container(name, force=True), deadline_seconds=60)
    with pytest.raises(DockerUnavailable, match="there is no container"):
        await anext(engine.lines(name, since_seconds=None, tail=None, follow=False))


async def test_u75_an_engine_that_is_killed_is_seen_in_every_way(node: NodeLink) -> None:
    engine = await node.docker()
    name = container_name(node.node)
    lives = RankLives([node], clock=time.time)
    assert (await lives.look(0)).life is Life.ABSENT
    await engine.call(lambda client: start(client, name, "sleep 600"), deadline_seconds=60)
    try:
        assert (await lives.look(0)).life is Life.RUNS
        await engine.call(lambda client: client.api.kill(name), deadline_seconds=60)
        await engine.call(lambda client: client.api.wait(name, timeout=60), deadline_seconds=60)
        seen = await lives.look(0)
        assert (seen.life, seen.exit_code, seen.problem) == (Life.ENDED, 137, "")
    finally:
        await engine.call(lambda client: client.api.remove_container(name, force=True), deadline_seconds=60)
    assert (await lives.look(0)).life is Life.ABSENT


async def test_an_image_leaves_and_arrives_through_pipes(node: NodeLink, dockerd: PrivateDockerd) -> None:
    engine = await node.docker()
    saved = bytearray()
    async with node.pipe(save_image_argv("bb:1", socket=dockerd.socket)) as pipe:
        while chunk := await pipe.stdout.read():
            saved.extend(chunk)
        assert (await pipe.wait()).ok
    before = await engine.call(lambda client: client.images.get("bb:1").id, deadline_seconds=30)
    await engine.call(lambda client: client.images.remove("bb:1", force=True), deadline_seconds=30)
    async with node.pipe(load_image_argv(dockerd.socket)) as pipe:
        pipe.stdin.write(bytes(saved))
        await pipe.stdin.drain()
        pipe.stdin.write_eof()
        done = await pipe.wait()
    assert done.ok and "Loaded image: bb:1" in done.stdout
    assert await engine.call(lambda client: client.images.get("bb:1").id, deadline_seconds=30) == before


async def test_a_silent_engine_runs_into_the_deadline_and_not_one_thread_is_waited_for(
    node: NodeLink, dockerd: PrivateDockerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await node.docker()
    await engine.call(lambda client: client.ping(), deadline_seconds=30)
    monkeypatch.setattr(docker_of_node, "FRESH_SECONDS", 0.0)
    dockerd.freeze()
    try:
        monkeypatch.setattr(docker_of_node, "LIFE_SECONDS", 1.0)
        with pytest.raises(DeadlineExceeded, match="the Docker Engine did not answer in 1 s"):
            await engine.call(lambda client: client.containers.list(), deadline_seconds=300)
        monkeypatch.setattr(docker_of_node, "LIFE_SECONDS", 9.0)
        with pytest.raises(DeadlineExceeded, match="the Docker Engine did not answer in 2 s"):
            await engine.call(lambda client: client.containers.list(), deadline_seconds=2)
    finally:
        dockerd.thaw()
    assert await engine.call(lambda client: client.ping(), deadline_seconds=30)


async def test_after_a_lost_connection_docker_is_opened_again(wire: Wire, dockerd: PrivateDockerd) -> None:
    daemon = wire.sshd(key=wire.key())
    link = wire.link(daemon.port, docker_socket=dockerd.socket)
    first = await link.docker()
    (await link.entered()).connection.abort()
    await asyncio.sleep(0.2)
    # Whoever still holds the first one goes on as well.
    assert await first.call(lambda client: client.ping(), deadline_seconds=30)
    again = await link.docker()
    assert again is not first
    assert await again.call(lambda client: client.ping(), deadline_seconds=30)
    folder = Path(again.socket).parent
    await link.aclose()
    assert not folder.exists()


@pytest.mark.parametrize("forwarding", ["yes", "no"])
async def test_u12_no_permission_is_not_absence_and_an_older_session_is_its_own_text(
    wire: Wire, login_user: Callable[..., TemporaryUser], forwarding: str
) -> None:
    user = login_user("sparkplain", "bash")
    folder = user.home.parent / "run"
    folder.mkdir()
    held = socket.socket(socket.AF_UNIX)
    path = folder / "docker.sock"
    held.bind(str(path))
    held.listen()
    shutil.chown(path, "root", "docker")
    path.chmod(0o660)
    daemon = wire.sshd(f"AllowStreamLocalForwarding {forwarding}", key=wire.key())
    link = wire.link(daemon.port, user=user.name, docker_socket=str(path))
    with pytest.raises(DockerUnavailable, match="user sparkplain is not in group docker") as refused:
        await link.docker()
    assert "usermod -aG docker sparkplain, then log in again" in refused.value.fix
    assert "docker says:" in refused.value.what and "permission denied" in refused.value.what

    subprocess.run(["usermod", "-aG", "docker", user.name], check=True)  # noqa: ASYNC221
    with pytest.raises(DockerUnavailable, match="this session is older: reconnect"):
        await link.docker()
    held.close()
    path.unlink()
    with pytest.raises(DockerUnavailable, match=r"is not running: .* does not exist"):
        await link.docker()


async def test_a_tcp_forward_ban_does_not_disturb_docker(wire: Wire, dockerd: PrivateDockerd) -> None:
    daemon = wire.sshd("AllowTcpForwarding no", key=wire.key())
    engine = await wire.link(daemon.port, docker_socket=dockerd.socket).docker()
    assert await engine.call(lambda client: client.ping(), deadline_seconds=30)
