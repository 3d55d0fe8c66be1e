"""The cards that open over any screen: smoke test, how to talk to it, help, and every action by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandPalette

from sparktui.errors import StepFailed
from sparktui.events import Finding, Outcome, State, StepFinished, StepStarted
from sparktui.telemetry.sample import ClusterSnapshot, EndpointState, Serving
from sparktui.ui.help import HelpScreen
from sparktui.ui.palette import SparkCommands
from sparktui.ui.widgets.question_card import QuestionCard
from sparktui.ui.widgets.smoke_card import SmokeCard
from sparktui.ui.widgets.talk_card import TalkCard, copied_of
from sparktui.ui.wizard.screen import WizardScreen
from tests.ui import cluster_values
from tests.ui.app_in_test import ENV, AppInTest, screen_text, settled, until
from tests.ui.wizard_values import show_failing, show_working, smoke_findings

NODES = ("head", "worker1", "worker2")


def row_with(app: AppInTest, words: str) -> str:
    return next((line.strip(" │●○") for line in screen_text(app).splitlines() if words in line), "")


# smoke


@pytest.mark.parametrize("key", ["w", "m", "l"])
async def test_s_starts_the_smoke_test_from_every_screen(app: AppInTest, key: str) -> None:
    app.all_done("serve")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.snapshot = cluster_values.CALM
        await pilot.press(key, "s")
        run = await app.started(pilot)
        assert run.request.verbs == ("smoke",) and isinstance(app.screen, SmokeCard)
        run.end()


async def test_the_four_rows_fill_as_the_answers_come(app: AppInTest) -> None:
    app.all_done("serve")
    first, *rest = smoke_findings()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.snapshot = cluster_values.CALM
        await pilot.press("s")
        run = await app.started(pilot)
        run.say(StepStarted("smoke", ("head",)), first)
        await until(pilot, lambda: "42" in row_with(app, "19 + 23"))
        assert "OK" in row_with(app, "19 + 23") and "0.6 s" in row_with(app, "19 + 23")
        assert "asking" in row_with(app, "strict JSON") and "waiting" in row_with(app, "one picture")
        run.say(*rest, StepFinished("smoke", Outcome.DONE, 3.4))
        run.end()
        await until(pilot, lambda: "passed in 3.4 s" in screen_text(app))
        assert "NOT SERVED BY THIS MODEL" in row_with(app, "one picture")
        await pilot.press("c")
        await until(pilot, lambda: app.copied)
        assert app.copied[0].splitlines()[0].split() == ["OK", "arithmetic", "42"]
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, WizardScreen))


async def test_a_failed_answer_and_a_failed_run_say_where_to_look(app: AppInTest) -> None:
    app.all_done("serve")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.snapshot = cluster_values.CALM
        await pilot.press("s")
        run = await app.started(pilot)
        wrong = Finding("smoke", "arithmetic", "head", State.FAIL, "said 41", "", "sparktui logs head")
        run.say(StepStarted("smoke"), wrong)
        run.say(StepFinished("smoke", Outcome.FAILED, 1.0, "said 41", "sparktui logs head", "head"))
        run.end(1, "said 41", "sparktui logs head", "head")
        await until(pilot, lambda: "failed in 1.0 s: head: said 41" in screen_text(app))
        assert "FAIL" in row_with(app, "19 + 23") and "next: sparktui logs head" in screen_text(app)
        await pilot.press("r")
        assert (await app.started(pilot, 2)).request.verbs == ("smoke",)
        await until(pilot, lambda: "said 41" not in screen_text(app))


@pytest.mark.parametrize(
    ("state", "words"),
    [(EndpointState.DOWN, "no endpoint answers"), (EndpointState.STARTING, "the endpoint is still starting")],
)
async def test_without_an_endpoint_nothing_is_started_and_the_card_says_what_to_do(
    app: AppInTest, state: EndpointState, words: str
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.snapshot = ClusterSnapshot(serving=Serving(state))
        await pilot.press("s")
        await until(pilot, lambda: words in screen_text(app))
        assert "next: " in screen_text(app)
        assert app.session.runs == []
        app.snapshot = replace(cluster_values.CALM, nodes=())
        await until(pilot, lambda: words not in screen_text(app))
        await pilot.press("r")
        assert (await app.started(pilot)).request.verbs == ("smoke",)


async def test_while_another_run_goes_on_the_smoke_test_waits(app: AppInTest) -> None:
    app.all_done("serve")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        run = await app.started(pilot)
        run.say(StepStarted("doctor", NODES))
        await until(pilot, lambda: app.run_view.current == "doctor")
        await pilot.press("s")
        await until(pilot, lambda: "doctor is running" in row_with(app, "one run at a time"))
        assert len(app.session.runs) == 1
        run.end()


async def test_a_smoke_test_that_could_not_start_says_why(app: AppInTest) -> None:
    app.all_done("serve")
    app.session.refuses = StepFailed("the run's process ended before it began", fix="see output.txt", node="head")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.snapshot = cluster_values.CALM
        await pilot.press("s")
        await until(pilot, lambda: "head: the run's process ended before it began" in screen_text(app))
        assert "next: see output.txt" in screen_text(app)


async def test_a_smoke_test_that_runs_already_is_shown_not_started_again(app: AppInTest) -> None:
    app.earlier_run(("smoke",), StepStarted("smoke", ("head",)), *smoke_findings()[:2])
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.run_view.current == "smoke")
        await pilot.press("s")
        await until(pilot, lambda: '{"answer": 42}' in row_with(app, "strict JSON"))
        assert len(app.session.runs) == 1
        app.session.runs[0].end()


# talk


async def test_each_line_of_talk_can_be_copied_and_the_key_never(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, TalkCard))
        assert ENV["API_KEY"] not in screen_text(app).replace("\n", "") and "••••••ey" in screen_text(app)
        await pilot.press("y")
        await until(pilot, lambda: app.copied)
        assert app.copied[-1].startswith("curl http://10.0.0.1:8888/v1/chat/completions")
        for _ in range(4):
            await pilot.press("up", "y")
        await until(pilot, lambda: len(app.copied) == 5)
        assert app.copied[1:] == [
            str(app.session.state_dir / "api-key"),
            "deepseek-v4.1-flash",
            "http://10.0.0.1:8888",
            "http://10.0.0.1:8888/v1",
        ]
        assert not any(ENV["API_KEY"] in text for text in app.copied)


async def test_talk_says_when_nothing_answers_and_when_it_is_simulated(tmp_path: Path) -> None:
    app = AppInTest(tmp_path, banner="SIMULATED")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("t")
        await until(pilot, lambda: "nothing answers yet: serve comes first" in screen_text(app))
        assert "SIMULATED: a simulated model answers here" in screen_text(app)
        app.snapshot = cluster_values.CALM
        await until(pilot, lambda: "the endpoint is ready" in screen_text(app))


async def test_talk_warns_of_an_open_endpoint(tmp_path: Path) -> None:
    app = AppInTest(tmp_path, env={"API_KEY": ""})
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("t")
        await until(pilot, lambda: "there is no API_KEY: everybody on this network can use it" in screen_text(app))


def test_what_is_copied_of_a_line() -> None:
    assert copied_of("OpenAI base URL: http://h:8888/v1") == ("OpenAI base URL", "http://h:8888/v1")
    assert copied_of("API key: none") == ("API key", "none")
    assert copied_of("curl http://h -d '{\"a\": 1}'")[1] == "curl http://h -d '{\"a\": 1}'"


# help


async def test_help_lists_every_key_of_the_screen_in_words(app: AppInTest) -> None:
    async with app.run_test(size=(120, 60)) as pilot:
        await settled(pilot)
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        text = screen_text(app)
        assert text.index("On the wizard") < text.index("The obvious next thing") < text.index("Everywhere")
        for keys in ("enter", "up k down j", "n N", "[ ]", "pgup b pgdn space", "ctrl+p", "ctrl+q"):
            assert keys in text, keys
        for words in ("Run all that is left", "The exact commands", "Smoke test", "Leave; nothing stops"):
            assert words in text, words
        await pilot.press("escape")
        assert isinstance(app.screen, WizardScreen)


async def test_help_scrolls_on_a_small_terminal(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("question_mark", *["pagedown"] * 5)
        await until(pilot, lambda: "Leaving stops nothing" in screen_text(app))


async def test_every_shown_binding_says_what_it_does(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for key in ("w", "m", "l"):
            await pilot.press(key)
            silent = [
                active.binding.key
                for active in app.screen.active_bindings.values()
                if active.binding.show and not active.binding.tooltip
            ]
            assert silent == [], key


# the palette


def commands(app: AppInTest) -> dict[str, Any]:
    return {name: do for name, _, do in SparkCommands(app.screen).actions()}


async def test_every_action_has_a_name(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        names = commands(app)
        assert {"Run all that is left", "Run pack", "Open logs", "Smoke test", "Copy curl line", "Quit"} <= set(names)
        assert "Cancel the run" not in names
        names["Copy curl line"]()
        await until(pilot, lambda: app.copied and app.copied[0].startswith("curl "))
        names["Run pack"]()
        run = await app.started(pilot)
        assert run.request.verbs == ("pack",)
        run.say(StepStarted("pack", NODES))
        await until(pilot, lambda: app.run_view.current == "pack")
        during = commands(app)
        assert "Run pack" not in during and "Cancel the run" in during
        during["Cancel the run"]()
        await until(pilot, lambda: "Cancel pack?" in screen_text(app))
        run.end()


async def test_stopping_the_engines_asks_first(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        commands(app)["Stop the engines"]()
        await until(pilot, lambda: isinstance(app.screen, QuestionCard))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, WizardScreen))
        assert app.session.runs == []
        commands(app)["Stop the engines"]()
        await until(pilot, lambda: isinstance(app.screen, QuestionCard))
        await pilot.press("left", "enter")
        assert (await app.started(pilot)).request.verbs == ("stop",)


async def test_the_palette_opens_and_runs_what_is_typed(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"monitor")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await until(pilot, lambda: app.current_mode == "monitor")


@pytest.mark.parametrize("show", [show_failing, show_working])
async def test_cards_fit_the_smallest_screen(app: AppInTest, show: Any) -> None:
    async with app.run_test(size=(60, 18)) as pilot:
        await settled(pilot)
        show(app)
        for key in ("t", "question_mark"):
            await pilot.press(key)
            await pilot.pause()
            assert "─" * 20 in screen_text(app)
            assert max(len(line) for line in screen_text(app).splitlines()) <= 60
            await pilot.press("escape")
