"""Which settings file is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktui.cluster.profile import PROFILES
from sparktui.verbs import PROFILE_NAMES, app_env_file, env_file


def test_the_app_opens_the_one_profile_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert app_env_file(None, None) == tmp_path / ".env", "nothing is there: the first start makes it"
    (tmp_path / ".env.tp4").touch()
    assert app_env_file(None, None) == tmp_path / ".env.tp4"
    assert env_file(None, None) == tmp_path / ".env", "a command never guesses"
    assert app_env_file(None, "three") == tmp_path / ".env"
    assert app_env_file("mine.env", None) == tmp_path / "mine.env"
    assert env_file(None, "four-ring") == env_file(None, "four") == tmp_path / ".env.tp4", "made from its own example"
    (tmp_path / ".env").touch()
    assert app_env_file(None, None) == tmp_path / ".env"


def test_the_names_of_the_command_line_are_those_of_the_profiles() -> None:
    assert tuple(PROFILES) == PROFILE_NAMES
