"""Pages by the row store's library and by numpy: the same bytes, and both see the same damage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_overlay import page_maker
from spark_overlay.engram_file import PAGE_BYTES, Header
from spark_overlay.page_maker import PageMaker, plain

from tests.overlay.row_store_library import built

HEADER = Header(
    layer=1, rank=0, tp=1, weight_bytes=256, scale_bytes=8, row_lo=0, row_hi=9999, total_rows=9999, column_lo=0,
    column_hi=1, by_columns=True, revision="1bae0e1", fingerprint=bytes(32), bounds=(0, 9999),
)  # fmt: skip


@pytest.fixture(scope="module")
def native() -> PageMaker:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_ROW_STORE", str(built().library))
        found = page_maker.page_maker.__wrapped__()
    assert found.stated == "pages by the row store's library"
    return found


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 100),
    sizes=st.sampled_from([(256, 8), (1, 0), (4072, 8), (100, 3), (2041, 0), (2040, 0)]),
    first=st.sampled_from([0, 1, 2**32 - 1, 2**63]),
    seed=st.integers(0, 2**32),
)
def test_both_make_the_same_pages_and_see_the_same_flipped_bit(
    native: PageMaker, rows: int, sizes: tuple[int, int], first: int, seed: int
) -> None:
    header = replace(HEADER, weight_bytes=sizes[0], scale_bytes=sizes[1])
    dice = np.random.default_rng(seed)
    weights, scales = (dice.integers(0, 256, rows * size, dtype=np.uint8) for size in sizes)
    pages = -(-rows // header.rows_per_page)
    made = []
    for maker in (native, plain("a test")):
        out = np.full(pages * PAGE_BYTES, 0xA5, dtype=np.uint8)
        maker.build(header, first, weights, scales, out)
        made.append(out)
    assert np.array_equal(*made)
    place = int(dice.integers(0, len(out)))
    for maker in (native, plain("a test")):
        assert maker.verify(header, first, made[0]).tolist() == [True] * pages
        assert not maker.verify(header, first + 1, made[0]).any()
        made[0][place] ^= 1 << int(dice.integers(0, 8))
        assert maker.verify(header, first, made[0]).tolist() == [page != place // PAGE_BYTES for page in range(pages)]
        made[0][place] = made[1][place]


def test_the_library_is_given_no_buffer_of_a_wrong_size(native: PageMaker) -> None:
    rows = [np.zeros(size * 20, dtype=np.uint8) for size in (256, 8)]
    for weights, scales, count in ((rows[0], rows[1][8:], 8192), (rows[0], rows[1], 4096), (rows[0], rows[1], 8193)):
        with pytest.raises(ValueError, match="20 rows need"):
            native.build(HEADER, 0, weights, scales, np.zeros(count, dtype=np.uint8))
