"""The app itself: what it asks when it opens, what follows a run, and that it is left at once."""

from __future__ import annotations

from pathlib import Path

from sparktui.errors import NodeUnreachable
from sparktui.events import Outcome, StepFinished, StepStarted
from sparktui.runs.identity import own
from sparktui.runs.lock import ClusterLock
from sparktui.runs.request import RunRequest
from sparktui.runs.view import StepState
from sparktui.steps.step import Inspection
from tests.ui.app_in_test import AppInTest, RunInTest, screen_text, settled, until, write_env


async def test_the_nodes_are_asked_about_every_step_that_can_be_inspected(app: AppInTest) -> None:
    app.all_done("download", "build")
    app.step("pack").inspection = NodeUnreachable("no answer on port 22", node="worker1")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert set(app.inspections) == {"download", "build", "share", "pack", "serve"}
        build = app.inspections["build"]
        assert isinstance(build, Inspection) and build.done
        assert isinstance(app.inspections["pack"], NodeUnreachable)
        assert app.step("doctor").inspected == app.step("smoke").inspected == 0


async def test_a_run_that_goes_on_is_followed_when_the_app_opens(app: AppInTest) -> None:
    app.earlier_run(("doctor", "download"), StepStarted("doctor", ("head",)))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.run_view.current == "doctor")
        assert app.run_view.active
        app.session.runs[0].say(StepFinished("doctor", Outcome.DONE, 4.0), StepStarted("download", ("head",)))
        await until(pilot, lambda: app.run_view.current == "download")
        app.session.runs[0].end()
        await until(pilot, lambda: not app.run_view.active)
        await until(pilot, lambda: "doctor" in app.remembered)
        assert app.remembered["doctor"].state is StepState.DONE


async def test_settings_that_cannot_be_read_are_said_and_nothing_is_asked_of_the_nodes(tmp_path: Path) -> None:
    app = AppInTest(tmp_path)
    write_env(app.env_file, OFFLOAD_MODE="ram")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "OFFLOAD_MODE" in app.trouble
        assert not app.scripted_links and not app.steps


async def test_q_leaves_while_a_step_never_answers(app: AppInTest) -> None:
    app.step("pack").inspection = None
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.step("pack").inspected)
        await pilot.press("q")
        await until(pilot, lambda: app.return_code is not None or not app.is_running)
    assert app.return_code == 0


async def test_a_run_that_another_terminal_begins_is_followed_too(app: AppInTest) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        other = RunInTest(app.session.state_dir, RunRequest(str(app.env_file), ("pack",)))
        lock = ClusterLock(app.session.state_dir)
        lock.acquire(other.run_dir.name, own())
        other.say(StepStarted("pack", ("head",)))
        await until(pilot, lambda: app.run_view.current == "pack")
        assert "pack is running" in screen_text(app)
        other.end()
        lock.release()
        await until(pilot, lambda: not app.run_view.active)
