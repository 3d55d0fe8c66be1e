"""Warm-up after the first healthy answer: prompts of growing length, then one full batch whose text is looked at.

The engine compiles kernels at first use, so the first real user would wait for them. A batch that comes back as other
than Latin prose is the sign of corrupted batch decoding: reported loudly, never fatal.
"""

from __future__ import annotations

import http.client
import json
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

PROMPT_WORDS = (12, 200, 900, 3600)
PROMPT_TOKENS = 24
BATCH_TOKENS = 48
ASCII_SHARE = 0.7
REQUEST_SECONDS = 900.0
_WORDS = (
    "river", "stone", "garden", "window", "letter", "winter", "market", "island", "paper", "engine", "morning",
    "harbour", "candle", "valley", "number", "sister", "bridge", "orange", "thunder", "pocket", "summer", "mirror",
)  # fmt: skip
_TOPICS = (
    "the sea",
    "a mountain path",
    "an old library",
    "rain in a city",
    "a night train",
    "bread",
    "a clock",
    "bees",
)
_FOREIGN = ("CJK", "HANGUL", "HIRAGANA", "KATAKANA")


class RequestFailed(Exception):
    """The server answered something other than 200, or nothing. The message holds no secret."""


@dataclass(frozen=True, slots=True)
class Server:
    """This container's own endpoint."""

    host: str
    port: int
    model: str
    key: str | None

    def request(self, method: str, path: str, body: object, seconds: float) -> object:
        """The parsed JSON answer. Raises RequestFailed."""
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise RequestFailed(f"{path}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise RequestFailed(f"{path}: HTTP {response.status}: {data[:200].decode(errors='replace')}")
        try:
            return json.loads(data)
        except ValueError as error:
            raise RequestFailed(f"{path}: the answer is no JSON") from error

    def complete(self, prompt: str, tokens: int, seconds: float) -> str:
        """The text of a short completion, thinking off. Raises RequestFailed."""
        answer = self.request(
            "POST",
            "/v1/chat/completions",
            {
                "model": self.model,
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": tokens,
                "temperature": 0,
                "chat_template_kwargs": {"thinking": False},
            },
            seconds,
        )
        try:
            return answer["choices"][0]["message"]["content"] or ""  # type: ignore[index]
        except (KeyError, IndexError, TypeError) as error:
            raise RequestFailed("/v1/chat/completions: the answer has no message") from error

    def max_total_num_tokens(self, seconds: float) -> int | None:
        """The KV pool that the engine really made; None when it does not say."""
        try:
            info = self.request("GET", "/server_info", None, seconds)
        except RequestFailed:
            return None
        value = info.get("max_total_num_tokens") if isinstance(info, dict) else None
        return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What happened: `batch` is the size of the batch that came back clean, None when it did not or was not run."""

    batch: int | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def prompt_of(words: int) -> str:
    return "Repeat the last word. " + " ".join(_WORDS[at * 5 % len(_WORDS)] for at in range(words))


def looks_like_prose(text: str) -> str | None:
    """None for Latin prose; otherwise what is wrong with it, in words."""
    letters = text.strip()
    if not letters:
        return "empty"
    for letter in letters:
        if not letter.isascii() and unicodedata.name(letter, "").startswith(_FOREIGN):
            return f"holds {unicodedata.name(letter)}"
    share = sum(letter.isascii() for letter in letters) / len(letters)
    return None if share >= ASCII_SHARE else f"only {share:.0%} ASCII"


def warm_up(server: Server, batch: int, context: int, end: float, words: tuple[int, ...] = PROMPT_WORDS) -> WarmUp:
    """Runs it all before `end` (time.monotonic()). Raises nothing: what fails is a note or a warning."""
    notes: list[str] = []
    warnings: list[str] = []

    def left() -> float:
        return max(1.0, min(REQUEST_SECONDS, end - time.monotonic()))

    # About two tokens a word leaves room for any tokenizer that is not byte-level.
    for count in sorted({min(count, max(1, (context - PROMPT_TOKENS) // 2)) for count in words}):
        started = time.monotonic()
        try:
            server.complete(prompt_of(count), PROMPT_TOKENS, left())
            notes.append(f"prompt of {count} words: {time.monotonic() - started:.1f} s")
        except RequestFailed as error:
            notes.append(f"prompt of {count} words skipped: {error}")

    def one(number: int) -> str | None:
        topic = _TOPICS[number % len(_TOPICS)]
        try:
            return looks_like_prose(
                server.complete(f"Write three plain English sentences about {topic}.", BATCH_TOKENS, left())
            )
        except RequestFailed as error:
            return str(error)

    with ThreadPoolExecutor(batch) as pool:
        wrong = [answer for answer in pool.map(one, range(batch)) if answer]
    if wrong:
        warnings.append(f"the warm-up batch of {batch} is not clean prose in {len(wrong)} answers: {wrong[0]}")
    else:
        notes.append(f"batch of {batch}: clean")
    return WarmUp(None if wrong else batch, tuple(notes), tuple(warnings))
