"""talk: how to reach the endpoint, to copy. The key is never shown; the lines read it from its file."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sparktui.engine.endpoint import local_url
from sparktui.engine.folders import key_file
from sparktui.events import Event, Note, State
from sparktui.settings import Settings
from sparktui.steps.chat_curl import chat_curl
from sparktui.steps.step import Command, Context, Inspection

STEP = "talk"
VARIES = "The same prompt may get another answer while other requests run."
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Talk:
    name = STEP
    title = "How to talk to it"

    async def inspect(self, context: Context) -> Inspection:
        return Inspection(done=False, summary="nothing to do")

    async def plan(self, context: Context) -> list[Command]:
        return [Command("head", curl_line(context.settings))]

    async def run(self, context: Context) -> AsyncIterator[Event]:
        settings = context.settings
        for text in card(settings):
            yield Note(STEP, "head", text)
        yield Note(STEP, "head", VARIES)
        if settings.api_key is None and settings.host not in LOOPBACK:
            text = "there is no API_KEY: everybody on this network can use it"
            yield Note(STEP, "head", text, State.WARN)


def base_url(settings: Settings) -> str:
    """As other machines see it; one that listens on the loopback alone is seen by nobody else."""
    if settings.host in LOOPBACK:
        return local_url(settings)
    return f"http://{settings.head_ip}:{settings.port}"


def card(settings: Settings) -> list[str]:
    """OpenAI and Anthropic base URLs, model, key (masked), and the curl line."""
    key = settings.mask(settings.api_key.get_secret_value()) if settings.api_key else "none"
    return [
        f"OpenAI base URL: {base_url(settings)}/v1",
        f"Anthropic base URL: {base_url(settings)}",
        f"model: {settings.served_model}",
        f"API key: {key}" + (f" (in {key_file(settings)})" if settings.api_key else ""),
        curl_line(settings),
    ]


def curl_line(settings: Settings) -> str:
    """One request; max_tokens is always sent, and thinking is stated."""
    body = {
        "model": settings.served_model,
        "messages": [{"role": "user", "content": "What is 19 + 23?"}],
        "max_tokens": 32,
        "chat_template_kwargs": {"thinking": False},
    }
    return chat_curl(settings, base_url(settings), body)
