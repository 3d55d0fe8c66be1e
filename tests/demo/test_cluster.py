"""The simulated cluster's process: many users at once, telemetry, the endpoint, other profiles, its end."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from sparktui.demo.parts import demo_parts
from sparktui.readings.sglang_metrics import parse_metrics
from sparktui.runs.request import RunRequest
from sparktui.telemetry.fleet import Fleet
from sparktui.telemetry.sample import ClusterSnapshot, EndpointState, Freshness
from sparktui.telemetry.serving import Endpoint
from tests.demo.conftest import Demo

GIB = 1024**3


def gone(pid: int) -> bool:
    until = time.time() + 15
    while Path(f"/proc/{pid}").exists():
        if time.time() > until:
            return False
        time.sleep(0.05)
    return True


def ask(demo: Demo, path: str, body: dict[str, object] | None = None, key: str = "") -> str:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{demo.home.port()}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


async def snapshot(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> ClusterSnapshot:
    for name, value in demo.environment.items():
        monkeypatch.setenv(name, value)
    parts = demo_parts()
    settings = parts.load_settings(RunRequest(str(demo.home.env_file), ("status",)))
    links = await parts.open_links(settings)
    fleet = Fleet(links, folders={link.node.name: ("/",) for link in links})
    try:
        async for picture in fleet.snapshots():
            if fleet.complete(2) and all(node.gpu for node in picture.nodes):
                return picture
    finally:
        for link in links:
            await link.aclose()
    raise AssertionError


async def test_telemetry_follows_the_nodes_and_sees_the_weights(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    demo.events("doctor")
    calm = await snapshot(demo, monkeypatch)
    for node in calm.nodes:
        assert node.freshness is Freshness.LIVE
        split = node.split
        parts = (split.held_bytes, split.processes_bytes, split.page_cache_bytes, split.free_bytes)
        assert sum(part or 0 for part in parts) == split.total_bytes
        assert (split.held_bytes or 0) < 3 * GIB
        assert node.ports is not None
        assert [port.active for port in node.ports] == [True] * 4
        assert {port.cage for port in node.ports} == {"p0", "p1"}
        assert all(port.errors == 0 for port in node.ports)
    assert len({node.split.total_bytes for node in calm.nodes}) == 3
    assert not calm.alarms
    demo.events("up", "--yes")
    serving = await snapshot(demo, monkeypatch)
    for node in serving.nodes:
        assert 100 * GIB < (node.split.held_bytes or 0) < 115 * GIB
        assert (node.split.available_bytes or 0) > 4 * GIB
        assert node.gpu is not None
        assert (node.gpu.process_bytes or 0) > 100 * GIB
        assert not any(port.growing for port in node.ports or ())
    assert not serving.alarms


def test_the_endpoint_answers_as_sglang_does_and_counts(demo: Demo) -> None:
    demo.events("up", "--yes")
    body = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 40, "stream": True}
    body["stream_options"] = {"include_usage": True}
    text = ask(demo, "/v1/chat/completions", body)
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert text.rstrip().endswith("data: [DONE]")
    said = "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks if each["choices"])
    assert "simulated" in said
    assert chunks[-1]["usage"]["completion_tokens"] == 40
    assert [each["choices"][0]["finish_reason"] for each in chunks if each["choices"]][-1] == "length"
    anthropic = json.loads(ask(demo, "/v1/messages", {"messages": body["messages"], "max_tokens": 10}))
    assert anthropic["content"][0]["text"]
    metrics = parse_metrics(ask(demo, "/metrics"))
    assert metrics.gauge("num_running_reqs") == 0
    assert (metrics.counter("realtime_tokens_total", mode="decode") or 0) >= 50
    assert (metrics.counter("generation_tokens_total") or 0) >= 50
    seen = asyncio.run(Endpoint(f"http://127.0.0.1:{demo.home.port()}", model="deepseek-v4.1-flash").look())
    assert seen.state is EndpointState.READY
    assert seen.accept_length == pytest.approx(3.02)
    talk = demo.run("talk").stdout
    assert f"http://127.0.0.1:{demo.home.port()}/v1" in talk


def test_a_key_is_asked_for_where_the_settings_have_one(demo: Demo) -> None:
    demo.run("doctor")
    with demo.home.env_file.open("a") as file:
        file.write("API_KEY=a-key-of-the-demo\n")
    demo.home.env_file.chmod(0o600)
    demo.events("up", "--yes")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(demo, "/v1/models")
    assert "deepseek" in ask(demo, "/v1/models", key="a-key-of-the-demo")
    kept = (demo.home.root / "cluster.json").read_text()
    assert "a-key-of-the-demo" not in kept


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ("", 4),
        ("NCCL_SWITCHLESS_RING=1\nNCCL_HOST_DIR=/opt/nccl-ring\n", 4),
    ],
    ids=["switch", "ring"],
)
def test_four_sparks_pass_doctor_too(demo: Demo, more: str, count: int) -> None:
    demo.run("--help")
    demo.home.make(with_settings=False)
    demo.home.env_file.write_text(
        "HEAD_IP=192.168.20.11\nWORKER_IPS='192.168.20.12 192.168.20.13 192.168.20.14'\nNNODES=4\n"
        "FABRIC_IFACE=enp1s0f0np0\nNCCL_SOCKET_IFNAME=enP7s7\nGLOO_SOCKET_IFNAME=enP7s7\n" + more
    )
    events = demo.events("doctor")
    rows = [each for each in events if each["kind"] == "finding"]
    assert len({each["node"] for each in rows}) == count
    links = [each for each in rows if each["check"] == "rdma.link"]
    assert {each["state"] for each in links} == {"OK"}
    assert len(links) == 4


def test_the_process_ends_when_its_folder_goes(demo: Demo) -> None:
    demo.run("doctor")
    pid = demo.cluster_pid()
    shutil.rmtree(demo.home.root)
    assert gone(pid)


def test_a_folder_too_deep_for_sockets_works_and_leaves_none(demo: Demo) -> None:
    deep = Path(demo.environment["XDG_CACHE_HOME"]) / ("a-rather-long-name-" * 5)
    other = Demo(type(demo.home)(deep / "sparktui" / "demo"), {**demo.environment, "XDG_CACHE_HOME": str(deep)})
    other.home.root.parent.mkdir(parents=True)
    try:
        assert other.run("doctor").returncode == 0
        assert other.home.sockets != other.home.root
        assert other.home.sockets.stat().st_mode & 0o777 == 0o700
    finally:
        other.run("leave")
    other.home.forget()
    assert not other.home.sockets.exists()
