"""The memory and disk sheets against what owners of Sparks measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.cluster.disk import GIB, DiskNeed, disk_sheet, engram_bytes
from sparktui.cluster.padding import heads_a_rank, padded_tensors, padding_bytes
from sparktui.cluster.plan import BYTES_PER_TOKEN, UNEXPLAINED, Fit, MemoryInput, memory_plan, nccl_gib, pages
from sparktui.engine.fitting import disk_needs, fit_problems, memory_input, memory_sheet
from sparktui.envfile import Severity
from sparktui.events import Note, State
from sparktui.memory_sheet import rows as memory_rows
from sparktui.readings.df import Filesystem
from sparktui.settings import Settings, parse_settings

THREE = 'HEAD_IP=10.0.0.1\nWORKER_IPS="10.0.0.2 10.0.0.3"\n'
FOUR = 'HEAD_IP=10.0.0.1\nWORKER_IPS="10.0.0.2 10.0.0.3 10.0.0.4"\n'


def settings_of(text: str, profile: str, **overrides: str) -> Settings:
    return parse_settings(
        text, env_path=Path("/x/.env"), profile=profile, cli_overrides=overrides, environment={"HOME": "/h"}
    )


def test_three_sparks_fit_as_shipped_and_the_head_is_the_tight_one() -> None:
    plan = memory_sheet(settings_of(THREE, "three"))
    assert not plan.refusals
    assert plan.fit is Fit.FITS
    assert plan.pool_tokens == 749_824  # 750,000 in whole pages, as three Sparks report it
    assert plan.ranks[0].free_gib == min(rank.free_gib for rank in plan.ranks)


def test_the_sheet_follows_the_budget_of_the_index_scores() -> None:
    def indexer(mib: str) -> float:
        (item,) = (
            item
            for item in memory_sheet(settings_of(THREE, "three", DSV41_INDEXER_SCORE_BUDGET_MIB=mib)).ranks[0].items
            if item.name.startswith("indexer")
        )
        return item.gib

    assert [indexer(mib) for mib in ("256", "512", "0")] == [0.25, 0.5, 2.0]
    assert memory_sheet(settings_of(THREE, "three", DSV41_INDEXER_SCORE_BUDGET_MIB="0")).fit is Fit.TIGHT


def test_four_sparks_fit_and_their_pin_is_cut_to_what_owners_saw() -> None:
    plan = memory_sheet(settings_of(FOUR, "four"))
    assert not plan.refusals
    assert any("will be cut" in text for text in plan.warnings)
    assert 5_980_000 < plan.pool_tokens < 7_820_000


def test_two_sparks_do_not_fit() -> None:
    two = memory_input(settings_of(THREE, "three"))
    plan = memory_plan(MemoryInput(**{**{f: getattr(two, f) for f in two.__slots__}, "ranks": 2}))
    assert plan.fit is Fit.DOES_NOT_FIT
    assert plan.refusals


def test_a_pin_that_cannot_fit_is_refused_with_the_figures() -> None:
    plan = memory_sheet(settings_of(THREE, "three", MAX_TOTAL_TOKENS="3000000"))
    (reason,) = plan.refusals
    assert "MAX_TOTAL_TOKENS=3000000" in reason and "4.7 GiB" in reason and "the head" in reason


def test_a_lower_fraction_on_three_sparks_starves_the_pool() -> None:
    plan = memory_sheet(settings_of(THREE, "three", MEM_FRACTION_STATIC="0.90", HEAD_MEM_FRACTION_STATIC="0.90"))
    assert plan.fit is Fit.DOES_NOT_FIT
    assert "frees nothing" in plan.refusals[0]


def test_a_read_total_counts_and_its_source_is_named() -> None:
    settings = settings_of(THREE, "three")
    assumed = memory_sheet(settings).ranks[1]
    dell = memory_sheet(settings, {1: 125_443_040 * 1024}).ranks[1]
    assert "assumed" in assumed.total_source and "121.7" in assumed.total_source
    assert dell.total_source == "read from the node"
    assert dell.total_gib == pytest.approx(119.6, abs=0.1)
    assert memory_sheet(settings, {1: None}).ranks[1].total_source == assumed.total_source


def test_the_nccl_defaults_cost_what_was_measured() -> None:
    plan = memory_input(
        settings_of(
            THREE,
            "three",
            NCCL_BUFFSIZE="4194304",
            NCCL_LL128_BUFFSIZE="-2",
            NCCL_PROTO="LL,LL128,Simple",
            NCCL_MAX_NCHANNELS="32",
        )
    )
    assert nccl_gib(plan) == pytest.approx(4.6, abs=0.2)
    assert nccl_gib(memory_input(settings_of(THREE, "three"))) < 0.25
    assert memory_plan(plan).ranks[0].fit is Fit.DOES_NOT_FIT


def test_long_prompts_with_a_large_chunk_warn_on_three_sparks() -> None:
    assert not any("risky" in text for text in memory_sheet(settings_of(THREE, "three")).warnings)
    warned = memory_sheet(settings_of(THREE, "three", CHUNKED_PREFILL_SIZE="2048")).warnings
    assert any("98," in text and "CHUNKED_PREFILL_SIZE=2048" in text for text in warned)


def test_settings_refuse_what_cannot_fit_and_leave_a_cpu_engine_alone() -> None:
    bad = fit_problems(settings_of(THREE, "three", MAX_TOTAL_TOKENS="3000000"))
    assert (bad[0].name, bad[0].severity) == ("MAX_TOTAL_TOKENS", Severity.ERROR)
    assert fit_problems(settings_of(THREE, "three")) == []
    cpu = settings_of(
        THREE, "three", EXTRA_SGLANG_ARGS="--device cpu", MEM_FRACTION_STATIC="0.1", HEAD_MEM_FRACTION_STATIC="0.1"
    )
    assert fit_problems(cpu) == []


def test_a_small_checkpoint_has_its_own_weights() -> None:
    plan = memory_sheet(settings_of(THREE, "three"), weights_gib=1.0)
    assert plan.ranks[0].free_gib > 90


def test_padding_is_what_the_padded_tensors_are_larger_than_an_exact_share() -> None:
    """By hand: three Sparks hold 32 heads each where 64 / 3 are due, four hold 640 of the shared expert's 576."""
    added = {each.name: float(each.added_bytes) for each in padded_tensors(3, 3)}
    heads = 32 - 64 / 3
    assert added["wq_b"] == pytest.approx(43 * heads * 512 * 1280 * (1 + 1 / 1024))
    assert added["wo_a"] == pytest.approx(43 * heads * 512 * 1024 * 2)
    assert added["wo_b"] == pytest.approx(43 * (4 - 8 / 3) * 1024 * 5120 * (1 + 1 / 1024))
    assert added["attn_sink"] == pytest.approx(43 * heads * 4)
    assert added["shared expert's w2"] == 0, "2304 / 3 = 768 is a multiple of 128"
    assert added["draft experts"] == pytest.approx(3 * 18_800_640 / 3), "129 experts over three ranks"
    assert padded_tensors(3, 1)[-1].added_bytes == 0, "128 experts on every rank"
    assert padding_bytes(3, 1) / GIB == pytest.approx(1.009, abs=0.001)
    four = [each for each in padded_tensors(4, 4) if each.added_bytes]
    assert [each.name for each in four] == ["shared expert's w2"]
    assert padding_bytes(4, 4) == pytest.approx(43 * 64 * 5120 * (1 + 1 / 1024), abs=1)
    assert padding_bytes(8, 8) == pytest.approx(43 * 96 * 5120 * (1 + 1 / 1024), abs=1)


@given(ranks=st.integers(1, 64))
def test_no_padded_tensor_is_smaller_than_its_share_and_all_heads_have_a_place(ranks: int) -> None:
    assert heads_a_rank(ranks) * ranks >= 64
    assert all(each.added_bytes >= 0 for each in padded_tensors(ranks, 1))


def test_the_sheet_says_what_is_computed_and_what_nobody_can_explain() -> None:
    items = {item.name: item for item in memory_sheet(settings_of(THREE, "three")).ranks[0].items}
    assert items["padding"].gib == pytest.approx(1.009, abs=0.001) and "computed" in items["padding"].source
    assert "between -5.3 and 3.2 GiB" in items["not explained"].source
    four = {item.name: item for item in memory_sheet(settings_of(FOUR, "four")).ranks[0].items}
    assert four["padding"].gib == pytest.approx(0.0131, abs=0.0001)
    for unexplained in UNEXPLAINED.values():
        assert unexplained.low < unexplained.counted < unexplained.high


def test_the_shipped_window_of_three_sparks_is_longer_than_what_is_known_to_work() -> None:
    (text,) = memory_sheet(settings_of(THREE, "three")).advice
    assert text.index("32,000") < text.index("208,000"), "the lower figure first"
    (text,) = memory_sheet(settings_of(THREE, "three", CONTEXT_LENGTH="65536")).advice
    assert "208,000" not in text
    assert not memory_sheet(settings_of(THREE, "three", CONTEXT_LENGTH="32768")).advice
    assert not memory_sheet(settings_of(FOUR, "four")).advice
    events = memory_rows(memory_sheet(settings_of(THREE, "three")), {})
    assert [each.state for each in events if isinstance(each, Note) and "208,000" in each.text] == [State.WARN]


@given(
    ranks=st.integers(1, 64),
    context=st.integers(4096, 1_048_576),
    pool=st.integers(4096, 16_000_000),
    fraction=st.floats(0.01, 0.99),
    total=st.one_of(st.none(), st.integers(0, 2**48)),
)
def test_any_plan_says_something_consistent(
    ranks: int, context: int, pool: int, fraction: float, total: int | None
) -> None:
    plan = memory_plan(
        MemoryInput(ranks, context, pool, 4, 768, fraction, fraction, 0, 1, 1 << 20, 1 << 18, "^LL128", 8, {0: total})
    )
    assert len(plan.ranks) == ranks
    for rank in plan.ranks:
        assert 0 <= rank.pool_tokens <= pages(pool)
        assert rank.pool_tokens * BYTES_PER_TOKEN / GIB <= max(0.0, rank.kv_budget_gib) + 0.001
        assert (rank.fit is Fit.DOES_NOT_FIT) == bool(rank.reasons)


def test_engram_rows_take_65_gib_a_node_at_three_and_49_at_four() -> None:
    for rank in range(3):
        assert 65 < engram_bytes(rank, 3) / GIB < 66
    for rank in range(4):
        assert 48 < engram_bytes(rank, 4) / GIB < 49


def test_u19_a_disk_too_small_says_what_is_needed_and_how_much_is_missing() -> None:
    settings = settings_of(THREE, "three")
    head = settings.nodes[0]
    root = Filesystem("/dev/nvme0n1p2", 4000 * GIB, 3700 * GIB, 300 * GIB, "/")
    needs = disk_needs(settings, head)
    (row,) = disk_sheet(needs, {need.path: root for need in needs})
    assert row.short_bytes == sum(need.need_bytes for need in needs) - 300 * GIB
    assert "476 GiB checkpoint" in row.text and "65 GiB Engram rows" in row.text
    assert "has 300 GiB: short by" in row.text


def test_u19_what_is_there_already_is_not_needed_again() -> None:
    settings = settings_of(THREE, "three")
    root = Filesystem("/dev/nvme0n1p2", 4000 * GIB, 3700 * GIB, 100 * GIB, "/")
    needs = disk_needs(settings, settings.nodes[0], checkpoint_have_bytes=470 * GIB, image_present=True)
    (row,) = disk_sheet(needs, {need.path: root for need in needs})
    assert row.short_bytes == 0
    assert row.missing_bytes < 72 * GIB


def test_u19_one_filesystem_counts_once_and_two_are_two_rows() -> None:
    big = Filesystem("/dev/a", 1000 * GIB, 0, 50 * GIB, "/")
    other = Filesystem("/dev/b", 1000 * GIB, 0, 500 * GIB, "/data")
    needs = (DiskNeed("checkpoint", "/data/m", 30 * GIB), DiskNeed("Engram rows", "/h/e", 30 * GIB))
    together = disk_sheet(needs, {"/data/m": big, "/h/e": big})
    apart = disk_sheet(needs, {"/data/m": other, "/h/e": big})
    assert [row.short_bytes for row in together] == [10 * GIB]
    assert [row.short_bytes for row in apart] == [0, 0]


def test_unknown_space_is_unknown_and_not_enough_nor_too_little() -> None:
    (row,) = disk_sheet((DiskNeed("checkpoint", "/m", GIB),), {})
    assert row.short_bytes is None and row.available_bytes is None
    assert "unknown" in row.text


def test_workers_need_no_checkpoint_when_it_is_shared() -> None:
    shared, own = settings_of(THREE, "three"), settings_of(THREE, "three", NFS_SHARE="0")
    assert [need.what for need in disk_needs(shared, shared.nodes[1], image_present=True)] == ["Engram rows"]
    assert "checkpoint" in [need.what for need in disk_needs(own, own.nodes[1])]
