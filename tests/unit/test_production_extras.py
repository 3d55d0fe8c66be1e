"""docs/production-extras.md and the sentence beside published speeds name the same things."""

from __future__ import annotations

import re

from sparktui.cluster.published import EXTRAS, published_with
from tests.settings_readers import ROOT

PAGE = ROOT / "docs" / "production-extras.md"


def test_every_extra_of_the_sentence_has_a_row_and_every_row_is_in_the_sentence() -> None:
    rows = re.findall(r"^\| ([^|]+) \| (three and four|four Sparks)[^|]* \|", PAGE.read_text(encoding="utf-8"), re.M)
    named = {name: on for name, on in rows}
    copies = {name for name in named if name.startswith("FP8 copy of")}
    assert copies == {"FP8 copy of wo_a", "FP8 copy of the draft's head"}
    assert {*named} - copies == {extra.name for extra in EXTRAS} - {"FP8 copies of wo_a and draft head"}
    assert all(on == "three and four" for name, on in named.items() if name in copies)


def test_three_sparks_are_not_told_of_what_only_the_line_of_four_has() -> None:
    assert published_with(3) == (
        "published with another engine build and adapters that we lack: FP8 copies of wo_a and draft head"
    )
    assert published_with(4) == (
        "published with another engine build and adapters that we lack: all-reduce over RoCE, fused MoE at width 576, "
        "sequence-parallel prefill, FP8 copies of wo_a and draft head"
    )
    assert (published_with(2), published_with(8)) == (published_with(3), published_with(4))
