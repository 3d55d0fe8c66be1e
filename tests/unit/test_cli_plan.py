"""`plan`: the sheet's rows."""

from __future__ import annotations

from sparktui.cluster.plan import MemoryInput, memory_plan
from sparktui.events import Finding, Note, RunFinished, State
from sparktui.memory_sheet import read_totals, rows
from tests.scripted_link import scripted_cluster

THREE = MemoryInput(
    ranks=3,
    context_tokens=32_768,
    pool_tokens=750_000,
    max_running_requests=4,
    chunk_tokens=768,
    head_fraction=0.95,
    worker_fraction=0.95,
    engram_cache_gib=0,
    expert_groups=1,
    nccl_buffer_bytes=1 << 20,
    nccl_ll128_bytes=1 << 18,
    nccl_protocols="^LL128",
    nccl_channels=8,
    total_bytes={},
)
NAMES = {0: "head", 1: "worker1", 2: "worker2"}


def test_a_sheet_whose_items_add_up_to_its_head_line() -> None:
    events = rows(memory_plan(THREE), NAMES)
    heads = [each for each in events if isinstance(each, Finding) and each.check == "memory.fit"]
    assert [each.node for each in heads] == ["head", "worker1", "worker2"]
    for head in heads:
        used = sum(head.data["items"].values())
        assert abs(used - float(head.what.split()[0])) < 0.1
        assert "assumed" in head.what
    assert isinstance(events[-1], RunFinished)
    assert events[-1].exit_status == 0


def test_what_cannot_fit_is_status_1_and_named() -> None:
    from dataclasses import replace

    events = rows(memory_plan(replace(THREE, pool_tokens=80_000_000)), NAMES)
    refusals = [each for each in events if isinstance(each, Note) and each.state is State.FAIL]
    assert "MAX_TOTAL_TOKENS=80000000" in refusals[0].text
    assert isinstance(events[-1], RunFinished)
    assert (events[-1].exit_status, events[-1].text) == (1, refusals[0].text)


async def test_totals_are_read_where_a_node_answers() -> None:
    links = scripted_cluster(3)
    links[0].put_file("/proc/meminfo", "MemTotal:       127600000 kB\nMemFree: 1 kB\n")
    links[1].unreachable()
    links[2].put_file("/proc/meminfo", "nonsense")
    assert await read_totals(links) == {0: 127_600_000 * 1024, 1: None, 2: None}
