"""`sparktui --version` is at once: nothing heavy is loaded before a verb needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("textual", "docker", "asyncssh", "httpx", "pydantic", "huggingface_hub", "plotext", "asyncio", "hypothesis")


@pytest.mark.parametrize(
    "code", ["import sparktui.cli", "import sparktui.cli as c\ntry: c.main(['--version'])\nexcept SystemExit: pass"]
)
def test_the_command_line_loads_nothing_heavy(code: str) -> None:
    code += f"\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


def test_following_a_run_loads_no_settings_and_no_links() -> None:
    heavy = (*[name for name in HEAVY if name != "asyncio"], "sparktui.settings", "sparktui.remote")
    code = "import sys, sparktui.runs.follow, sparktui.runs.start\n"
    code += f"print([name for name in {heavy!r} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"
