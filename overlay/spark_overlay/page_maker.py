"""Pages made and verified: by the row store's C++ library where it can be loaded, else by numpy. The same bytes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_overlay import engram_pages
from spark_overlay.engram_file import PAGE_BYTES, Header
from spark_overlay.row_store import RowStoreError, load

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class PageMaker:
    """`build(header, first page, weights, scales, out)`: uint8 arrays in, whole pages out. `verify(header, first page,
    data)`: bool [pages]. `stated` says which of the two it is. Both may be called by several threads at once.
    """

    stated: str
    build: Callable[[Header, int, Any, Any, np.ndarray], None]
    verify: Callable[[Header, int, Any], np.ndarray]


@functools.cache
def page_maker() -> PageMaker:
    """The faster of the two that works here."""
    try:
        return _native(load())
    except (RowStoreError, AttributeError) as error:  # AttributeError: a library from before these functions
        return plain(str(error))


def plain(reason: str) -> PageMaker:
    def build(header: Header, first_page: int, weights: Any, scales: Any, out: np.ndarray) -> None:
        out[:] = engram_pages.build_pages(header, first_page, weights, scales).reshape(-1)

    return PageMaker(f"pages by numpy, slower: {reason}", build, engram_pages.good_pages)


def _native(library: ctypes.CDLL) -> PageMaker:
    import numpy as np

    def build(header: Header, first_page: int, weights: Any, scales: Any, out: np.ndarray) -> None:
        rows = len(weights) // header.weight_bytes
        if len(scales) != rows * header.scale_bytes or len(out) != -(-rows // header.rows_per_page) * PAGE_BYTES:
            raise ValueError(f"{rows} rows need other scales or another place than {len(scales)} and {len(out)} bytes")
        library.rs_build_pages(
            weights.ctypes.data, scales.ctypes.data, rows, header.weight_bytes, header.scale_bytes, first_page,
            out.ctypes.data,
        )  # fmt: skip

    def verify(header: Header, first_page: int, data: Any) -> np.ndarray:
        pages = np.frombuffer(data, np.uint8)
        good = np.zeros(len(pages) // PAGE_BYTES, dtype=np.bool_)
        library.rs_verify_pages(
            pages.ctypes.data, len(good), header.weight_bytes, header.scale_bytes, first_page, good.ctypes.data
        )
        return good

    return PageMaker("pages by the row store's library", build, verify)
