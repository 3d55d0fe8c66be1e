"""CRC32C: the published check values, and the vectorised form against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.crc32c import crc32c, crc32c_pages


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_values(data: bytes, expected: int) -> None:
    """RFC 3720, appendix B.4."""
    assert crc32c(data) == expected


@given(st.integers(1, 700), st.integers(1, 3), st.randoms(use_true_random=False))
def test_pages_equal_the_plain_form(words: int, pages: int, dice) -> None:  # type: ignore[no-untyped-def]
    data = [dice.randbytes(words * 4) for _ in range(pages)]
    array = np.frombuffer(b"".join(data), "<u4").reshape(pages, words)
    assert [int(value) for value in crc32c_pages(array)] == [crc32c(page) for page in data]


def test_a_whole_page_over_the_block_border() -> None:
    array = np.random.default_rng(1).integers(0, 1 << 32, (514, 1023), dtype=np.uint32)
    sums = crc32c_pages(array)
    assert all(int(sums[row]) == crc32c(array[row].tobytes()) for row in (0, 511, 512, 513))
