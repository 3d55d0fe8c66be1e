"""A chat request as a person would send it; a key is read from its file, never shown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from sparktui.engine.folders import key_file
from sparktui.settings import Settings


def chat_curl(
    settings: Settings, base_url: str, body: Mapping[str, Any], *options: str, path: str = "/v1/chat/completions"
) -> str:
    """The command line; `options` are curl's own."""
    url = f"{base_url}{path}"
    line = shlex.join(["curl", *options, url, "-H", "Content-Type: application/json"])
    if settings.api_key is not None:
        line += f' -H "Authorization: Bearer $(cat {shlex.quote(key_file(settings))})"'
    return f"{line} -d {shlex.quote(json.dumps(body))}"
