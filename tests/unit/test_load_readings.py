"""What the load check says, read line by line: no text of a container ends a run, and nothing is good by silence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.readings.load_check import load_check, parse_load_line
from sparktui.steps.checkpoint_probe import checkpoint_identity

NAMES = ("event", "rank", "ok", "kind", "tensor", "text", "tensors", "seconds", "peak_bytes", "skipped")
WORDS = st.sampled_from(["checking", "fault", "rank", "checked"])
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS
EVENTS = st.dictionaries(st.sampled_from(NAMES), PLAIN | st.lists(PLAIN)) | PLAIN


@given(st.lists(EVENTS), st.text())
def test_no_line_is_too_odd_to_be_read(events: list[Any], text: str) -> None:
    read = [event for line in (*map(json.dumps, events), text) if (event := parse_load_line(line)) is not None]
    said = load_check(read)
    last = [each.get("ok") for each in read if each["event"] == "checked"][-1:]
    assert (said.ok is True) == (last == [True] and not said.faults and all(each.ok for each in said.ranks))
    if said.ok is False:
        assert said.faults


@pytest.mark.parametrize(
    ("events", "ok"),
    [
        ([], None),
        ([{"event": "rank", "rank": 0, "ok": True}], None),
        ([{"event": "checked", "ok": True}], True),
        ([{"event": "rank", "rank": 0, "ok": False}, {"event": "checked", "ok": True}], None),
        ([{"event": "fault", "rank": 0, "text": "x"}], None),
        ([{"event": "fault", "rank": 0, "text": "x"}, {"event": "checked", "ok": True}], False),
        ([{"event": "fault", "rank": 0, "text": "x"}, {"event": "checked", "ok": False}], False),
    ],
)
def test_only_the_closing_line_gives_a_verdict(events: list[dict[str, Any]], ok: bool | None) -> None:
    assert load_check(events).ok is ok


def test_a_fault_is_one_sentence_with_rank_tensor_and_cause_once() -> None:
    fault = {"event": "fault", "rank": 2, "kind": "missing", "tensor": "a.b", "text": "not in the checkpoint"}
    assert load_check([fault]).faults[0].sentence == "rank 2: a.b: not in the checkpoint"
    named = fault | {"text": "a.b is not in the checkpoint"}
    assert load_check([named]).faults[0].sentence == "rank 2: a.b is not in the checkpoint"
    assert load_check([{"event": "fault", "text": "no index"}]).faults[0].sentence == "the checkpoint: no index"


def test_a_checkpoint_has_an_identity_where_its_config_and_weights_are_seen() -> None:
    config, index = f"{'c' * 64}  config.json\n", f"{'d' * 64}  model.safetensors.index.json\n"
    weights = "500 1764.5 model-00001-of-00001.safetensors\n"
    whole = checkpoint_identity(config + index + weights)
    assert len(whole) == 16
    assert checkpoint_identity(config + weights), "a checkpoint of one file has no index"
    assert [checkpoint_identity(each) for each in ("", config + index, index + weights)] == ["", "", ""]
    assert checkpoint_identity(config + index + weights.replace("1764.5", "1764.6")) != whole
