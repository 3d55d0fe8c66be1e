"""doctor's row of the load: once image and checkpoint are there, what is known of just these two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparktui.events import Finding, State
from sparktui.steps.load_result import checked_ranks, keep, load_key
from tests.unit.doctor_cluster import FULL, IMAGE, Cluster

IDENTITY = f"{'c' * 64}  config.json\n{'d' * 64}  model.safetensors.index.json\n5 1.5 model-00001.safetensors\n"
LABELS = {"sparktui.overlay": "x", "sparktui.base": "base@sha256:1"}
GOOD = [{"event": "rank", "rank": rank, "ok": True, "tensors": 95_876} for rank in range(3)]
FAULT = {"event": "fault", "rank": 1, "kind": "missing", "tensor": "a.b", "text": "not in the checkpoint"}


def made(folder: Path, **settings: str) -> Cluster:
    cluster = Cluster(**settings)
    cluster.settings = cluster.settings.model_copy(update={"env_path": folder / ".env"})
    cluster.everywhere(identity=IDENTITY)
    for link in cluster.links:
        link.engine.images.clear()
        link.engine.add_image(IMAGE, layers=["a", "b"], labels=LABELS)
    return cluster


def kept(cluster: Cluster, events: list[dict[str, Any]], overlay: str = "x", rank: int = 0) -> None:
    node, facts = cluster.settings.nodes[rank], {"engine": LABELS["sparktui.base"], "overlay": overlay}
    key = load_key(cluster.settings, node, identity_text=IDENTITY, revision=FULL.revision, **facts)
    assert key is not None
    keep(cluster.settings.state_dir, node.name, key, events)


async def rows(cluster: Cluster) -> dict[str, Finding]:
    found, _ = await cluster.run()
    return {each.node: each for each in found if each.check == "load"}


async def test_it_is_offered_once_image_and_checkpoint_are_there(tmp_path: Path) -> None:
    cluster = made(tmp_path)
    assert [(each.node, each.state) for each in (await rows(cluster)).values()] == [("head", State.INFO)]
    (row,) = (await rows(cluster)).values()
    assert "not checked yet whether the model loads" in row.what
    assert "sparktui serve" in row.fix
    cluster.links[0].engine.images.clear()
    assert await rows(cluster) == {}
    assert await rows(Cluster()) == {}, "no checkpoint"


@pytest.mark.parametrize(
    ("events", "overlay", "state", "words"),
    [
        ([*GOOD, {"event": "checked", "ok": True}], "x", State.OK, "ranks 0, 1, 2 load at TP 3, EP 1: 95,876 tensors"),
        ([FAULT, {"event": "checked", "ok": False}], "x", State.WARN, "rank 1: a.b: not in the checkpoint"),
        ([FAULT, {"event": "checked", "ok": False}], "older", State.INFO, "not checked yet"),
    ],
)
async def test_a_kept_result_of_just_these_is_shown_and_a_fault_stops_no_chain(
    tmp_path: Path, events: list[dict[str, Any]], overlay: str, state: State, words: str
) -> None:
    cluster = made(tmp_path)
    kept(cluster, events, overlay)
    (row,) = (await rows(cluster)).values()
    assert row.state is state
    assert words in row.what
    assert ("(checked 20" in row.what) is (state is not State.INFO)
    _, error = await cluster.run()
    assert error is None


async def test_every_node_has_a_row_where_each_holds_the_checkpoint(tmp_path: Path) -> None:
    cluster = made(tmp_path, NFS_SHARE="0")
    kept(cluster, [GOOD[1], {"event": "checked", "ok": True}], rank=1)
    assert [checked_ranks(cluster.settings, node) for node in cluster.settings.nodes] == [(0,), (1,), (2,)]
    found = {node: row.state for node, row in (await rows(cluster)).items()}
    assert found == {"head": State.INFO, "worker1": State.OK, "worker2": State.INFO}
