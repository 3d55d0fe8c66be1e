"""Every setting is acted on; docs/settings.md says where.

`SPARKTUI_UPDATE_GOLDEN=1 python -m pytest tests/unit/test_settings_readers.py` writes the page; then read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparktui.engine.environment import PASSED_ON
from sparktui.settings import SETTINGS
from tests import settings_readers
from tests.settings_readers import PROGRAMS, ROOT, page, places, programs, unread

PAGE = ROOT / "docs" / "settings.md"


def test_every_setting_is_acted_on_and_not_only_handed_on() -> None:
    assert set(unread()) == set()


def test_what_is_handed_on_and_read_by_nobody_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same search over an overlay that no longer reads a value, and over a name that only a list knows."""
    assert places("DSV41_CACHE_WAYS") and places("DSV41_LOOP_REPEATS")
    silent = tuple(
        read for read in settings_readers.overlay_reads() if read.name not in ("DSV41_CACHE_WAYS", "DSV41_LOOP_REPEATS")
    )
    monkeypatch.setattr(settings_readers, "overlay_reads", lambda: silent)
    assert set(unread()) == {"DSV41_CACHE_WAYS", "DSV41_LOOP_REPEATS"}


@pytest.mark.parametrize(
    ("setting", "file", "function"),
    [
        ("BUILD_TIMEOUT", "sparktui/steps/build.py", ""),
        ("DSV41_LOOP_NGRAM", "overlay/spark_overlay/adapters/loop_abort.py", "rules"),
        ("DSV41_ENGRAM_FALLBACK", "overlay/spark_overlay/packed_rows.py", "fallback"),
        ("HF_REVISION", "overlay/spark_overlay/packed_rows.py", "_expected"),
        ("HEAD_MEM_FRACTION_STATIC", "overlay/spark_overlay/launch_args.py", "_defaults"),
        ("SHM_SIZE", "sparktui/engine/launch.py", "engine_spec"),
        ("NCCL_SWITCHLESS_RING", "sparktui/cluster/profile.py", ""),
    ],
)
def test_the_line_is_the_one_that_acts(setting: str, file: str, function: str) -> None:
    found = places(setting)
    assert any(place.file == file and function in ("", place.function) for place in found), found
    assert not any(place.file.startswith(("sparktui/ui/", "sparktui/settings/rules")) for place in found)


def test_a_program_is_named_only_for_what_reaches_it() -> None:
    handed = {name.upper() for name in PASSED_ON} | {"NCCL_IB_GID_INDEX"}
    assert PROGRAMS.keys() <= handed
    assert [name for name in SETTINGS if programs(name)] == [name for name in SETTINGS if name in PROGRAMS]


def test_the_page_is_of_today() -> None:
    if os.environ.get("SPARKTUI_UPDATE_GOLDEN") == "1":
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "SPARKTUI_UPDATE_GOLDEN=1 writes it"
