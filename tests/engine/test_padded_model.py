"""SGLang's own DeepSeek-V4.1 model, padded for three ranks by the overlay, against itself on one rank, on the CPU.

One process of the engine's Python forks the ranks of all setups (`v41`), another one interprets the router's kernel.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.engine.v41 import bench

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
STEPS = {"prefill", "picture", "long prefill", "decode", "verify", "draft"}
SAME_BITS, CLOSE, NEARLY = 0.0, 1e-4, 1e-5
THREE = ("TP3, EP1", "TP3, EP3")
WIDE = "TP3, EP1, kernels of 64 heads"
FOUR = ("TP4, EP1", "TP4, EP4")


@pytest.fixture(scope="module")
def found(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return bench.run(tmp_path_factory.mktemp("v41"))


@pytest.fixture(scope="module")
def router(tiny_model: Path) -> dict[str, Any]:
    return bench.run_router()


def largest(steps: dict[str, Any], *left_out: str) -> float:
    assert set(steps) == STEPS
    return max(each["difference"] for step, each in steps.items() if step not in left_out)


@pytest.mark.parametrize("setup", [*THREE, WIDE, *FOUR])
def test_target_and_draft_say_on_all_ranks_what_one_rank_says(found: dict[str, Any], setup: str) -> None:
    steps = found["differences"][setup]
    assert largest(steps) <= CLOSE
    assert all(each["argmax equal"] and each["ranks equal"] for each in steps.values())


def test_padded_sizes_change_no_bit_on_one_rank(found: dict[str, Any]) -> None:
    """Six tokens a request are summed in another order there."""
    steps = found["differences"]["padded sizes at TP1"]
    assert largest(steps, "verify") == SAME_BITS
    assert steps["verify"]["difference"] <= NEARLY
    assert found["padding"]["padded sizes at TP1"]["padded"] == [{"heads": 32, "groups": 4, "draft experts": 1}]


def test_the_classes_of_a_spark_compute_what_those_of_a_cpu_do(found: dict[str, Any]) -> None:
    assert largest(found["differences"]["TP1, the engine's CPU classes"]) == SAME_BITS


@pytest.mark.parametrize(("setup", "widths"), [("TP1", [64]), (THREE[0], [32]), (WIDE, [32, 64]), (FOUR[0], [16])])
def test_kernels_see_the_heads_that_were_meant(found: dict[str, Any], setup: str, widths: list[int]) -> None:
    """The long prefill takes a rank's own heads in any case."""
    assert all(each == widths for each in found["padding"][setup]["widths"])


@pytest.mark.parametrize("setup", ["TP1", *THREE, "TP4, EP1"])
def test_packed_engram_rows_change_no_bit(found: dict[str, Any], setup: str) -> None:
    assert largest(found["packed"][setup]) == SAME_BITS


def test_a_picture_reaches_its_own_request_and_no_other(found: dict[str, Any]) -> None:
    assert found["picture"]["its own"] > 0.1
    assert found["picture"]["the other"] <= NEARLY


@pytest.mark.parametrize(("setup", "experts"), [(THREE[0], 0), (THREE[1], 1)])
def test_the_last_of_three_ranks_has_all_padding_and_nothing_but_padding(
    found: dict[str, Any], setup: str, experts: int
) -> None:
    none = {"heads": 0, "groups": 0, "draft experts": 0}
    assert found["padding"][setup]["padded"] == [none, none, {"heads": 32, "groups": 4, "draft experts": experts}]


@pytest.mark.parametrize("setup", ["TP1", "padded sizes at TP1", *THREE, WIDE, *FOUR])
def test_padding_is_zero_its_scales_one_and_every_fp8_layer_converts(found: dict[str, Any], setup: str) -> None:
    padding = found["padding"][setup]
    assert not any(padding["faults"])
    assert set(padding["converted"]) == set(found["padding"]["TP1"]["converted"]) == {54}


@pytest.mark.parametrize(
    ("setup", "passed"),
    [
        # Nine attentions have seven tensors with heads or groups; both read all of it, and pad their own.
        (THREE[0], {"same": 6945, "padded": 9 * 7}),
        # Three gates have two, and the 129th expert of three stages six.
        (THREE[1], {"same": 6939, "padded": 9 * 7 + 3 * 2, "made": 3 * 6}),
        # Nothing to pad: the stream is not even touched.
        (FOUR[0], {}),
    ],
)
def test_what_is_not_padded_is_handed_on_uncopied(found: dict[str, Any], setup: str, passed: dict[str, int]) -> None:
    assert all(each == passed for each in found["padding"][setup]["passed"])


SEEN_BY_LOGITS = [
    "groups of wo_b in another order",
    "groups of wo_a in another order",
    "attention sinks shifted by a head",
    "Engram rows zero",
    "Engram rows shifted by one",
    "router bias of the padded draft expert +10",
    "scale of padded wq_b NaN",
    "garbage in padded wq_b, wo_a and wo_b",
]
SEEN_BY_TENSORS = [
    ("garbage in padded wq_b alone", "attn.wq_b.weight: its padding is not zero"),
    ("garbage in padded wo_a alone", "attn.wo_a.weight: its padding is not zero"),
    ("garbage in padded wo_b alone", "attn.wo_b.weight: its padding is not zero"),
    ("garbage in padded sinks alone", "attn.attn_sink: its padding is not zero"),
    ("scale of padded wq_b 0", "wq_b: block scales are not positive powers of two"),
    ("scale of padded wo_b 0", "wo_b: block scales are not positive powers of two"),
    ("router bias of the padded draft expert 0", "ffn.gate.bias: 0 of a padded expert can win"),
    ("garbage in the padded draft expert", "ffn.experts.w13: its padding is not zero"),
]


@pytest.mark.parametrize("fault", SEEN_BY_LOGITS)
def test_logits_show_a_fault(found: dict[str, Any], fault: str) -> None:
    difference = found["planted"][fault]["logits"]
    assert math.isnan(difference) or difference > 100 * CLOSE


@pytest.mark.parametrize(("fault", "said"), SEEN_BY_TENSORS)
def test_tensors_show_a_fault_that_logits_hide(found: dict[str, Any], fault: str, said: str) -> None:
    planted = found["planted"][fault]
    assert planted["logits"] == SAME_BITS
    assert any(said in each for each in planted["tensors"])


def test_the_page_has_a_row_for_every_setup_and_fault() -> None:
    page = (bench.ROOT / "docs" / "padding.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")}
    assert {*SEEN_BY_LOGITS, *(fault for fault, _ in SEEN_BY_TENSORS), *THREE, WIDE, *FOUR} <= rows


def test_every_fault_is_expected_above_and_is_gone_afterwards(found: dict[str, Any]) -> None:
    assert set(found["planted"]) == {*SEEN_BY_LOGITS, *(fault for fault, _ in SEEN_BY_TENSORS)}
    assert found["after"] == [[SAME_BITS, []]] * 3


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ("the engine alone, padded sizes", "(torch.Size([64])) into parameter (torch.Size([96]))"),
        ("the engine alone, sizes as they are", "4096 is not divisible by 3"),
        ("padded heads, draft experts as they are", 'override-args {"dspark_n_routed_experts": 129}'),
        ("heads padded to another size", 'override-args {"num_attention_heads": 96, "o_groups": 12}'),
    ],
)
def test_a_model_of_other_sizes_than_its_tensors_is_not_loaded(found: dict[str, Any], setup: str, said: str) -> None:
    assert said in found["refused"][setup]


def test_the_router_chooses_as_without_the_padded_expert(router: dict[str, Any]) -> None:
    """SGLang's own kernel, 2,000 rows, bit for bit; a bias of 0 shows that these rows would choose it."""
    for name in ("as padded", "V4's formula"):
        assert router[name]["rows"] == 2000 and router[name]["equal"], name
        assert router[name]["padding chosen"] == 0, name
        assert router[name]["experts used"] > 64, name
    assert router["bias 0"]["padding chosen"] == 2000 and not router["bias 0"]["equal"]
