"""Trends and charts: gaps stay gaps, scales stand still, and plotext never sees what would end its process."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.ui.glyphs import ASCII, UNICODE
from sparktui.ui.widgets.axis_chart import axis_rows, finite_runs
from sparktui.ui.widgets.drawing import row_text, row_width
from sparktui.ui.widgets.trend_chart import Trend, braille_lines, ceiling_of, plain_lines, spread, trend_rows

anything = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=400)


def test_a_gap_is_blank() -> None:
    (line,) = braille_lines([1.0, 1.0, None, None, 1.0, 1.0], 3, 1, 0.0, 1.0)
    assert line[1] == " "
    assert line[0] == line[2] != " "
    assert plain_lines([1.0, 1.0, None, None, 1.0, 1.0], 3, 1, 0.0, 1.0) == ['" "']


def test_high_is_above_low() -> None:
    top, bottom = braille_lines([0.0, 0.0, 1.0, 1.0], 2, 2, 0.0, 1.0)
    assert top[0] == " "
    assert top[1] != " "
    assert bottom[0] != " "


@given(anything, st.integers(1, 60), st.integers(1, 8))
def test_a_curve_is_as_large_as_its_place(values: list[float | None], width: int, height: int) -> None:
    for draw in (braille_lines, plain_lines):
        lines = draw(values, width, height, 0.0, 100.0)
        assert [len(line) for line in lines] == [width] * height
    assert len(spread(values, 2 * width)) == 2 * width


@given(anything)
def test_spreading_invents_nothing(values: list[float | None]) -> None:
    known = [value for value in values if value is not None]
    for value in spread(values, 80, lowest=True):
        assert value is None or value in known


def test_a_dip_survives_being_drawn_together() -> None:
    values: list[float | None] = [10.0] * 900
    values[455] = 1.0
    assert min(value for value in spread(values, 60, lowest=True) if value is not None) == 1.0


def test_the_scale_is_round_and_stands_still() -> None:
    assert ceiling_of([9.2, None, 9.9], 10.0) == 10.0
    assert ceiling_of([10.1], 10.0) == 20.0
    assert ceiling_of([21.0], 10.0) == 50.0
    assert ceiling_of([], 10.0) == 10.0


def test_nothing_known_is_a_question_mark() -> None:
    trend = Trend("decode", (None, None), 10.0, unit="tok/s", digits=1)
    text = "\n".join(map(row_text, trend_rows((trend,), 60, 4, UNICODE)))
    assert "? tok/s" in text
    assert "0.0" not in text


@pytest.mark.parametrize("height", [1, 2, 3, 7])
def test_trends_fit_and_ascii_is_ascii(height: int) -> None:
    trends = tuple(
        Trend(f"node{n} available", (1.0, None, 5.0), 10.0, unit="GiB", digits=1, floor=4.0) for n in range(3)
    )
    rows = trend_rows(trends, 60, height, ASCII)
    assert len(rows) <= height
    assert all(row_width(row) <= 60 and row_text(row).isascii() for row in rows)


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), max_size=60))
def test_plotext_gets_finite_runs_only(values: list[float | None]) -> None:
    runs = list(finite_runs(values))
    assert all(ys and len(xs) == len(ys) and all(map(math.isfinite, ys)) for xs, ys in runs)
    assert sum(len(ys) for _, ys in runs) == sum(1 for value in values if value is not None and math.isfinite(value))


@pytest.mark.parametrize(
    "values",
    [(), (None,), (1.0,), (math.nan, 2.0), (math.inf, None, 3.0, 4.0), (5.0,) * 500, (None, 1.0, None, 2.0, math.nan)],
)
def test_a_chart_with_axes_survives_bad_values(values: tuple[float | None, ...]) -> None:
    rows = axis_rows(Trend("decode", values, 10.0), 300.0, 60, 12)
    assert len(rows) <= 12
    assert all("\x1b" not in row_text(row) and row_width(row) <= 60 for row in rows)
