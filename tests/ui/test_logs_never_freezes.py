"""Dead nodes, a silent Docker, a full disk: keys go on working, words say what is wrong, q leaves.

Bounds are in turns of the pilot, not in seconds: a key's effect is there when the app is idle again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparktui.errors import NodeUnreachable
from tests.ui.app_in_test import screen_text, until
from tests.ui.talking_ranks import AppWithLogs

WALK = (("m", "monitor"), ("l", "logs"), ("w", "wizard"))


async def keys_answer(pilot: Any, app: AppWithLogs) -> None:
    """Each key's effect is there in the next turn."""
    for key, mode in WALK:
        await pilot.press(key)
        assert app.current_mode == mode
        assert f" {mode}" in screen_text(app).splitlines()[0]
    await pilot.press("l", "slash", "x", "escape", "f", "r", "question_mark")
    await pilot.pause()
    assert len(app.screen_stack) == 2
    await pilot.press("escape")
    await pilot.pause()
    assert len(app.screen_stack) == 1


async def leaves(pilot: Any, app: AppWithLogs) -> None:
    await pilot.press("q")
    await until(pilot, lambda: app.return_code is not None or not app.is_running)


@pytest.mark.parametrize("kind", ["hung", "dead"])
async def test_keys_answer_while_nodes_are_gone_or_their_docker_never_answers(tmp_path: Path, kind: str) -> None:
    def prepare(links: Any) -> None:
        for link in links:
            link.hung = kind == "hung"
            if kind == "dead":
                link.unreachable("no answer on port 22")

    app = AppWithLogs(tmp_path, prepare=prepare)
    for verb in ("download", "build", "share", "pack", "serve"):
        gone = NodeUnreachable("no answer on port 22", node="worker1")
        app.step(verb).inspection = None if kind == "hung" else gone
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: (app.ranks and app.looking) or app.inspections)
        await keys_answer(pilot, app)
        if kind == "dead":
            await until(pilot, lambda: "head: no answer on port 22" in screen_text(app))
        await leaves(pilot, app)
    assert app.return_code == 0


async def test_a_full_disk_is_said_and_nothing_else_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = AppWithLogs(tmp_path)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(pilot, lambda: app.inspections and not app.looking)

        def full(*_: Any, **__: Any) -> Any:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "mkdir", full)
        monkeypatch.setattr(Path, "write_text", full)
        monkeypatch.setattr("tests.ui.app_in_test.make_run_folder", full)
        app.start_run(("doctor",))
        await until(pilot, lambda: app.refused is not None)
        assert "No space left on device" in "\n".join(app.refused.lines()) and not app.starting
        await keys_answer(pilot, app)
        app.ranks[0].say("a line to copy")
        await until(pilot, lambda: "a line to copy" in screen_text(app))
        await pilot.press("c")
        await until(pilot, lambda: app.copied)
        assert "a line to copy" in app.copied[-1]
        said = [notification.message for notification in app._notifications]
        assert any("not in a file: No space left on device" in each for each in said), said
        await leaves(pilot, app)
    assert app.return_code == 0
