"""What the packer prints, as events of the pack step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparktui.engine.folders import node_folders
from sparktui.events import Note, Progress, State
from sparktui.readings.node_view import parse_node_view
from sparktui.settings import parse_settings
from sparktui.steps.pack import _refused, _Told, read_line


@pytest.fixture
def told(tmp_path: Path) -> _Told:
    text = 'HEAD_IP="10.0.0.1"\nWORKER_IPS="10.0.0.2 10.0.0.3"\nENGRAM_DIR="/rows"\n'
    settings = parse_settings(text, env_path=tmp_path / ".env", profile="three", environment={"HOME": str(tmp_path)})
    return _Told(node_folders(settings, settings.nodes[0]))


def test_a_remark_is_a_note_and_a_warning_one_in_yellow(told: _Told) -> None:
    line = json.dumps({"event": "note", "text": "row ranges by sglang 0.5.23's own shard_range"})
    assert read_line("head", line, told) == Note("pack", "head", "row ranges by sglang 0.5.23's own shard_range")
    line = json.dumps({"event": "note", "state": "warn", "text": "/engram/a.partial is written anew: wrong rank"})
    assert read_line("head", line, told) == Note(
        "pack", "head", "/rows/a.partial is written anew: wrong rank", State.WARN
    )


def test_what_a_node_cannot_read_has_a_next_step() -> None:
    """An older image gives none."""
    plain = {"layer": 1, "file": "engram-l1-r0of3.bin", "bytes": 8192, "done": False, "error": "[Errno 5] x", "fix": ""}
    for engram in ({"files": [plain]}, {"files": [], "error": "/models/x: read at byte 8 failed"}):
        view = parse_node_view(json.dumps({"config_sha256": None, "engram": engram}))
        assert view is not None
        found = _refused(view)
        assert found is not None and found[0] and "dmesg" in found[1]


def test_progress_has_a_time_left_only_where_a_rate_is_known(told: _Told) -> None:
    event = {"event": "progress", "layer": 1, "done_bytes": 40, "total_bytes": 100, "rate_bytes_per_second": 20}
    assert read_line("head", json.dumps(event), told) == Progress(
        "pack", "head", "layer 1", 40, 100, rate_per_second=20, seconds_left=3.0
    )
    first = read_line("head", json.dumps(event | {"rate_bytes_per_second": 0}), told)
    assert isinstance(first, Progress) and first.seconds_left is None
