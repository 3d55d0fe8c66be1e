"""serve on three scripted nodes: what stops it before anything is changed on any node, and the order of a start."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktui.engine.launch import LaunchSpec, launch_specs
from sparktui.errors import NodeUnreachable, SparktuiError
from sparktui.events import CommandShown, Event, Finding, Note, Outcome, Question, State
from sparktui.readings.checkpoint_listing import HubFile, Listing
from sparktui.remote import checkpoint_folder
from sparktui.settings import parse_settings
from sparktui.steps import serve, serve_boot, smoke
from sparktui.steps.serve import Serve
from sparktui.steps.step import Context
from tests.memory_engine import MemoryContainer
from tests.scripted_link import Asked, ScriptedLink
from tests.steps.test_smoke_agents import GOOD as AGENTS_WELL
from tests.steps.test_smoke_judge import FIRST_TWO, SHAPES, TOOL_TURNS, ToldServer, answer

KEY = "a-long-secret-key"
IMAGE = "sparktui:test"
NODES = ("head", "worker1", "worker2")
SHORT = re.compile(r"dsv41-(view-|check)")
LABELS = {"sparktui.overlay": "x", "sparktui.base": "base@sha256:1"}
READY = "[spark] READY rank=0 port=8888 model=deepseek-v4.1-flash max_total_num_tokens=749824 boot_seconds=812.3"
GID_OF = "0000:0000:0000:0000:0000:ffff:0a00:{:02x}{:02x}"
CHECKPOINT = f"{'c' * 64}  config.json\n{'d' * 64}  model.safetensors.index.json\n500 1.5 model-00001.safetensors\n"
"""What tells one checkpoint from another: hashes, sizes, times."""
MACHINE = "infiniband\nss\nport 127.0.0.1:22\n"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_boot, "STATE_SECONDS", 0.01)
    monkeypatch.setattr(serve_boot, "SETTLE_SECONDS", 0.05)


def fabric(rank: int, *, kind: str = "RoCE v2") -> str:
    """Two devices with a link and one GID index that is right on both."""
    rows = []
    for number, device in enumerate(("rocep1s0f0", "roceP2p1s0f0")):
        at = f"/sys/class/infiniband/{device}"
        rows += [f"{at}/device/net/enp{number}\t-", f"{at}/ports/1/state\t4: ACTIVE"]
        rows += [f"{at}/ports/1/gids/3\t{GID_OF.format(number + 1, rank + 1)}"]
        rows += [f"{at}/ports/1/gid_attrs/types/3\t{kind}", f"{at}/ports/1/gid_attrs/ndevs/3\tenp{number}"]
    return "".join(f"{row}\n" for row in rows)


class Cluster:
    """Three nodes on which nothing stands in the way of a start, unless a test changes them."""

    def __init__(self, folder: Path, **more: str) -> None:
        values = {
            "HEAD_IP": "10.0.0.1",
            "WORKER_IPS": "10.0.0.2 10.0.0.3",
            "WORKER_HOSTS": "spark2 spark3",
            "MODEL_DIR": f"{folder}/model",
            "API_KEY": KEY,
            "IMAGE": IMAGE,
            "NCCL_IB_HCA": "rocep1s0f0,roceP2p1s0f0",
            "SKIP_SMOKE": "1",
        } | more
        self.settings = parse_settings(
            "".join(f'{name}="{value}"\n' for name, value in values.items()),
            env_path=folder / ".env",
            profile="three",
            environment={"HOME": str(folder)},
        )
        listing = Listing("owner/model", "1bae0e1", "1bae0e1" + "0" * 33, (HubFile("config.json", 10),))
        checkpoint_folder.write_record(folder / "model", listing)
        self.order: list[str] = []
        self.answers = {"serve.replace": "yes", "serve.restart": "yes"}
        self.asked: list[str] = []
        self.views: dict[str, dict[str, Any]] = {}
        self.faults: dict[int, list[dict[str, Any]]] = {}
        """Rank to the events of what does not load."""
        self.links = tuple(ScriptedLink(node) for node in self.settings.nodes)
        for link in self.links:
            self._well(link)
        self.specs: tuple[LaunchSpec, ...] = launch_specs(self.settings, {0: 3, 1: 3, 2: 3}, revision=listing.revision)

    def _well(self, link: ScriptedLink) -> None:
        node = link.node.name
        link.answer(r'^\[ -d "\$folder" \]$')
        link.answer("mkdir -p")
        link.answer(r"printf.*\$paths")
        link.answer("/sys/class/infiniband", stdout=fabric(link.node.rank))
        link.answer("nvidia-smi", stdout=MACHINE)
        link.answer("sha256sum config.json", stdout=CHECKPOINT)
        link.put_file("/proc/meminfo", f"MemTotal: {120 << 20} kB\nMemAvailable: {6 << 20} kB\n")
        link.engine.add_image(IMAGE, layers=["a", "b"], labels=LABELS)
        link.engine.client.volumes.create(self.settings.nfs_volume, labels={"sparktui.owner": "sparktui"})
        link.engine.actions.clear()
        engram = [{"layer": 1, "file": "l1", "bytes": 9, "done": True, "partial_bytes": 0}]
        self.views[node] = {
            "config_sha256": "c" * 64,
            "index_sha256": "d" * 64,
            "files": {"model-00001-of-00001.safetensors": 500},
            "engram": {"files": engram},
        }

        def looked(container: MemoryContainer) -> None:
            container.log.append(json.dumps(self.views[node]))
            container.status = "exited"

        def started(container: MemoryContainer) -> None:
            self.order.append(node)
            if link.node.is_head:
                container.log.append(READY)

        def checked(container: MemoryContainer) -> None:
            container.log.extend(self.load(node))
            container.status = "exited"

        link.engine.on_start = {
            "dsv41-view-*": looked,
            "dsv41-head": started,
            "dsv41-worker": started,
            "dsv41-check": checked,
        }

    def load(self, node: str) -> list[str]:
        """What the check of the load prints on a node."""
        mine = range(3) if self.settings.nfs_share else [NODES.index(node)]
        said: list[dict[str, Any]] = []
        for rank in mine:
            said += [{"event": "checking", "rank": rank, "tp": 3, "ep": 1}, *self.faults.get(rank, [])]
            sizes = {"tensors": 95_876, "padded": 240, "parameter_bytes": 9, "pad_bytes": 1, "peak_bytes": 7}
            said += [{"event": "rank", "rank": rank, "ok": rank not in self.faults, **sizes, "seconds": 31.5}]
        bad = set(mine) & set(self.faults)
        said += [{"event": "checked", "ok": not bad, "fingerprint": "f" * 64, "sglang": "0.5.23", "overlay": "x"}]
        return [json.dumps(each) for each in said]

    def link(self, node: str) -> ScriptedLink:
        return self.links[NODES.index(node)]

    def running(self, node: str, **labels: str) -> MemoryContainer:
        """An engine of ours, made by the very spec that would be started now unless `labels` say otherwise."""
        spec = self.specs[NODES.index(node)].container
        return self.link(node).engine.add_container(spec.name, image=IMAGE, labels={**spec.labels, **labels})

    async def _ask(self, question: Question) -> str:
        self.asked.append(question.question)
        return self.answers[question.question]

    async def run(self, verbs: tuple[str, ...] = ("serve",)) -> tuple[list[Event], SparktuiError | None]:
        seen: list[Event] = []
        try:
            async for event in Serve().run(Context(self.settings, self.links, self._ask, verbs=verbs)):
                seen.append(event)
        except SparktuiError as error:
            return seen, error
        return seen, None

    def changes(self) -> dict[str, list[str]]:
        """What was changed on each node, the short looks, the load check and our own empty folders excepted."""

        def engine(link: ScriptedLink) -> list[str]:
            return [each for each in link.engine.actions if not SHORT.search(each)]

        def changing(each: Asked) -> bool:
            return each.kind in ("run", "lines", "pipe", "write")

        return {
            link.node.name: [*engine(link), *(f"{a.kind} {a.text}" for a in link.asked if changing(a))]
            for link in self.links
        }


def another_image(cluster: Cluster) -> None:
    cluster.link("worker1").engine.images.clear()
    cluster.link("worker1").engine.add_image(IMAGE, layers=["a", "old"], labels=LABELS)


def no_image(cluster: Cluster) -> None:
    cluster.link("worker1").engine.images.clear()


def not_packed(cluster: Cluster) -> None:
    cluster.views["worker2"]["engram"]["files"][0] |= {"done": False, "partial_bytes": 4}


def wrong_rows(cluster: Cluster) -> None:
    cluster.views["worker1"]["engram"]["files"][0] |= {"done": False, "error": "l1 was packed for rank 2"}


def another_checkpoint(cluster: Cluster) -> None:
    cluster.views["worker2"]["config_sha256"] = "e" * 64


def no_volume(cluster: Cluster) -> None:
    cluster.link("worker2").engine.volumes.clear()


def no_gid(cluster: Cluster) -> None:
    cluster.link("worker2").answer("/sys/class/infiniband", stdout=fabric(2, kind="IB/RoCE v1"))


def no_device(cluster: Cluster) -> None:
    cluster.link("worker1").answer("/sys/class/infiniband", stdout="")


def foreign_container(cluster: Cluster) -> None:
    cluster.link("worker1").engine.add_container("dsv41-worker", image=IMAGE)


def another_profile(cluster: Cluster) -> None:
    cluster.running("worker2", **{"sparktui.profile": "four"})


def packing(cluster: Cluster) -> None:
    labels = {"sparktui.owner": "sparktui", "sparktui.profile": "three", "sparktui.role": "pack"}
    cluster.link("worker1").engine.add_container("dsv41-pack", image=IMAGE, labels=labels)


def port_taken(cluster: Cluster) -> None:
    cluster.link("head").answer("nvidia-smi", stdout=MACHINE + f"port [::]:{cluster.settings.port}\n")


def gpu_busy(cluster: Cluster) -> None:
    cluster.link("worker2").answer("nvidia-smi", stdout=MACHINE + "app 4711, /usr/bin/blender, 2048\n")


def no_infiniband(cluster: Cluster) -> None:
    cluster.link("worker1").answer("nvidia-smi", stdout="ss\n")


def no_mounted_file(cluster: Cluster) -> None:
    cluster.link("head").answer(r"printf.*\$paths", stdout=f"{cluster.settings.model_dir}\n")


@pytest.mark.parametrize(
    ("spoil", "node", "check", "what", "fix"),
    [
        (another_image, "worker1", "image", "image differs", "sparktui build"),
        (no_image, "worker1", "image", f"no image {IMAGE}", "sparktui build"),
        (not_packed, "worker2", "rows", "not packed", "sparktui pack"),
        (wrong_rows, "worker1", "rows", "packed for rank 2", "sparktui pack"),
        (another_checkpoint, "worker2", "checkpoint", "config.json differs from the head's", "sparktui share"),
        (no_volume, "worker2", "checkpoint", "there is no volume", "sparktui share"),
        (no_gid, "worker2", "gid", "rank 2: rocep1s0f0 has a link and no IPv4-mapped RoCE v2 GID", "netplan"),
        (no_device, "worker1", "gid", "rank 1: no RDMA device rocep1s0f0", "NCCL_IB_HCA"),
        (foreign_container, "worker1", "containers", "dsv41-worker exists and is not sparktui's", "docker inspect"),
        (another_profile, "worker2", "containers", "profile four", "sparktui stop --profile four"),
        (packing, "worker1", "containers", "dsv41-pack", "sparktui stop"),
        (port_taken, "head", "port", "is taken by something that is not ours", "ss -ltnp"),
        (gpu_busy, "worker2", "gpu", "the GPU is in use by /usr/bin/blender", "FORCE=1"),
        (no_infiniband, "worker1", "infiniband", "there is no /dev/infiniband", "ConnectX"),
        (no_mounted_file, "head", "paths", "is to be mounted and is not there", "put it there"),
    ],
)
async def test_a_node_that_is_not_fit_is_named_and_no_node_is_changed(
    tmp_path: Path, spoil: Callable[[Cluster], None], node: str, check: str, what: str, fix: str
) -> None:
    cluster = Cluster(tmp_path)
    spoil(cluster)
    seen, error = await cluster.run()
    failed = [each for each in seen if isinstance(each, Finding) and each.state is State.FAIL]
    assert [(each.node, each.check) for each in failed if what in each.what and fix in each.fix] == [(node, check)]
    assert {each.node for each in failed} == {node}
    assert error is not None
    assert (error.node, error.exit_status) == (node, 1)
    assert cluster.changes() == {"head": [], "worker1": [], "worker2": []}
    assert cluster.order == []


async def test_a_node_that_cannot_be_asked_decides_the_exit_status(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.link("head").engine.images.clear()  # the first row is another failure
    cluster.link("worker1").unreachable("no route to 10.0.0.2")
    seen, error = await cluster.run()
    assert isinstance(error, NodeUnreachable)
    assert (error.node, error.exit_status) == ("worker1", 3)
    states = {each.state for each in seen if isinstance(each, Finding) and each.node == "worker1"}
    assert State.OK not in states
    assert State.UNKNOWN in states
    assert cluster.changes() == {"head": [], "worker1": [], "worker2": []}


async def test_force_starts_although_the_gpu_is_in_use(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, FORCE="1")
    gpu_busy(cluster)
    _, error = await cluster.run()
    assert error is None
    assert len(cluster.order) == 3


async def test_a_port_of_our_own_running_engine_is_no_obstacle(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    port_taken(cluster)
    for node in NODES:
        cluster.running(node, **{"sparktui.spec": "older"})
    _, error = await cluster.run()
    assert error is None
    assert cluster.asked == ["serve.replace"]


async def test_the_workers_are_started_before_the_head_and_the_key_is_in_a_file_alone(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    seen, error = await cluster.run()
    assert error is None
    assert (sorted(cluster.order[:2]), cluster.order[2]) == (["worker1", "worker2"], "head")
    stored = cluster.link("head").files[f"{cluster.settings.state_dir}/api-key"]
    assert (stored.data.decode().strip(), stored.mode) == (KEY, 0o600)
    assert not any(each.kind == "write" for node in NODES[1:] for each in cluster.link(node).asked)
    bodies = [each.body for link in cluster.links for each in link.engine.containers.values()]
    assert KEY not in json.dumps(bodies) + repr(seen)
    shown = [each for each in seen if isinstance(each, CommandShown) and "docker run" in each.command]
    assert [each.node for each in shown][-1] == "head"
    assert ["check-model" in each.command for each in shown] == [True, False, False, False]


async def test_an_engine_with_other_settings_is_left_alone_when_the_answer_is_no(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for node in NODES:
        cluster.running(node)
    cluster.link("worker1").engine.containers["dsv41-worker"].body["Labels"]["sparktui.spec"] = "older"
    cluster.answers["serve.replace"] = "no"
    _, error = await cluster.run()
    assert error is not None
    assert (error.node, error.what) == ("worker1", "the running engine was left alone")
    assert cluster.changes() == {"head": [], "worker1": [], "worker2": []}


async def test_an_engine_from_an_older_image_under_the_same_tag_is_another_engine(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for node in NODES:
        cluster.running(node)
    for link in cluster.links:
        older = link.engine.images.pop(IMAGE)
        older.tags = []
        body = next(iter(link.engine.containers.values())).body
        body["Image"] = older.id
        link.engine.add_image(
            IMAGE, layers=["a", "new"], labels={"sparktui.overlay": "y"}, image_id="sha256:" + "9" * 64
        )
    cluster.answers["serve.replace"] = "no"
    _, error = await cluster.run()
    assert cluster.asked == ["serve.replace"]
    assert error is not None
    assert cluster.changes() == {"head": [], "worker1": [], "worker2": []}


async def test_what_runs_as_configured_and_answers_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def well(settings: object) -> str:
        return ""

    monkeypatch.setattr(serve, "unready", well)
    cluster = Cluster(tmp_path)
    for node in NODES:
        cluster.running(node)
    seen, error = await cluster.run()
    assert error is None
    outcomes = [getattr(each, "outcome", None) for each in seen]
    assert outcomes.count(Outcome.SKIPPED) == 3
    assert cluster.changes() == {"head": [], "worker1": [], "worker2": []}


@pytest.mark.parametrize("gone", NODES)
@pytest.mark.parametrize("how", ["exited", "removed"])
async def test_a_rank_that_is_gone_is_named_and_the_others_stay_when_the_answer_is_no(
    tmp_path: Path, gone: str, how: str
) -> None:
    cluster = Cluster(tmp_path)
    for node in NODES:
        cluster.running(node)
    containers = cluster.link(gone).engine.containers
    name = next(iter(containers))
    if how == "exited":
        containers[name].status = "exited"
    else:
        del containers[name]
    cluster.answers["serve.restart"] = "no"
    seen, error = await cluster.run()
    if (gone, how) == ("head", "removed"):
        # As after a start that was cut off before the head: nobody was served, nothing is asked.
        assert error is None
        assert cluster.asked == []
        said = [each.text for each in seen if isinstance(each, Note) and "cut off before the head" in each.text]
        assert len(said) == 1 and "rank 0 (head)" in said[0]
        return
    assert cluster.asked == ["serve.restart"]
    assert error is not None
    assert error.node == gone
    assert f"rank {NODES.index(gone)} ({gone}) does not run" in error.what
    assert cluster.changes() == {"head": [], "worker1": [], "worker2": []}


@pytest.mark.parametrize(
    ("more", "verbs", "rows"),
    [
        ({}, ("serve",), ["smoke.arithmetic"]),
        (
            {"SMOKE_QUICK": "0"},
            ("serve",),
            [f"smoke.{name}" for name in ("arithmetic", "json", "tool", "picture", *AGENTS_WELL)],
        ),
        ({"SKIP_SMOKE": "1"}, ("serve",), []),
        ({}, ("serve", "smoke"), []),
    ],
)
async def test_a_serve_by_itself_ends_with_what_the_smoke_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], verbs: tuple[str, ...], rows: list[str]
) -> None:
    asked = ToldServer([*FIRST_TWO, *TOOL_TURNS, SHAPES, *(each for said in AGENTS_WELL.values() for each in said)])
    monkeypatch.setattr(smoke, "EngineServer", asked)
    cluster = Cluster(tmp_path, **{"SKIP_SMOKE": "0"} | more)
    seen, error = await cluster.run(verbs)
    assert error is None
    found = [each for each in seen if isinstance(each, Finding) and each.check.startswith("smoke.")]
    assert [(each.step, each.check, each.state) for each in found] == [("serve", row, State.OK) for row in rows]
    shown = await Serve().plan(Context(cluster.settings, cluster.links, cluster._ask, verbs=verbs))
    assert list(dict.fromkeys(f"smoke.{each.why}" for each in shown if "curl" in each.text)) == rows


async def test_a_wrong_answer_at_the_end_of_a_serve_is_a_failed_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke, "EngineServer", ToldServer([answer("43")]))
    seen, _ = await Cluster(tmp_path, SKIP_SMOKE="0").run()
    last = seen[-1]
    assert isinstance(last, Finding)
    assert (last.check, last.state, last.fix) == ("smoke.arithmetic", State.FAIL, "sparktui logs head")


async def test_a_rank_that_is_gone_starts_all_of_them_anew_and_keeps_their_logs(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for node in NODES:
        cluster.running(node).log.append(f"last words of {node}")
    cluster.link("worker2").engine.containers["dsv41-worker"].status = "exited"
    _, error = await cluster.run()
    assert error is None
    assert cluster.asked == ["serve.restart"]
    assert cluster.order[2] == "head"
    for link in cluster.links:
        name = "dsv41-head" if link.node.is_head else "dsv41-worker"
        changed = [each for each in link.engine.actions if not SHORT.search(each)]
        stop = [] if link.node.name == "worker2" else [f"stop {name}"]
        assert changed == [*stop, f"remove {name}", f"create {name}", f"start {name}"]
    kept = "".join(each.read_text() for each in cluster.settings.logs_dir.glob("*.log"))
    assert all(f"last words of {node}\n" in kept for node in NODES)
