"""Rows to pages and back, as numpy arrays: pure, no files."""

from __future__ import annotations

import numpy as np

from spark_overlay.crc32c import crc32c_pages
from spark_overlay.engram_file import CRC_OFFSET, PAGE_BYTES, Header


def build_pages(header: Header, first_page: int, weights: bytes, scales: bytes) -> np.ndarray:
    """uint8 [pages, 4096] from the rows that start with page `first_page`; only the last page may be partly filled."""
    per_page, row_bytes, weight_bytes = header.rows_per_page, header.row_bytes, header.weight_bytes
    rows = len(weights) // weight_bytes
    pages = -(-rows // per_page)
    out = np.zeros((pages, PAGE_BYTES), dtype=np.uint8)
    whole = rows // per_page
    for start, count in ((0, whole), (whole, pages - whole)):
        if not count:
            continue
        filled = per_page if start == 0 and whole else rows - whole * per_page
        at = start * per_page
        slots = out[start : start + count, : filled * row_bytes].reshape(count, filled, row_bytes)
        weight = np.frombuffer(weights, np.uint8, count * filled * weight_bytes, at * weight_bytes)
        scale = np.frombuffer(scales, np.uint8, count * filled * header.scale_bytes, at * header.scale_bytes)
        slots[:, :, :weight_bytes] = weight.reshape(count, filled, weight_bytes)
        slots[:, :, weight_bytes:] = scale.reshape(count, filled, header.scale_bytes)
    numbers = np.arange(first_page, first_page + pages, dtype="<u8")
    at = header.number_offset
    out[:, at : at + 8] = numbers.view(np.uint8).reshape(pages, 8)
    words = out.view("<u4")
    words[:, CRC_OFFSET // 4] = crc32c_pages(words[:, : CRC_OFFSET // 4])
    return out


def good_pages(header: Header, first_page: int, data: bytes) -> np.ndarray:
    """bool [pages]: which of the whole pages in `data` carry their own number and the right checksum."""
    pages = len(data) // PAGE_BYTES
    words = np.frombuffer(data, "<u4", pages * PAGE_BYTES // 4).reshape(pages, PAGE_BYTES // 4)
    at = header.number_offset
    raw = words.view(np.uint8)[:, at : at + 8]
    numbers = np.ascontiguousarray(raw).view("<u8").reshape(pages)
    expected = np.arange(first_page, first_page + pages, dtype="<u8")
    checks: np.ndarray = crc32c_pages(words[:, : CRC_OFFSET // 4]) == words[:, CRC_OFFSET // 4]
    good: np.ndarray = checks & (numbers == expected)
    return good


def rows_of_page(header: Header, page: bytes) -> np.ndarray:
    """uint8 [rows a page, row bytes]: the slots of one page."""
    return np.frombuffer(page, np.uint8, header.number_offset).reshape(header.rows_per_page, header.row_bytes)
