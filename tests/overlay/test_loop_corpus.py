"""No false alarm: texts that repeat themselves for good reasons, fed token by token as bytes and as words."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_overlay.loop_detect import Loop, LoopDetector, LoopRules

Tokens = tuple[list[int], Callable[[int], bytes]]


def as_bytes(text: str) -> Tokens:
    """The finest vocabulary there is: every character of UTF-8 is split."""
    return list(text.encode()), lambda token: bytes([token])


def as_words(text: str) -> Tokens:
    """The coarsest: a word with its blank, a run of digits, a punctuation mark; a long word in pieces of four."""
    parts = re.findall(r" ?\w{1,4}|\n| +|[^\w\s]{1,3}", text)
    numbers: dict[str, int] = {}
    tokens = [numbers.setdefault(part, len(numbers)) for part in parts]
    names = list(numbers)
    return tokens, lambda token: names[token].encode()


def alarm(text: str, cut: Callable[[str], Tokens]) -> Loop | None:
    tokens, piece = cut(text)
    return LoopDetector(LoopRules(), piece).feed(tokens)


def table(rows: int) -> str:
    rng = random.Random(rows)
    head = "| node | memory | state | note |\n|:-----|-------:|:-----:|:-----|\n"
    body = "".join(
        f"| spark-{n % 4} | {rng.randint(90, 128)} GiB | {'ok' if n % 3 else 'busy'} | - |\n" for n in range(rows)
    )
    return head + body


def code() -> str:
    fields = ("size", "rank", "layer", "rows", "width", "batch", "steps", "pages")
    text = "from dataclasses import dataclass\n\n\n"
    for name in fields:
        text += f"@dataclass\nclass {name.title()}:\n    value: int = 0\n    unit: str = ''\n\n"
        text += "    def __post_init__(self) -> None:\n        if self.value < 0:\n"
        text += f"            raise ValueError('{name}')\n\n\n"
    text += "switch (state) {\n"
    for number in range(40):
        text += f"    case {number}:\n        handle_{number}(state);\n        break;\n"
    return text + "    }\n" + "            }\n        }\n    }\n}\n" * 3


def json_array() -> str:
    rows = [{"id": n, "name": f"row {n}", "tags": ["a", "b"], "done": False, "parent": None} for n in range(150)]
    return json.dumps(rows, indent=2) + json.dumps(rows) + json.dumps([[n % 7, n % 5, n % 3] for n in range(300)])


def base64_text() -> str:
    return base64.encodebytes(random.Random(5).randbytes(6000)).decode() + base64.b64encode(bytes(46)).decode()


def poem() -> str:
    refrain = "And the river runs, and the river runs,\nAnd the river runs to the sea.\n\n"
    verses = ("The {0} was cold", "The {0} was old", "The {0} was told", "The {0} was gold")
    return "".join(
        f"{verses[n % 4].format(word)},\n{word} and {word} again,\n{refrain}" for n, word in enumerate(WORDS)
    )


WORDS = [
    *("morning", "evening", "winter", "summer", "harbour", "garden", "mirror", "market", "island", "thunder"),
    *("candle", "window", "letter", "number", "bridge", "sister"),
]
CORPUS = {
    "a table": table(200),
    "a table with equal rows": "| a | b |\n|---|---|\n" + "| 0.00 | 0.00 |\n" * 7,
    "code": code(),
    "a JSON array": json_array(),
    "base64": base64_text(),
    "a poem with a refrain": poem(),
    "a song": "".join("Row, row, row your boat,\nGently down the stream.\n" * 3 + f"{word}!\n" for word in WORDS),
    "an empty grid": "grid = [\n" + "[0, 0, 0, 0, 0, 0, 0, 0, 0],\n" * 9 + "]\n",
    "an empty grid in one line": "[" + ", ".join(["[0, 0, 0, 0, 0, 0, 0, 0, 0]"] * 9) + "]\n",
    "a table of empty rows": "| a | b | c | d |\n|---|---|---|---|\n" + "| - | - | - | - |\n" * 20,
    "an array of zeros": "zeros = [" + "0, " * 150 + "0]\n",
    "a rule of dashes": "Title\n" + "-" * 60 + "\ntext\n" + "=" * 60 + "\n",
    "short lines": ("    }\n" * 20 + "0,\n" * 40 + "[0, 0, 0, 0, 0, 0, 0, 0]\n" * 4) * 3,
    "Chinese verses": "".join(f"春眠不觉晓，处处闻啼鸟。{word}\n" for word in WORDS),
    "a progress list": "".join(f"- [x] Step {n}: checked the file and went on to the next one\n" for n in range(120)),
    "a diff": "".join(f"-    value = {n}\n+    value = {n + 1}\n     return value\n" for n in range(90)),
    "a log": "".join(f"12:00:{n % 60:02d} INFO worker {n % 4} took {n * 7 % 90} ms\n" for n in range(200)),
}  # fmt: skip


@pytest.mark.parametrize("cut", [as_bytes, as_words])
@pytest.mark.parametrize("name", CORPUS)
def test_a_text_that_repeats_for_good_reasons_is_no_loop(name: str, cut: Callable[[str], Tokens]) -> None:
    assert alarm(CORPUS[name], cut) is None


def test_zeros_as_base64_are_no_loop_as_far_as_63_equal_tokens_and_7_equal_lines_go() -> None:
    # Four letters a token: 63 of them, and seven lines of 19 with their ends.
    assert alarm(base64.b64encode(bytes(3 * 63)).decode(), as_words) is None
    assert alarm(base64.encodebytes(bytes(57 * 7)).decode(), as_words) is None
    assert alarm(base64.b64encode(bytes(3 * 64)).decode(), as_words) is not None


@pytest.mark.parametrize("cut", [as_bytes, as_words])
@pytest.mark.parametrize("name", ["a table", "code", "a JSON array", "base64", "a poem with a refrain"])
def test_the_same_text_that_does_run_into_a_loop_is_one(name: str, cut: Callable[[str], Tokens]) -> None:
    stuck = "\nI will now look at the file once more, and then at the other file, to be sure that it is there."
    assert alarm(CORPUS[name] + stuck * 40, cut) is not None


@given(
    st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 10**6)), min_size=1, max_size=60),
    st.sampled_from(["| {0} | {1} | yes | no |\n", '  {{"{0}": {1}, "kind": "x"}},\n', "    call_{0}({1}, flags);\n"]),
)
@settings(max_examples=150, deadline=None)
def test_rows_of_one_form_with_a_running_number_are_no_loop(rows: list[tuple[str, int]], form: str) -> None:
    text = "".join(form.format(word, f"{n}{number:07d}") for n, (word, number) in enumerate(rows))
    for cut in (as_bytes, as_words):
        assert alarm(text, cut) is None


@given(st.binary(max_size=3000))
@settings(max_examples=100, deadline=None)
def test_random_bytes_as_base64_are_no_loop_unless_they_repeat(data: bytes) -> None:
    whole = random.Random(data).randbytes(600) + data[:40]
    assert alarm(base64.encodebytes(whole).decode(), as_bytes) is None


@given(st.text(min_size=12, max_size=40).filter(lambda text: len(text.encode()) >= 32), st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_any_text_twenty_times_is_a_loop_however_its_characters_are_cut(text: str, step: int) -> None:
    tokens = list((text * 20).encode())
    at_once = LoopDetector(LoopRules(line_repeats=0)).feed(tokens)
    assert at_once is not None
    detector, loop = LoopDetector(LoopRules(line_repeats=0)), None
    for start in range(0, len(tokens), step):
        loop = loop or detector.feed(tokens[start : start + step])
    assert loop == at_once
