"""The first start by keys: enter alone, going back, escape, pasting, a wrong address, saving."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Button

from sparktui.settings import load_settings
from sparktui.ui.first_start.draft import draft_path
from sparktui.ui.first_start.fields import Field
from sparktui.ui.first_start.flow import FirstStart
from sparktui.ui.first_start.host_key_card import HostKeyCard
from tests.ui.app_in_test import screen_text, until
from tests.ui.first_start_parts import (
    HEAD,
    BeforeSettings,
    changed_key,
    dead,
    discovery_text,
    unknown_key,
)

SIZE = (80, 24)


async def begun(app: BeforeSettings, pilot: Pilot[Any]) -> None:
    """The first group is there and this machine was looked at."""
    await until(pilot, lambda: any(isinstance(each, FirstStart) for each in app.screen_stack))
    await until(pilot, lambda: app.first.found is not None and app.first.is_mounted)


async def enter_until(app: BeforeSettings, pilot: Pilot[Any], group: str) -> None:
    """Only enter, until a group is shown."""
    for _ in range(40):
        if app.at == group:
            return
        await pilot.press("enter")
        await pilot.pause(0.05)
        if app.at == "ssh":
            await until(pilot, lambda: app.first.rows and all(row.state is not None for row in app.first.rows))
    raise AssertionError(f"enter never came to {group}; the screen:\n{screen_text(app)}")


async def type_into(app: BeforeSettings, pilot: Pilot[Any], setting: str, text: str) -> None:
    """Clear a question and type."""
    field = app.first.query_one(f"#field-{setting.lower().replace('_', '-')}", Field)
    field.focus()
    await pilot.pause()
    await pilot.press("end", "ctrl+u")
    for character in text:
        await pilot.press(
            {" ": "space", ".": "full_stop", "-": "minus", "@": "at", ",": "comma"}.get(character, character)
        )
    await pilot.pause()


def paste(app: BeforeSettings, text: str) -> None:
    app.screen.focused.post_message(events.Paste(text))  # type: ignore[union-attr]


async def saved(app: BeforeSettings, pilot: Pilot[Any]) -> dict[str, str]:
    """Enter on the last group; what bash reads from the file."""
    await until(pilot, lambda: app.first.made is not None)
    await pilot.press("enter")
    await until(pilot, lambda: app.session.settings is not None)
    return bash_values(app.session.start.env_file)


def bash_values(path: Path) -> dict[str, str]:
    """Every setting as bash has it after sourcing the file."""
    script = 'set -a; . "$1"; env -0'
    out = subprocess.run(
        ["bash", "-c", script, "bash", str(path)],
        env={"HOME": "/home/user", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    ).stdout.decode()
    return dict(each.split("=", 1) for each in out.split("\0") if "=" in each)


async def test_enter_alone_makes_a_file_that_bash_and_the_app_read_alike(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "save")
        key = app.first.random_key
        values = await saved(app, pilot)
        settings = app.session.settings
    assert values["HEAD_IP"] == HEAD
    assert values["WORKER_HOSTS"] == "spark-b spark-c"
    assert values["WORKER_IPS"] == "192.168.20.12 192.168.20.13"
    assert values["WORKER_FABRIC_IPS"] == "10.10.0.2 10.10.4.3"
    assert values["NFS_SERVER_IPS"] == "10.10.0.1 10.10.4.1"
    assert values["NCCL_IB_HCA"] == "rocep1s0f0,rocep1s0f1"
    assert values["CONTEXT_LENGTH"] == "32768"
    assert values["API_KEY"] == key
    assert len(key) >= 32
    assert settings is not None
    assert settings.api_key is not None and settings.api_key.get_secret_value() == key
    assert settings.worker_ips == ("192.168.20.12", "192.168.20.13")
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    assert not draft_path(tmp_path / ".env").exists()
    assert [each for each in os.listdir(tmp_path) if each.startswith(".env")] == [".env"]  # noqa: PTH208


async def test_the_first_group_says_why_three_and_what_four_adds(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await until(pilot, lambda: "(101 GiB)" in screen_text(app))
        text = screen_text(app)
    for words in (
        "101 GiB",
        "77 GiB",
        "about 6 GB",
        "about 40 GB",
        "37.9; also 51.0",
        "triangle",
        "RoCE switch",
        "145 GiB",
    ):
        assert words in text
    assert "32K to rely on" in text


async def test_a_default_says_where_it_comes_from(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "sparks")
        text = screen_text(app)
    assert "enP7s7 of this machine" in text
    assert "your ssh config" in text
    assert "spark-b" in text


async def test_what_is_ambiguous_is_not_guessed(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    hosts = "".join(f"box{number}\thostname=192.168.20.{50 + number} \n" for number in range(5))
    app.found = discovery_text(aliases=hosts)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "sparks")
        await pilot.press("enter", "enter", "enter")
        await pilot.pause(0.1)
        assert app.at == "sparks"
        assert "found 5 for 2" in screen_text(app)
        assert not app.first.query_one("#field-worker-hosts", Field).value


async def test_going_back_and_escape_lose_nothing(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "sparks")
        await type_into(app, pilot, "HEAD_IP", "192.168.20.99")
        await pilot.press("escape")
        assert app.at == "profile"
        await pilot.press("escape")
        assert app.at == "profile"
        assert "first group" in screen_text(app)
        await enter_until(app, pilot, "sparks")
        assert app.first.query_one("#field-head-ip", Field).value == "192.168.20.99"
        await enter_until(app, pilot, "keys")
        for group in ("watch", "network", "ssh", "sparks"):
            await pilot.press("ctrl+b")
            assert app.at == group
        assert app.first.query_one("#field-head-ip", Field).value == "192.168.20.99"


async def test_a_killed_app_comes_back_to_the_same_answers(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await pilot.press("down")
        await enter_until(app, pilot, "sparks")
        await type_into(app, pilot, "WORKER_HOSTS", "a b c")
        await until(pilot, lambda: '"a b c"' in draft_path(app.env_file).read_text())
    kept = draft_path(app.env_file)
    assert kept.stat().st_mode & 0o777 == 0o600
    again = BeforeSettings(tmp_path)
    async with again.run_test(size=SIZE) as pilot:
        await begun(again, pilot)
        await until(pilot, lambda: again.at == "sparks")
        assert again.first.query_one("#field-worker-hosts", Field).value == "a b c"
        assert again.first.draft.profile == "four"
        assert "last time" in screen_text(again)


async def test_no_secret_is_in_the_draft(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "keys")
        await pilot.press("down")
        await type_into(app, pilot, "API_KEY", "mysecretapikey")
        await type_into(app, pilot, "HF_TOKEN", "hfsecrettoken")
        assert "mysecretapikey" not in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: app.at == "save")
        await until(pilot, lambda: '"save"' in draft_path(app.env_file).read_text())
        text = draft_path(app.env_file).read_text()
        shown = screen_text(app)
        assert "secret" not in text and app.first.random_key not in text
        assert "mysecretapikey" not in shown
        values = await saved(app, pilot)
    assert values["API_KEY"] == "mysecretapikey"
    assert values["HF_TOKEN"] == "hfsecrettoken"


@pytest.mark.parametrize("typed", ["", "none", " OFF "])
async def test_an_own_key_that_is_none_is_never_saved(tmp_path: Path, typed: str) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "keys")
        await pilot.press("down")
        await type_into(app, pilot, "API_KEY", typed)
        await pilot.press("enter", "enter")
        await until(pilot, lambda: "API_KEY: " in screen_text(app))
        assert app.at == "keys" and "type one or choose another answer" in screen_text(app)
        assert app.focused in app.first.query_one("#field-api-key", Field).walk_children()
        # All the same, and still nothing is saved without a key that nobody declined.
        await pilot.press("ctrl+n")
        await until(pilot, lambda: app.at == "save" and "Not yet" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.at == "keys")
        assert not app.env_file.exists()
        await type_into(app, pilot, "API_KEY", "myownkey")
        await pilot.press("enter", "enter")
        await until(pilot, lambda: app.at == "save" and "Enter saves" in screen_text(app))
        assert (await saved(app, pilot))["API_KEY"] == "myownkey"


async def test_no_key_is_saved_where_none_was_chosen_in_words(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "keys")
        await pilot.press("down", "down")
        await enter_until(app, pilot, "save")
        assert not (await saved(app, pilot)).get("API_KEY")


async def come_back(app: BeforeSettings, pilot: Pilot[Any]) -> None:
    """A start that finds the draft of one that was lost at the last group."""
    await begun(app, pilot)
    await until(pilot, lambda: app.at == "keys" and "Secrets are not kept" in flat(app))


def flat(app: BeforeSettings) -> str:
    return " ".join(screen_text(app).split())


async def test_an_own_key_that_was_lost_with_the_terminal_is_asked_for_again(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "keys")
        await pilot.press("down")
        await type_into(app, pilot, "API_KEY", "mysecretapikey")
        await type_into(app, pilot, "HF_TOKEN", "hfsecrettoken")
        await pilot.press("enter")
        await until(pilot, lambda: '"save"' in draft_path(app.env_file).read_text())
    again = BeforeSettings(tmp_path)
    async with again.run_test(size=SIZE) as pilot:
        await come_back(again, pilot)
        assert "type your API key again, and type the Hugging Face token again." in flat(again)
        await pilot.press("enter", "enter", "enter")
        await until(pilot, lambda: "no key is typed" in flat(again))
        assert again.at == "keys"
        await type_into(again, pilot, "API_KEY", "mysecretapikey")
        assert "Secrets are not kept in the draft: type the Hugging Face token again." in flat(again)
        await type_into(again, pilot, "HF_TOKEN", "hfsecrettoken")
        assert "Secrets are not kept" not in flat(again)
        await pilot.press("enter")
        await until(pilot, lambda: again.at == "save")
        values = await saved(again, pilot)
    assert (values["API_KEY"], values["HF_TOKEN"]) == ("mysecretapikey", "hfsecrettoken")


async def test_a_random_key_that_was_lost_with_the_terminal_is_shown_anew_before_it_is_saved(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "save")
        await until(pilot, lambda: '"save"' in draft_path(app.env_file).read_text())
    # A second loss before that group is seen: what was copied of the first start is wrong all the same.
    between = BeforeSettings(tmp_path)
    async with between.run_test(size=SIZE) as pilot:
        await come_back(between, pilot)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: '"network"' in draft_path(app.env_file).read_text())
    again = BeforeSettings(tmp_path)
    async with again.run_test(size=SIZE) as pilot:
        await begun(again, pilot)
        await until(pilot, lambda: again.at == "network")
        await enter_until(again, pilot, "keys")
        assert "draft: copy the API key below, which is a new one." in flat(again)
        assert "Hugging Face token again" not in flat(again), "none was given"
        assert again.first.random_key in screen_text(again)
        await enter_until(again, pilot, "save")
        key = again.first.random_key
        assert (await saved(again, pilot))["API_KEY"] == key


@pytest.mark.parametrize(
    "pasted",
    [
        "spark-x\nnvidia@spark-y\n",
        "spark-x, nvidia@spark-y",
        "  spark-x\r\n\r\n\tnvidia@spark-y  \r\n",
        "spark-x;nvidia@spark-y",
    ],
)
async def test_a_pasted_host_list_is_split(tmp_path: Path, pasted: str) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "sparks")
        await type_into(app, pilot, "WORKER_HOSTS", "")
        paste(app, pasted)
        await until(pilot, lambda: app.first.draft.answers.get("WORKER_HOSTS", "").strip())
        assert app.first.draft.answers["WORKER_HOSTS"].split() == ["spark-x", "nvidia@spark-y"]


async def test_a_wrong_address_is_said_at_once_and_enter_stays(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "sparks")
        await type_into(app, pilot, "HEAD_IP", "127.0.0.1")
        await until(pilot, lambda: "this machine itself" in screen_text(app))
        await pilot.press("enter", "enter")
        await pilot.pause(0.2)
        assert app.at == "sparks"
        await type_into(app, pilot, "HEAD_IP", HEAD)
        await enter_until(app, pilot, "ssh")


async def test_arrows_go_through_what_was_found(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "sparks")
        await pilot.press("down")
        await until(pilot, lambda: app.first.draft.answers.get("HEAD_IP") == "10.10.0.1")
        assert "ConnectX port" in screen_text(app)
        await pilot.press("up")
        await until(pilot, lambda: "HEAD_IP" not in app.first.draft.answers)


async def test_a_dead_node_costs_its_own_row(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.refusals["worker1"] = dead("worker1")
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "ssh")
        await until(pilot, lambda: app.first.rows and all(row.state is not None for row in app.first.rows))
        text = screen_text(app)
        assert "did not answer in 15 s" in text and "ping spark-b" in text
        assert [row.word for row in app.first.rows] == ["works", "no login", "works"]
        await pilot.press("enter", "enter")
        await until(pilot, lambda: "goes on without" in screen_text(app))
        assert app.at == "ssh"
        await pilot.press("enter")
        await until(pilot, lambda: app.at == "network")


async def test_another_user_is_tried_before_going_on(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "ssh")
        await until(pilot, lambda: app.first.rows and all(row.state is not None for row in app.first.rows))
        count = len(app.opened_with)
        await type_into(app, pilot, "WORKER_USER", "spark")
        await pilot.press("enter", "enter")
        await until(pilot, lambda: len(app.opened_with) > count and all(row.state for row in app.first.rows))
        assert app.at == "ssh"
        assert app.opened_with[-1].worker_user == "spark"
        assert app.first.rows[1].target == "spark@spark-b"


async def test_a_failed_nodes_next_step_is_copied(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.refusals["worker1"] = dead("worker1")
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "ssh")
        await until(pilot, lambda: app.first.rows and all(row.state is not None for row in app.first.rows))
        await pilot.press("ctrl+y")
        await until(pilot, lambda: app.copied)
    assert app.copied == ["is it on? ping spark-b"]


async def host_key_card(app: BeforeSettings, pilot: Pilot[Any]) -> HostKeyCard:
    """The card, once it takes keys."""
    await until(pilot, lambda: isinstance(app.screen, HostKeyCard) and app.screen.takes_keys)
    card = app.screen
    assert isinstance(card, HostKeyCard)
    return card


async def test_an_unknown_host_key_is_trusted_by_choosing_the_answer_alone(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.refusals["worker1"] = unknown_key("spark-b")
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_group(app, pilot, "ssh")
        card = await host_key_card(app, pilot)
        assert "SHA256:abcdefghijkl" in screen_text(app) and "ssh-keygen -lf" in screen_text(app)
        assert isinstance(app.focused, Button) and str(app.focused.label) == "not now"
        await pilot.press(*"yuki", "Y", "space", "t")
        assert app.screen is card and app.trusted == [], "no letter is an answer"
        await pilot.press("left", "enter")
        await until(pilot, lambda: [row.word for row in app.first.rows] == ["works", "works", "works"])
        assert isinstance(app.screen, FirstStart)
        await until(pilot, lambda: "All nodes answer" in screen_text(app))
    assert app.trusted == ["spark-b ssh-ed25519 AAAAC3Nz"]


@pytest.mark.parametrize("key", ["enter", "escape"])
async def test_an_unknown_host_key_that_is_not_trusted_stays_out(tmp_path: Path, key: str) -> None:
    app = BeforeSettings(tmp_path)
    app.refusals["worker1"] = unknown_key("spark-b")
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_group(app, pilot, "ssh")
        await host_key_card(app, pilot)
        await pilot.press(key)
        await until(pilot, lambda: isinstance(app.screen, FirstStart))
        assert app.trusted == []
        assert app.first.rows[1].word == "host key not confirmed"
        await pilot.press("escape")
        await until(pilot, lambda: app.at == "sparks")
        await enter_group(app, pilot, "ssh")
        await pilot.pause(0.1)
        assert isinstance(app.screen, FirstStart), "it was answered; trying again asks again"
        await pilot.press("ctrl+t")
        await host_key_card(app, pilot)


async def test_two_unknown_host_keys_are_two_cards(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.refusals |= {"worker1": unknown_key("spark-b"), "worker2": unknown_key("spark-c")}
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_group(app, pilot, "ssh")
        first = await host_key_card(app, pilot)
        await pilot.press("left", "enter")
        await until(pilot, lambda: app.screen is not first)
        await host_key_card(app, pilot)
        await pilot.press("left", "enter")
        await until(pilot, lambda: [row.word for row in app.first.rows] == ["works", "works", "works"])
    assert app.trusted == ["spark-b ssh-ed25519 AAAAC3Nz", "spark-c ssh-ed25519 AAAAC3Nz"]


async def test_one_host_key_that_two_nodes_show_is_one_card(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.refusals |= dict.fromkeys(("worker1", "worker2"), unknown_key("jump"))
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_group(app, pilot, "ssh")
        await host_key_card(app, pilot)
        await pilot.press("left", "enter")
        await until(pilot, lambda: [row.word for row in app.first.rows] == ["works", "works", "works"])
    assert app.trusted == ["jump ssh-ed25519 AAAAC3Nz"]


async def test_a_name_that_is_typed_while_the_nodes_are_tried_trusts_nobody(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.refusals["worker1"] = unknown_key("spark-b")
    app.waits = asyncio.Event()
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_group(app, pilot, "ssh")
        await until(pilot, lambda: app.first.rows)
        await pilot.press("y", "u")
        app.waits.set()
        await until(pilot, lambda: app.first.rows[1].word == "host key not confirmed")
        await pilot.press("k", "i")
        await pilot.pause(0.1)
        assert app.trusted == []
        assert app.first.query_one("#field-worker-user", Field).value == "yuki", "nothing opened over what is typed"
        await pilot.press("enter", "enter")
        await host_key_card(app, pilot)
        assert "yuki@spark-b shows" in screen_text(app)
    assert app.trusted == []


async def test_a_host_key_card_never_opens_over_the_next_group(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.refusals["worker1"] = unknown_key("spark-b")
    app.waits = asyncio.Event()
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_group(app, pilot, "ssh")
        await until(pilot, lambda: app.first.rows)
        await pilot.press("ctrl+n")
        await until(pilot, lambda: app.at == "network")
        app.waits.set()
        await until(pilot, lambda: app.first.rows[1].word == "host key not confirmed")
        await pilot.pause(0.1)
        assert isinstance(app.screen, FirstStart)
        await pilot.press("escape")
        await host_key_card(app, pilot)
        assert app.at == "ssh"


async def test_an_early_enter_does_not_put_a_host_key_off_unread(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.refusals["worker1"] = unknown_key("spark-b")
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_group(app, pilot, "ssh")
        await until(pilot, lambda: isinstance(app.screen, HostKeyCard))
        await pilot.press("left", "enter", "escape")
        await host_key_card(app, pilot)
        assert isinstance(app.focused, Button) and str(app.focused.label) == "not now"
    assert app.trusted == []


async def test_a_changed_host_key_is_refused_without_a_question(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.refusals["worker2"] = changed_key("worker2")
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "ssh")
        await until(pilot, lambda: "CHANGED" in screen_text(app))
        assert isinstance(app.screen, FirstStart)
        assert app.first.rows[2].word == "refused"
    assert app.trusted == []


async def enter_group(app: BeforeSettings, pilot: Pilot[Any], group: str) -> None:
    """Enter until a group is shown, without waiting for its tests."""
    for _ in range(20):
        if app.at == group:
            return
        await pilot.press("enter")
        await pilot.pause(0.1)


async def test_another_profile_is_saved_as_its_own_file(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.found = discovery_text(aliases=ALL_FOUR)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await pilot.press("down")
        await enter_until(app, pilot, "save")
        values = await saved(app, pilot)
    assert not (tmp_path / ".env").exists()
    assert (tmp_path / ".env.tp4").exists()
    assert values["NNODES"] == "4"
    assert values["CONTEXT_LENGTH"] == "1048576"
    assert app.session.settings is not None and app.session.settings.profile.name == "four"


ALL_FOUR = "".join(
    f"spark-{name}\thostname=192.168.20.{number} \n" for name, number in (("b", 12), ("c", 13), ("d", 14))
)


async def test_a_file_that_came_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "save")
        (tmp_path / ".env").write_text("HEAD_IP=10.9.9.9\n")
        await until(pilot, lambda: app.first.made is not None)
        await pilot.press("enter")
        await until(pilot, lambda: "already" in screen_text(app))
    assert (tmp_path / ".env").read_text() == "HEAD_IP=10.9.9.9\n"


async def test_the_last_group_names_what_is_wrong_and_enter_goes_there(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    app.found = discovery_text(aliases="", cables=False)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        for _ in range(6):
            await pilot.press("ctrl+n")
            await pilot.pause(0.3)
        await until(pilot, lambda: app.at == "save" and "Not yet" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.at == "sparks")
    assert not (tmp_path / ".env").exists()


async def test_the_saved_file_is_the_example_with_the_changed_lines(tmp_path: Path) -> None:
    app = BeforeSettings(tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await begun(app, pilot)
        await enter_until(app, pilot, "save")
        await saved(app, pilot)
    example = (Path(__file__).parents[2] / ".env.example").read_text().split("\n")
    written = (tmp_path / ".env").read_text().split("\n")
    assert len(example) == len(written)
    changed = [new.split("=")[0] for old, new in zip(example, written, strict=True) if old != new]
    assert changed == [
        "HEAD_IP",
        "WORKER_IPS",
        "WORKER_HOSTS",
        "NFS_SERVER_IPS",
        "WORKER_FABRIC_IPS",
        "API_KEY",
        "CONTEXT_LENGTH",
    ]
    assert load_settings(tmp_path / ".env", environment={"HOME": "/home/user"}).nnodes == 3
