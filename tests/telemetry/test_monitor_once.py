"""`monitor --once`: rows for people, JSON lines for scripts, and a status that says whether a node is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparktui import monitor_once
from sparktui.cli import main
from sparktui.events import Finding, RunFinished, State
from sparktui.runs.parts import Parts, product
from sparktui.settings import Settings, parse_settings
from sparktui.telemetry import follower, serving
from tests.telemetry.watched import StreamLink, links


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "FIRST_PAUSE_SECONDS", 0.02)

    async def refused(*_: object, **__: object) -> None:
        raise serving.ScrapeFailed("nothing listens at http://127.0.0.1:8888", kind="refused")

    monkeypatch.setattr(serving, "get", refused)


def settings(folder: Path) -> Settings:
    text = (
        'HEAD_IP="10.0.0.1"\nWORKER_IPS="10.0.0.2 10.0.0.3"\nWORKER_HOSTS="spark2 spark3"\nMODEL_DIR="/srv/model"\n'
        'API_KEY="a-long-secret-key"\n'
    )
    return parse_settings(text, env_path=folder / ".env", profile="three", environment={"HOME": str(folder)})


def cluster() -> list[StreamLink]:
    found = links(3)
    for link in found:
        link.sample(10.0, sent_words=0)
        link.sample(11.0, sent_words=262_144)
    return found


def parts(nodes: list[StreamLink], folder: Path) -> Parts:
    async def open_links(_: Settings) -> Any:
        return tuple(nodes)

    own = product()
    return Parts(lambda _: settings(folder), open_links, own.step, own.trust_host_key)


def test_rows_for_a_person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--once"], parts(cluster(), tmp_path)) == 0
    out = capsys.readouterr().out
    rows = [line.split(None, 3) for line in out.splitlines() if not line.startswith(" ")]
    assert {tuple(row[:3]) for row in rows} >= {
        ("OK", node, check) for node in ("head", "worker1", "worker2") for check in ("memory", "link.rocep1s0f0")
    }
    assert "port 0 ACTIVE, 200 Gb/s, out 1.0 MiB/s, in 0.0 MiB/s" in out
    assert "114.0 GiB available" in out and "of 121.7 GiB" in out
    assert "down, nothing listens" in out
    assert "a-long-secret-key" not in out


def test_lines_for_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--once", "--json", "--node", "worker1"], parts(cluster(), tmp_path)) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {each["node"] for each in events if each.get("check") == "memory"} == {"worker1"}
    (memory,) = [each for each in events if each.get("check") == "memory"]
    assert memory["data"]["total_bytes"] == 127_600_748 * 1024
    assert events[-1]["kind"] == "run_finished"


def test_a_node_that_does_not_answer_is_named_and_the_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = cluster()
    nodes[2].unreachable("no route to 10.0.0.3")
    assert main(["monitor", "--once"], parts(nodes, tmp_path)) == 3
    out = capsys.readouterr().out
    assert "FAIL    worker2  sample                   no route to 10.0.0.3" in out
    assert "alarm.gone.worker2" in out and "next: sparktui doctor" in out


def test_what_is_unknown_is_no_ok(tmp_path: Path) -> None:
    from sparktui.telemetry.sample import ClusterSnapshot, Freshness, NodeSample

    found = monitor_once.rows(ClusterSnapshot(0.0, (NodeSample("head", 0, Freshness.LIVE, age_seconds=0.1),)))
    states = {each.check: each.state for each in found if isinstance(each, Finding)}
    assert states["memory"] is State.UNKNOWN and states["links"] is State.UNKNOWN and "gpu" not in states
    assert isinstance(found[-1], RunFinished) and found[-1].exit_status == 0
    text = " ".join(each.what for each in found if isinstance(each, Finding))
    assert "0.0 GiB" not in text and "None" not in text


@pytest.mark.parametrize(
    ("argv", "said"),
    [(["status", "--once"], "--once belongs to"), (["monitor", "--once", "--dry-run"], "changes nothing")],
)
def test_usage(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err
