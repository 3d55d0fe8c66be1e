"""docs/launch.md: every block is what the command in its first line prints now.

`SPARKTUI_UPDATE_GOLDEN=1 python -m pytest tests/unit/test_launch_page.py` writes them; then read the diff.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sparktui.engine.environment import FIXED, PASSED_ON
from sparktui.engine.launch import launch_specs
from sparktui.settings import SETTINGS, parse_settings
from tests.unit.test_launch_spec_arguments import CASES, GIDS, ROOT

PAGE = ROOT / "docs" / "launch.md"
BLOCK = re.compile(
    r"```console\n\$ env ([^\n]+) python3 (-S -m spark_overlay\.entry args --print)\n(.*?)```", re.DOTALL
)
PROFILE = re.compile(r"\$\(profile (\S+), rank (\d)\)")


def environment_of(words: str) -> dict[str, str]:
    if found := PROFILE.fullmatch(words):
        text, profile, home = CASES[found[1]], found[1], {"HOME": "/home/spark"}
        settings = parse_settings(text, env_path=Path("/srv/sparktui/.env"), profile=profile, environment=home)
        return dict(launch_specs(settings, GIDS)[int(found[2])].container.environment)
    return dict(word.split("=", 1) for word in shlex.split(words))


def printed(words: str, command: str) -> str:
    """What the command prints: errors and warnings first, one flag a line."""
    environment = {**environment_of(words), "PYTHONPATH": str(ROOT / "overlay"), "PATH": os.defpath}
    done = subprocess.run(
        [sys.executable, *command.split()], env=environment, capture_output=True, text=True, timeout=60
    )
    status = "" if done.returncode == 0 else f"exit status {done.returncode}\n"
    return done.stderr + re.sub(r" (?=--)", " \\\n    ", done.stdout) + status


@pytest.fixture(scope="module")
def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("SPARKTUI_UPDATE_GOLDEN") == "1":
        text = BLOCK.sub(
            lambda found: f"```console\n$ env {found[1]} python3 {found[2]}\n{printed(found[1], found[2])}```", text
        )
        PAGE.write_text(text, encoding="utf-8")
    return text


def test_every_block_is_what_its_command_prints(page: str) -> None:
    blocks = BLOCK.findall(page)
    assert len(blocks) == page.count("```console") == 9
    for words, command, shown in blocks:
        assert printed(words, command) == shown, words


def test_the_variables_that_became_settings_are_passed_on_and_the_others_are_not(page: str) -> None:
    rows = re.findall(r"^\| (`[A-Z].+) \| (.+) \|$", page, re.MULTILINE)
    handed = {name.upper() for name in PASSED_ON}
    for names, became in rows:
        for name in re.findall(r"`([A-Z0-9_]+)`", names):
            is_setting = became.startswith("settings of their own")
            assert (name in handed) == (name in SETTINGS) == is_setting, name
            assert name not in FIXED
            if is_setting:
                assert SETTINGS[name].defaults["four"]
    assert len(rows) == 8
