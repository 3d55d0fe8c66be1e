"""What coding agents and their clients lean on, asked over HTTP: five checks as data, and the judgement. Pure.

Each of them broke in a release before 1017 (cases U85, U88, U89), and none depends on what the model wants to say: the
loop is forced by a grammar, the others only have to be answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparktui.events import State
from sparktui.remote.server import Generation, ServerError, anthropic_body, chat_body
from sparktui.steps.smoke_checks import SmokeCheck, Verdict

if TYPE_CHECKING:
    from sparktui.settings import Settings

CUT, REASONING, LOOP, PLACEHOLDER, THINKING = "cut", "reasoning", "loop", "placeholder", "thinking"
OLD = "pre-1017 behaviour"
OLD_FIX = "sparktui build, then serve: the image lacks this release's adapters"
FEW_TOKENS = 8
LINE = "the same line comes back"
LINES = 64
LOOP_TOKENS = 1024
"""Far more than any loop setting's default lets through."""
PLACEHOLDER_TEXT = "<｜deepseek_image｜>"
ANTHROPIC = "/v1/messages"
OPENAI = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; `thinking` replaces the Anthropic dialect's usual form."""

    messages: tuple[Mapping[str, Any], ...]
    generation: Generation
    more: Mapping[str, Any] = field(default_factory=dict)
    path: str = OPENAI
    thinking: Mapping[str, Any] | None = None

    def body(self, model: str) -> dict[str, Any]:
        if self.path == ANTHROPIC:
            return anthropic_body(model, self.messages, self.generation, thinking=self.thinking, more=self.more)
        return chat_body(model, self.messages, self.generation, more=self.more)


@dataclass(frozen=True, slots=True)
class AgentCheck:
    """A row: all of `asks` are made, one after the other."""

    id: str
    asks: tuple[Ask, ...]


def agent_checks(tool: SmokeCheck) -> tuple[AgentCheck, ...]:
    """The five, in order; `tool` is the check whose call is cut off here."""
    few = Generation(max_tokens=FEW_TOKENS, thinking=False, temperature=0.0)
    thoughtful = Generation(max_tokens=FEW_TOKENS, thinking=True, temperature=0.0)
    question = {"role": "user", "content": "What is 19 + 23?"}
    said = {"role": "assistant", "content": "42"}
    again = {"role": "user", "content": "And one more?"}
    reasoned = {**said, "reasoning_content": "19 and 23 make 42."}
    mentioned = {"role": "user", "content": f"What does {PLACEHOLDER_TEXT} stand for in a prompt?"}
    loop = Generation(max_tokens=LOOP_TOKENS, thinking=False, temperature=0.0)
    return (
        AgentCheck(CUT, (Ask(tool.messages, few, tool.more), Ask((*tool.messages, *_cut_call(tool)), few, tool.more))),
        AgentCheck(REASONING, (Ask((question, reasoned, again), thoughtful), Ask((question, said, again), thoughtful))),
        AgentCheck(LOOP, (Ask((question,), loop, {"regex": f"({LINE}\n){{{LINES}}}"}),)),
        AgentCheck(PLACEHOLDER, (Ask((mentioned,), few),)),
        AgentCheck(THINKING, (Ask((question,), thoughtful, path=ANTHROPIC, thinking={"type": "enabled"}),)),
    )


def _cut_call(tool: SmokeCheck) -> tuple[Mapping[str, Any], ...]:
    """What an agent has in its history after a call that was cut off in the middle of its arguments."""
    wanted = tool.expect["tool_calls"][0]
    arguments = json.dumps(wanted["arguments"])[:-4]
    call = {"id": "call_cut", "type": "function", "function": {"name": wanted["name"], "arguments": arguments}}
    return (
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_cut", "content": "the arguments were cut off"},
    )


def not_asked(check: AgentCheck, settings: Settings) -> Verdict | None:
    """Why a check has no meaning with these settings, or None."""
    if check.id == LOOP and not settings.dsv41_loop_abort:
        return Verdict(State.INFO, "not asked: DSV41_LOOP_ABORT=0 lets loops run")
    return None


def judge_agent(check: AgentCheck, answers: Sequence[Mapping[str, Any] | ServerError], settings: Settings) -> Verdict:
    """`answers` are those of `check.asks`, each an answer's JSON or the error."""
    if any(isinstance(each, ServerError) and each.status is None for each in answers):
        return Verdict(State.FAIL, next(each.what for each in answers if isinstance(each, ServerError)))
    match check.id:
        case "cut":
            return _judge_cut(*answers)
        case "reasoning":
            return _judge_reasoning(*answers)
        case "loop":
            return _judge_loop(answers[0], named=settings.dsv41_loop_named_exit)
        case "placeholder":
            return _answered(answers[0], "the image token's name in a text is text")
    return _answered(answers[0], "Anthropic thinking without a budget is answered")


def _judge_cut(first: Mapping[str, Any] | ServerError, second: Mapping[str, Any] | ServerError) -> Verdict:
    if isinstance(first, ServerError):
        return Verdict(State.FAIL, first.what)
    if isinstance(second, ServerError):
        old = f": an old overlay, {OLD}" if second.status == 400 else ""
        return Verdict(State.FAIL, f"a cut-off call in the history is refused{old} ({second.what})")
    reason, calls = _ending(first)
    if reason == "tool_calls" or any(_whole(each) for each in calls):
        return Verdict(State.FAIL, f"a call cut off at {FEW_TOKENS} tokens is handed out as a whole one: {OLD}")
    if reason != "length":
        return Verdict(State.WARN, f"the model ended with {reason!r} before anything was cut off")
    return Verdict(State.OK, "a cut-off call ends with 'length', and its history is answered")


def _judge_reasoning(with_it: Mapping[str, Any] | ServerError, without: Mapping[str, Any] | ServerError) -> Verdict:
    cells = {"with": with_it, "without": without}
    said = {name: each.status if isinstance(each, ServerError) else 200 for name, each in cells.items()}
    bad = [each.what for each in cells.values() if isinstance(each, ServerError)]
    text = f"second turn with reasoning in its history {said['with']}, without {said['without']}"
    return Verdict(State.FAIL, f"{text} ({bad[0]})") if bad else Verdict(State.OK, text)


def _judge_loop(answer: Mapping[str, Any] | ServerError, *, named: bool) -> Verdict:
    if isinstance(answer, ServerError):
        if re.search(r'"message"\s*:\s*"loop_abort', answer.body):
            return Verdict(State.OK, "a loop ends as the error loop_abort")
        if answer.status == 400:
            return Verdict(State.UNKNOWN, f"no loop could be made: {answer.what}")
        return Verdict(State.FAIL, answer.what)
    reason, _ = _ending(answer)
    if reason == "length":
        return Verdict(State.FAIL, f"a loop of {LINES} lines went on until max_tokens: nothing ends loops here")
    if not named:
        return Verdict(State.INFO, f"a loop ends as {reason!r}, as DSV41_LOOP_NAMED_EXIT=0 wants it")
    return Verdict(State.FAIL, f"a loop ended as an ordinary {reason!r}: {OLD}")


def _answered(answer: Mapping[str, Any] | ServerError, what: str) -> Verdict:
    if isinstance(answer, ServerError):
        return Verdict(State.FAIL, f"{answer.what}: {OLD}")
    return Verdict(State.OK, what)


def _ending(answer: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Finish reason and tool calls of a chat completion, '' and none where it has no such shape."""
    try:
        choice = answer["choices"][0]
        calls = choice["message"].get("tool_calls")
        return str(choice.get("finish_reason") or ""), calls if isinstance(calls, list) else []
    except (KeyError, IndexError, TypeError, AttributeError):
        return "", []


def _whole(call: object) -> bool:
    """Whether a call's arguments can be read."""
    function = call.get("function") if isinstance(call, dict) else None
    try:
        return isinstance(json.loads(function["arguments"]), dict) if isinstance(function, dict) else False
    except (KeyError, TypeError, ValueError, RecursionError):
        return False
