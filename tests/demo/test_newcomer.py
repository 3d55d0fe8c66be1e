"""Somebody who only presses enter, in the real app, on the simulated cluster: from doctor to a green smoke."""

from __future__ import annotations

import time

import pytest

from sparktui.demo.parts import PROGRAM, demo_parts
from sparktui.events import Outcome
from sparktui.ui.app import SparkApp
from sparktui.ui.session import Start
from tests.demo.conftest import Demo

CHAIN = ("doctor", "download", "build", "share", "pack", "serve", "smoke")


async def test_only_enter_leads_from_doctor_to_a_green_smoke(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in demo.environment.items():
        monkeypatch.setenv(name, value)
    demo.home.make()
    app = SparkApp(Start(demo_parts(), demo.home.env_file, program=PROGRAM, banner="SIMULATED"))
    until = time.monotonic() + 240
    async with app.run_test(size=(120, 40)) as pilot:
        while time.monotonic() < until:
            await pilot.pause(0.5)
            smoke = app.remembered.get("smoke")
            if smoke is not None and smoke.outcome is Outcome.DONE:
                break
            await pilot.press("enter")
        done = {verb: step.outcome for verb, step in app.remembered.items()}
        assert {verb: done.get(verb) for verb in CHAIN} == dict.fromkeys(CHAIN, Outcome.DONE)
        assert "SIMULATED" in app.top_line("wizard", 120).plain
        # Every screen says so.
        for key in ("m", "l", "w"):
            await pilot.press(key)
            await pilot.pause(0.3)
            shown = "\n".join(
                "".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()
            )
            assert "SIMULATED" in shown
