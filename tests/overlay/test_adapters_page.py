"""The ledger and what is made from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from spark_overlay import ENGINE_VERSION, switches
from spark_overlay.adapter import Kind
from spark_overlay.adapters_page import page
from spark_overlay.arming import values_of
from spark_overlay.ledger import LEDGER

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"
PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


def test_the_page_is_what_the_ledger_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(LEDGER), "python -m spark_overlay adapters > docs/adapters.md"


def test_the_page_of_the_api_was_made_with_these_adapters() -> None:
    text = API_PAGE.read_text(encoding="utf-8")
    section = text.split(f"## verify, SGLang {ENGINE_VERSION}\n")[1].split("\n## ")[0]
    armed = re.findall(r"^\[spark\] adapter (\w+): armed$", section, re.MULTILINE)
    assert armed == [adapter.name for adapter in LEDGER], "python -m tests.engine.api_page"
    assert f"verify: sglang {ENGINE_VERSION}, {len(LEDGER)} adapters" in section


def test_names_and_settings_belong_to_one_adapter_each() -> None:
    names = [adapter.name for adapter in LEDGER]
    settings = [switch.name for adapter in LEDGER for switch in adapter.settings]
    assert len(set(names)) == len(names)
    assert len(set(settings)) == len(settings)
    assert all(name.startswith(switches.PREFIXES) for name in settings)


def test_every_adapter_can_be_switched_off_by_a_setting_of_its_own() -> None:
    defaults = values_of(LEDGER, {})
    for adapter in LEDGER:
        assert adapter.off(defaults) == "", adapter.name
        first = adapter.settings[0].name
        assert adapter.off({**defaults, first: 0}) == f"{first}=0"


def test_no_function_is_replaced_twice_and_none_is_hooked_twice_by_one_adapter() -> None:
    points = [(hook.target, hook.kind) for adapter in LEDGER for hook in adapter.hooks]
    replaced = [target for target, kind in points if kind is Kind.REPLACE]
    assert len(set(replaced)) == len(replaced), "SGLang takes the last and only warns"
    for adapter in LEDGER:
        targets = [hook.target for hook in adapter.hooks]
        assert len(set(targets)) == len(targets)


@pytest.mark.parametrize("text", ["yes", "1.5", "-1", "99999999999"])
def test_a_value_that_cannot_be_meant_is_refused_with_its_range(text: str) -> None:
    with pytest.raises(switches.SwitchError, match=r"DSV41_LOOP_ABORT=.* from 0 to 1"):
        values_of(LEDGER, {"DSV41_LOOP_ABORT": text})


def test_an_unknown_name_gets_the_nearest_known_one() -> None:
    known = [switch.name for adapter in LEDGER for switch in adapter.settings]
    assert switches.unknown({"DSV41_LOOP_NGRAMS": "9", "PATH": "x", "DSV41_LOOP_ABORT": "1"}, known) == [
        "DSV41_LOOP_NGRAMS is read by nothing; DSV41_LOOP_NGRAM is"
    ]
