"""The settings screen by keys: meaning and origin, editing with the real rules, the diff, saving, a foreign change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot
from textual.widgets import OptionList

from sparktui.cluster.profile import THREE
from sparktui.envfile import parse_env
from sparktui.errors import SettingsError
from sparktui.ui.settings_screen.book import Book, diff, lines_of, matches
from sparktui.ui.settings_screen.cards import DiffCard, EditCard, LeaveCard
from sparktui.ui.settings_screen.screen import SettingsScreen
from tests.ui.app_in_test import AppInTest, screen_text, settled, until

SIZE = (80, 24)
TEXT = """\
# my cluster
HEAD_IP=10.0.0.1
WORKER_IPS='10.0.0.2 10.0.0.3'
API_KEY=a-long-enough-key   # shared with nobody

# how long a prompt may be
CONTEXT_LENGTH=32768
"""


@pytest.fixture
def app(tmp_path: Path) -> AppInTest:
    made = AppInTest(tmp_path)
    made.env_file.write_text(TEXT)
    made.env_file.chmod(0o600)
    return made


async def opened(app: AppInTest, pilot: Pilot[Any]) -> SettingsScreen:
    await settled(pilot)
    await pilot.press("e")
    await until(pilot, lambda: isinstance(app.screen, SettingsScreen) and app.screen.lines)
    assert isinstance(app.screen, SettingsScreen)
    return app.screen


@pytest.mark.parametrize(
    ("size", "beside"), [((80, 24), False), ((100, 32), True), ((120, 40), True), ((200, 60), True)]
)
async def test_what_a_setting_means_stands_beside_the_list_where_there_is_room(
    app: AppInTest, size: tuple[int, int], beside: bool
) -> None:
    async with app.run_test(size=size) as pilot:
        screen = await opened(app, pilot)
        await settled(pilot)
        listed, side = screen.query_one("#settings-list").region, screen.query_one("#settings-side").region
    assert (side.x >= listed.right) is beside
    assert (side.y >= listed.bottom) is not beside
    assert listed.width >= 55


async def test_each_setting_keeps_one_row_while_the_terminal_changes(app: AppInTest) -> None:
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await opened(app, pilot)
        rows = screen.query_one("#settings-list", OptionList)
        for columns in (80, 120, 100, 160):
            await pilot.resize_terminal(columns, 40)
            await until(pilot, lambda: rows.virtual_size.height == rows.option_count)
        assert screen.marked is not None


async def mark(app: AppInTest, pilot: Pilot[Any], name: str) -> None:
    """Filter for a setting and mark it."""
    await pilot.press("slash")
    for character in name.lower():
        await pilot.press({"_": "underscore"}.get(character, character))
    await pilot.press("enter")
    screen = app.screen
    assert isinstance(screen, SettingsScreen)
    await until(pilot, lambda: screen.marked is not None and screen.marked.name == name)


async def edit(app: AppInTest, pilot: Pilot[Any], name: str, text: str) -> None:
    """Open a setting and type another value, without the last enter."""
    await mark(app, pilot, name)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, EditCard))
    await pilot.press(
        "end", "ctrl+u", *[{"-": "minus", ".": "full_stop", " ": "space"}.get(each, each) for each in text]
    )


async def keep(app: AppInTest, pilot: Pilot[Any]) -> None:
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, SettingsScreen))


async def test_a_setting_shows_meaning_value_default_and_where_it_comes_from(app: AppInTest) -> None:
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot)
        await mark(app, pilot, "CONTEXT_LENGTH")
        await until(pilot, lambda: "from line 7" in screen_text(app))
        text = screen_text(app)
        assert "The window of one request" in text
        assert "three 262144" in text and "four 1048576" in text
        assert "tokens, 4096 to 1048576" in text
        await pilot.press("escape")
        await mark(app, pilot, "PORT")
        await until(pilot, lambda: "from default of three" in screen_text(app))
        assert "default 8888" in screen_text(app)


async def test_every_setting_is_listed_below_its_group(app: AppInTest) -> None:
    from sparktui.settings import SETTINGS

    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(app, pilot)
        assert [line.name for line in screen.lines] == list(SETTINGS)
        assert "Sparks" in screen_text(app)


async def test_saving_shows_the_difference_and_keeps_comments_order_and_a_backup(app: AppInTest) -> None:
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot)
        await edit(app, pilot, "CONTEXT_LENGTH", "65536")
        await keep(app, pilot)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, DiffCard))
        text = screen_text(app)
        assert "- CONTEXT_LENGTH=32768" in text
        assert "+ CONTEXT_LENGTH=65536" in text
        assert app.env_file.read_text() == TEXT
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, (SettingsScreen, DiffCard)))
        await until(pilot, lambda: app.session.settings is not None and app.session.settings.context_length == 65536)
    assert app.env_file.read_text() == TEXT.replace("32768", "65536")
    assert app.env_file.with_name(".env.bak").read_text() == TEXT
    assert app.env_file.stat().st_mode & 0o777 == 0o600


async def test_a_value_is_checked_while_it_is_typed(app: AppInTest) -> None:
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot)
        await edit(app, pilot, "CONTEXT_LENGTH", "99")
        await until(pilot, lambda: "outside 4096 to 1048576" in screen_text(app))
        await pilot.press("9", "9")
        await until(pilot, lambda: "fits" in screen_text(app))


async def test_the_rules_are_the_real_ones(app: AppInTest) -> None:
    """TP without padding, the memory sheet, expandable segments: refused with the loader's own reasons."""
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot)
        await edit(app, pilot, "DSV41_TP_PAD", "0")
        await until(pilot, lambda: "do not divide by three" in " ".join(screen_text(app).split()))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        await pilot.press("escape")
        await edit(app, pilot, "MAX_TOTAL_TOKENS", "9000000")
        await until(pilot, lambda: "MAX_TOTAL_TOKENS=9000000 needs" in screen_text(app))


async def test_what_is_wrong_cannot_be_saved(app: AppInTest) -> None:
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot)
        await edit(app, pilot, "PORT", "99999")
        await pilot.press("enter")
        await until(pilot, lambda: "enter again keeps it" in " ".join(screen_text(app).split()))
        await keep(app, pilot)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, DiffCard))
        assert "cannot be saved like this" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
    assert app.env_file.read_text() == TEXT


async def test_a_secret_is_never_shown(app: AppInTest) -> None:
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot)
        await mark(app, pilot, "API_KEY")
        seen = screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, EditCard))
        seen += screen_text(app)
        await pilot.press(*"thenewsecret")
        seen += screen_text(app)
        await keep(app, pilot)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, DiffCard))
        seen += screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, (SettingsScreen, DiffCard)))
    assert "a-long-enough" not in seen and "thenewsecret" not in seen
    assert "••••••et" in seen
    assert "API_KEY=thenewsecret   # shared with nobody" in app.env_file.read_text()


async def test_a_file_that_somebody_else_changed_is_not_written_over_silently(app: AppInTest) -> None:
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot)
        await edit(app, pilot, "CONTEXT_LENGTH", "65536")
        await keep(app, pilot)
        theirs = TEXT.replace("10.0.0.3", "10.0.0.7") + "PORT=9999\n"
        app.env_file.write_text(theirs)
        await pilot.press("a")
        await until(pilot, lambda: "somebody else changed" in screen_text(app))
        newer = theirs + "DIST_PORT=21000\n"
        app.env_file.write_text(newer)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, DiffCard))
        assert app.env_file.read_text() == newer
        await pilot.pause(0.3)
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, (SettingsScreen, DiffCard)))
    assert app.env_file.read_text() == newer.replace("32768", "65536")


async def test_the_default_takes_the_line_out(app: AppInTest) -> None:
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot)
        await mark(app, pilot, "CONTEXT_LENGTH")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, EditCard))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, DiffCard))
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, (SettingsScreen, DiffCard)))
    assert app.env_file.read_text() == TEXT.replace("CONTEXT_LENGTH=", "# CONTEXT_LENGTH=")


async def test_leaving_with_changes_asks_and_escape_keeps_them(app: AppInTest) -> None:
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(app, pilot)
        await edit(app, pilot, "CONTEXT_LENGTH", "65536")
        await keep(app, pilot)
        await pilot.press("escape")
        await until(pilot, lambda: not screen.query_one("#settings-filter").value)  # type: ignore[attr-defined]
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, LeaveCard))
        assert "CONTEXT_LENGTH" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen)
        assert screen.book is not None and screen.book.changes == {"CONTEXT_LENGTH": "65536"}
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, LeaveCard))
        await pilot.press("d")
        await until(pilot, lambda: screen not in app.screen_stack)
    assert app.env_file.read_text() == TEXT


@pytest.mark.parametrize(("key", "mode"), [("w", "wizard"), ("m", "monitor"), ("l", "logs")])
async def test_the_keys_of_the_other_screens_act_here_too(app: AppInTest, key: str, mode: str) -> None:
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(app, pilot)
        await pilot.press(key)
        await until(pilot, lambda: app.current_mode == mode and screen not in app.screen_stack)
        await pilot.press("w")
        await until(pilot, lambda: app.current_mode == "wizard")
        assert not isinstance(app.screen, SettingsScreen)


async def test_going_to_another_screen_asks_about_what_is_not_saved(app: AppInTest) -> None:
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(app, pilot)
        await edit(app, pilot, "CONTEXT_LENGTH", "65536")
        await keep(app, pilot)
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, LeaveCard))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen)
        assert app.current_mode == "wizard" and screen.book is not None and screen.book.changes
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, LeaveCard))
        await pilot.press("d")
        await until(pilot, lambda: app.current_mode == "monitor")
    assert app.env_file.read_text() == TEXT


async def test_smoke_and_talk_open_over_the_settings(app: AppInTest) -> None:
    from sparktui.ui.widgets.smoke_card import SmokeCard
    from sparktui.ui.widgets.talk_card import TalkCard

    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(app, pilot)
        for key, card in (("s", SmokeCard), ("t", TalkCard)):
            await pilot.press(key)
            await until(pilot, lambda card=card: isinstance(app.screen, card))  # type: ignore[misc]
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is screen)
        await pilot.press("e")
        await until(pilot, lambda: any("esc goes back" in each.message for each in app._notifications))


async def test_the_keys_name_the_way_back_also_where_letters_are_typed(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(app, pilot)
        assert "esc back" in screen_text(app).splitlines()[-1]
        await pilot.press("slash")
        await pilot.pause()
        keys = screen_text(app).splitlines()[-1]
        assert "^q quit" in keys and "esc back" in keys and "a save" not in keys


async def test_nothing_typed_changes_nothing(app: AppInTest) -> None:
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(app, pilot)
        await mark(app, pilot, "MODEL_DIR")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, EditCard))
        await keep(app, pilot)
        assert screen.book is not None and not screen.book.changes


async def test_settings_that_are_refused_can_be_mended_here(tmp_path: Path) -> None:
    app = AppInTest(tmp_path)
    app.env_file.write_text(TEXT.replace("32768", "12"))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.trouble)
        await opened(app, pilot)
        await mark(app, pilot, "CONTEXT_LENGTH")
        await until(pilot, lambda: "outside 4096" in screen_text(app))
        await edit(app, pilot, "CONTEXT_LENGTH", "65536")
        await keep(app, pilot)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, DiffCard))
        await pilot.press("enter")
        await until(pilot, lambda: app.session.settings is not None)
        await until(pilot, lambda: not app.trouble)


async def test_what_is_open_is_counted_and_n_goes_there(app: AppInTest) -> None:
    app.env_file.write_text(TEXT + "PORT=99999\n")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.trouble)
        screen = await opened(app, pilot)
        assert "line 8: PORT=99999" in screen_text(app)
        await pilot.press("n")
        await until(pilot, lambda: screen.marked is not None and screen.marked.name == "PORT")


def book(text: str = TEXT) -> Book:
    return Book(Path("/srv/.env"), text, THREE, home="/home/user")


@pytest.mark.parametrize("typed", ["~/models", "$HOME/models"])
def test_a_path_is_written_with_its_home(typed: str) -> None:
    changed = book().with_change("MODEL_DIR", typed)
    assert changed.changes == {"MODEL_DIR": "/home/user/models"}


def test_the_filter_wants_all_words_anywhere() -> None:
    lines = {line.name: line for line in lines_of(book(), ())}
    assert matches(lines["CONTEXT_LENGTH"], "window request")
    assert matches(lines["CONTEXT_LENGTH"], "Memory 32768")
    assert not matches(lines["CONTEXT_LENGTH"], "window nfs")


def test_commented_and_broken_secrets_are_masked_in_the_diff() -> None:
    old = "# API_KEY=oldoldold\nHF_TOKEN='unclosed\n"
    new = "# API_KEY=othersecret\nHF_TOKEN=hf_secret_token\n"
    shown = " ".join(f"{each.old} {each.new}" for each in diff(old, new))
    assert not re.search("oldoldold|othersecret|unclosed|hf_secret", shown)


_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


@given(_VALUES, st.sampled_from(["SERVED_MODEL_NAME", "HOST", "CONTEXT_LENGTH"]))
def test_what_was_typed_is_what_is_read_or_it_is_refused(value: str, name: str) -> None:
    changed = book().with_change(name, value)
    try:
        text = changed.edited()
    except SettingsError:
        return
    wanted = changed.changes.get(name, parse_env(TEXT, {"HOME": "/"}).values.get(name))
    assert parse_env(text, {"HOME": "/"}).values.get(name) == wanted
    others = [line for line in TEXT.split("\n") if not line.startswith(name)]
    assert [line for line in text.split("\n") if line in others][: len(others)] == others
