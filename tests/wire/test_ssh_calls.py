"""Calls over a real sshd: login shells, noise, deadlines, dead peers, nothing left behind."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktui.cluster.node import Node
from sparktui.errors import DeadlineExceeded, NodeUnreachable, RemoteCommandFailed, SparktuiError
from sparktui.remote.fleet_calls import gather_nodes
from sparktui.remote.link import NodeLink
from sparktui.remote.local import LocalLink
from tests.wire.conftest import Wire
from tests.wire.private_sshd import TemporaryUser

pytestmark = pytest.mark.testbed
AWKWARD = 'it\'s "$HOME" `id` \\n !x %s *\n\té'
PROBE = """printf '{"value": %s, "list": "%s"}' "$json" "$(for i in 1 2 3; do printf '%s ' "$i"; done)" """


def running(tag: str) -> list[int]:
    """Processes whose command line holds `tag`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if tag.encode() in (folder / "cmdline").read_bytes() and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


async def until(condition: Callable[[], bool], seconds: float = 15) -> bool:
    for _ in range(int(seconds / 0.1)):
        if condition():
            return True
        await asyncio.sleep(0.1)
    return condition()


def tagged_sleep() -> tuple[str, list[str]]:
    """A `sleep` that can be found again."""
    tag = f"9{os.urandom(4).hex()}".translate(str.maketrans("abcdef", "123456"))
    return tag, ["sleep", tag]


async def test_u08_the_same_probe_from_four_login_shells(wire: Wire, login_user: Callable[..., TemporaryUser]) -> None:
    daemon = wire.sshd(key=wire.key())
    answers = {}
    for shell in ("bash", "fish", "tcsh", "zsh"):
        user = login_user(f"spark{shell}", shell)
        link = wire.link(daemon.port, user=user.name)
        done = await link.script(PROBE, values={"json": json.dumps(AWKWARD)}, deadline_seconds=30)
        answers[shell] = json.loads(done.stdout, strict=False)
        echoed = await link.run(["printf", "%s", AWKWARD], deadline_seconds=30)
        assert (echoed.stdout, echoed.exit_status) == (AWKWARD, 0), shell
        assert (await link.run(["cat"], stdin=b"\x00\xff'\n", deadline_seconds=30)).stdout == "\x00\ufffd'\n"
        assert [line async for line in link.lines(["printf", "a\\n\\nb c\\n"])] == ["a", "", "b c"]
        async with link.pipe(["wc", "-c"]) as pipe:
            pipe.stdin.write(b"12345")
            pipe.stdin.write_eof()
            assert (await pipe.wait()).stdout.strip() == "5"
    assert all(each == {"value": AWKWARD, "list": "1 2 3 "} for each in answers.values()), answers


async def test_u09_a_banner_is_counted_and_kept_out_of_the_payload(
    wire: Wire, login_user: Callable[..., TemporaryUser]
) -> None:
    daemon = wire.sshd(key=wire.key())
    user = login_user("sparknoisy", "zsh")
    (user.home / ".zshenv").write_text("echo one; echo two; echo three; echo grumble >&2\n")
    link = wire.link(daemon.port, user=user.name)
    done = await link.script("echo payload; echo cause >&2; exit 4", deadline_seconds=30)
    assert (done.stdout, done.stderr, done.exit_status, done.noise_lines) == ("payload\n", "cause\n", 4, 3)
    assert [line async for line in link.lines(["echo", "x"])] == ["x"]
    async with link.pipe(["head", "-c", "5", "/dev/zero"]) as pipe:
        assert await pipe.stdout.read() == bytes(5)
        assert (await pipe.wait()).exit_status == 0


async def test_u10_an_account_without_a_login_shell_says_so(
    wire: Wire, login_user: Callable[..., TemporaryUser]
) -> None:
    daemon = wire.sshd(key=wire.key())
    link = wire.link(daemon.port, user=login_user("sparknologin", "nologin").name)
    with pytest.raises(RemoteCommandFailed, match="did not start /bin/sh: This account is currently not available"):
        await link.run(["true"], deadline_seconds=30)


async def test_values_and_commands_are_in_no_process_list(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key())
    link = wire.link(daemon.port)
    secret = "hunter" + os.urandom(6).hex()
    watched = asyncio.create_task(
        link.script('sleep 2; printf %s "$word"', values={"word": secret}, deadline_seconds=30)
    )
    await asyncio.sleep(1)
    assert running(secret) == []
    assert (await watched).stdout == secret


async def test_more_commands_at_once_than_sshd_has_sessions(wire: Wire) -> None:
    daemon = wire.sshd("MaxSessions 10", key=wire.key())
    link = wire.link(daemon.port)
    done = await asyncio.gather(*(link.run(["echo", str(number)], deadline_seconds=120) for number in range(25)))
    assert [each.stdout for each in done] == [f"{number}\n" for number in range(25)]


async def test_a_late_command_is_gone_from_the_node(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key())
    link = wire.link(daemon.port)
    tag, argv = tagged_sleep()
    with pytest.raises(DeadlineExceeded, match="did not answer in 2 s"):
        await link.run(argv, deadline_seconds=2)
    assert await until(lambda: not running(tag))


async def test_a_cancelled_script_leaves_no_process_not_even_one_that_ignores_signals(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key())
    link = wire.link(daemon.port)
    tag, argv = tagged_sleep()
    text = f"trap '' TERM HUP PIPE; while :; do {' '.join(argv)} & wait; done"
    call = asyncio.create_task(link.script(text, deadline_seconds=60))
    assert await until(lambda: bool(running(tag)))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await until(lambda: not running(tag))


async def test_closing_a_follower_ends_its_command(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key())
    tag, argv = tagged_sleep()
    follower = wire.link(daemon.port).lines(["sh", "-c", f"while echo tick; do {' '.join(argv)}; done"])
    assert await anext(follower) == "tick"
    await follower.aclose()  # type: ignore[attr-defined]
    assert await until(lambda: not running(tag))


async def test_a_connection_that_dies_ends_the_command_and_is_opened_again_on_next_use(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key())
    link = wire.link(daemon.port)
    tag, argv = tagged_sleep()
    call = asyncio.create_task(link.run(argv, deadline_seconds=60))
    assert await until(lambda: bool(running(tag)))
    connection = (await link.entered()).connection
    connection.abort()
    with pytest.raises(NodeUnreachable, match="the connection was lost"):
        await call
    assert await until(lambda: not running(tag))
    assert (await link.run(["echo", "again"], deadline_seconds=30)).stdout == "again\n"
    assert (await link.entered()).connection is not connection


async def test_a_follower_whose_connection_dies_says_so(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key())
    link = wire.link(daemon.port)
    lines = link.lines(["sh", "-c", "echo one; exec sleep 600"])
    assert await anext(lines) == "one"
    (await link.entered()).connection.abort()
    with pytest.raises(NodeUnreachable, match="the connection was lost"):
        await anext(lines)


async def test_docker_commands_of_a_node_are_told_which_daemon(wire: Wire) -> None:
    daemon = wire.sshd("SetEnv DOCKER_HOST=tcp://10.9.9.9:2375 DOCKER_CONTEXT=desktop-linux", key=wire.key())
    done = await wire.link(daemon.port).script('echo "$DOCKER_HOST|$DOCKER_CONTEXT"', deadline_seconds=30)
    assert done.stdout == "unix:///var/run/docker.sock|\n"


async def test_a_frozen_peer_is_noticed_by_keepalive_long_before_the_deadline(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key())
    link = wire.link(daemon.port, keepalive_seconds=1.0, keepalive_misses=2)
    await link.login()
    daemon.signal_connections(signal.SIGSTOP)
    assert (await link.run(["echo", "anew"], deadline_seconds=120)).stdout == "anew\n"  # the dead one is replaced
    tag, argv = tagged_sleep()
    call = asyncio.create_task(link.run(argv, deadline_seconds=120))
    assert await until(lambda: bool(running(tag)))
    daemon.signal_connections(signal.SIGSTOP)
    with pytest.raises(NodeUnreachable, match="the connection was lost"):
        await call
    daemon.signal_connections(signal.SIGCONT)
    assert await until(lambda: not running(tag))


async def test_a_node_whose_sshd_accepts_and_says_nothing_costs_its_own_row_only(wire: Wire) -> None:
    good = wire.sshd(key=wire.key())
    silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(3600), "127.0.0.1", 0)
    async with silent:
        links: list[NodeLink] = [
            LocalLink(Node("head", 0, "127.0.0.1")),
            wire.link(good.port),
            wire.link(silent.sockets[0].getsockname()[1], connect_seconds=2.0),
        ]
        rows = await gather_nodes(links, lambda link: link.run(["echo", "here"], deadline_seconds=30))
    assert [isinstance(each, SparktuiError) for each in rows] == [False, False, True]
    assert "did not answer in 2 s" in str(rows[2]) and "power cycle" in getattr(rows[2], "fix", "")


async def test_files_are_written_whole_with_their_mode_and_a_missing_one_is_none(wire: Wire, tmp_path: Path) -> None:
    daemon = wire.sshd(key=wire.key())
    link, target = wire.link(daemon.port), tmp_path / "new folder" / "it's a file"
    data = bytes(range(256)) * 1000
    await link.write_file(str(target), data, mode=0o600, deadline_seconds=30)
    assert target.read_bytes() == data and target.stat().st_mode & 0o777 == 0o600
    assert await link.read_file(str(target), deadline_seconds=30) == data
    assert await link.read_file(str(target) + ".no", deadline_seconds=30) is None
    assert [each.name for each in target.parent.iterdir()] == [target.name]
    with pytest.raises(RemoteCommandFailed, match="cannot read"):
        await link.read_file(str(target.parent), deadline_seconds=30)


async def test_bulk_goes_both_ways_unchanged_and_a_failed_command_keeps_its_reason(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key())
    link = wire.link(daemon.port)
    block = os.urandom(65536)
    async with link.pipe(["sha256sum"]) as pipe:
        for _ in range(100):
            pipe.stdin.write(block)
            await pipe.stdin.drain()
        pipe.stdin.write_eof()
        there = (await pipe.wait()).stdout.split()[0]
    assert there == hashlib.sha256(block * 100).hexdigest()
    async with link.pipe(["sh", "-c", "echo why >&2; exit 9"]) as pipe:
        done = await pipe.wait()
    assert (done.exit_status, done.stderr) == (9, "why\n")


@pytest.mark.parametrize("moment", ["writing", "waiting", "reading"])
async def test_bulk_whose_connection_dies_says_so_wherever_somebody_waits(wire: Wire, moment: str) -> None:
    """asyncssh's own errors must not reach a step: they would end the bulk to the other nodes too."""
    daemon = wire.sshd(key=wire.key())
    async with wire.link(daemon.port).pipe(["sleep", "600"]) as pipe:
        if moment == "writing":
            pipe.stdin.write(bytes(16 << 20))  # more than the window: `drain` waits for ever
        waiters = {"writing": pipe.stdin.drain, "waiting": pipe.wait, "reading": pipe.stdout.read}
        waiting = asyncio.create_task(waiters[moment]())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        daemon.signal_connections(signal.SIGKILL)
        with pytest.raises((NodeUnreachable, BrokenPipeError)):
            assert await asyncio.wait_for(waiting, 20) == b""
            await pipe.wait()
        with pytest.raises(NodeUnreachable, match="the connection was lost"):
            await pipe.wait()
