"""All adapters, in the order in which they are armed."""

from __future__ import annotations

from spark_overlay.adapter import Adapter
from spark_overlay.adapters import (
    anthropic_thinking,
    engram_rows,
    loop_abort,
    max_new_tokens,
    memory_guard,
    mxfp8_backend,
    prefill_empty_cache,
    score_budget,
    server_info_key,
    sm12x_paths,
    thinking_requests,
    tp_padding,
    verify_cap,
)

LEDGER: tuple[Adapter, ...] = (
    loop_abort.ADAPTER,
    max_new_tokens.ADAPTER,
    anthropic_thinking.ADAPTER,
    thinking_requests.ENABLE_THINKING,
    thinking_requests.INTEGER_EFFORT,
    server_info_key.ADAPTER,
    engram_rows.ADAPTER,
    tp_padding.ADAPTER,
    mxfp8_backend.ADAPTER,
    sm12x_paths.ADAPTER,
    verify_cap.ADAPTER,
    prefill_empty_cache.ADAPTER,
    score_budget.ADAPTER,
    memory_guard.ADAPTER,
)
