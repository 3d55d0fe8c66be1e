"""The logs screen by its keys: all ranks in one view, filter, search, follow, first error, copies; a dead node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from sparktui.ui.logs.screen import LogsScreen
from sparktui.ui.logs.whole_line import WholeLine
from tests.ui.app_in_test import screen_text, until
from tests.ui.talking_ranks import AppWithLogs

OOM = (
    "[2026-11-29 18:41:02 TP1] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/sgl/scheduler.py", line 3, in run_event_loop',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
)


@pytest.fixture
def app(tmp_path: Path) -> AppWithLogs:
    return AppWithLogs(tmp_path, mode="logs")


def screen_of(app: AppWithLogs) -> LogsScreen:
    screen = app.screen_stack[0]
    assert isinstance(screen, LogsScreen)
    return screen


def decode(rank: int, number: int) -> str:
    return f"[2026-11-29 18:{number // 60:02}:{number % 60:02} TP{rank}] Decode batch. step {number:04}"


async def spoken(pilot: Pilot[Any], app: AppWithLogs, count: int) -> None:
    """Each of three ranks says `count` lines, and they are in the book."""
    await until(pilot, lambda: app.ranks)
    before = screen_of(app).book.end
    for link in app.ranks:
        link.say(*(decode(link.node.rank, number) for number in range(count)))
    await until(pilot, lambda: screen_of(app).book.end >= before + 3 * count)


async def test_all_ranks_are_interleaved_by_time_and_the_newest_line_is_followed(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await spoken(pilot, app, 100)
        text = screen_text(app)
        assert "FOLLOWING" in text and "300 lines" in text
        rows = [line for line in text.splitlines() if "step 0099" in line]
        assert [row.strip()[:14] for row in rows] == ["rank 0 head   ", "rank 1 worker1", "rank 2 worker2"]


async def test_scrolling_up_ends_following_and_keeps_its_place_while_lines_come(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await spoken(pilot, app, 100)
        await pilot.press("pageup", "up")
        kept = [line for line in screen_text(app).splitlines() if "step" in line]
        assert "NOT FOLLOWING" in screen_text(app)
        await spoken(pilot, app, 50)
        await until(pilot, lambda: "new lines below" in screen_text(app))
        assert [line for line in screen_text(app).splitlines() if "step" in line] == kept
        await pilot.press("G")
        assert "FOLLOWING" in screen_text(app) and "NOT FOLLOWING" not in screen_text(app)
        assert "step 0049" in screen_text(app)


async def test_rows_that_are_read_stay_when_older_ones_leave_the_book(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.ranks)
        book = screen_of(app).book
        for _ in range(7):
            await spoken(pilot, app, 1000)
        assert book.first > 0
        await pilot.press("pageup")
        kept = [line for line in screen_text(app).splitlines() if "step" in line]
        await spoken(pilot, app, 2000)
        assert [line for line in screen_text(app).splitlines() if "step" in line] == kept
        assert book.end - book.first <= 20_000


async def test_filter_shows_only_matches_and_x_shows_what_is_around(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await spoken(pilot, app, 100)
        await pilot.press("slash", *"0042", "enter")
        await pilot.pause()
        text = screen_text(app)
        assert "3 matches" in text and text.count("step 0042") == 3 and "step 0041" not in text
        await pilot.press("up", "x")
        text = screen_text(app)
        assert "step 0042" in text and ("step 0041" in text or "step 0043" in text)
        await pilot.press("escape")
        assert screen_of(app).book.pattern is None and "300 lines" in screen_text(app)


async def test_letters_go_to_the_filter_while_it_is_typed_and_escape_leaves_it(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await spoken(pilot, app, 5)
        await pilot.press("slash", "w", "q", "s")
        assert app.current_mode == "logs" and app.is_running
        assert app.screen.query_one("#logs-pattern", Input).value == "wqs"
        await pilot.press("escape")
        assert screen_of(app).book.pattern is None and "15 lines" in screen_text(app)
        await pilot.press("w")
        assert app.current_mode == "wizard"


async def test_a_wrong_regex_is_said_and_the_view_keeps_what_it_has(app: AppWithLogs) -> None:
    async with app.run_test(size=(100, 24)) as pilot:
        await spoken(pilot, app, 20)
        await pilot.press("slash", "ctrl+r", *"step.0(0")
        await pilot.pause()
        assert "no regex" in screen_text(app) and "step" in screen_text(app)
        await pilot.press(*"1[24])", "enter")
        await pilot.pause()
        text = screen_text(app)
        assert "6 matches" in text and "step 0012" in text and "step 0013" not in text


async def test_n_and_shift_n_walk_the_matches(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await spoken(pilot, app, 100)
        await pilot.press("slash", *"0010", "enter", "x", "g", "n")
        view, book = screen_of(app).view, screen_of(app).book
        row = book.row(view.cursor)
        assert row is not None and "0010" in row.text and row.rank == 0
        await pilot.press("n")
        row = book.row(view.cursor)
        assert row is not None and row.rank == 1
        await pilot.press("N")
        row = book.row(view.cursor)
        assert row is not None and row.rank == 0


async def test_one_rank_by_its_number_or_one_after_the_other(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await spoken(pilot, app, 30)
        await pilot.press("1")
        text = screen_text(app)
        assert "only rank 1 worker1" in text and "rank 0 head" not in text and "30 lines" in text
        await pilot.press("a")
        assert "all ranks" in screen_text(app)
        for wanted in ("only rank 0 head", "only rank 1 worker1", "only rank 2 worker2", "all ranks"):
            await pilot.press("r")
            assert wanted in screen_text(app)
        await pilot.press("3")
        assert "all ranks" in screen_text(app), "there is no rank 3"


async def test_the_first_error_is_on_top_with_its_next_step_and_a_key_goes_there(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await spoken(pilot, app, 50)
        app.ranks[1].say(*OOM)
        await until(pilot, lambda: "first error" in screen_text(app).splitlines()[2])
        await spoken(pilot, app, 100)
        top = screen_text(app).splitlines()
        assert "rank 1 worker1: the GPU ran out of memory" in top[2]
        assert top[3].strip().startswith("next: a smaller CHUNKED_PREFILL_SIZE")
        await pilot.press("2", "exclamation_mark")
        row = screen_of(app).book.row(screen_of(app).view.cursor)
        assert row is not None and row.text == OOM[0]
        assert "Scheduler hit an exception" in screen_text(app)


async def test_enter_shows_the_whole_line_with_its_meaning_and_c_copies_it(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.ranks)
        app.ranks[0].say("OSError: No space left on device " + "x" * 300 + " the end")
        await until(pilot, lambda: screen_of(app).book.end)
        assert "the end" not in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, WholeLine)
        text = screen_text(app)
        assert "the end" in text and "a disk of this node is full" in text
        await pilot.press("c", "escape")
        assert app.copied[-1].endswith("the end") and isinstance(app.screen, LogsScreen)


async def test_c_copies_the_marked_lines_or_what_is_seen(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await spoken(pilot, app, 10)
        await pilot.press("c")
        await until(pilot, lambda: app.copied)
        assert len(app.copied[0].splitlines()) >= 10
        await pilot.press("up", "space", "up", "up", "c")
        await until(pilot, lambda: len(app.copied) == 2)
        lines = app.copied[1].splitlines()
        assert len(lines) == 3 and lines[0] == f"rank 2 worker2 {decode(2, 8)}"
        await pilot.press("escape")
        assert not screen_of(app).view.marking


async def test_y_names_the_saved_log_of_the_line_s_node(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await spoken(pilot, app, 3)
        settings = app.session.settings
        assert settings is not None
        await pilot.press("y")
        await pilot.pause()
        assert not app.copied
        settings.logs_dir.mkdir(parents=True)
        path = settings.logs_dir / "20261129T180011Z-worker2.log"
        path.write_text("saved\n")
        await pilot.press("y")
        await until(pilot, lambda: app.copied)
        assert app.copied == [str(path)]


async def test_a_node_without_a_container_or_a_dead_one_has_one_line_and_the_others_go_on(tmp_path: Path) -> None:
    def prepare(links: Any) -> None:
        links[2].unreachable("no route to 10.0.0.3")

    app = AppWithLogs(tmp_path, mode="logs", prepare=prepare)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "worker2: no route to 10.0.0.3" in screen_text(app))
        app.ranks[0].say("the head goes on")
        await until(pilot, lambda: "the head goes on" in screen_text(app))
        assert "worker2: no route" in screen_text(app).splitlines()[4]


async def test_control_bytes_of_a_node_never_reach_the_screen(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.ranks)
        app.ranks[0].say("\x1b]0;title\x07\x1b[2Jboo\x9b31m [/bold] [red]x")
        await until(pilot, lambda: "boo" in screen_text(app))
        assert all(each.isprintable() for line in screen_text(app).splitlines() for each in line)
        assert "[/bold] [red]x" in screen_text(app)


async def test_lines_are_taken_in_while_another_screen_is_seen(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await spoken(pilot, app, 10)
        await pilot.press("w")
        logs = app._screen_stacks["logs"][0]
        assert isinstance(logs, LogsScreen)
        app.ranks[0].say("said meanwhile")
        await until(pilot, lambda: logs.book.end == 31)
        await pilot.press("l")
        await until(pilot, lambda: "said meanwhile" in screen_text(app))


async def test_nothing_is_followed_before_the_screen_is_seen(tmp_path: Path) -> None:
    app = AppWithLogs(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.ranks)
        app.ranks[0].say("waits")
        await pilot.pause(0.3)
        assert not app.ranks[0].said.empty()
        await pilot.press("l")
        await until(pilot, lambda: "waits" in screen_text(app))


async def test_a_flood_leaves_keys_working_and_says_what_was_dropped(app: AppWithLogs) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.ranks)

        async def flood() -> None:
            while True:
                for link in app.ranks:
                    link.say(*(decode(link.node.rank, number) for number in range(500)))
                await asyncio.sleep(0.05)  # 30,000 lines a second

        flooding = asyncio.create_task(flood())
        try:
            await until(pilot, lambda: screen_of(app).book.first > 0)
            await pilot.press("f")
            await until(pilot, lambda: "NOT FOLLOWING" in screen_text(app))
            await pilot.press("w")
            assert app.current_mode == "wizard"
            await pilot.press("l", "q")
            await until(pilot, lambda: not app.is_running or app.return_code is not None)
        finally:
            flooding.cancel()
    assert app.return_code == 0


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40), (200, 60)])
async def test_no_row_is_wider_than_the_screen_and_every_row_names_its_rank(
    app: AppWithLogs, size: tuple[int, int]
) -> None:
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.ranks)
        app.ranks[1].say(*("長い行 " * 100 for _ in range(80)))
        await until(pilot, lambda: "長い行" in screen_text(app))
        rows = [line for line in screen_text(app).splitlines() if "長い行" in line]
        assert len(rows) >= size[1] - 6
        assert all(row.strip().startswith("rank 1 worker1") and "…" in row for row in rows)
