"""The boot pane: a ladder a rank, marks for late, stuck and dead ones, and the line that says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparktui.engine.ladder import RankBoot
from sparktui.ui.glyphs import ASCII, UNICODE
from sparktui.ui.widgets.boot_ladder import boot_rows, state_text
from sparktui.ui.widgets.boot_pane import BootPane
from sparktui.ui.widgets.drawing import row_text, row_width
from tests.ui import pane_values as values


def drawn(boots: tuple[RankBoot, ...], now: float = 120.0, width: int = 78, height: int = 20) -> str:
    return "\n".join(map(row_text, boot_rows(boots, now, width, height, UNICODE)))


def test_nothing_starts() -> None:
    assert drawn(values.NOT_STARTED) == "no engine container on any node; serve begins one"


def test_nobody_has_asked_is_not_nothing_there() -> None:
    assert drawn(()) == "nobody has asked the ranks yet"


def test_a_rank_that_nobody_could_ask_yet_is_unknown_and_not_called_not_started() -> None:
    """The app that is started again in the middle of a boot hears of the ranks one after the other."""
    unasked = tuple(replace(boot, asked=False) for boot in values.NOT_STARTED)
    assert drawn(unasked) == "the ranks are being asked"
    head = unasked[0].container_started(100.0)
    lines = drawn((head, *unasked[1:]), width=66, height=5).splitlines()
    assert "container up" in lines[0]
    assert lines[1].endswith("unknown")
    assert not any("not started" in line for line in lines)


def test_a_ladder_has_every_rung_and_the_time_on_the_present_one() -> None:
    text = drawn(values.boots_loading())
    for rung in ("container up", "imports", "rendezvous", "NCCL", "weights", "draft", "KV pool", "graphs", "server"):
        assert rung in text
    assert "12/76 1 min 22 s" in text
    assert "0 head" in text
    assert "113.2 GiB left" in text


def test_the_newest_change_cites_its_line() -> None:
    assert drawn(values.boots_loading()).endswith("worker2 weights: Load weight begin. avail mem=113.20 GB")


def test_a_small_pane_has_a_line_a_rank() -> None:
    text = drawn(values.boots_loading(), width=66, height=5)
    assert text.splitlines()[0].startswith("rank 0 head     ●●●●◐○○○○○○  weights 12/76 shards")
    narrow = drawn(values.boots_loading(), width=38, height=5)
    assert narrow.splitlines()[0].startswith("head     weights 12/76")


def test_a_killed_rank_says_out_of_memory_first_and_what_is_next() -> None:
    for width, height in ((78, 20), (60, 8), (38, 9)):
        text = drawn(values.boots_dead(), width=width, height=height)
        assert "out of memory" in text
        assert "rank 1 ended" in text
        assert "sparktui logs worker1" in text


def test_a_rank_that_ended_says_its_exit_status() -> None:
    boot = values.boots_loading()[1].container_exited(60.0, 1, False)
    assert state_text(boot) == "ended, exit status 1"
    assert "exit 1" in drawn((values.boots_loading()[0], boot))


def test_a_late_rank_is_marked_with_the_next_step() -> None:
    text = drawn(values.boots_late(), now=300.0)
    assert "late" in text
    assert "rank 2 is late: no rendezvous 276 s after the others" in text
    assert "next:" in text


def test_stuck_ranks_are_said_once_all_are_silent() -> None:
    boots = tuple(values.fed(rank, ("sglang starts", "Init torch distributed begin.")) for rank in range(3))
    assert "stuck" not in drawn(boots, now=60.0)
    assert "stuck in NCCL init" in drawn(boots, now=400.0)


def test_ready_is_ready_and_a_worker_is_up() -> None:
    text = drawn(values.boots_ready(), width=60, height=5)
    assert "ready" in text.splitlines()[0]
    assert "in 6 min 52 s" in text.splitlines()[0]
    assert text.splitlines()[1].rstrip().endswith("up")


def test_control_bytes_in_a_cited_line_never_reach_the_screen() -> None:
    boot = RankBoot(0, "head").container_started(1.0).feed("\x1b[31mInit torch distributed begin.\x1b[0m\x07", 2.0)
    assert "\x1b" not in drawn((boot,), now=3.0)
    assert "\x07" not in drawn((boot,), now=3.0)


@pytest.mark.parametrize("width", [34, 38, 58, 78, 118, 198])
@pytest.mark.parametrize("height", [2, 4, 5, 12, 20])
@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_rows_fit_any_pane_and_ascii_is_ascii(width: int, height: int, count: int) -> None:
    names = tuple(f"spark{number}" for number in range(count))
    for boots in (values.boots_loading(3), values.boots_dead(3), values.boots_late(3)):
        many = tuple(replace(boots[rank % 3], rank=rank, node=name) for rank, name in enumerate(names))
        rows = boot_rows(many, 300.0, width, height, ASCII)
        assert len(rows) <= height
        assert all(row_width(row) <= width for row in rows)
        assert all(row_text(row).isascii() for row in rows)


def test_seconds_that_nobody_waits_for_change_nothing() -> None:
    pane = BootPane()
    pane.show(values.boots_ready(), 500.0)
    kept = pane.now
    pane.show(values.boots_ready(), 560.0)
    assert pane.now == kept
    pane.show(values.boots_loading(), 561.4)
    assert pane.now == 561.0


def test_a_rank_that_is_not_asked_any_more_is_last_seen_instead_of_spinning() -> None:
    loading = values.boots_loading()
    dark = replace(loading[2], unseen="no answer from 10.0.0.3", seen_at=100.0)
    for width, height in ((66, 6), (110, 20)):
        text = drawn((*loading[:2], dark), width=width, height=height, now=142.0)
        assert "last seen 42 s ago" in text
        assert "worker2: no answer from 10.0.0.3" in text
    lines = drawn((*loading[:2], dark), width=66, height=6, now=142.0).splitlines()
    assert "?" in lines[2] and "?" not in lines[1]
    pane = BootPane()
    ready = tuple(replace(boot, unseen="gone", seen_at=1.0) for boot in values.boots_ready())
    pane.show(ready, 500.0)
    pane.show(ready, 560.0)
    assert pane.now == 560.0, "its age grows"


def test_a_rank_that_was_never_reached_says_so() -> None:
    unasked = tuple(replace(boot, asked=False) for boot in values.NOT_STARTED)
    text = drawn((*unasked[:2], replace(unasked[2], unseen="the connection was refused")), width=66, height=6)
    assert "unknown not seen yet" in text and "the connection was refused" in text
    assert "no engine container" not in text
