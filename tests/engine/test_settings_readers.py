"""The programs that docs/settings.md names for a variable name that variable themselves."""

from __future__ import annotations

import re

import pytest

from tests.engine.engine_env import engine_dir
from tests.settings_readers import PROGRAMS

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("variable", PROGRAMS)
def test_the_program_names_the_variable(variable: str) -> None:
    packages = next((engine_dir() / "lib").glob("python3.*/site-packages"))
    program, file = PROGRAMS[variable]
    data = (packages / file).read_bytes()
    assert re.search(rb"(?<![A-Z0-9_])" + variable.encode() + rb"(?![A-Z0-9_])", data), f"{program}: {file}"


@pytest.mark.parametrize("variable", [name for name in PROGRAMS if name.startswith("SGLANG_")])
def test_sglang_reads_what_it_declares(variable: str) -> None:
    """environ.py declares a variable; the file that is named has to ask for its value."""
    packages = next((engine_dir() / "lib").glob("python3.*/site-packages"))
    text = (packages / PROGRAMS[variable][1]).read_text(encoding="utf-8")
    assert re.search(rf"\benvs\.{variable}\b", text)
