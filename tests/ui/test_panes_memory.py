"""The memory pane: parts as a bar and figures, floors, ages in words; what is unknown is never a zero."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparktui.telemetry.sample import Freshness, MemorySplit, NodeSample
from sparktui.ui.glyphs import ASCII, UNICODE
from sparktui.ui.widgets.drawing import row_text, row_width
from sparktui.ui.widgets.memory_pane import memory_rows
from tests.ui import pane_values as values


def drawn(nodes: tuple[NodeSample, ...], width: int = 78, height: int = 12) -> str:
    return "\n".join(map(row_text, memory_rows(nodes, width, height, UNICODE)))


def test_each_part_is_named_with_its_gib() -> None:
    text = drawn(values.calm().nodes[:1])
    assert "weights + driver 101.4" in text
    assert "processes 8.9" in text
    assert "page cache 3.4" in text
    assert "free 5.9" in text
    assert "9.0 GiB available, floor 4.0" in text


def test_below_the_floor_is_said_in_words() -> None:
    head = values.failing().nodes[:1]
    assert "2.6 GiB available, below 4.0" in drawn(head)
    assert "swap 3.4 GiB" in drawn(head)
    assert "stalled 23 %" in drawn(head)


def test_a_calm_node_says_nothing_of_swap_and_pressure() -> None:
    text = drawn(values.calm().nodes)
    assert "swap" not in text
    assert "stalled" not in text


@pytest.mark.parametrize("height", [1, 2, 3, 4])
def test_unknown_memory_is_a_question_mark_and_no_bar(height: int) -> None:
    text = drawn((NodeSample(node="worker1", rank=1),), height=height)
    assert "? GiB" in text
    assert "waiting" in text
    assert "0.0" not in text
    assert UNICODE.full not in text.replace(f"{UNICODE.full} weights", "").replace(f"{UNICODE.full} held", "")


def test_one_unknown_part_makes_the_bar_unknown_and_keeps_the_figures() -> None:
    node = values.node(0, replace(values.split(100, 8, 3, 6), held_bytes=None))
    text = drawn((node,))
    assert " unknown " in text
    assert "weights + driver ?" in text
    assert "processes 8.0" in text


def test_a_node_that_is_gone_keeps_its_last_values_and_says_how_old_they_are() -> None:
    gone = values.failing().nodes[2]
    text = drawn((gone,))
    assert "gone 41 s" in text
    assert "no answer within 5 s on ssh" in text
    assert "14.1 GiB" in text


def test_a_stale_node_says_stale() -> None:
    late = replace(values.calm().nodes[1], freshness=Freshness.STALE, age_seconds=7.0)
    assert "stale 7 s" in drawn((late,))


def test_the_bar_is_as_wide_as_the_pane_and_marks_the_floor() -> None:
    bar = row_text(memory_rows(values.calm().nodes[:1], 60, 2, UNICODE)[1])
    assert len(bar) == 60
    assert bar.count(UNICODE.floor) == 1
    # 4 of 119.6 GiB from the right end
    assert bar.index(UNICODE.floor) == round((1 - 4 / 119.6) * 60)


def test_what_is_there_is_seen_however_small() -> None:
    bar = row_text(memory_rows((values.node(0, values.split(0.01, 4, 20, 95)),), 40, 2, UNICODE)[1])
    assert bar[0] == UNICODE.full


@pytest.mark.parametrize("width", [34, 36, 46, 60, 78, 118, 198])
@pytest.mark.parametrize("height", [2, 4, 5, 8, 12, 20])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_rows_fit_any_pane(width: int, height: int, count: int) -> None:
    for snapshot in (values.calm(count), values.failing(count)):
        rows = memory_rows(snapshot.nodes, width, height, ASCII)
        assert len(rows) <= max(height, 2)
        assert all(row_width(row) <= width for row in rows)


def test_more_nodes_than_rows_says_how_many_are_left_out() -> None:
    nodes = tuple(replace(values.calm().nodes[0], node=f"spark{number}", rank=number) for number in range(8))
    assert "and 4 more" in drawn(nodes, height=5)


def test_ascii_draws_nothing_else() -> None:
    for snapshot in (values.calm(4), values.failing(4), values.idle()):
        for height in (4, 12):
            assert all(row_text(row).isascii() for row in memory_rows(snapshot.nodes, 78, height, ASCII))


def test_no_floor_no_mark() -> None:
    bar = row_text(memory_rows((values.node(0, values.split(90, 8, 3, 6, floor=None)),), 40, 2, UNICODE)[1])
    assert UNICODE.floor not in bar


def test_an_empty_split_is_unknown() -> None:
    assert "?" in drawn((values.node(0, MemorySplit()),), height=1)
