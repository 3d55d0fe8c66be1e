"""Questions of a run and their answers: asked in the journal, answered in `answers.jsonl` by any viewer."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from sparktui.errors import StepFailed, UsageError
from sparktui.events import Answered, Question
from sparktui.runs import journal

ANSWER_SECONDS = 15 * 60.0
_POLL_SECONDS = 0.2


def answer(run_dir: Path, seq: int, question: Question, text: str) -> None:
    """Answer the question that the journal holds at `seq`; the first answer counts.

    Raises:
        UsageError: not one of the question's choices.
    """
    if text not in question.choices:
        raise UsageError(f"{text!r} is no answer to {question.question}", fix=f"one of: {', '.join(question.choices)}")
    line = json.dumps({"for": seq, "question": question.question, "answer": text}) + "\n"
    fd = os.open(run_dir / "answers.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line.encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def given(run_dir: Path, seq: int, question: Question) -> str | None:
    """The first valid answer to the question at `seq`."""
    try:
        lines = (run_dir / "answers.jsonl").read_bytes().split(b"\n")
    except FileNotFoundError:
        return None
    for raw in lines:
        try:
            plain = json.loads(raw)
        except ValueError:
            continue
        if (
            isinstance(plain, dict)
            and (plain.get("for"), plain.get("question")) == (seq, question.question)
            and plain.get("answer") in question.choices
        ):
            return str(plain["answer"])
    return None


async def wait(run_dir: Path, seq: int, question: Question, *, deadline_seconds: float = ANSWER_SECONDS) -> str:
    """Wait for a viewer's answer.

    Raises:
        StepFailed: nobody answered in time; names the question.
    """
    until = time.monotonic() + deadline_seconds
    while time.monotonic() < until:
        text = given(run_dir, seq, question)
        if text is not None:
            return text
        await asyncio.sleep(_POLL_SECONDS)
    raise StepFailed(
        f"nobody answered the question {question.question} in {deadline_seconds:.0f} s: {question.text}",
        fix="run it again and answer, or give --yes",
        node=question.question.partition(".")[2] or None,
    )


def is_open(run_dir: Path, seq: int, question: Question) -> bool:
    """Whether the question at `seq` still waits, as far as the files say."""
    if given(run_dir, seq, question) is not None:
        return False
    return not any(
        isinstance(entry.event, Answered) and entry.event.question == question.question
        for entry in journal.read(run_dir, seq + 1)
    )
