"""Carries out the verbs of a request, one after the other, and says everything as events.

The run's process gives the events to its journal; a read-only verb gives them straight to the screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sparktui.envfile import Severity
from sparktui.errors import NodeUnreachable, SparktuiError, StepFailed, UsageError
from sparktui.events import (
    Answered,
    Event,
    Finding,
    NodeOutcome,
    Note,
    Outcome,
    Question,
    RunFinished,
    State,
    StepFinished,
    StepStarted,
)
from sparktui.local_fault import local_fault
from sparktui.runs.host_keys import confirm_host_keys
from sparktui.runs.parts import Parts
from sparktui.runs.request import RunRequest
from sparktui.steps.catalog import LOOKS

if TYPE_CHECKING:
    from sparktui.remote.link import NodeLink
    from sparktui.settings import Settings
    from sparktui.steps.step import Context, Step

INTERRUPTED = 130
_CLOSE_SECONDS = 5.0
QUIET = ("status", "talk", "stop")

Emit = Callable[[Event], int]
AskViewer = Callable[[int, Question], Awaitable[str]]
"""Given the question's sequence number and the question; the answer."""


class Execution:
    """One pass over the verbs.

    Args:
        emit: takes each event; its sequence number.
        ask_viewer: how a question reaches a person; None when nobody can be asked.
        save_traceback: keeps the text of an unexpected error out of sight; where it is kept.
    """

    def __init__(
        self,
        request: RunRequest,
        parts: Parts,
        emit: Emit,
        *,
        ask_viewer: AskViewer | None,
        save_traceback: Callable[[str], str],
    ) -> None:
        self._request = request
        self._parts = parts
        self._emit = emit
        self._ask_viewer = ask_viewer
        self._save_traceback = save_traceback
        self._skipped = 0
        self._nodes: tuple[str, ...] = ()

    async def run(self, settings: Settings) -> RunFinished:
        """Do all verbs, stop at the first that fails; the closing event, not emitted yet.

        Raises nothing but BrokenPipeError, when `emit` prints and its reader has left.
        """
        started = time.monotonic()
        links: tuple[NodeLink, ...] = ()
        try:
            links = await self._parts.open_links(settings)
            context = self._context(settings, links)
            self._say_notices(settings)
            if self._can_ask:
                await confirm_host_keys(self._meant(context), self._ask, self._parts.trust_host_key)
            for verb in self._request.verbs:
                ended = await self._verb(verb, context)
                if ended is not None:
                    return ended
        except asyncio.CancelledError:
            _go_on()
            return RunFinished(INTERRUPTED, "cancelled", fix=self._again())
        except BrokenPipeError:
            raise  # the reader of a read-only verb has left
        except Exception as error:
            return closing(error, "the run", self._save_traceback)
        finally:
            await close_links(links)
        did = len(self._request.verbs) - self._skipped
        text = f"{did} of {len(self._request.verbs)} steps had something to do" if len(self._request.verbs) > 1 else ""
        return RunFinished(0, f"done in {time.monotonic() - started:.0f} s{'; ' + text if text else ''}")

    def _context(self, settings: Settings, links: tuple[NodeLink, ...]) -> Context:
        from sparktui.steps.step import Context

        only = self._request.only_node
        known = self._nodes = tuple(link.node.name for link in links)
        if only is not None and only not in known:
            raise UsageError(f"there is no node {only!r}", fix=f"--node takes one of: {', '.join(known)}")
        return Context(settings=settings, links=links, ask=self._ask, only_node=only, verbs=self._request.verbs)

    def _say_notices(self, settings: Settings) -> None:
        """What the settings warn about; doctor has rows of its own for it."""
        if any(verb in QUIET or verb == "doctor" for verb in self._request.verbs):
            return
        for notice in settings.notices:
            if notice.severity is Severity.NOTE:
                continue
            where = f"line {notice.line}: " if notice.line else ""
            state = State.INFO if notice.severity is Severity.INFO else State.WARN
            self._emit(Note("settings", "head", f"{where}{notice.reason}", state))

    @property
    def _can_ask(self) -> bool:
        return self._request.yes or (self._ask_viewer is not None and not self._request.unattended)

    def _meant(self, context: Context) -> list[NodeLink]:
        return [link for link in context.links if context.only_node in (None, link.node.name)]

    async def _verb(self, verb: str, context: Context) -> RunFinished | None:
        """One step; None when the next may follow."""
        started = time.monotonic()
        self._emit(StepStarted(verb, tuple(link.node.name for link in self._meant(context))))

        def finish(outcome: Outcome, text: str = "", fix: str = "", node: str = "") -> None:
            self._emit(StepFinished(verb, outcome, round(time.monotonic() - started, 3), text, fix, node))

        try:
            step = self._parts.step(verb)
            if verb not in LOOKS:
                inspection = await step.inspect(context)
                if inspection.done and verb not in self._request.forced:
                    self._skipped += 1
                    self._emit_all(inspection.findings)
                    finish(Outcome.SKIPPED, inspection.summary)
                    return None
                if inspection.blocked:
                    self._emit_all(inspection.findings)
                    finish(Outcome.FAILED, inspection.blocked, inspection.fix)
                    return RunFinished(1, f"{verb}: {inspection.blocked}", inspection.fix)
            failure = await self._events(step, context)
        except asyncio.CancelledError:
            _go_on()
            finish(Outcome.CANCELLED, "cancelled")
            return RunFinished(INTERRUPTED, f"cancelled during {verb}", fix=self._again())
        except BrokenPipeError:
            raise
        except Exception as error:
            ended = closing(error, verb, self._save_traceback)
            finish(Outcome.FAILED, ended.text, ended.fix, ended.node)
            return ended
        if failure is not None:
            finish(Outcome.FAILED, failure.text, failure.fix, failure.node)
            return failure
        finish(Outcome.DONE)
        return None

    async def _events(self, step: Step, context: Context) -> RunFinished | None:
        """Run the step; the closing event when its own rows say that it failed."""
        failed: list[Finding] = []
        unreached: list[Finding] = []
        broken: list[NodeOutcome] = []
        events = step.run(context)
        try:
            async for event in events:
                self._emit(event)
                if isinstance(event, Finding):
                    failed += [event] if event.state is State.FAIL else []
                    unreached += [event] if event.data.get("unreachable") else []
                elif isinstance(event, NodeOutcome) and event.outcome is Outcome.FAILED:
                    broken.append(event)
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
        if failed:
            first = failed[0]
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            cause = f": {first.cause}" if first.cause else ""
            return RunFinished(3 if unreached else 1, f"{first.what}{cause}{more}", first.fix, first.node)
        if unreached:
            return RunFinished(3, unreached[0].what, unreached[0].fix, unreached[0].node)
        if broken:
            again = f"see what is there: sparktui status, then: sparktui {step.name}"
            return RunFinished(1, broken[0].text or "did not finish", again, broken[0].node)
        return None

    def _emit_all(self, findings: tuple[Finding, ...]) -> None:
        for finding in findings:
            self._emit(finding)

    async def _ask(self, question: Question) -> str:
        seq = self._emit(question)
        if self._request.yes:
            text, by = question.assume_yes, "--yes"
        elif self._ask_viewer is None or self._request.unattended:
            raise StepFailed(
                f"the question {question.question} needs an answer and nobody is there: {question.text}",
                fix="run it from a terminal, or give --yes",
                node=_named_in(question.question, self._nodes),
            )
        else:
            text, by = await self._ask_viewer(seq, question), "viewer"
        self._emit(Answered(question.step, question.question, text, by))
        return text

    def _again(self) -> str:
        return f"what is done stays done; go on with: sparktui {self._request.title}"


def closing(error: Exception, where: str, save_traceback: Callable[[str], str]) -> RunFinished:
    """The closing line of whatever ended a run: an error raised on purpose, one of this machine's, or an unknown one,
    whose traceback is kept.
    """
    cause = _first_on_purpose(error)
    if cause is None and isinstance(error, OSError | MemoryError):
        cause = local_fault(error)
    if cause is not None:
        return RunFinished(cause.exit_status, cause.what, cause.fix, cause.node or "")
    first_line = (str(error).splitlines() or [""])[0][:200]
    what = f"{where} met an error it does not know ({type(error).__name__}{': ' + first_line if first_line else ''})"
    try:
        fix = f"the details are in {save_traceback(''.join(traceback.format_exception(error)))}"
    except OSError as refused:
        fix = f"the details could not be kept: {refused.strerror or refused}"
    return RunFinished(1, what, fix)


def _named_in(question: str, nodes: tuple[str, ...]) -> str | None:
    """The node that a question's id ends with, where it is about one (`hostkey.worker1`, not `serve.replace`)."""
    last = question.partition(".")[2]
    return last if last in nodes else None


def _go_on() -> None:
    """After a cancel was heard: let the closing lines be written without being cancelled by it again."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _first_on_purpose(error: BaseException) -> SparktuiError | None:
    """The error itself, or the first of a group; one that a node could not be reached goes before others."""
    if isinstance(error, SparktuiError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    found = [each for each in map(_first_on_purpose, error.exceptions) if each is not None]
    return next((each for each in found if isinstance(each, NodeUnreachable)), found[0] if found else None)


async def close_links(links: tuple[NodeLink, ...]) -> None:
    """Close all at once, each within a few seconds."""

    async def one(link: NodeLink) -> None:
        # A connection that fails to close has nothing left to tell.
        with contextlib.suppress(Exception):
            await asyncio.wait_for(link.aclose(), _CLOSE_SECONDS)

    await asyncio.gather(*(one(link) for link in links))
