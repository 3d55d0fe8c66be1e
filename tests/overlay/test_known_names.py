"""Which names warn: what sparktui hands to an engine never does, a misspelt one names its neighbour."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from spark_overlay.entry import launch_of
from spark_overlay.known_names import BY_OURSELVES, NO_EFFECT, known_names
from spark_overlay.launch_args import LaunchError
from spark_overlay.ledger import LEDGER
from spark_overlay.switches import PREFIXES, Switch, Word, unknown

from sparktui.engine.environment import FIXED, PASSED_ON, text_of
from sparktui.engine.launch import launch_specs
from sparktui.settings import SETTINGS, names
from tests.overlay.conftest import OVERLAY
from tests.overlay.test_launch_args import TP3
from tests.settings_readers import overlay_reads
from tests.unit.settings_texts import THREE_SPARKS, read, refusal

KNOWN = known_names(LEDGER)
OF_ADAPTERS = {switch.name for adapter in LEDGER for switch in adapter.settings}


def test_nothing_that_sparktui_hands_on_warns() -> None:
    handed = dict.fromkeys([name.upper() for name in PASSED_ON] + list(FIXED), "1")
    assert unknown(handed, KNOWN) == []


FREE = [each for adapter in LEDGER for each in adapter.settings if each.name != "DSV41_TP_PAD"]
"""Of that one the value follows from the ranks, and the other one is refused (tests/unit/test_settings.py)."""


@pytest.mark.parametrize("switch", FREE, ids=lambda each: each.name)
def test_a_switch_in_the_settings_file_reaches_every_rank(switch: Switch | Word) -> None:
    info = SETTINGS[switch.name]
    for profile in ("three", "four", "ring"):
        assert info.defaults[profile] == str(switch.default)
    if isinstance(switch, Switch):
        assert (info.low, info.high) in ((None, None), (0 if switch.zero_is_off else switch.least, switch.most))
        wanted = str(1 - switch.default if switch.most == 1 else switch.most)
    else:
        wanted = switch.on
    settings = read(f"{THREE_SPARKS}{switch.name}={wanted}\n")
    ranks = [each.container.environment for each in launch_specs(settings, {0: 3, 1: 3, 2: 3})]
    assert [environment[switch.name] for environment in ranks] == [wanted] * 3
    assert text_of(getattr(settings, switch.name.lower())) == wanted


def test_every_known_name_is_read_by_an_adapter_or_the_launch_or_is_a_setting_of_sparktuis() -> None:
    assert {read.name for read in overlay_reads()} >= BY_OURSELVES


def test_the_dockerfile_and_the_package_use_no_unknown_name() -> None:
    words: set[str] = set()
    for path in (*(OVERLAY / "spark_overlay").rglob("*.py"), OVERLAY / "Dockerfile"):
        words |= set(re.findall(r"\b(?:DSV41|SPARK)_[A-Z0-9_]*[A-Z0-9]\b(?!\*)", Path(path).read_text()))
    # Of the engine itself, and the beginnings of names in texts.
    words -= {word for word in words if any(name.startswith(f"{word}_") for name in KNOWN)}
    assert {word for word in words if word.startswith(PREFIXES)} - KNOWN - NO_EFFECT == set()


def test_a_misspelt_name_is_warned_of_before_the_start_and_the_launch_goes_on() -> None:
    launch = launch_of(TP3 | {"DSV41_MAX_NEW_TOKEN": "9", "SPARK_INTEGER_EFFORTS": "1", "DSV41_QQQQQQQQQQQQ": "1"})
    assert launch.warnings == (
        "DSV41_MAX_NEW_TOKEN is read by nothing; DSV41_MAX_NEW_TOKENS is",
        "DSV41_QQQQQQQQQQQQ is read by nothing",
        "SPARK_INTEGER_EFFORTS is read by nothing; SPARK_INTEGER_EFFORT is",
    )


def test_the_recipes_names_without_effect_are_one_note_and_the_same_in_both_programs() -> None:
    launch = launch_of(TP3 | {"DSV41_WO_A_W8": "1", "DSV41_DRAFT_TAU": "0.7", "SPARK_PREFILL_TP_SPLIT": "1"})
    assert launch.warnings == ()
    assert launch.notes == ("known, no effect here: DSV41_DRAFT_TAU, DSV41_WO_A_W8, SPARK_PREFILL_TP_SPLIT",)
    assert launch_of(TP3).notes == ()
    assert frozenset(name for name in names.NO_EFFECT if name.startswith(PREFIXES)) == NO_EFFECT
    assert not NO_EFFECT & KNOWN, "something reads it: take it off the list"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("DSV41_IO_THREADS=0", "DSV41_IO_THREADS=0 is not from 1 to 4096"),
        ("DSV41_IO_THREADS=9.5", "DSV41_IO_THREADS=9.5 is no whole number"),
        ("DSV41_CACHE_GIB=65", "DSV41_CACHE_GIB=65 is not from 0 to 64"),
        ("DSV41_CACHE_WAYS=17", "DSV41_CACHE_WAYS=17 is not from 1 to 16"),
        ("DSV41_STATS_SECONDS=-1", "DSV41_STATS_SECONDS=-1 is not from 0 to 86400"),
        ("DSV41_ENGRAM_FALLBACK=ram", "DSV41_ENGRAM_FALLBACK=ram is neither empty nor checkpoint"),
    ],
)
def test_a_value_of_the_row_store_outside_its_range_is_refused_before_the_engine_starts(value: str, said: str) -> None:
    name, _, text = value.partition("=")
    with pytest.raises(LaunchError) as caught:
        launch_of(TP3 | {name: text})
    assert [(each.what, each.fix) for each in caught.value.problems] == [(said, f"correct {name}")]
    info = SETTINGS[name]
    assert not info.choices or text not in info.choices
    assert refusal(f"{THREE_SPARKS}{name}={text}\n").problems[0].name == name


def test_values_of_adapters_that_cannot_be_meant_are_refused_with_the_launchs_own_problems() -> None:
    with pytest.raises(LaunchError) as caught:
        launch_of(TP3 | {"DSV41_LOOP_NGRAM": "many", "DSV41_LOOP_ABORT": "2", "CONTEXT_LENGTH": "1"})
    said = {(problem.what, problem.fix) for problem in caught.value.problems}
    assert ("DSV41_LOOP_NGRAM=many is no whole number 0 or from 4 to 256", "correct DSV41_LOOP_NGRAM") in said
    assert ("DSV41_LOOP_ABORT=2 is not from 0 to 1", "correct DSV41_LOOP_ABORT") in said
    assert len(said) == 3
