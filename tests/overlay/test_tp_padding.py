"""Sizes and tensors of a checkpoint for a number of ranks that does not divide them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.adapters.tp_padding import check_model, not_needed
from spark_overlay.tp_padding import PaddingError, Sizes

from sparktui.cluster.padding import heads_a_rank

REAL = Sizes(64, 8, 128)
RANKS = st.integers(1, 64)


@pytest.mark.parametrize(
    ("tp", "ep", "wanted"),
    [
        (1, 1, (64, 8, 128)),
        (3, 1, (96, 12, 128)),
        (3, 3, (96, 12, 129)),
        (4, 4, (64, 8, 128)),
        (6, 6, (96, 12, 132)),
        (8, 8, (64, 8, 128)),
        (9, 3, (144, 18, 129)),
    ],
)
def test_the_rule(tp: int, ep: int, wanted: tuple[int, int, int]) -> None:
    found = REAL.padded(tp, ep)
    assert (found.heads, found.groups, found.draft_experts) == wanted


@given(RANKS, RANKS)
def test_every_padded_size_divides_keeps_eight_heads_a_group_and_is_the_least_power_of_two(tp: int, ep: int) -> None:
    found = REAL.padded(tp, ep)
    assert found.heads % tp == found.groups % tp == found.draft_experts % ep == 0
    assert found.heads == 8 * found.groups
    assert 0 <= found.draft_experts - 128 < ep
    if REAL.heads % tp or REAL.groups % tp:
        a_rank = found.heads // tp
        assert a_rank & (a_rank - 1) == 0
        assert a_rank >= 16
        assert a_rank == 16 or a_rank // 2 * tp < 64
    else:
        assert (found.heads, found.groups) == (64, 8)
    assert found.padded(tp, ep) == found


def test_sizes_come_from_the_text_model_of_config_json_and_are_said_where_they_change() -> None:
    real = Sizes.of({"num_attention_heads": 32, "o_groups": 4})
    assert real == Sizes(32, 4, 128)
    wanted = real.padded(3, 3)
    assert wanted.overrides(real) == {"num_attention_heads": 48, "o_groups": 6, "dspark_n_routed_experts": 129}
    assert wanted.said(real) == "32 heads padded to 48, 4 groups padded to 6, 128 draft experts padded to 129"
    assert real.said(real) == ""


def test_a_model_without_the_override_and_an_override_that_nothing_needs_are_refused_by_name() -> None:
    wanted = REAL.padded(3, 1)
    check_model(wanted, REAL, wanted, 3, 1)
    with pytest.raises(PaddingError, match="TP 3 and EP 1 need 64 heads padded to 96, 8 groups padded to 12") as caught:
        check_model(REAL, REAL, wanted, 3, 1)
    assert '--json-model-override-args {"num_attention_heads": 96, "o_groups": 12}' in caught.value.fix
    with pytest.raises(PaddingError, match="which TP 4 and EP 4 do not need"):
        check_model(wanted, REAL, REAL, 4, 4)


@pytest.mark.parametrize(
    ("ranks", "said"), [("3", ""), ("4", "64 heads and 8 groups divide by 4, 128 draft experts by 4")]
)
def test_a_number_of_ranks_that_divides_needs_no_padding(ranks: str, said: str) -> None:
    assert not_needed({"TP_SIZE": ranks, "EP_SIZE": ranks}) == said


@given(RANKS)
def test_the_memory_sheet_counts_the_heads_that_this_rule_gives(ranks: int) -> None:
    assert heads_a_rank(ranks) * ranks == REAL.padded(ranks, 1).heads
