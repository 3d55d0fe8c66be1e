"""One pass over a request's verbs: what a step is told of the others, and whom a question without a viewer blames."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sparktui.events import Event, Outcome, Question, RunFinished, StepFinished
from sparktui.runs.execute import Execution
from sparktui.runs.parts import Parts
from sparktui.runs.request import RunRequest
from sparktui.settings import Settings, parse_settings
from sparktui.steps.smoke import Smoke
from sparktui.steps.step import Command, Context, Inspection
from tests.scripted_link import scripted_cluster

SETTINGS = 'HEAD_IP=10.0.0.1\nWORKER_IPS="10.0.0.2 10.0.0.3"\nMODEL_DIR=/srv/model\nSKIP_SMOKE=1\n'


def settings() -> Settings:
    return parse_settings(SETTINGS, env_path=Path("/srv/.env"), profile="three", environment={"HOME": "/home/u"})


class Asking:
    """A step that asks one question and does nothing else."""

    name = title = "share"

    def __init__(self, question: str) -> None:
        self._question = question

    async def inspect(self, context: Context) -> Inspection:
        return Inspection(done=not self._question, summary="")

    async def plan(self, context: Context) -> list[Command]:
        return []

    async def run(self, context: Context) -> AsyncIterator[Event]:
        await context.ask(Question(self.name, self._question, "Shall it?"))
        return
        yield


async def carried_out(verbs: tuple[str, ...], question: str = "") -> tuple[RunFinished, list[Event]]:
    async def links(_: Settings) -> Any:
        return scripted_cluster()

    def step(verb: str) -> Any:
        return Smoke() if verb == "smoke" else Asking(question)

    seen: list[Event] = []

    def emit(event: Event) -> int:
        seen.append(event)
        return len(seen)

    parts = Parts(lambda _: settings(), links, step, lambda _: None)
    request = RunRequest(env_file="/srv/.env", verbs=verbs)
    return await Execution(request, parts, emit, ask_viewer=None, save_traceback=str).run(settings()), seen


async def test_skip_smoke_ends_a_chain_with_a_word_and_asks_nobody() -> None:
    ended, seen = await carried_out(("share", "smoke"))
    assert ended.exit_status == 0
    last = [each for each in seen if isinstance(each, StepFinished)][-1]
    assert (last.step, last.outcome) == ("smoke", Outcome.SKIPPED)
    assert "SKIP_SMOKE=1" in last.text


@pytest.mark.parametrize(("question", "node"), [("serve.replace", ""), ("pin.worker1", "worker1"), ("base.digest", "")])
async def test_a_question_that_nobody_answers_blames_a_node_only_where_it_is_about_one(
    question: str, node: str
) -> None:
    ended, _ = await carried_out(("share",), question)
    assert (ended.exit_status, ended.node) == (1, node)
    assert question in ended.text
