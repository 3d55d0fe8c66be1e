"""CRC32C (Castagnoli, as in iSCSI and the CPU instructions of ARMv8 and SSE4.2), one page at a time or many at once.

`crc32c(b"123456789") == 0xE3069283`. `crc32c_pages` is the same function over the rows of an array, without a loop over
bytes: a page is a polynomial over GF(2) in y = x^32 with one coefficient a word. Castagnoli's polynomial divides x^266
+ x^143 + x^121 + x^88 + x^71 + 1 (found by search), hence also the same sum in y: a leading word may be replaced by
five XORs further down, which is plain vector work. The last 266 words are halved nine times: the first half, multiplied
by a constant (two table look-ups), folds onto the second.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, bit-reflected."""

_DISTANCE = 266
_OFFSETS = tuple(_DISTANCE - exponent for exponent in (143, 121, 88, 71, 0))
_BLOCK_PAGES = 512
"""Pages checked at a time: what the second-level cache holds."""


def _byte_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _byte_table()


def crc32c(data: bytes) -> int:
    """The checksum of `data`; plain Python, for headers and as the reference."""
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def _times_x8(value: int) -> int:
    return (value >> 8) ^ _TABLE[value & 0xFF]


@functools.cache
def _fold_tables(shift_bytes: int) -> np.ndarray:
    """uint32 [2, 65536]: the product with x^(8 * shift_bytes) of a word's low and of its high half."""
    import numpy as np

    basis = []
    for bit in range(32):
        value = 1 << bit
        for _ in range(shift_bytes):
            value = _times_x8(value)
        basis.append(value)
    tables = np.zeros((2, 65536), dtype=np.uint32)
    for half in range(2):
        for bit in range(16):
            step = 1 << bit
            tables[half, step : 2 * step] = tables[half, :step] ^ np.uint32(basis[16 * half + bit])
    return tables


@functools.cache
def _constant(length: int) -> int:
    return crc32c(bytes(length))


def _times(words: np.ndarray, shift_bytes: int) -> np.ndarray:
    low, high = _fold_tables(shift_bytes)
    product: np.ndarray = low[words & 0xFFFF] ^ high[words >> 16]
    return product


def crc32c_pages(words: np.ndarray) -> np.ndarray:
    """Checksums of equally long byte strings.

    `words` is uint32 [pages, words a page], little-endian; the result is uint32 [pages].
    """
    import numpy as np

    if words.shape[0] == 0:
        return np.zeros(0, dtype=np.uint32)
    return np.concatenate([_block(words[at : at + _BLOCK_PAGES]) for at in range(0, words.shape[0], _BLOCK_PAGES)])


def _block(words: np.ndarray) -> np.ndarray:
    import numpy as np

    count = words.shape[1]
    work = words.copy()
    at = 0
    while count - at > _DISTANCE:
        step = min(_OFFSETS[0], count - at - _DISTANCE)
        source = work[:, at : at + step]
        for offset in _OFFSETS:
            work[:, at + offset : at + offset + step] ^= source
        at += step
    # One column a page from here on: the folds then run over long contiguous rows.
    rest = np.ascontiguousarray(work[:, at:].T)
    while rest.shape[0] > 1:
        half = rest.shape[0] // 2
        kept = rest[half:]
        # With an odd count the first kept word has no partner, so the distance is the length of what is kept.
        kept[kept.shape[0] - half :] ^= _times(rest[:half], 4 * kept.shape[0])
        rest = kept
    result: np.ndarray = _times(rest[0], 4) ^ np.uint32(_constant(count * 4))
    return result
