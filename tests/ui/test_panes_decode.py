"""The decode preview: published figures with the lower one named first, the pace, and what was measured."""

from __future__ import annotations

import json

import pytest

from sparktui.cluster.published import published_with
from sparktui.shipped import shipped
from sparktui.ui.glyphs import UNICODE
from sparktui.ui.widgets.decode_preview import DecodePreview, about_rows, heading_rows, typed_rows
from sparktui.ui.widgets.drawing import row_text, row_width
from sparktui.ui.widgets.published import read_preview
from tests.ui.pane_app import PaneApp


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def heading(which: int, measured: float | None = None, running: int | None = None, width: int = 78) -> str:
    rows = heading_rows(read_preview().speeds[which], measured, running, width, UNICODE)
    return "\n".join(map(row_text, rows))


def test_both_published_figures_are_named_the_lower_one_first() -> None:
    assert heading(0).startswith("one request  37.9 and 51.0 tok/s are published; played at 51.0")
    assert heading(1).startswith("four at once  22.8 tok/s each, 85.4 combined")
    for width in (34, 36, 40):
        assert "37.9 and 51.0 tok/s" in heading(0, width=width)


def test_a_measured_speed_stands_beside_them() -> None:
    assert "measured" not in heading(0)
    assert "measured 48.2 tok/s" in heading(0, 48.2, 1)
    assert "measured 85.0 tok/s, 4 requests" in heading(1, 85.0, 4)


def test_every_published_figure_names_its_source() -> None:
    listed = json.loads(shipped("assets").joinpath("published-figures.json").read_text())
    assert all(row["source"] for row in listed["decode"])
    assert {(row["sparks"], row["each_tokens_per_second"]) for row in listed["decode"]} >= {
        (3, 37.9),
        (3, 51.0),
        (3, 22.8),
        (4, 87.7),
    }


def test_the_text_is_about_as_long_as_a_screen() -> None:
    text = read_preview().text
    assert 1300 <= len(text) <= 1700
    assert text.isascii()


def test_four_streams_stand_side_by_side_and_each_begins_elsewhere() -> None:
    text = read_preview().text
    rows = typed_rows(text, 120, 4, 120, 8)
    assert all(row_width(row) <= 122 for row in rows)
    first = row_text(rows[0])
    assert (
        len({paragraph[:12] for paragraph in text.split("\n\n")[:4]} & {first[at : at + 12] for at in (0, 30, 61, 91)})
        >= 2
    )


async def test_it_types_204_characters_a_second_and_rests_at_the_end() -> None:
    clock = Clock()
    pane = DecodePreview(clock=clock, classes="pane")
    app = PaneApp([pane])
    async with app.run_test(size=(80, 30)) as pilot:
        await pilot.pause()
        assert pane.playing
        clock.now += 1.0
        pane._frame()
        above = 1 + len(about_rows(3, 78))
        shown = sum(len(row_text(row)) for row in pane.rows(78, 28, UNICODE)[above:])
        assert 180 <= shown <= 204  # line ends take the place of blanks
        clock.now += 10.0
        pane._frame()
        assert not pane.playing
        shown = sum(len(row_text(row)) for row in pane.rows(78, 60, UNICODE)[above:])
        assert shown > 1300


async def test_p_plays_one_request_then_four_at_once() -> None:
    pane = DecodePreview(playing=False, clock=Clock(), classes="pane")
    app = PaneApp([pane])
    async with app.run_test(size=(80, 20)) as pilot:
        await pilot.pause()
        assert not pane.playing
        rows = [row_text(row) for row in pane.rows(78, 10, UNICODE)]
        assert " ".join(rows[1:3]) == published_with(3)
        assert "A number on a card" in rows[3]
        pane.switch()
        assert pane.playing
        assert pane.speed.requests == 1
        pane.switch()
        assert pane.speed.requests == 4
        pane.switch()
        assert pane.speed.requests == 1


async def test_nothing_is_animated_that_nobody_sees() -> None:
    pane = DecodePreview(clock=Clock(), classes="pane")
    app = PaneApp([pane])
    async with app.run_test(size=(80, 20)) as pilot:
        await pilot.pause()
        assert pane.playing
        pane.display = False
        await pilot.pause()
        await pilot.pause()
        assert not pane.playing


@pytest.mark.parametrize(("sparks", "figure"), [(3, 51.0), (4, 87.7), (8, 87.7), (2, 51.0)])
def test_the_figures_are_those_of_as_many_sparks_where_somebody_published_them(sparks: int, figure: float) -> None:
    assert read_preview(sparks).speeds[0].each_tokens_per_second == figure
