"""Which caps a rank takes, and when the adapter has nothing to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spark_overlay.adapters import verify_cap
from spark_overlay.entry import launch_of
from spark_overlay.launch_args import LaunchError
from spark_overlay.switches import SwitchError

from tests.overlay.test_launch_args import TP3
from tests.unit.settings_texts import THREE_SPARKS, read


@pytest.mark.parametrize("text", ["conf:0.1", "conf:0.001", "conf:0.999", "off", "0", "CONF:0.25"])
def test_a_threshold_or_off_passes_in_the_settings_file_and_on_every_rank(text: str) -> None:
    assert verify_cap.CAP.read({"DSV41_VERIFY_CAP": text}) == text.lower()
    assert read(f"{THREE_SPARKS}DSV41_VERIFY_CAP={text}\n").dsv41_verify_cap == text


@pytest.mark.parametrize("text", ["banana", "conf", "conf:", "conf:0", "conf:0.000", "conf:1", "conf:1.5", "conf:-0.1",
                                  "conf:0.1x", "conf:nan", "0.1", "1", "fixed:3"])  # fmt: skip
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    said = "off, or conf:T with T from 0.001 to 0.999"
    with pytest.raises(SwitchError, match=f"DSV41_VERIFY_CAP={text} is not {said}"):
        verify_cap.CAP.read({"DSV41_VERIFY_CAP": text})
    with pytest.raises(LaunchError) as caught:
        launch_of(TP3 | {"DSV41_VERIFY_CAP": text})
    told = [(problem.what, problem.fix) for problem in caught.value.problems]
    assert told == [(f"DSV41_VERIFY_CAP={text} is not {said}", "correct DSV41_VERIFY_CAP")]


@pytest.mark.parametrize(
    ("config", "more", "said"),
    [
        ({"model_type": "deepseek_v41", "text_config": {"dspark_block_size": 5}}, {}, ""),
        ({"model_type": "deepseek_v41"}, {}, "the checkpoint has no draft"),
        ({"model_type": "llama"}, {}, "the model is a llama"),
        (None, {}, ""),
        ({"model_type": "deepseek_v41", "dspark_block_size": 5}, {"SPEC_ALGO": "off"}, "nothing is drafted"),
    ],
)
def test_nothing_is_capped_where_nothing_is_drafted(
    config: dict[str, Any] | None, more: dict[str, str], said: str, tmp_path: Path
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    found = verify_cap.not_needed({"MODEL_PATH": str(tmp_path), **more})
    assert said in found and bool(said) == bool(found)


@pytest.mark.parametrize("off", ["off", "0"])
def test_off_leaves_the_engine_alone_and_says_so(off: str) -> None:
    assert verify_cap.ADAPTER.off({"DSV41_VERIFY_CAP": off}) == f"DSV41_VERIFY_CAP={off}"
