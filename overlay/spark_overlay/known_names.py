"""Every DSV41_ and SPARK_ name that may stand in an engine container's environment without a warning."""

from __future__ import annotations

from collections.abc import Iterable

from spark_overlay.adapter import Adapter

BY_OURSELVES = frozenset({
    "DSV41_BLOCK_VERIFY", "DSV41_CACHE_GIB", "DSV41_CACHE_WAYS", "DSV41_ENGRAM_FALLBACK", "DSV41_IO_THREADS",
    "DSV41_PACKED_DIR", "DSV41_SERIAL_WEIGHT_LOAD", "DSV41_STATS_SECONDS",
    "SPARK_ROW_STORE",
})  # fmt: skip
"""Read by the entry point, by the row store or by what they start."""
NO_EFFECT = frozenset({
    # of adapters that this overlay does not have
    "DSV41_AUTOTUNE_KEEP", "DSV41_DRAFT_HEAD_FP8", "DSV41_DRAFT_HEAD_FP8_IMPL", "DSV41_DRAFT_MAIN_PROJ_SPLIT",
    "DSV41_DRAFT_TAU", "DSV41_EAGER_GLUE", "DSV41_FAST_LOAD", "DSV41_FAST_LOAD_EP_SIZE",
    "DSV41_FAST_LOAD_INFLIGHT_GB", "DSV41_FAST_LOAD_N_EXPERTS", "DSV41_FAST_LOAD_TP_SLICE", "DSV41_FOLDED_FENCE",
    "DSV41_HC_FUSED", "DSV41_L2_PREFETCH", "DSV41_L2_PREFETCH_WOA", "DSV41_MOE_B12X_NEXT",
    "DSV41_MOE_B12X_NEXT_DETERMINISTIC", "DSV41_PREFILL_SP", "DSV41_PREFILL_SP_FP8", "DSV41_REPLICATED_SPLIT",
    "DSV41_RESIDENT_SCALES", "DSV41_ROCE_GATHER", "DSV41_ROUTER_LIVE", "DSV41_SPEC_SYNC_FREE",
    "DSV41_SPLIT_COMPACT_GATHER", "DSV41_WO_A_W8", "DSV41_WO_A_W8_DRAFT", "DSV41_WO_A_W8_DROP", "DSV41_WO_A_W8_MID",
    "SPARK_PREFILL_TP_MIN_CONTEXT", "SPARK_PREFILL_TP_MIN_ROWS", "SPARK_PREFILL_TP_SPLIT",
    # this image has no import hooks to switch on
    "DSV41_SOURCE",
    # always on here: by the engine's indexer, and by the padding of the shared expert
    "DSV41_INDEXER_CHUNKED", "DSV41_SHARED_PAD_K",
})  # fmt: skip
"""Settings of the recipe that nothing here acts on; sparktui has the same list."""


def known_names(ledger: Iterable[Adapter]) -> frozenset[str]:
    return BY_OURSELVES | {switch.name for adapter in ledger for switch in adapter.settings}


def without_effect(environment: Iterable[str], ledger: Iterable[Adapter]) -> str:
    """One sentence for all names that the recipe reads and nothing here does; empty without one."""
    found = sorted((NO_EFFECT - known_names(ledger)).intersection(environment))
    return f"known, no effect here: {', '.join(found)}" if found else ""
