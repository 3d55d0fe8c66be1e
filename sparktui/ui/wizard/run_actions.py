"""What the wizard does with a run: again, cancel, and the run's questions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from textual import work

from sparktui.errors import SparktuiError
from sparktui.ui.frame import FrameScreen
from sparktui.ui.messages import StepRequested
from sparktui.ui.widgets.question_card import QuestionCard
from sparktui.ui.wizard.words import disruption

if TYPE_CHECKING:
    from sparktui.runs.view import Asked
    from sparktui.ui.app import SparkApp

HARMLESS = frozenset({"base.digest"})
"""Questions whose yes takes nothing from anybody: one line is added to the env file, and it can be taken out again."""


class RunActions(FrameScreen):
    """The part of the wizard that changes something."""

    selected = ""
    following = True

    def __init__(self) -> None:
        super().__init__()
        self._opened: set[tuple[str, int]] = set()
        self._answered: set[tuple[str, int]] = set()

    @property
    def serving(self) -> bool:
        return False

    def action_again(self) -> None:
        self.run_again(self.selected)

    def run_again(self, verb: str) -> None:
        """Forced; asks first where that takes something from somebody."""
        question = disruption(verb, serving=self.serving)

        def answered(answer: str | None) -> None:
            if answer == "run it":
                self.following = True
                self.post_message(StepRequested((verb,), forced=(verb,)))

        if not question:
            answered("run it")
            return
        self.app.push_screen(
            QuestionCard(f"Run {verb} again?", question, ("run it", "leave it"), later="esc: leave it"), answered
        )

    def action_cancel(self) -> None:
        ask_to_cancel(self.app)

    # questions

    @property
    def waiting(self) -> Asked | None:
        """The run's question that nobody has answered yet, here or elsewhere."""
        run = self.app.run_view
        if run.asked is None or not run.active or (run.run_id, run.asked.seq) in self._answered:
            return None
        return run.asked

    def open_question(self) -> None:
        """By itself, once for each question; afterwards a line says that it waits."""
        asked = self.waiting
        if asked is None or self.app.screen is not self:
            return
        key = (self.app.run_view.run_id, asked.seq)
        if key not in self._opened:
            self._opened.add(key)
            self._ask(by_itself=True)

    def ask_again(self) -> None:
        """The person wants the question."""
        self._ask(by_itself=False)

    def _ask(self, *, by_itself: bool) -> None:
        asked, run_dir, run_id = self.waiting, self.app.run_dir, self.app.run_view.run_id
        if asked is None or run_dir is None:
            return

        def answered(answer: str | None) -> None:
            if answer is not None:
                self._answered.add((run_id, asked.seq))
                self.send_answer(run_dir, asked, answer)
            self.refresh_data()

        self.app.push_screen(RunQuestion(asked, by_itself=by_itself), answered)

    @work(group="answer", exit_on_error=False)
    async def send_answer(self, run_dir: Path, asked: Asked, answer: str) -> None:
        try:
            await asyncio.to_thread(self.app.session.answer, run_dir, asked, answer)
        except (SparktuiError, OSError) as error:
            self._answered.clear()
            self.notify(f"the answer could not be given: {error}", severity="error", markup=False)


def ask_to_cancel(app: SparkApp) -> None:
    """Once, with what stays done; nothing when no run goes on."""
    run, run_dir = app.run_view, app.run_dir
    if not run.active or run_dir is None:
        return
    what = run.current or "the run"
    text = (
        f"{what} ends; what is done stays done, and the next run goes on from there. Containers that were started "
        "on the nodes go on by themselves: sparktui stop ends them."
    )

    async def cancel() -> None:
        try:
            await app.session.cancel(run_dir)
        except (SparktuiError, OSError) as error:
            app.notify(f"the run could not be cancelled: {error}", severity="error", markup=False)

    def answered(answer: str | None) -> None:
        if answer == "cancel it":
            app.notify("the run is told to end", markup=False)
            app.run_worker(cancel(), group="cancel", exclusive=True, exit_on_error=False)

    card = QuestionCard(f"Cancel {what}?", text, ("cancel it", "keep going"), later="esc: keep going", safe=1)
    app.push_screen(card, answered)


class RunQuestion(QuestionCard):
    """A question of a run; it goes away when somebody else answers or the run ends."""

    app: SparkApp

    def __init__(self, asked: Asked, *, by_itself: bool) -> None:
        self.asked = asked
        question = asked.question
        harmless = question.question in HARMLESS and question.assume_yes in question.choices
        safe = question.choices.index(question.assume_yes) if harmless else None
        super().__init__(f"{question.step} asks", question.text, question.choices, safe=safe, by_itself=by_itself)

    def on_mount(self) -> None:
        super().on_mount()
        self.watch(self.app, "run_view", self._still_asked, init=False)

    def _still_asked(self) -> None:
        asked = self.app.run_view.asked
        if asked is None or asked.seq != self.asked.seq:
            self.dismiss(None)
