"""The wizard by keys: what enter says is what enter does, the person's place is kept, and everything can be copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktui.errors import LockHeld, NodeUnreachable
from sparktui.events import (
    Finding,
    LogLine,
    NodeOutcome,
    Note,
    Outcome,
    Progress,
    State,
    StepFinished,
    StepStarted,
)
from sparktui.steps.step import Command, Inspection
from sparktui.ui.terminal import Terminal
from sparktui.ui.wizard.screen import WizardScreen
from tests.ui.app_in_test import AppInTest, screen_text, settled, until, write_env
from tests.ui.wizard_values import CHAIN, DISK, STATES, show_doctor, show_failing

NODES = ("head", "worker1", "worker2")


def wizard(app: AppInTest) -> WizardScreen:
    assert isinstance(app.screen, WizardScreen)
    return app.screen


def line_with(app: AppInTest, text: str) -> str:
    return next((line for line in screen_text(app).splitlines() if text in line), "")


async def test_enter_runs_what_the_line_says(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "enter: run doctor on all three Sparks" in screen_text(app)
        assert "enter run doctor" in screen_text(app).splitlines()[-1]
        await pilot.press("enter")
        run = await app.started(pilot)
        assert (run.request.verbs, run.request.forced) == (("doctor",), ())
        run.say(StepStarted("doctor", NODES), StepFinished("doctor", Outcome.DONE, 4.0))
        run.end()
        await until(pilot, lambda: "enter: run download on head" in screen_text(app))
        assert wizard(app).selected == "doctor", "its result stays in sight"
        await pilot.press("enter")
        assert (await app.started(pilot, 2)).request.verbs == ("download",)


async def test_enter_goes_on_with_the_first_step_that_the_nodes_call_not_done(app: AppInTest) -> None:
    app.all_done("download", "build", "share")
    app.earlier_run(("doctor",), StepStarted("doctor", NODES), StepFinished("doctor", Outcome.DONE, 4.0)).end()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "enter: run pack" in screen_text(app))
        assert "4 of 7 done" in screen_text(app)
        await pilot.press("enter")
        assert (await app.started(pilot, 2)).request.verbs == ("pack",)


async def test_a_node_that_could_not_be_asked_sends_to_doctor(app: AppInTest) -> None:
    app.step("download").inspection = NodeUnreachable("no answer on port 22", node="worker1")
    app.earlier_run(("doctor",), StepStarted("doctor", NODES), StepFinished("doctor", Outcome.DONE, 4.0)).end()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "enter: run doctor: worker1 could not be asked" in screen_text(app))
        await pilot.press("enter")
        assert (await app.started(pilot, 2)).request.verbs == ("doctor",)


async def test_when_everything_is_done_enter_says_how_to_talk_to_it(app: AppInTest) -> None:
    app.all_done("download", "build", "share", "pack", "serve")
    ran = [
        event for verb in ("doctor", "smoke") for event in (StepStarted(verb), StepFinished(verb, Outcome.DONE, 1.0))
    ]
    app.earlier_run(("doctor", "smoke"), *ran).end()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "enter: how to talk to it" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "OpenAI base URL: http://10.0.0.1:8888/v1" in screen_text(app))


async def test_a_runs_the_whole_chain(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("a")
        assert (await app.started(pilot)).request.verbs == CHAIN


async def test_the_selection_goes_with_the_run_until_the_person_moves_it(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("a")
        run = await app.started(pilot)
        run.say(StepStarted("doctor", NODES), StepFinished("doctor", Outcome.DONE, 1.0), StepStarted("download"))
        await until(pilot, lambda: wizard(app).selected == "download")
        await pilot.press("j", "down")
        assert wizard(app).selected == "share"
        run.say(StepFinished("download", Outcome.DONE, 1.0), StepStarted("build"))
        await until(pilot, lambda: app.run_view.current == "build")
        assert wizard(app).selected == "share"
        assert "enter: show build, which is running" in screen_text(app)
        await pilot.press("enter")
        assert wizard(app).selected == "build"
        run.say(StepFinished("build", Outcome.DONE, 1.0), StepStarted("share"))
        await until(pilot, lambda: wizard(app).selected == "share")
        run.end()


async def test_again_is_forced_and_asks_where_an_engine_could_be_replaced(app: AppInTest) -> None:
    app.all_done("download", "build", "share", "pack", "serve")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        while wizard(app).selected != "serve":
            await pilot.press("down")
        await pilot.press("r")
        await until(pilot, lambda: "Run serve again?" in screen_text(app))
        await pilot.press("enter")  # the safe answer is the one that is focused
        await until(pilot, lambda: isinstance(app.screen, WizardScreen))
        assert app.session.runs == []
        await pilot.press("r", "left", "enter")
        run = await app.started(pilot)
        assert (run.request.verbs, run.request.forced) == (("serve",), ("serve",))
        run.end()
        await until(pilot, lambda: not app.run_view.active)
        await pilot.press("up", "r")
        assert (await app.started(pilot, 2)).request.forced == ("pack",)


async def test_a_run_that_is_refused_says_why_and_what_to_do(app: AppInTest) -> None:
    app.session.refuses = LockHeld("run x (up, at pack) is changing this cluster", fix="follow it", node="head")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "the run was not started" in screen_text(app))
        assert "head: run x (up, at pack) is changing this" in screen_text(app) and "next: follow it" in screen_text(
            app
        )
        await pilot.press("c")
        await until(pilot, lambda: app.copied)
        assert app.copied[-1] == "head: run x (up, at pack) is changing this cluster\nnext: follow it"
        app.session.refuses = None
        await pilot.press("enter")
        await app.started(pilot)
        assert "was not started" not in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_progress_shows_amount_of_the_whole_rate_and_time_left(app: AppInTest, size: tuple[int, int]) -> None:
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await pilot.press("a")
        run = await app.started(pilot)
        gib = 1024.0**3
        run.say(
            StepStarted("pack", NODES),
            Progress("pack", "head", "layer 1", 12.4 * gib, 65 * gib, rate_per_second=0.5 * gib, seconds_left=105.0),
            Progress("pack", "worker1", "layer 1", None, None),
        )
        await until(pilot, lambda: "1 min 45 s left" in line_with(app, "  head "))
        assert "12.4 of 65.0 GiB" in screen_text(app) and "19 %" in screen_text(app)
        assert "512.0 MiB/s" in screen_text(app)
        assert "?" in line_with(app, "  worker1 ·"), "an unknown amount is no empty bar and no 0 %"
        run.say(NodeOutcome("pack", "head", Outcome.DONE, "65.0 GiB in place"), StepFinished("pack", Outcome.DONE, 9.0))
        run.end()
        await until(pilot, lambda: "65.0 GiB in place" in screen_text(app))


async def test_the_first_line_of_a_failure_is_node_and_cause_then_the_next_step(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        show_failing(app)
        await until(pilot, lambda: "worker1: 3.2 GiB free" in screen_text(app))
        lines = [line[30:].strip() for line in screen_text(app).splitlines()]
        begin = next(number for number, line in enumerate(lines) if "3.2 GiB free" in line)
        assert "pack     failed" in screen_text(app)
        assert any(line.startswith("next: make room there") for line in lines[begin + 1 : begin + 3])
        await pilot.press("c")
        await until(pilot, lambda: app.copied)
        assert app.copied == [
            f"worker1: {DISK}\nnext: make room there, or set WORKER_ENGRAM_DIR to another disk",
        ]
        await until(pilot, (app.session.state_dir / "copied.txt").exists)
        assert (app.session.state_dir / "copied.txt").read_text().startswith("worker1: ")


async def test_findings_come_worst_first_and_good_ones_are_counted_until_they_are_asked_for(app: AppInTest) -> None:
    async with app.run_test(size=(80, 40)) as pilot:
        await settled(pilot)
        show_doctor(app)
        await until(pilot, lambda: "10 OK on 2 nodes" in screen_text(app))
        assert "ACTIVE" not in screen_text(app)
        await pilot.press("n", "c")
        await until(pilot, lambda: app.copied)
        assert app.copied[-1].startswith("WARN driver.drift worker2: driver 580.95.05")
        assert "next: update worker2" in app.copied[-1]
        await pilot.press("o")
        await until(pilot, lambda: "ACTIVE" in screen_text(app))


async def test_the_exact_commands_are_shown_by_node_and_copied_whole(app: AppInTest) -> None:
    long = "docker run --rm --network host " + " ".join(f"-e NAME_{n}=value" for n in range(20)) + " image run"
    app.step("doctor").commands = (Command("head", "mkdir -p -- /srv"), Command("worker1", long, "workers first"))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await until(pilot, lambda: "mkdir -p -- /srv" in screen_text(app) and "# workers first" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: app.copied)
        assert app.copied[-1] == f"# head\nmkdir -p -- /srv\n# worker1: workers first\n{long}"
        await pilot.press("n", "c")
        await until(pilot, lambda: len(app.copied) == 2)
        assert app.copied[-1] == long
        await pilot.press("escape")
        assert "mkdir" not in screen_text(app) and "Check every Spark" in screen_text(app)


async def test_commands_that_cannot_be_made_say_why(app: AppInTest) -> None:
    app.step("doctor").commands = NodeUnreachable("no answer on port 22", fix="is it on?", node="worker2")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await until(pilot, lambda: "worker2: no answer on port 22" in screen_text(app))
        assert "next: is it on?" in screen_text(app)


async def test_leaving_during_a_run_stops_nothing_and_coming_back_is_at_the_same_place(tmp_path: Path) -> None:
    first = AppInTest(tmp_path)
    async with first.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("a")
        run = await first.started(pilot)
        run.say(StepStarted("doctor", NODES), StepFinished("doctor", Outcome.DONE, 1.0), StepStarted("download"))
        await until(pilot, lambda: first.run_view.current == "download")
        await pilot.press("q")
    assert first.return_code == 0 and not run.cancelled
    run.say(Note("download", "head", "still here"))
    second = AppInTest(tmp_path)
    async with second.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "still here" in screen_text(second))
        assert wizard(second).selected == "download" and second.run_view.active


async def test_settings_that_cannot_be_used_are_shown_whole_with_their_lines(tmp_path: Path) -> None:
    app = AppInTest(tmp_path)
    write_env(app.env_file, OFFLOAD_MODE="ram", PORT="none")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        text = screen_text(app)
        assert "The settings cannot be used" in text and str(app.env_file)[-12:] in text.replace("\n", "")
        assert "OFFLOAD_MODE" in text and "PORT" in text and "line 6" in text
        assert "enter: open the settings" in text
        await pilot.press("c")
        await until(pilot, lambda: app.copied)
        assert "OFFLOAD_MODE" in app.copied[0]


async def test_at_80_columns_one_pane_is_shown_and_brackets_change_it(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "─RoCE links" in screen_text(app) and "─memory" not in screen_text(app)
        await pilot.press("right_square_bracket")
        await pilot.pause()
        assert "─boot of each rank" in screen_text(app)
        await pilot.press("left_square_bracket", "left_square_bracket")
        await pilot.pause()
        assert "─memory" in screen_text(app)
        await pilot.press("down")
        assert "─memory" in screen_text(app), "download: memory matters"
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: all(name in screen_text(app) for name in ("memory", "RoCE links", "boot of each")))


async def test_u99_at_80x24_step_error_and_keys_are_seen_and_below_60x18_one_sentence(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        show_failing(app)
        await until(pilot, lambda: "worker1: 3.2 GiB free" in screen_text(app))
        rows = screen_text(app).splitlines()
        assert "▸✖ pack" in screen_text(app)
        assert rows[-2].startswith(" enter: ") and "? help" in rows[-1] and "q quit" in rows[-1]
        await pilot.resize_terminal(59, 17)
        await until(pilot, lambda: "sparktui needs 60×18" in screen_text(app))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "worker1: 3.2 GiB free" in screen_text(app))
        assert wizard(app).selected == "pack"


@pytest.mark.parametrize("state", sorted(STATES))
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_u96_in_ascii_mode_nothing_outside_ascii_is_drawn(
    tmp_path: Path, state: str, size: tuple[int, int]
) -> None:
    app = AppInTest(tmp_path, terminal=Terminal(ascii_only=True))
    before, show = STATES[state]
    before(app)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        show(app)
        await pilot.pause()
        drawn = {char for char in screen_text(app) if ord(char) > 0x7E}
        assert drawn == set()


async def test_what_a_node_prints_is_shown_as_text_not_obeyed(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        run = await app.started(pilot)
        run.say(
            StepStarted("doctor", NODES),
            Finding("doctor", "a.b", "head", State.WARN, "[/foo] is [bold]odd[/] \x1b[2J", "cause [/]", "try [x]"),
            LogLine("doctor", "worker1", "10%\r20%\r\x1b[31m30% [/done]"),
        )
        await until(pilot, lambda: "[/done]" in screen_text(app))
        assert "[/foo] is [bold]odd[/]" in screen_text(app) and "\x1b" not in screen_text(app)


async def test_a_flood_of_output_keeps_keys_working(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("a")
        run = await app.started(pilot)
        run.say(StepStarted("build", NODES), *(LogLine("build", "head", f"line {n}") for n in range(3000)))
        await pilot.press("down")
        selected = wizard(app).selected
        await until(pilot, lambda: app.run_view.last_seq > 3000)
        await pilot.press("up")
        assert wizard(app).selected != selected
        run.end()


async def test_the_settings_warnings_of_a_run_are_seen(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("down", "r")
        run = await app.started(pilot)
        run.say(Note("settings", "head", "line 7: nobody knows this name", State.WARN), StepStarted("download"))
        await until(pilot, lambda: "settings: line 7: nobody knows this name" in screen_text(app))


async def test_a_blocked_step_says_by_what_and_what_comes_first(app: AppInTest) -> None:
    app.step("serve").inspection = Inspection(False, "", blocked="worker1 has no image", fix="sparktui build")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        while wizard(app).selected != "serve":
            await pilot.press("j")
        assert "blocked: worker1 has no image" in screen_text(app) and "next: sparktui build" in screen_text(app)


async def test_what_enter_would_run_is_explained_before_it_is_run(app: AppInTest) -> None:
    app.step("download").inspection = Inspection(False, "0 of 48 shards")
    app.earlier_run(("doctor",), StepStarted("doctor", NODES), StepFinished("doctor", Outcome.DONE, 4.0)).end()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        while wizard(app).selected != "doctor":
            await pilot.press("up")
        await until(pilot, lambda: "enter runs download: Download the checkpoint" in screen_text(app))
        assert "476 GiB to /srv/DeepSeek-V4.1-Flash-1017" in screen_text(app)


async def test_a_run_that_fails_before_its_first_step_is_not_lost(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        run = await app.started(pilot)
        assert "the run is starting" in screen_text(app), "it logs in to the nodes"
        run.end(3, "no answer on port 22", "is it on?", "worker1")
        await until(pilot, lambda: "worker1: no answer on port 22" in screen_text(app))
        assert "doctor   failed" in screen_text(app) and "next: is it on?" in screen_text(app)
