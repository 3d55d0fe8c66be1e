"""The head without ssh: the same seam, by real processes of this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sparktui.cluster.node import Node
from sparktui.errors import DeadlineExceeded, NodeUnreachable, RemoteCommandFailed
from sparktui.remote.fleet_calls import gather_nodes, open_links
from sparktui.remote.link import NodeLink
from sparktui.remote.local import LocalLink
from tests.scripted_link import ScriptedLink, scripted_cluster


def head() -> LocalLink:
    return LocalLink(Node("head", 0, "10.0.0.1"))


def alive(tag: str) -> bool:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if tag.encode() in (folder / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


async def gone(tag: str) -> bool:
    for _ in range(100):
        if not alive(tag):
            return True
        await asyncio.sleep(0.1)
    return False


def unique() -> str:
    return str(10**9 + int.from_bytes(os.urandom(3)))


async def test_a_command_a_script_and_a_missing_program() -> None:
    link = head()
    assert isinstance(link, NodeLink)
    assert (await link.run(["echo", "it's", "$HOME"], deadline_seconds=20)).stdout == "it's $HOME\n"
    done = await link.script('echo "$x"; echo no >&2; exit 7', values={"x": "a\nb"}, deadline_seconds=20)
    assert (done.stdout, done.stderr, done.exit_status, done.noise_lines) == ("a\nb\n", "no\n", 7, 0)
    absent = await link.run(["no-such-program"], deadline_seconds=20)
    assert absent.exit_status == 127 and "not found" in absent.stderr


async def test_a_megabyte_each_way() -> None:
    data = os.urandom(1 << 20)
    assert (await head().run(["wc", "-c"], stdin=data, deadline_seconds=30)).stdout.strip() == str(1 << 20)
    assert len((await head().run(["head", "-c", str(1 << 20), "/dev/zero"], deadline_seconds=30)).stdout) == 1 << 20


async def test_a_late_and_a_cancelled_command_leave_no_process() -> None:
    link, late, cancelled = head(), unique(), unique()
    with pytest.raises(DeadlineExceeded):
        await link.script(f"trap '' TERM; sleep {late} & wait; sleep {late}", deadline_seconds=0.7)
    call = asyncio.create_task(link.run(["sleep", cancelled], deadline_seconds=60))
    await asyncio.sleep(0.3)
    assert alive(cancelled)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await gone(late) and await gone(cancelled)


async def test_what_a_script_left_in_the_background_ends_with_it() -> None:
    tag = unique()
    assert (await head().script(f"sleep {tag} & echo started", deadline_seconds=20)).stdout == "started\n"
    assert await gone(tag)


async def test_a_follower_ends_its_command_and_reports_a_failure() -> None:
    tag = unique()
    lines = head().lines(["sh", "-c", f"echo one; exec sleep {tag}"])
    assert await anext(lines) == "one"
    await lines.aclose()  # type: ignore[attr-defined]
    assert await gone(tag)
    with pytest.raises(RemoteCommandFailed, match="sh ended with status 3: why") as failed:
        async for _ in head().lines(["sh", "-c", "echo why >&2; exit 3"]):
            pass
    assert failed.value.exit_status_remote == 3


async def test_files(tmp_path: Path) -> None:
    target = tmp_path / "made" / "secret"
    await head().write_file(str(target), b"\x00x", mode=0o600, deadline_seconds=20)
    assert target.read_bytes() == b"\x00x" and target.stat().st_mode & 0o777 == 0o600
    assert target.parent.stat().st_mode & 0o055 == 0o055
    assert await head().read_file(str(target), deadline_seconds=20) == b"\x00x"
    assert await head().read_file(str(tmp_path / "none"), deadline_seconds=20) is None


async def test_u48_a_path_that_never_answers_costs_one_child_and_a_deadline_each_time(tmp_path: Path) -> None:
    stuck = tmp_path / f"dead-mount-{unique()}"
    os.mkfifo(stuck)  # reading it blocks for ever, as a hard mount without its server does
    link = head()
    beats = 0

    async def screen() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.05)
            beats += 1

    drawing = asyncio.create_task(screen())
    answers = await asyncio.gather(
        *(link.read_file(str(stuck), deadline_seconds=1) for _ in range(5)), return_exceptions=True
    )
    drawing.cancel()
    assert all(isinstance(each, DeadlineExceeded) and "no answer for 1 s" in each.what for each in answers)
    assert beats > 5
    assert len(link._files._waiting) <= 1
    await link.aclose()
    assert await gone(str(stuck))


async def test_one_dead_node_costs_its_own_row() -> None:
    links = scripted_cluster(3)
    for link in links:
        link.answer("^hostname$", f"{link.node.name}\n")
    links[1].unreachable("no route to 10.0.0.2")

    async def ask(link: NodeLink) -> str:
        return (await link.run(["hostname"], deadline_seconds=5)).stdout.strip()

    rows = await gather_nodes(links, ask)
    assert [rows[0], rows[2]] == ["head", "worker2"]
    assert isinstance(rows[1], NodeUnreachable) and str(rows[1]) == "worker1: no route to 10.0.0.2"


async def test_a_node_that_is_later_than_the_deadline_is_unreachable_and_our_own_mistake_is_raised() -> None:
    links = scripted_cluster(2)

    async def slow(link: NodeLink) -> str:
        await asyncio.sleep(0 if link.node.is_head else 60)
        return "here"

    rows = await gather_nodes(links, slow, deadline_seconds=0.3)
    assert rows[0] == "here" and isinstance(rows[1], NodeUnreachable)

    async def wrong(link: NodeLink) -> str:
        raise KeyError(link.node.name)

    with pytest.raises(KeyError):
        await gather_nodes(links, wrong)


async def test_an_unprepared_question_fails_the_test_that_asked() -> None:
    link = ScriptedLink("worker1")
    with pytest.raises(AssertionError, match="asked without an answer prepared: nvidia-smi -L"):
        await link.run(["nvidia-smi", "-L"], deadline_seconds=5)
    assert link.commands == ["nvidia-smi -L"]


class Few:
    nodes = (
        Node("head", 0, "10.0.0.1"),
        Node("worker1", 1, "10.0.0.2", ssh_host="spark2", ssh_user="u"),
    )
    ssh_identity = "~/.ssh/mine"
    worker_pass = None


async def test_links_exist_for_every_node_without_connecting() -> None:
    from sparktui.remote.ssh import SshLink

    links = open_links(Few(), environment={"HOME": "/home/somebody"})
    assert [type(link).__name__ for link in links] == ["LocalLink", "SshLink"]
    worker = links[1]
    assert isinstance(worker, SshLink)
    assert worker.access.identity == Path("/home/somebody/.ssh/mine") and worker.access.home_is_other
    assert "password" not in repr(worker.access)
