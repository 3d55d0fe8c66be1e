"""Every DSV41_ and SPARK_ name that may stand in an engine container's environment without a warning.

A name that only a later adapter will read is known too: sparktui hands on the settings of the recipe it replaces. A
test compares with what sparktui hands on.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_overlay.adapter import Adapter

BY_OURSELVES = frozenset({
    "DSV41_BLOCK_VERIFY", "DSV41_CACHE_GIB", "DSV41_CACHE_WAYS", "DSV41_ENGRAM_FALLBACK", "DSV41_IO_THREADS",
    "DSV41_PACKED_DIR", "DSV41_SERIAL_WEIGHT_LOAD", "DSV41_SOURCE", "DSV41_STATS_SECONDS",
    "SPARK_ROW_STORE",
})  # fmt: skip
"""Read by the entry point, by the row store or by what they start."""
HANDED_ON = frozenset({
    "DSV41_AUTOTUNE_KEEP", "DSV41_DRAFT_HEAD_FP8", "DSV41_DRAFT_HEAD_FP8_IMPL", "DSV41_DRAFT_TAU", "DSV41_FOLDED_FENCE",
    "DSV41_MXFP8_BACKEND", "DSV41_RESIDENT_SCALES", "DSV41_WO_A_W8", "DSV41_WO_A_W8_DRAFT",
    "DSV41_WO_A_W8_DROP", "DSV41_WO_A_W8_MID",
})  # fmt: skip
"""Settings of sparktui's that no adapter of this overlay reads yet."""


def known_names(ledger: Iterable[Adapter]) -> frozenset[str]:
    return BY_OURSELVES | HANDED_ON | {switch.name for adapter in ledger for switch in adapter.settings}
