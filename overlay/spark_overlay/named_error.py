"""An error of ours that keeps its text and its status on every HTTP route, and that no client answers by asking again.

SGLang hides the text of a 5xx on /v1/messages and makes an invalid request, status 400, of every error on
/v1/responses. The official clients ask again after a status of 500 and more, twice by default; the header
`x-should-retry: false`, which they obey, says that once is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spark_overlay.adapter import HookPoint, Kind, Process

ONCE = ("x-should-retry", "false")
ANTHROPIC = "sglang.srt.entrypoints.anthropic.serving._scrub_error_message"
ANTHROPIC_ERROR = "sglang.srt.entrypoints.anthropic.serving.AnthropicServing._error_response"
OPENAI_ERROR = "sglang.srt.entrypoints.openai.serving_base.OpenAIServingBase.create_error_response"
RESPONSES = "sglang.srt.entrypoints.openai.serving_responses.OpenAIServingResponses.create_error_response"
HOOKS = (
    HookPoint(ANTHROPIC, Kind.AFTER, "(message, status_code)", Process.SERVER),
    HookPoint(
        ANTHROPIC_ERROR, Kind.AFTER, "(self, status_code, error_type, message, exception_name=None)", Process.SERVER
    ),
    HookPoint(
        OPENAI_ERROR,
        Kind.AFTER,
        "(self, message, err_type='BadRequestError', status_code=400, param=None)",
        Process.SERVER,
    ),
    HookPoint(
        RESPONSES,
        Kind.AFTER,
        "(self, message, err_type='invalid_request_error', status_code=400, param=None)",
        Process.SERVER,
    ),
)


def once(response: Any) -> Any:
    """The same response, which no client answers by asking again."""
    response.headers[ONCE[0]] = ONCE[1]
    return response


def functions(name: str, status: int) -> Mapping[str, Callable[..., Any]]:
    """The functions of HOOKS for errors whose text begins with `name` and whose HTTP status is `status`."""

    def kept(result: str, message: str, status_code: int) -> str:
        return message if message.startswith(name) else result

    def anthropic(
        result: Any, serving: Any, status_code: int, error_type: str, message: str, *_: Any, **__: Any
    ) -> Any:
        return once(result) if message.startswith(name) else result

    def openai(result: Any, serving: Any, message: str, *_: Any, **__: Any) -> Any:
        return once(result) if message.startswith(name) else result

    def responses(
        result: Any,
        serving: Any,
        message: str,
        err_type: str = "invalid_request_error",
        status_code: int = 400,
        *_: Any,
        **__: Any,
    ) -> Any:
        told = message.removeprefix(f"{status}: ")
        if not told.startswith(name):
            return result
        if status_code == status:
            return once(result)
        return serving.create_error_response(told, "server_error", status)  # comes back here with its status

    return {ANTHROPIC: kept, ANTHROPIC_ERROR: anthropic, OPENAI_ERROR: openai, RESPONSES: responses}
