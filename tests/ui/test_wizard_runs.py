"""What the wizard does with a run: its questions, its cancelling, and a run that was killed."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.widgets import Button

from sparktui.cluster.profile import THREE
from sparktui.events import Answered, Outcome, Question, StepFinished, StepStarted
from sparktui.runs.request import RunRequest, read_process
from sparktui.runs.view import StepState
from sparktui.ui.app import SparkApp
from sparktui.ui.session import Start
from sparktui.ui.widgets import question_card
from sparktui.ui.widgets.question_card import QuestionCard, safe_choice
from sparktui.ui.wizard.screen import WizardScreen
from tests.ui.app_in_test import AppInTest, RunInTest, screen_text, settled, until
from tests.unit import runs_parts

NODES = ("head", "worker1", "worker2")
HOST_KEY = Question(
    "ssh",
    "hostkey.worker1",
    "worker1: nobody has confirmed the host key of spark2 yet: ssh-ed25519 SHA256:abc. "
    "Is it SHA256:abc there too, and trust it?",
)
DIGEST = Question("build", "base.digest", "lmsysorg/sglang:v0.5.23 is sha256:0123 now. Pin it in .env?")


def focused_answer(app: SparkApp) -> str:
    assert isinstance(app.focused, Button)
    return str(app.focused.label)


async def run_that_asks(app: AppInTest, pilot: Any, question: Question, *, at_once: bool = False) -> RunInTest:
    """The question is on the screen, and unless `at_once` it takes keys."""
    await settled(pilot)
    await pilot.press("enter")
    run = await app.started(pilot)
    run.say(StepStarted("doctor", NODES), question)
    await until(pilot, lambda: isinstance(app.screen, QuestionCard) and (at_once or app.screen.takes_keys))
    return run


REPLACE = Question("serve", "serve.replace", "These engines serve already. Replace them?")


@pytest.mark.parametrize("question", [DIGEST, REPLACE, HOST_KEY], ids=lambda each: each.question)
async def test_a_key_that_was_on_its_way_answers_no_question_that_opens_by_itself(
    app: AppInTest, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_card, "QUIET_SECONDS", 3600.0)
    async with app.run_test(size=(80, 24)) as pilot:
        run = await run_that_asks(app, pilot, question, at_once=True)
        card, asked = app.screen, app.run_view.asked
        assert isinstance(card, QuestionCard) and asked is not None
        assert "keys count in a moment" in screen_text(app) and "left right: choose" not in screen_text(app)
        await pilot.press("enter", "space", "left", "enter", "tab", "enter", "escape", "y")
        await pilot.click("#choice-0")
        assert app.screen is card and run.answer_to(asked) is None
        card._take_keys()
        await pilot.pause()
        assert app.screen is card and run.answer_to(asked) is None, "dropped, not kept for later"
        assert "keys count in a moment" not in screen_text(app)
        assert focused_answer(app) == ("yes" if question is DIGEST else "no")
        await pilot.press("enter")
        await until(pilot, lambda: run.answer_to(asked) == ("yes" if question is DIGEST else "no"))
        run.end()


async def test_a_question_opens_by_itself_with_its_whole_text_and_the_careful_answer_focused(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        run = await run_that_asks(app, pilot, HOST_KEY)
        text = " ".join(screen_text(app).split())
        assert "ssh asks" in text and "SHA256:abc there too, and trust" in text.replace("│ │", "")
        assert focused_answer(app) == "no"
        asked = app.run_view.asked
        assert asked is not None
        await pilot.press("left", "enter")
        await until(pilot, lambda: run.answer_to(asked) == "yes")
        await until(pilot, lambda: isinstance(app.screen, WizardScreen))
        assert "a question waits" not in screen_text(app), "it has been answered"
        run.say(Answered("ssh", HOST_KEY.question, "yes", "viewer"))
        run.end()


async def test_a_question_is_put_off_by_escape_and_waits_in_sight(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        run = await run_that_asks(app, pilot, HOST_KEY)
        asked = app.run_view.asked
        assert asked is not None
        await pilot.press("escape")
        await until(pilot, lambda: "a question waits" in screen_text(app))
        assert "enter: answer the question of ssh" in screen_text(app)
        assert "waits for an answer" in screen_text(app).splitlines()[0]
        await pilot.press("m", "w")
        await until(pilot, lambda: isinstance(app.screen, WizardScreen))  # it does not open by itself again
        assert run.answer_to(asked) is None
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, QuestionCard))
        await pilot.press("enter")
        await until(pilot, lambda: run.answer_to(asked) == "no")
        run.end()


async def test_a_question_that_somebody_else_answered_goes_away(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        run = await run_that_asks(app, pilot, HOST_KEY)
        run.say(Answered("ssh", HOST_KEY.question, "yes", "viewer"), StepStarted("download"))
        await until(pilot, lambda: isinstance(app.screen, WizardScreen))
        run.end()


async def test_a_second_question_opens_too(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        run = await run_that_asks(app, pilot, HOST_KEY)
        await pilot.press("enter")
        run.say(Answered("ssh", HOST_KEY.question, "no", "viewer"), StepStarted("build"), DIGEST)
        await until(pilot, lambda: isinstance(app.screen, QuestionCard) and "Pin it" in screen_text(app))
        await until(pilot, lambda: "left right: choose" in screen_text(app))
        assert focused_answer(app) == "yes", "pinning takes nothing from anybody"
        run.end()
        await until(pilot, lambda: isinstance(app.screen, WizardScreen))


async def test_a_long_question_scrolls_and_its_answers_stay_reachable(app: AppInTest) -> None:
    long = Question("serve", "serve.replace", "\n".join(f"line {number} of the question" for number in range(60)))
    async with app.run_test(size=(80, 24)) as pilot:
        run = await run_that_asks(app, pilot, long)
        await pilot.pause()
        assert "line 0 of" in screen_text(app) and "decide later" in screen_text(app)
        await pilot.press(*["pagedown"] * 30)
        await until(pilot, lambda: "line 59 of" in screen_text(app) and "decide later" in screen_text(app))
        await pilot.press(*["up"] * 30)
        await until(pilot, lambda: "line 0 of" in screen_text(app))
        run.end()


def test_the_careful_answer_is_found_by_its_word_else_it_is_the_last() -> None:
    assert safe_choice(("yes", "no")) == 1
    assert safe_choice(("no", "yes")) == 0
    assert safe_choice(("cancel it", "keep going")) == 1
    assert safe_choice(("replace", "leave")) == 1


async def test_cancelling_asks_once_and_keeps_going_unless_it_is_confirmed(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("a")
        run = await app.started(pilot)
        run.say(StepStarted("pack", NODES))
        await until(pilot, lambda: app.run_view.current == "pack")
        await pilot.press("ctrl+x")
        await until(pilot, lambda: "Cancel pack?" in screen_text(app))
        assert "what is done stays done" in screen_text(app) and focused_answer(app) == "keep going"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, WizardScreen))
        assert not run.cancelled
        await pilot.press("ctrl+x")
        await until(pilot, lambda: "Cancel pack?" in screen_text(app))
        await pilot.press("left", "enter")
        await until(pilot, lambda: run.cancelled)
        run.say(StepFinished("pack", Outcome.CANCELLED, 3.0, "cancelled"))
        run.end(130, "cancelled during pack")
        await until(pilot, lambda: "enter: run doctor" in screen_text(app) and "cancelled" in screen_text(app))
        await pilot.press("ctrl+x")
        assert isinstance(app.screen, WizardScreen), "there is nothing to cancel"


async def test_nothing_is_started_while_a_run_goes_on(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("a")
        run = await app.started(pilot)
        run.say(StepStarted("doctor", NODES))
        await until(pilot, lambda: app.run_view.current == "doctor")
        await pilot.press("a", "r", "enter")
        await pilot.pause()
        assert len(app.session.runs) == 1
        run.end()


def settings_for_screens(request: RunRequest) -> Any:
    """Those of the file steps, with what the screens say of them."""
    settings = runs_parts.load_settings(request)
    shown = {
        "nodes": runs_parts.NODES,
        "profile": THREE,
        "rdma_devices": (),
        "model_dir": settings.work,
        "hf_revision": "1bae0e1",
        "nfs_share": 1,
        "build_on": "head",
    }
    return SimpleNamespace(**(vars(settings) | shown))


async def test_a_run_that_is_killed_says_so_and_enter_goes_on_from_what_is_done(tmp_path: Path) -> None:
    """A real process: `kill -9` during download, then enter twice to a finished copy."""
    env = runs_parts.write_env(tmp_path, PAUSE=0.05, SOURCE_BYTES=runs_parts.BLOCK * 60)
    parts = replace(runs_parts.parts(), load_settings=settings_for_screens)
    app = SparkApp(Start(parts, env, program=runs_parts.PROGRAM))
    # Its nodes can only be logged in to: nothing there to sample.
    app.watch_cluster = lambda: None  # type: ignore[method-assign]
    work = tmp_path / "work"

    def state(verb: str) -> StepState:
        assert isinstance(app.screen, WizardScreen)
        return next(row.state for row in app.screen.rows if row.verb == verb)

    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.inspections and not app.looking)
        await pilot.press("enter")
        await until(pilot, lambda: app.run_view.finished is not None and state("doctor") is StepState.DONE)
        await until(pilot, lambda: "enter: run download" in screen_text(app))
        await pilot.press("enter")
        partial = work / "copy.partial"
        await until(pilot, lambda: partial.exists() and partial.stat().st_size > 5 * runs_parts.BLOCK)
        assert app.run_dir is not None
        process = read_process(app.run_dir)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        await until(pilot, lambda: state("download") is StepState.FAILED)
        assert "head: the run ended without a closing line" in screen_text(app)
        assert "next: run the same verb again" in screen_text(app)
        copied = partial.stat().st_size
        await until(pilot, lambda: "enter: run download again" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: state("download") is StepState.DONE and not app.run_view.active)
        read = sum(map(int, (work / "reads").read_text().split()))
    source = work / "source"
    assert (work / "download.done").read_bytes() == source.read_bytes()
    assert copied > 0 and read == source.stat().st_size, "no block was read twice"
