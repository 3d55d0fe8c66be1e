"""The command palette (ctrl+p): everything that can be done, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from sparktui.ui.messages import Copied, StepRequested
from sparktui.ui.widgets.question_card import QuestionCard
from sparktui.ui.widgets.talk_card import copied_of, is_command

if TYPE_CHECKING:
    from sparktui.ui.app import SparkApp

Action = tuple[str, str, Callable[[], object]]
"""Name, what it does, and the doing."""


class SparkCommands(Provider):
    """What can be done now; what cannot (a run while one goes on) is not offered."""

    async def discover(self) -> Hits:
        for name, words, do in self.actions():
            yield DiscoveryHit(name, do, help=words)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, words, do in self.actions():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, matcher.highlight(name), do, help=words)

    def actions(self) -> Iterator[Action]:
        app = cast("SparkApp", self.app)
        run, ready = app.run_view, app.session.settings is not None
        if ready and run.active:
            yield "Cancel the run", f"{run.current or 'the run'} ends; what is done stays done", lambda: cancel(app)
        if ready and not run.active and not app.starting:
            yield "Run all that is left", "every step that is not done, up to the smoke test", lambda: _run(app)
            for verb in app.session.chain:
                yield f"Run {verb}", f"{verb} alone; done work is skipped", partial(_run, app, verb)
            yield "Stop the engines", "on all nodes; asks first", lambda: stop(app)
        yield "Open wizard", "the steps, one after the other", lambda: app.run_action("go('wizard')")
        yield "Open monitor", "memory, links, boot and speed, large", lambda: app.run_action("go('monitor')")
        yield "Open logs", "all ranks' logs", lambda: app.run_action("go('logs')")
        yield "Open settings", "with their meaning; nothing is saved before you say so", app.action_settings
        if ready:
            yield "Smoke test", "nine checks of the endpoint", app.action_smoke
            yield "Talk to it", "URLs, model and a curl line to copy", app.action_talk
            for line in app.session.talk():
                what, text = copied_of(line)
                name = "Copy curl line" if is_command(line) else f"Copy {what}"
                yield name, text[:60], partial(app.post_message, Copied(text, what))
            yield "Ask the nodes again", "what is done on each of them", app.look
        yield "Help", "the keys of this screen", app.action_help
        yield "Quit", "nothing stops: runs and engines go on", app.action_leave


def _run(app: SparkApp, verb: str = "") -> None:
    app.post_message(StepRequested((verb,) if verb else app.session.chain))


def stop(app: SparkApp) -> None:
    """Stop all engines, when the person says so."""
    from sparktui.ui.wizard.words import disruption

    def answered(answer: str | None) -> None:
        if answer == "stop them":
            app.post_message(StepRequested(("stop",)))

    card = QuestionCard(
        "Stop the engines?", disruption("stop", serving=True), ("stop them", "leave it"), later="esc: leave it"
    )
    app.push_screen(card, answered)


def cancel(app: SparkApp) -> None:
    """The wizard's own way to cancel: it asks once."""
    from sparktui.ui.wizard.run_actions import ask_to_cancel

    ask_to_cancel(app)
