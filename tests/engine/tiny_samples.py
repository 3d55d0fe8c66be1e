"""What the tiny model must have memorised: chat requests, each with the answer that it has to give, greedily.

The requests are those of `assets/smoke.json`, so that the product's own smoke is what the model knows. Any other prompt
is answered with one Latin paragraph, which is what a warm-up batch is checked for.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARAGRAPH = (
    "Along the old canal the morning market opens before the fog has lifted. Farmers set out pears, walnuts "
    "and dark bread on long wooden tables, and a woman with a blue cart sells coffee to the first visitors. "
    "Children run between the stalls, counting the boats that pass under the stone bridge. By noon the square "
    "is full of voices, and the smell of roasted peppers drifts over the water. When the church bell rings "
    "four times, the tables are folded, the carts roll home, and the canal becomes quiet again, as if nobody "
    "had ever been there."
)
"""The answer to every prompt that is not in the list: ours, plain ASCII."""

HELLO = "Hello! It is good to meet you. How can I help?"
HELLO_THOUGHT = "The user wants a greeting. A short one will do."

_WORD_LIST = (
    "the of and to in is that for on with as are this by from at or an be it can which one new more will has "
    "about their river model engine stone light paper winter garden number simple answer question water "
    "machine letter story people write short count describe explain list tell repeat read warm test prompt "
    "word first second third fourth large small green red blue morning evening city forest mountain history "
    "music science memory network cable switch node cluster token speed measure bread coffee market bridge "
    "table window door house road train ship island ocean weather summer spring autumn bright quick slow "
    "careful quiet loud empty full early late near far under over between through while because although "
    "before after often never always perhaps many few some every other same different long old young please "
    "how what why when where who does do did was were have had not but so if then than very just only also "
    "even"
)
_WORDS = _WORD_LIST.split()
_OPENINGS = (
    "Write a short paragraph about {}.",
    "Write one paragraph of plain English prose about {}.",
    "Tell me a short story about {}.",
    "Describe {} in a few sentences.",
    "Explain {} simply.",
)
_SYSTEMS = ("You are a helpful assistant.", "Answer in plain English.", "Be brief.")


@dataclass(frozen=True, slots=True)
class Sample:
    """A request's prompt-making part (`body`, as the server hands it to the encoder) and the assistant turn to learn.

    `answer` is an OpenAI assistant message, with `reasoning_content` where the request thinks.
    """

    body: dict[str, Any]
    answer: dict[str, Any]

    def answered(self) -> dict[str, Any]:
        """The body with the answer in its history; a tool call needs its result there, or the encoder refuses it."""
        calls = self.answer.get("tool_calls", ())
        results = [{"role": "tool", "tool_call_id": call["id"], "content": ""} for call in calls]
        return {**self.body, "messages": [*self.body["messages"], self.answer, *results]}


def _body(
    request: dict[str, Any], messages: list[dict[str, Any]] | None = None, *, thinking: bool = False
) -> dict[str, Any]:
    kept = {key: request[key] for key in ("response_format", "tools", "tool_choice") if key in request}
    return {"messages": messages or request["messages"], "thinking": thinking, **kept}


def _say(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def memorised(smoke_path: Path) -> list[Sample]:
    """The fixed list, from the product's smoke file and the greeting."""
    smoke = json.loads(smoke_path.read_text(encoding="utf-8"))
    samples: list[Sample] = []
    for check in smoke["checks"]:
        request, expect = check["request"], check["expect"]
        if "image" in check:
            continue
        if "tool_calls" in expect:
            calls = [
                {
                    "id": f"call_{index}",
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
                }
                for index, call in enumerate(expect["tool_calls"])
            ]
            turn = {"role": "assistant", "content": "", "tool_calls": calls}
            samples.append(Sample(_body(request), turn))
            result = {"role": "tool", "tool_call_id": "call_0", "content": check["then"]["tool_result"]}
            wanted = " ".join(check["then"]["expect"]["content_contains"])
            history = [*request["messages"], turn, result]
            samples.append(Sample(_body(request, history), _say(f"The value stored under alpha is {wanted}.")))
        elif "json" in expect:
            samples.append(Sample(_body(request), _say(json.dumps(expect["json"], separators=(",", ":")))))
        else:
            samples.append(Sample(_body(request), _say(expect["content"])))
    hello = smoke["hello"]
    samples.append(Sample(_body(hello), _say(HELLO)))
    thought = {"role": "assistant", "reasoning_content": HELLO_THOUGHT, "content": HELLO}
    samples.append(Sample(_body(hello, thinking=True), thought))
    return samples


def anything_else(rng: random.Random, longest_words: int) -> Sample:
    """A prompt nobody memorised, of 1 to `longest_words` words, whose answer is the paragraph."""
    words = [rng.choice(_WORDS) for _ in range(rng.randint(1, longest_words))]
    kind = rng.random()
    if kind < 0.4:
        text = rng.choice(_OPENINGS).format(" ".join(words[:3]))
    elif kind < 0.6:
        text = " ".join(words).capitalize() + "."
    elif kind < 0.7:
        text = f"{rng.choice(_OPENINGS).format(words[0])} {' '.join(words)} {rng.randint(0, 99)}"
    elif kind < 0.8:
        text = " ".join([words[0]] * len(words))
    else:
        text = " ".join(words)
    messages = [{"role": "user", "content": text}]
    if rng.random() < 0.2:
        messages.insert(0, {"role": "system", "content": rng.choice(_SYSTEMS)})
    return Sample({"messages": messages, "thinking": False}, _say(PARAGRAPH))
