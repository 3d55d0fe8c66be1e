"""The load check's container on a real Engine: read to its end, removed also after a cancel, limited in memory."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sparktui.cluster.container import ContainerSpec
from sparktui.cluster.node import Node
from sparktui.engine.launch import check_spec
from sparktui.events import Finding, Progress, Question, State
from sparktui.settings import Settings, parse_settings
from sparktui.steps import load_check
from sparktui.steps.step import Context
from tests.steps.host_link import HostLink
from tests.steps.test_serve_preflight import CHECKPOINT
from tests.testbed import Testbed
from tests.testbed.node import SimulatedSpark

IMAGE = "sparktui:load-test"
pytestmark = pytest.mark.testbed
SAYS = [{"event": "checking", "rank": rank} for rank in range(3)]
SAYS += [{"event": "rank", "rank": rank, "ok": True, "tensors": 7} for rank in range(3)]
VERDICT = [json.dumps(each) for each in (*SAYS, {"event": "checked", "ok": True})]
Program = Callable[[str], None]


def names(node: SimulatedSpark) -> list[str]:
    return node.docker("ps", "--all", "--format", "{{.Names}}", "--filter", "name=dsv41-check").split()


@pytest.fixture
async def head(three_sparks: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Context]:
    """The head's own Engine with the image; a test says which program the container runs."""
    node = three_sparks.head
    settings = parse_settings(
        three_sparks.env_text(IMAGE=IMAGE, NFS_SHARE="1"),
        env_path=tmp_path / ".env",
        profile="three",
        environment={"HOME": "/home/spark"},
    )
    node.docker("pull", three_sparks.tiny_image)
    node.docker("tag", three_sparks.tiny_image, IMAGE)
    node.run(["mkdir", "-p", settings.model_dir])
    link = HostLink(node, settings.nodes[0])
    link.answer("sha256sum config.json", stdout=CHECKPOINT)
    link.put_file("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 99999999 kB\n")

    async def ask(question: Question) -> str:
        raise AssertionError(question.question)

    yield Context(settings, (link,), ask)
    with contextlib.suppress(Exception):
        node.docker("rm", "--force", "dsv41-check", check=False)
    await link.aclose()


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """The small image has a shell and no engine; all else of the container is as serve makes it."""

    def set_program(text: str) -> None:
        def small(settings: Settings, node: Node) -> ContainerSpec:
            return dataclasses.replace(check_spec(settings, node), entrypoint=("/bin/sh",), command=("-c", text))

        monkeypatch.setattr(load_check, "check_spec", small)

    return set_program


async def test_its_lines_are_read_to_the_end_and_it_is_gone(
    three_sparks: Testbed, head: Context, program: Program
) -> None:
    program("".join(f"echo '{line}'; " for line in VERDICT))
    seen = [each async for each in load_check.check_loads(head)]
    row = seen[-1]
    assert isinstance(row, Finding)
    assert (row.state, row.what) == (State.OK, "ranks 0, 1, 2 load at TP 3, EP 1: 7 tensors")
    assert names(three_sparks.head) == []


async def test_a_status_and_last_words_are_those_of_the_container(
    three_sparks: Testbed, head: Context, program: Program
) -> None:
    program("echo 'usage: verify' >&2; exit 2")
    seen = [each async for each in load_check.check_loads(head)]
    row = seen[-1]
    assert isinstance(row, Finding)
    assert (row.state, row.what) == (State.FAIL, "the load check refused to begin: usage: verify")
    assert names(three_sparks.head) == []


async def test_a_cancel_takes_the_running_container_away(
    three_sparks: Testbed, head: Context, program: Program
) -> None:
    program(f"echo '{VERDICT[0]}'; sleep 600")
    begun = asyncio.Event()

    async def follow() -> None:
        async for each in load_check.check_loads(head):
            if isinstance(each, Progress):
                begun.set()

    run = asyncio.create_task(follow())
    async with asyncio.timeout(60):
        await begun.wait()
    assert names(three_sparks.head) == ["dsv41-check"]
    facts = json.loads(three_sparks.head.docker("inspect", "dsv41-check"))[0]
    assert facts["Config"]["Labels"]["sparktui.owner"] == "sparktui"
    assert facts["HostConfig"]["NetworkMode"] == "none"
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert names(three_sparks.head) == []


async def test_the_check_of_a_killed_run_is_replaced(three_sparks: Testbed, head: Context, program: Program) -> None:
    labels = [
        word for label in ("owner=sparktui", "role=check", "profile=three") for word in ("--label", f"sparktui.{label}")
    ]
    three_sparks.head.docker(
        "run", "--detach", "--network", "none", "--name", "dsv41-check", *labels, IMAGE, "sleep", "600"
    )
    program("".join(f"echo '{line}'; " for line in VERDICT))
    seen = [each async for each in load_check.check_loads(head)]
    assert isinstance(seen[-1], Finding)
    assert seen[-1].state is State.OK
    assert names(three_sparks.head) == []
