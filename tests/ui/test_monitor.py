"""The monitor by keys: its pages, the chosen node, pausing, alarms first, and what it does when nothing is watched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparktui.telemetry.sample import ClusterSnapshot
from sparktui.ui.monitor.screen import MonitorScreen
from sparktui.ui.terminal import Terminal
from sparktui.ui.widgets.decode_preview import DecodePreview
from tests.ui import pane_values as values
from tests.ui.app_in_test import AppInTest, screen_text, unreadable, until
from tests.ui.monitor_values import give, on_monitor


async def test_tab_goes_round_the_pages_of_a_small_screen(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await on_monitor("calm")(pilot)
        seen = []
        for _ in range(6):
            seen.append(next(word for word in screen_text(app).splitlines()[1].split("[") if "]" in word)[:8])
            await pilot.press("tab")
            await pilot.pause()
        assert [word[0] for word in seen] == ["1", "2", "3", "4", "5", "1"]
        await pilot.press("shift+tab", "shift+tab")
        await pilot.pause()
        assert "[5 node]" in screen_text(app)


async def test_a_wide_screen_shows_four_at_once_and_one_by_number(app: AppInTest) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await on_monitor("calm")(pilot)
        text = screen_text(app)
        for title in ("memory", "RoCE links", "boot of each rank", "engine", "published decode speed"):
            assert f" {title} " in text
        await pilot.press("2")
        await pilot.pause()
        assert "boot of each rank" not in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "boot of each rank" in screen_text(app)


async def test_resizing_changes_what_is_seen_at_once(app: AppInTest) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await on_monitor("calm")(pilot)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "[1 memory]" in screen_text(app))
        assert "RoCE links" not in screen_text(app)
        await pilot.resize_terminal(200, 60)
        await until(pilot, lambda: "by minutes before now" in screen_text(app))
        assert "head, rank 0" in screen_text(app)


async def test_arrows_choose_a_node_and_enter_opens_it(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await on_monitor("failing")(pilot)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert "worker1, rank 1" in screen_text(app)
        await pilot.press("down")
        await pilot.pause()
        text = screen_text(app)
        assert "worker2, rank 2" in text
        assert "gone 41 s; what follows is the last that was seen" in text
        await pilot.press("down")
        await pilot.pause()
        assert "head, rank 0" in screen_text(app)


async def test_the_node_page_shows_gpu_disk_and_each_port_with_its_errors(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await on_monitor("calm", "5")(pilot)
        text = screen_text(app)
        for words in ("71 °C, 58 W, 2405 MHz, not throttled", "GB/s read", "up for 4 d 4 h", "roceP2p1s0f1", "errors"):
            assert words in text


async def test_space_holds_what_is_shown_and_says_so(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await on_monitor("calm", "space")(pilot)
        held = screen_text(app)
        assert "PAUSED" in held
        app.snapshot = replace(values.failing(), at=1400.0, alarms=())
        await pilot.pause()
        assert "9.0 GiB available" in screen_text(app)
        await pilot.press("space")
        await pilot.pause()
        assert "PAUSED" not in screen_text(app)
        assert "2.6 GiB available" in screen_text(app)


async def test_alarms_come_first_with_cause_and_next_step(app: AppInTest) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await on_monitor("failing")(pilot)
        lines = screen_text(app).splitlines()
        assert "worker2: no answer for 41 s" in lines[1]
        assert "next: is it on? ping worker2" in lines[1]
        give(app, "calm")
        await pilot.pause()
        assert screen_text(app).splitlines()[1].strip().startswith("[0 all]")


async def test_a_small_screen_keeps_its_room_and_a_shows_all_alarms(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await on_monitor("calm")(pilot)
        many = tuple(replace(values.ALARMS[1], id=f"alarm{n}", node=f"spark{n}") for n in range(7))
        app.snapshot = replace(app.snapshot, alarms=many)
        await pilot.pause()
        assert "a: 4 more, and what to do about each" in screen_text(app)
        assert "spark6" not in screen_text(app)
        await pilot.press("a")
        await pilot.pause()
        assert "next: plug or reseat the cable; then sparktui stop and serve" in screen_text(app)
        await pilot.press("pagedown", "pagedown")
        await pilot.pause()
        assert "spark6" in screen_text(app)
        app.snapshot = replace(app.snapshot, alarms=many[:1])
        await pilot.pause()
        assert "spark6" not in screen_text(app), "the card lives on with what is true now"
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, MonitorScreen)


async def test_each_alarm_s_next_step_can_be_read_on_a_small_screen(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await on_monitor("failing")(pilot)
        assert "a: what to do about each" in screen_text(app)
        await pilot.press("a")
        await pilot.pause()
        said = " ".join(screen_text(app).split())
        for alarm in values.ALARMS:
            assert alarm.what in said and alarm.fix in said
        await pilot.press("c")
        await pilot.pause()
        assert "head: swapping: 812 pages/s\nnext: fewer requests at once, or a smaller KV pin" in app.copied[-1]


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)])
async def test_the_keys_name_the_way_back_and_not_the_screen_that_is_seen(
    app: AppInTest, size: tuple[int, int]
) -> None:
    async with app.run_test(size=size) as pilot:
        await on_monitor("calm")(pilot)
        keys = screen_text(app).splitlines()[-1]
        assert "w wizard" in keys and "m monitor" not in keys
        assert "? help" in keys and "q quit" in keys
        await pilot.press("l")
        await pilot.pause()
        keys = screen_text(app).splitlines()[-1]
        assert "w wizard" in keys and "l logs" not in keys
        await pilot.press("slash")
        await pilot.pause()
        keys = screen_text(app).splitlines()[-1]
        assert "^q quit" in keys and " q quit" not in keys and "w wizard" not in keys, "letters are typed here"
        await pilot.press("escape")
        await pilot.pause()
        keys = screen_text(app).splitlines()[-1]
        assert " q quit" in keys and "^q" not in keys


async def test_the_links_page_names_all_four_devices_of_each_spark(app: AppInTest) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await on_monitor("failing", "2")(pilot)
        text = screen_text(app)
        assert "head port 0     ● rocep1s0f0   up 200  ● roceP2p1s0f0 up 200" in text
        assert "worker1 port 0  ✖ rocep1s0f0   down    ✖ roceP2p1s0f0 down" in text
        assert "worker2 port 1  worker2 is gone" in text


async def test_trends_reach_further_back_on_request(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await on_monitor("calm")(pilot)
        assert "last 5 min" in screen_text(app)
        await pilot.press("right_square_bracket")
        await pilot.pause()
        assert "last 15 min" in screen_text(app)
        await pilot.press("right_square_bracket", "right_square_bracket")
        await pilot.pause()
        assert "last 24 h" in screen_text(app)
        await pilot.press("left_square_bracket")
        await pilot.pause()
        assert "last 15 min" in screen_text(app)


async def test_nothing_is_animated_until_p_asks_for_it(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await on_monitor("calm", "4")(pilot)
        preview = app.screen.query_one(DecodePreview)
        assert not preview.playing
        await pilot.press("p")
        await pilot.pause()
        assert preview.playing
        await pilot.press("1")
        await pilot.pause(0.3)
        assert not preview.playing


async def test_settings_that_cannot_be_read_are_said_with_the_way_out(tmp_path: Path) -> None:
    app = AppInTest(tmp_path)
    unreadable(app, "HEAD_IP: this is no address")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.trouble)
        await pilot.press("m")
        await pilot.pause()
        text = screen_text(app)
        assert "HEAD_IP: this is no address" in text
        assert "nothing is watched; e: settings, w: wizard" in text


async def test_before_the_first_sample_nothing_is_zero(app: AppInTest) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await on_monitor("calm")(pilot)
        app.snapshot = ClusterSnapshot()
        app.boots = ()
        await pilot.pause()
        text = screen_text(app)
        assert "no node was asked yet" in text
        assert "nobody has asked the ranks yet" in text


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (99, 31), (100, 32), (120, 40), (159, 60), (200, 60)])
@pytest.mark.parametrize("state", ["calm", "working", "failing"])
async def test_ascii_is_ascii_at_every_size(tmp_path: Path, size: tuple[int, int], state: str) -> None:
    app = AppInTest(tmp_path, terminal=Terminal(ascii_only=True))
    async with app.run_test(size=size) as pilot:
        await on_monitor(state)(pilot)
        screen = app.screen
        assert isinstance(screen, MonitorScreen)
        for page in ("", "1", "2", "3", "4", "5"):
            await pilot.press(page or "escape")
            await pilot.pause()
            text = screen_text(app)
            assert all(line.isascii() for line in text.splitlines()[1:]), text
            assert len(text.splitlines()) == size[1]
