"""On a Spark's GPU: the indexer gets a plan that its kernel splits by, and prompts take FlashInfer's sparse kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark_overlay.launch_args import LaunchError, build

from tests.engine.v41 import bench
from tests.overlay.test_launch_args import TP3

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def found(tiny_model: Path) -> dict[str, Any]:
    return bench.answer(["tests.engine.sm12x_cases"], 200)


def test_without_the_adapter_low_ratios_get_the_other_planners_schedule(found: dict[str, Any]) -> None:
    assert set(found["plain"].values()) == {"jit"}


def test_with_it_ratios_1_and_2_are_planned_by_deep_gemm_on_sm12x_and_nothing_else_changes(
    found: dict[str, Any],
) -> None:
    changed = {case for case, planner in found["armed"].items() if planner != found["plain"][case]}
    assert changed == {"1 True", "2 True"}
    assert {found["armed"][case] for case in changed} == {"deep_gemm"}


def test_more_than_64_query_tokens_take_the_sparse_prefill_kernel(found: dict[str, Any]) -> None:
    decode, prefill = "_flash_mla_flashinfer", "_flash_mla_sm120_prefill"
    assert found["kernels"] == {"1": decode, "64": decode, "65": prefill, "768": prefill}


def test_the_boot_states_both_paths_and_the_finalize(found: dict[str, Any]) -> None:
    attention, moe = found["statement"]
    assert attention.startswith("attention (flashinfer): up to 64 query tokens take the decode kernel")
    assert moe.startswith("fused MoE finalize: off")


@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_another_attention_backend_is_refused_before_the_start(backend: str) -> None:
    with pytest.raises(LaunchError, match="would leave FlashInfer's sparse attention"):
        build(TP3 | {"SGLANG_SM120_FLASHMLA_BACKEND": backend})
    build(TP3 | {"SGLANG_SM120_FLASHMLA_BACKEND": "flashinfer"})
