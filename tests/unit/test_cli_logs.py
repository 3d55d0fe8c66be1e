"""`logs`: any rank's output, from its container or from what was saved."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparktui import rank_logs
from sparktui.errors import UsageError
from sparktui.events import Event, LogLine, Note, State
from tests.scripted_link import ScriptedLink, scripted_cluster


def run_container(link: ScriptedLink, name: str, log: list[str]) -> None:
    link.engine.add_image("sparktui:1", labels={})
    link.engine.client.api.create_container_from_config({"Image": "sparktui:1"}, name)
    link.engine.containers[name].log = log


async def shown(
    links: tuple[ScriptedLink, ...], logs: Path, *, tail: int = 100, node: str | None = None
) -> tuple[int, list[Event]]:
    events: list[Event] = []
    status = await rank_logs.show(rank_logs.chosen(links, node), logs, events.append, tail=tail, follow=False)
    return status, events


async def test_each_rank_in_order_the_last_lines(tmp_path: Path) -> None:
    links = scripted_cluster(3)
    run_container(links[0], "dsv41-head", ["one", "two", "three"])
    for link in links[1:]:
        run_container(link, "dsv41-worker", [f"{link.node.name} up"])
    status, events = await shown(links, tmp_path, tail=2)
    assert status == 0
    assert [(event.node, event.text) for event in events if isinstance(event, LogLine)] == [
        ("head", "two"),
        ("head", "three"),
        ("worker1", "worker1 up"),
        ("worker2", "worker2 up"),
    ]
    _, only = await shown(links, tmp_path, node="worker2")
    assert only == [LogLine("logs", "worker2", "worker2 up")]


async def test_a_container_of_another_name_is_not_ours(tmp_path: Path) -> None:
    (link,) = scripted_cluster(1)
    run_container(link, "dsv41-head-old", ["not this"])
    status, events = await shown((link,), tmp_path)
    assert status == 1
    assert events == [
        Note("logs", "head", "no container dsv41-head and no saved log; start it: sparktui serve", State.FAIL)
    ]


async def test_a_gone_container_gives_the_newest_saved_log(tmp_path: Path) -> None:
    (link,) = scripted_cluster(1)
    for name, age, text in (
        ("head.log", 50, "old"),
        ("20261129-head.log", 5, "a\nb\nnew"),
        ("worker1.log", 1, "other"),
    ):
        (tmp_path / name).write_text(text)
        stamp = 1_700_000_000 - age
        os.utime(tmp_path / name, (stamp, stamp))
    status, events = await shown((link,), tmp_path, tail=2)
    assert status == 0
    assert isinstance(events[0], Note) and "20261129-head.log" in events[0].text and "is gone" in events[0].text
    assert events[1:] == [LogLine("logs", "head", "b"), LogLine("logs", "head", "new")]


async def test_a_dead_node_costs_its_own_line(tmp_path: Path) -> None:
    links = scripted_cluster(2)
    run_container(links[0], "dsv41-head", ["fine"])
    links[1].unreachable("no route to host")
    status, events = await shown(links, tmp_path)
    assert status == 3
    assert events == [
        LogLine("logs", "head", "fine"),
        Note("logs", "worker1", "no route to host; is it on?", State.FAIL),
    ]


async def test_no_such_node() -> None:
    with pytest.raises(UsageError, match="worker7"):
        rank_logs.chosen(scripted_cluster(2), "worker7")
