"""When the adapter of the Engram rows is needed, and what a process says that does not need it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spark_overlay.adapter import Process
from spark_overlay.adapters import engram_rows
from spark_overlay.arming import arm, values_of
from spark_overlay.weight_files import is_table

from tests.overlay.checkpoints import engram_config


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (engram_config(211), ""),
        ({"model_type": "deepseek_v41", "engram_layer_ids": [1, 14]}, ""),
        ({"model_type": "deepseek_v4", "engram_layer_ids": []}, "the model has no Engram layer"),
        ({"model_type": "deepseek_v4"}, "the model has no Engram layer"),
        # The tests' tiny model: tables for the packer, and an architecture that reads none.
        ({"model_type": "llama", "engram_layer_ids": [1, 14]}, "the model is a llama"),
        (["no object"], ""),
    ],
)
def test_a_model_without_engram_layers_needs_none(tmp_path: Path, config: Any, why: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert engram_rows.not_needed({"MODEL_PATH": str(tmp_path)}) == why


def test_a_model_that_cannot_be_seen_counts_as_one_that_needs_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    assert engram_rows.not_needed({"MODEL_PATH": str(tmp_path)}) == ""
    assert engram_rows.not_needed({}) == ""


def test_it_is_stated_in_one_line_and_the_engine_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    ledger = (engram_rows.ADAPTER,)
    for process in Process:
        [stated] = arm(ledger, values_of(ledger, {}), [process], {"MODEL_PATH": str(tmp_path)})
        assert stated.line == "adapter engram_rows: not needed (the model is a llama)"


def test_only_the_tables_themselves_count_as_tables() -> None:
    assert is_table("layers.1.engram.embed.weight") and is_table("model.layers.14.engram.embed.scale")
    for name in ("layers.1.engram.wkv.weight", "layers.1.engram.wkv.scale", "embed.weight", "layers.1.engram.q_weight"):
        assert not is_table(name)
