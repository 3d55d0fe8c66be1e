"""The load check of serve on three scripted nodes: when it runs, when its result is used again, what a fault stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktui.errors import StepFailed
from sparktui.events import CommandShown, Event, Finding, Note, Progress, RunFinished, State
from sparktui.memory_sheet import sheet_events
from sparktui.steps import load_check, load_result, serve_boot
from sparktui.steps.load_result import FILE, kept_rows, read_kept
from sparktui.steps.serve import Serve
from sparktui.steps.step import Context
from tests.memory_engine import MemoryContainer
from tests.steps.test_serve_preflight import CHECKPOINT, IMAGE, LABELS, NODES, Cluster

CHECKS = "create dsv41-check"
TENSOR = "layers.7.attn.wq_b.weight"
FAULT = {"event": "fault", "rank": 2, "kind": "shape", "tensor": TENSOR, "text": "128 rows, 192 are wanted"}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_boot, "STATE_SECONDS", 0.01)
    monkeypatch.setattr(serve_boot, "SETTLE_SECONDS", 0.05)


def rows(seen: list[Event]) -> list[Finding]:
    return [each for each in seen if isinstance(each, Finding) and each.check == "load"]


def checks(cluster: Cluster) -> dict[str, int]:
    """How often each node's check was started since the last look."""
    counts = {link.node.name: link.engine.actions.count(CHECKS) for link in cluster.links}
    for link in cluster.links:
        link.engine.actions.clear()
    return {node: count for node, count in counts.items() if count}


def left_behind(cluster: Cluster) -> list[str]:
    return [name for link in cluster.links for name in link.engine.containers if "check" in name]


def stopped(cluster: Cluster) -> None:
    for link in cluster.links:
        link.engine.containers.clear()


async def test_the_head_checks_all_ranks_of_a_shared_checkpoint_before_an_engine_starts(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    seen, error = await cluster.run()
    assert error is None
    (row,) = rows(seen)
    assert (row.node, row.state) == ("head", State.OK)
    assert "ranks 0, 1, 2 load at TP 3, EP 1: 95,876 tensors" in row.what
    shares = [(each.amount, each.total) for each in seen if isinstance(each, Progress) and "loads" in each.phase]
    assert shares[-1] == (3, 3)
    actions = cluster.link("head").engine.actions
    assert actions.index("remove dsv41-check") < actions.index("create dsv41-head")
    assert checks(cluster) == {"head": 1}
    assert left_behind(cluster) == []


async def test_each_node_checks_its_own_rank_where_each_holds_the_checkpoint(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, NFS_SHARE="0")
    seen, error = await cluster.run()
    assert error is None
    assert checks(cluster) == dict.fromkeys(NODES, 1)
    assert sorted((each.node, each.what.partition(" load")[0]) for each in rows(seen)) == [
        *(("head", "rank 0"), ("worker1", "rank 1"), ("worker2", "rank 2"))
    ]
    shown = {each.node: each.command for each in seen if isinstance(each, CommandShown) and "check-m" in each.command}
    assert all(f"--rank {rank}" in shown[node] for rank, node in enumerate(NODES))
    stopped(cluster)
    await cluster.run()
    assert checks(cluster) == {}


async def test_a_good_result_is_used_again_and_says_when_it_was_made(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.run()
    checks(cluster)
    stopped(cluster)
    seen, error = await cluster.run()
    assert error is None
    assert checks(cluster) == {}
    (row,) = rows(seen)
    assert row.state is State.OK
    assert "(checked 20" in row.what


def a_file_came_anew(cluster: Cluster) -> None:
    cluster.link("head").answer("sha256sum config.json", stdout=CHECKPOINT.replace(" 1.5 ", " 9.5 "))


def another_config(cluster: Cluster) -> None:
    cluster.link("head").answer("sha256sum config.json", stdout=CHECKPOINT.replace("c" * 64, "e" * 64))


def another_overlay(cluster: Cluster) -> None:
    for link in cluster.links:
        link.engine.images.clear()
        link.engine.add_image(IMAGE, layers=["a", "n"], labels=LABELS | {"sparktui.overlay": "y"})


def another_engine(cluster: Cluster) -> None:
    for link in cluster.links:
        link.engine.images.clear()
        link.engine.add_image(IMAGE, layers=["n", "b"], labels=LABELS | {"sparktui.base": "base@sha256:2"})


def cut_off(cluster: Cluster) -> None:
    path = cluster.settings.state_dir / FILE
    path.write_bytes(path.read_bytes()[:-40])


def another_shape(cluster: Cluster) -> None:
    (cluster.settings.state_dir / FILE).write_text('{"version": 1, "results": {"head": {"key": [], "events": 3}}}')


def a_folder(cluster: Cluster) -> None:
    (cluster.settings.state_dir / FILE).unlink()
    (cluster.settings.state_dir / FILE).mkdir()


@pytest.mark.parametrize(
    "change",
    [a_file_came_anew, another_config, another_overlay, another_engine, cut_off, another_shape, a_folder],
)
async def test_a_result_of_something_else_or_one_that_cannot_be_read_is_no_result(
    tmp_path: Path, change: Callable[[Cluster], None]
) -> None:
    cluster = Cluster(tmp_path)
    await cluster.run()
    checks(cluster)
    stopped(cluster)
    change(cluster)
    seen, error = await cluster.run()
    assert error is None
    assert checks(cluster) == {"head": 1}
    assert "(checked" not in rows(seen)[0].what


async def test_another_expert_parallel_size_is_another_result(tmp_path: Path) -> None:
    await Cluster(tmp_path).run()
    other = Cluster(tmp_path, EP_SIZE="3")
    await other.run()
    assert checks(other) == {"head": 1}


@pytest.mark.parametrize("engines", ["none", "running"])
async def test_a_tensor_that_does_not_load_is_named_with_its_rank_and_nothing_is_touched(
    tmp_path: Path, engines: str
) -> None:
    cluster = Cluster(tmp_path)
    cluster.faults = {2: [FAULT, FAULT | {"tensor": "another"}]}
    for node in NODES if engines == "running" else ():
        cluster.running(node, **{"sparktui.spec": "older"})
    seen, error = await cluster.run()
    assert isinstance(error, StepFailed)
    assert error.lines() == [
        f"head: rank 2: {TENSOR}: 128 rows, 192 are wanted (and 1 more)",
        "  next: sparktui download (it names what is incomplete); if it is complete, report this line",
    ]
    assert error.exit_status == 1
    assert cluster.asked == []
    assert cluster.changes() == {"head": [], "worker1": [], "worker2": []}
    assert (left_behind(cluster), cluster.order) == ([], [])
    named = [each.text for each in seen if isinstance(each, Note) and each.state is State.FAIL]
    assert named == [f"rank 2: {name}: 128 rows, 192 are wanted" for name in (TENSOR, "another")]
    assert rows(seen)[0].data == {"tensor": TENSOR, "rank": 2, "kind": "shape"}


@pytest.mark.parametrize(
    ("kind", "share", "rank", "step"),
    [
        ("file", "1", 0, "delete that file in {model}, then: sparktui download"),
        ("file", "0", 1, "copy that file from the head to {copy} again, then: sparktui serve"),
        ("missing", "0", 1, "compare {copy} with the head's folder; if they are the same, report this line"),
        ("engine", "1", 0, "sparktui build; if it stays, report this line"),
    ],
)
async def test_the_next_step_follows_from_what_is_wrong_and_where(
    tmp_path: Path, kind: str, share: str, rank: int, step: str
) -> None:
    cluster = Cluster(tmp_path, NFS_SHARE=share)
    cluster.faults = {rank: [FAULT | {"rank": rank, "kind": kind}]}
    _, error = await cluster.run()
    assert error is not None
    wanted = step.format(model=cluster.settings.model_dir, copy=cluster.settings.worker_model_path)
    assert error.fix.startswith(wanted)
    assert error.node == NODES[rank]


async def test_what_cannot_load_is_checked_again_by_serve_and_never_fits_in_the_plan(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)

    async def planned() -> RunFinished:
        last = sheet_events(cluster.settings, {}, await kept_rows(cluster.settings, cluster.links, "plan"))[-1]
        assert isinstance(last, RunFinished)
        return last

    before = await planned()
    assert before.exit_status == 0
    assert before.text.endswith("the load was not checked yet")
    cluster.faults = {2: [FAULT]}
    await cluster.run()
    bad = await planned()
    assert (bad.exit_status, bad.node) == (1, "head")
    assert bad.text.startswith(f"cannot load: rank 2: {TENSOR}: 128 rows, 192 are wanted (checked 20")
    assert "fits" not in bad.text
    cluster.faults = {}
    checks(cluster)
    _, error = await cluster.run()
    assert error is None
    assert checks(cluster) == {"head": 1}
    good = await planned()
    assert (good.exit_status, "not checked" in good.text) == (0, False)
    cluster.link("head").unreachable()
    assert (await planned()).text.endswith("the load was not checked yet")


@pytest.mark.parametrize(
    ("meminfo", "why"),
    [
        (f"MemTotal: {120 << 20} kB\nMemAvailable: {5 << 20} kB\n", "5.0 GiB are available, the check takes 1.5 GiB"),
        (f"MemTotal: {120 << 20} kB\n", "available memory cannot be read"),
        ("", "available memory cannot be read"),
    ],
)
async def test_it_does_not_run_where_a_serving_engine_leaves_too_little_memory(
    tmp_path: Path, meminfo: str, why: str
) -> None:
    cluster = Cluster(tmp_path)
    for node in NODES:
        cluster.running(node, **{"sparktui.spec": "older"})
    cluster.link("head").put_file("/proc/meminfo", meminfo)
    seen, error = await cluster.run()
    assert error is None
    assert checks(cluster) == {}
    (row,) = rows(seen)
    assert row.state is State.WARN
    assert why in row.what
    assert read_kept(cluster.settings.state_dir) == {}


def ends(status: int, *lines: str, **more: Any) -> Callable[[MemoryContainer], None]:
    def behave(container: MemoryContainer) -> None:
        container.log.extend(lines)
        container.status, container.exit_code = "exited", status
        container.oom_killed = more.get("oom", False)

    return behave


@pytest.mark.parametrize(
    ("behave", "why"),
    [
        (ends(1, "Traceback", "ImportError: libcuda.so.1"), "status 1, ImportError: libcuda.so.1"),
        (ends(137, json.dumps(FAULT), oom=True), "it wanted more than 3.0 GiB"),
        (ends(0), "status 0, it printed nothing"),
        (ends(1, '{"event":"checked","ok":false}'), "status 1, it printed nothing"),
    ],
)
async def test_a_check_without_a_verdict_is_said_and_stops_nothing(
    tmp_path: Path, behave: Callable[[MemoryContainer], None], why: str
) -> None:
    cluster = Cluster(tmp_path)
    cluster.link("head").engine.on_start["dsv41-check"] = behave
    seen, error = await cluster.run()
    assert error is None
    (row,) = rows(seen)
    assert (row.state, why in row.what) == (State.WARN, True), row.what
    assert left_behind(cluster) == []
    assert read_kept(cluster.settings.state_dir) == {}


async def test_an_image_that_knows_no_check_is_named_with_the_build(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.link("head").engine.on_start["dsv41-check"] = ends(2, "usage: python -m spark_overlay verify")
    _, error = await cluster.run()
    assert error is not None
    assert "refused to begin: usage: python -m spark_overlay verify" in error.what
    assert error.fix.startswith("sparktui build")
    assert cluster.order == []


async def test_a_model_of_another_kind_is_skipped_by_name(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    line = '{"event":"checked","ok":true,"skipped":"the model is a llama"}'
    cluster.link("head").engine.on_start["dsv41-check"] = ends(0, line)
    seen, error = await cluster.run()
    assert error is None
    (row,) = rows(seen)
    assert (row.state, row.what) == (State.INFO, "the load is not checked: the model is a llama")


async def test_a_cancel_removes_the_check_and_leaves_the_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    waiting = goes_on(cluster, monkeypatch)
    for node in NODES:
        cluster.running(node, **{"sparktui.spec": "older"})
    run = asyncio.create_task(cluster.run())
    await waiting.wait()
    assert left_behind(cluster) == ["dsv41-check"]
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert left_behind(cluster) == []
    assert cluster.changes() == {"head": [], "worker1": [], "worker2": []}


async def test_a_cancel_while_the_container_is_being_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    begun, go_on = asyncio.Event(), asyncio.Event()
    real = load_check.our_containers.start

    async def slow(link: Any, spec: Any) -> None:
        if spec.name == "dsv41-check":
            begun.set()
            await go_on.wait()
        await real(link, spec)

    monkeypatch.setattr(load_check.our_containers, "start", slow)
    run = asyncio.create_task(cluster.run())
    await begun.wait()
    run.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert CHECKS in cluster.link("head").engine.actions
    assert left_behind(cluster) == []


def goes_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The head's check says nothing and does not end; set when it is followed."""
    engine = cluster.link("head").engine
    engine.on_start["dsv41-check"] = lambda container: None
    followed = asyncio.Event()

    async def lines(self: Any, container: str, **_: Any) -> Any:
        followed.set()
        await asyncio.Event().wait()
        yield ""

    monkeypatch.setattr("tests.scripted_link.ScriptedEngine.lines", lines)
    return followed


async def test_a_check_that_does_not_end_is_removed_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path)
    goes_on(cluster, monkeypatch)
    monkeypatch.setattr(load_check, "RANK_SECONDS", 0.02)
    seen = [each async for each in load_check.check_loads(Context(cluster.settings, cluster.links, cluster._ask))]
    (row,) = rows(seen)
    assert row.state is State.WARN
    assert "no verdict in" in row.what
    assert left_behind(cluster) == []


@pytest.mark.parametrize(("profile", "refused"), [("three", False), ("four", True)])
async def test_a_check_of_a_killed_run_is_begun_anew_and_another_clusters_is_respected(
    tmp_path: Path, profile: str, refused: bool
) -> None:
    cluster = Cluster(tmp_path)
    labels = {"sparktui.owner": "sparktui", "sparktui.profile": profile, "sparktui.role": "check"}
    cluster.link("head").engine.add_container("dsv41-check", image=IMAGE, labels=labels)
    _, error = await cluster.run()
    assert (error is not None) is refused
    assert left_behind(cluster) == (["dsv41-check"] if refused else [])


async def test_a_dry_run_shows_the_check_and_starts_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    context = Context(cluster.settings, cluster.links, cluster._ask, verbs=("serve",))
    commands = await Serve().plan(context)
    text = commands[0].text
    assert text.startswith("docker run --detach --pull=never --name dsv41-check")
    for part in (
        *("--label sparktui.owner=sparktui", "--label sparktui.role=check", "--network none", "--memory 3221225472"),
        *(":ro", "-m spark_overlay check-model", "--tp-size 3 --ep-size 1"),
    ):
        assert part in text
    assert all(link.engine.actions == [] for link in cluster.links)
    await cluster.run()
    checks(cluster)
    again = await Serve().plan(context)
    assert not any("check-model" in each.text for each in again), "a kept result needs no container"
    assert checks(cluster) == {}


async def test_a_full_disk_costs_the_kept_result_and_not_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(load_result.os, "fsync", full)
    _, error = await cluster.run()
    assert error is None
    assert list(cluster.settings.state_dir.glob("load-check*")) == []


async def test_the_first_faults_are_kept_of_thousands(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.faults = {0: [FAULT | {"rank": 0, "tensor": f"t{number}"} for number in range(3000)]}
    await cluster.run()
    (kept,) = read_kept(cluster.settings.state_dir).values()
    assert [each.tensor for each in kept.said.faults][:2] == ["t0", "t1"]
    assert (cluster.settings.state_dir / FILE).stat().st_size < 16_000
