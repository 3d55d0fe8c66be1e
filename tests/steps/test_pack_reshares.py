"""pack when a worker does not see the checkpoint: shared again, once; then it goes on, or it names the node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktui.errors import DeadlineExceeded, SparktuiError
from sparktui.events import Event, NodeOutcome, Note, Outcome, Progress, Question, State
from sparktui.readings.checkpoint_listing import HubFile, Listing
from sparktui.remote import checkpoint_folder
from sparktui.settings import parse_settings
from sparktui.steps import pack
from sparktui.steps.pack import Pack
from sparktui.steps.step import Context
from tests.memory_engine import MemoryContainer
from tests.scripted_link import ScriptedLink

SEEN = {"config_sha256": "c" * 64, "index_sha256": "d" * 64, "files": {"model-00001-of-00001.safetensors": 500}}
BLIND = {"config_sha256": None, "index_sha256": None, "files": {}, "error": "Stale file handle"}
ROWS = {"files": [{"layer": 1, "file": "l1", "bytes": 9, "done": False, "partial_bytes": 0}], "error": ""}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "RECONNECT_SECONDS", 0.01)


class Sharing:
    """Three scripted nodes; the export went with a `stop` or a reboot: no exporter, no volumes (case U44)."""

    def __init__(self, folder: Path, **more: str) -> None:
        values = {
            "HEAD_IP": "10.0.0.1",
            "WORKER_IPS": "10.0.0.2 10.0.0.3",
            "WORKER_HOSTS": "spark2 spark3",
            "WORKER_FABRIC_IPS": "10.1.0.2 10.2.0.3",
            "NFS_SERVER_IPS": "10.1.0.1 10.2.0.1",
            "MODEL_DIR": f"{folder}/model",
        } | more
        self.settings = parse_settings(
            "".join(f'{name}="{value}"\n' for name, value in values.items()),
            env_path=folder / ".env",
            profile="three",
            environment={"HOME": str(folder)},
        )
        listing = Listing("owner/model", "1bae0e1", "1bae0e1" + "0" * 33, (HubFile("config.json", 10),))
        checkpoint_folder.write_record(folder / "model", listing)
        self.links = tuple(ScriptedLink(node) for node in self.settings.nodes)
        self.views: dict[str, Callable[[], dict[str, Any]]] = {}
        self.shared, self.looks = 0, dict.fromkeys(("head", "worker1", "worker2"), 0)
        for link in self.links:
            self._prepare(link)

    def _prepare(self, link: ScriptedLink) -> None:
        node = link.node.name
        link.answer(r'^\[ -d "\$folder" \]$')
        link.answer("mkdir -p")
        link.engine.add_image(self.settings.image)
        self.views[node] = lambda: SEEN

        def looked(container: MemoryContainer) -> None:
            self.looks[node] += 1
            container.log.append(json.dumps({**self.views[node](), "engram": ROWS}))
            container.status = "exited"

        def exported(container: MemoryContainer) -> None:
            self.shared += 1
            container.log.append("[spark] NFS READY")

        def packed(container: MemoryContainer) -> None:
            line = {"event": "progress", "layer": 1, "done_bytes": 9, "total_bytes": 9, "rate_bytes_per_second": 9}
            container.log.append(json.dumps(line))
            container.status = "exited"

        link.engine.on_start = {"dsv41-view-*": looked, "dsv41-nfs": exported, "dsv41-pack": packed}

    async def run(self) -> tuple[list[Event], SparktuiError | None]:
        async def ask(question: Question) -> str:
            raise AssertionError(question.question)

        seen: list[Event] = []
        try:
            async for event in Pack().run(Context(self.settings, self.links, ask)):
                seen.append(event)
        except SparktuiError as error:
            return seen, error
        return seen, None

    def packers(self) -> list[str]:
        return [link.node.name for link in self.links if "create dsv41-pack" in link.engine.actions]


async def test_u44_a_stopped_share_is_made_again_and_packing_goes_on(tmp_path: Path) -> None:
    cluster = Sharing(tmp_path)
    events, error = await cluster.run()
    assert error is None
    assert cluster.shared == 1
    said = [each for each in events if isinstance(each, Note) and each.state is State.WARN]
    assert [each.text for each in said] == ["worker1, worker2 cannot see the checkpoint; sharing it again, once"]
    done = {e.node for e in events if isinstance(e, NodeOutcome) and e.step == "pack" and e.outcome is Outcome.DONE}
    assert done == {"head", "worker1", "worker2"}
    assert {e.node for e in events if isinstance(e, Progress)} == done
    assert [set(link.engine.volumes) for link in cluster.links] == [set(), {"dsv41-weights"}, {"dsv41-weights"}]


async def test_a_worker_that_stays_blind_is_named_and_nobody_packs(tmp_path: Path) -> None:
    cluster = Sharing(tmp_path)
    cluster.views["worker2"] = lambda: BLIND
    _, error = await cluster.run()
    assert error is not None
    assert (error.node, cluster.shared) == ("worker2", 1)
    assert "cannot see the checkpoint" in error.what
    assert "Stale file handle" in error.what
    assert cluster.packers() == []


async def test_a_worker_that_goes_blind_again_after_the_share_is_named(tmp_path: Path) -> None:
    """The proof of the share held and the look after it did not: no second share, the node and the reason."""
    cluster = Sharing(tmp_path)
    cluster.views["worker1"] = lambda: SEEN if cluster.looks["worker1"] == 1 else BLIND
    _, error = await cluster.run()
    assert error is not None
    assert (error.node, cluster.shared) == ("worker1", 1)
    assert "cannot see the checkpoint" in error.what
    assert cluster.packers() == []


async def test_a_mount_that_does_not_answer_is_shared_again_and_then_named(tmp_path: Path) -> None:
    cluster = Sharing(tmp_path)

    def hangs() -> dict[str, Any]:
        raise DeadlineExceeded("no answer", node="worker1")

    cluster.views["worker1"] = hangs
    _, error = await cluster.run()
    assert error is not None
    assert (error.node, cluster.shared, cluster.packers()) == ("worker1", 1, [])


async def test_a_node_that_is_off_is_no_matter_of_the_share(tmp_path: Path) -> None:
    cluster = Sharing(tmp_path)
    cluster.links[2].unreachable("no route to 10.0.0.3")
    events, error = await cluster.run()
    assert error is not None
    assert (error.node, error.exit_status, cluster.shared) == ("worker2", 3, 0)
    assert not [each for each in events if isinstance(each, Note)]
    assert cluster.packers() == []


async def test_without_a_share_an_own_copy_that_differs_is_named_and_nothing_is_exported(tmp_path: Path) -> None:
    cluster = Sharing(tmp_path, NFS_SHARE="0", WORKER_MODEL_DIR="/data/model-1017")
    cluster.views["worker1"] = lambda: {**SEEN, "files": {"model-00001-of-00001.safetensors": 499}}
    _, error = await cluster.run()
    assert error is not None
    assert (error.node, cluster.shared, cluster.packers()) == ("worker1", 0, [])
    assert "499 bytes" in error.what
    assert "NFS_SHARE=1" in error.fix
