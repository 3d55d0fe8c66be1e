"""FP8 layers on b12x: the kernel each layer takes, exact numbers, exact zeros, and the routes stated at boot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.v41 import bench

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def b12x(tiny_model: Path) -> dict[str, Any]:
    return bench.answer(["tests.engine.mxfp8_cases", "b12x"], 200)


@pytest.fixture(scope="module")
def cudnn(tiny_model: Path) -> dict[str, Any]:
    return bench.answer(["tests.engine.mxfp8_cases", "cudnn"], 200)


def test_the_engine_by_itself_takes_cutlass(b12x: dict[str, Any]) -> None:
    assert {each["kernel"] for each in b12x["plain"].values()} == {"cutlass"}


def test_every_layer_takes_the_kernel_that_is_set_whole_tiles_for_b12x(
    b12x: dict[str, Any], cudnn: dict[str, Any]
) -> None:
    assert {name: (each["kernel"], each["columns"]) for name, each in b12x["armed"].items()} == {
        "wq_b": ("b12x", 1280),
        "down TP3": ("b12x", 768),
        "down TP4": ("b12x", 640),
        "down TP8": ("b12x", 384),
    }
    assert {(each["kernel"], each["columns"]) for each in cudnn["armed"].values()} == {
        ("cudnn", columns) for columns in (1280, 768, 576, 288)
    }


@pytest.mark.parametrize("name", ["wq_b", "down TP3", "down TP4", "down TP8"])
def test_the_padded_product_is_the_product_bitwise(b12x: dict[str, Any], name: str) -> None:
    plain, armed = b12x["plain"][name], b12x["armed"][name]
    assert armed["out"] == plain["out"]
    assert armed["sum"] == plain["sum"]
    assert armed["shape"] == plain["shape"] == [5, 512 if name == "wq_b" else 320]
    assert armed["zeros"] and armed["ones"]
    assert armed["again"], "a second call reads a buffer that the first one left as it was"


def test_the_re_encoded_weights_give_float64s_product(b12x: dict[str, Any]) -> None:
    for each in b12x["armed"].values():
        assert each["difference"] < 1e-6
        assert each["more rows"] < 1e-6


def test_a_layer_whose_scales_cannot_be_encoded_keeps_its_columns_and_is_named(b12x: dict[str, Any]) -> None:
    assert b12x["bad scale"] == [576, False]
    assert b12x["routes"] == [
        "dense layers of Module: 2 b12x; 1 b12x with 288 columns padded to 384 (layers.3 x 1); "
        "1 b12x with 576 columns padded to 640 (layers.2 x 1); 1 triton (layers.4 x 1)",
        "WARNING layers.4 x 1 runs on Triton, several times slower: its block scales cannot be MXFP8's",
    ]
