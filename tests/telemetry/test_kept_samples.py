"""U52: the last minutes of a node that wedged are on the head's disk and are shown as `last seen`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparktui.telemetry import follower, kept_samples
from sparktui.telemetry.fleet import Fleet
from sparktui.telemetry.kept_samples import NEWER, OLDER, KeptSamples, last_seen
from sparktui.telemetry.sample import ClusterSnapshot, Freshness, MemorySplit, NodeSample
from tests.telemetry.test_fleet import running
from tests.telemetry.watched import Clock, links, until

GIB = 1024**3


def picture(at: float, available: int, state: Freshness = Freshness.LIVE) -> ClusterSnapshot:
    split = MemorySplit(available_bytes=available, free_bytes=available // 2)
    return ClusterSnapshot(at, (NodeSample("worker2", 2, state, taken_at=at, split=split),))


async def test_what_was_kept_is_there_for_the_next_watch(tmp_path: Path) -> None:
    clock = Clock(1_795_975_000.0)
    kept = KeptSamples(tmp_path / "samples", now=clock)
    for second in range(3):
        clock.now += 1
        kept.take(picture(float(second), (9 - second) * GIB))
    kept.take(picture(2.0, 1, Freshness.STALE))
    await kept.flush()
    seen = last_seen(tmp_path / "samples")["worker2"]
    assert (seen.at, seen.available_bytes) == (1_795_975_003.0, 7 * GIB)
    lines = (tmp_path / "samples" / NEWER).read_text().splitlines()
    assert len(lines) == 3, "a silent node adds nothing"


async def test_ten_minutes_are_kept_and_no_more(tmp_path: Path) -> None:
    clock = Clock(1_795_975_000.0)
    kept = KeptSamples(tmp_path, now=clock)
    for second in range(0, 3600, 5):
        clock.now += 5
        kept.take(picture(float(second), second))
        await kept.flush()
    rows = sum(len((tmp_path / name).read_text().splitlines()) for name in (NEWER, OLDER))
    assert 60 <= rows <= 121
    assert last_seen(tmp_path)["worker2"].available_bytes == 3595


async def test_a_torn_line_and_a_full_disk_cost_no_watch(tmp_path: Path) -> None:
    (tmp_path / NEWER).write_text('{"at": 5, "node": "worker2", "available_bytes": 3, "free_bytes": 1, "stalled_per')
    assert last_seen(tmp_path) == {}
    (tmp_path / "file").write_text("")
    kept = KeptSamples(tmp_path / "file" / "samples")
    kept.take(picture(1.0, 1))
    await kept.flush()
    assert last_seen(tmp_path / "file" / "samples") == {}


async def test_a_node_that_never_answers_is_shown_as_it_was_last_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(kept_samples, "FLUSH_SECONDS", 0.01)
    earlier = KeptSamples(tmp_path, now=Clock(1_795_975_000.0))
    earlier.take(picture(1.0, int(1.2 * GIB)))
    await earlier.flush()
    nodes = links(3)
    nodes[2].unreachable("did not answer in 10 s")
    fleet = Fleet(nodes, clock=Clock(), kept=KeptSamples(tmp_path, now=Clock(1_795_975_900.0)))
    async with running(fleet):
        nodes[0].sample(1.0, MemAvailable=5 * 1024 * 1024)
        found = await until(fleet, lambda now: "last seen" in now.nodes[2].problem)
        assert "with 1.2 GiB available: it probably ran out of memory" in found.nodes[2].problem
        async with asyncio.timeout(5):
            while "head" not in last_seen(tmp_path):  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.02)
    assert last_seen(tmp_path)["head"].available_bytes == 5 * GIB
