"""DSpark capped by confidence: same greedy output, the same law when sampling, no experts for drafts without a chance.

Three processes of the engine's Python: the tiny V4.1 model with and without the cap, on one rank and padded on three
(`verify_cap_model`); a million blocks of a four-token vocabulary (`verify_law`); the engine's chain kernel interpreted,
against the form of it that the million blocks use (`chain_sampling`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.v41 import bench

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
CLOSE = 1e-5
EXACT = ("token by token", "block verification", "blockwise rejection")
OWN = "by the draft's own confidence, its token kept"
BIASED = ("drawn afresh, by the draft's own confidence", "cap by the draft behind", "the last counted row is another's")


@pytest.fixture(scope="module")
def model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    return bench.answer(["tests.engine.verify_cap_model", str(tmp_path_factory.mktemp("v41"))], 500)


@pytest.fixture(scope="module")
def law(tiny_model: Path) -> dict[str, Any]:
    return bench.answer(["tests.engine.verify_law"], 400)


def test_the_draft_has_its_confidence_head_only_with_the_cap_and_filled_on_every_rank(model: Any) -> None:
    assert [rank["head"] for rank in model["without"]] == [False]
    assert [rank["head"] for name in ("capped", "capped, TP3") for rank in model[name]] == [True] * 4


def test_greedy_output_is_that_of_one_token_a_step_with_and_without_the_cap(model: Any) -> None:
    right = model["without"][0]["right"]
    for setup, answers in model.items():
        for rank in answers:
            assert rank["found"]["said"] == rank["right"] == right, setup
    assert model["without"][0]["found"]["lens"] == []
    lens = model["capped"][0]["found"]["lens"]
    assert {1, 6} < set(lens), "blocks cut at once, whole ones and some between"
    assert [rank["found"]["lens"] for rank in model["capped, TP3"]] == [lens] * 3


def test_rows_that_count_are_as_they_were_and_the_others_have_other_experts(model: Any) -> None:
    found = model["capped"][0]["found"]
    assert found["counted"] <= CLOSE < 0.1 < found["beyond"]
    assert 0 < found["experts"] < 0.9 * found["experts_whole"]


def test_a_row_too_many_without_its_experts_is_heard(model: Any) -> None:
    assert model["capped"][0]["one row too many"]["said"] != model["capped"][0]["right"]


@pytest.mark.parametrize("way", [*EXACT, OWN])
def test_sampled_output_has_the_targets_own_distribution(law: dict[str, Any], way: str) -> None:
    """The seeds are fixed: z of a right way is that of one draw from about a standard normal."""
    assert law[way]["blocks"] == 1_000_000
    assert sum(count > 50_000 for count in law[way]["tokens counted"]) >= 3
    assert abs(law[way]["z"]) < 3.5


@pytest.mark.parametrize("way", BIASED)
def test_a_planted_bias_is_seen(law: dict[str, Any], way: str) -> None:
    assert law[way]["z"] > 100


def test_captured_graphs_cut_where_the_step_says_and_nothing_waits_for_the_gpu(tiny_model: Path) -> None:
    found = bench.answer(["tests.engine.verify_cap_graphs"], 200)
    assert len(found) == 9
    assert not {case: problem for case, problem in found.items() if problem}


def test_the_form_for_many_rows_decides_as_the_engines_kernel(tiny_model: Path) -> None:
    for kind, found in bench.answer(["tests.engine.chain_sampling"], 300, TRITON_INTERPRET="1").items():
        assert found["differ"] == 0, kind
        assert min(found["accepted"]) > 10, "every length occurs"
