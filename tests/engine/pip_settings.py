"""What this machine's pip and proxies are set to, as variables and binds for a build: read here, written nowhere."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PASSED_ON = (
    *("index-url", "extra-index-url", "trusted-host", "proxy"),
    *("cert", "client-cert", "default-timeout", "timeout", "retries"),
)
"""How the index is reached. Constraints and folders of wheels stay outside: the lock alone says what is installed."""
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def parse_config(text: str) -> dict[str, str]:
    """`pip config list` -> option: value; a variable beats [install], and that beats [global]."""
    found: dict[str, str] = {}
    rows = [line.partition("=") for line in text.splitlines() if "=" in line]
    for section in ("global.", "install.", ":env:."):
        for name, _, value in rows:
            if name.startswith(section):
                found[name.removeprefix(section)] = str(ast.literal_eval(value))
    return found


def environment(options: dict[str, str]) -> dict[str, str]:
    """PIP_* variables for a container: only what PASSED_ON names, and no index that is a folder of this machine."""
    found = {}
    for name in PASSED_ON:
        words = options.get(name, "").split()
        if name.endswith("index-url"):
            words = [word for word in words if not word.startswith("file:")]
        if words:
            found[f"PIP_{name.upper().replace('-', '_')}"] = " ".join(words)
    return found


def binds(options: dict[str, str]) -> list[dict[str, Any]]:
    """The certificates that they name, at the same path."""
    paths = [options[name] for name in ("cert", "client-cert") if Path(options.get(name, "")).is_file()]
    return [{"source": path, "target": path, "read_only": True} for path in paths]


def of_this_machine() -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Variables and binds that let pip in a build reach what pip here reaches."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60, check=False
    )
    options = parse_config(said.stdout)
    proxies = {name: os.environ[name] for name in PROXIES if os.environ.get(name)}
    return environment(options) | proxies, binds(options)
