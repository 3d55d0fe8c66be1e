"""The packer as its user meets it: a process, JSON lines, files; every row once, nothing foreign overwritten."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spark_overlay import engram_pack
from spark_overlay.engram_file import FileError
from spark_overlay.row_store import Options, RowStore, load

from tests.overlay.checkpoints import write_checkpoint
from tests.overlay.packing import (
    COMMAND,
    ENVIRONMENT,
    REVISION,
    jobs,
    pack_argv,
    pack_here,
    rows_of,
    run,
    run_all,
    table_of,
)  # fmt: skip
from tests.overlay.row_store_library import built


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables of some 146,000 rows each."""
    folder = tmp_path_factory.mktemp("wide")
    write_checkpoint(folder, vocab=6007)
    return folder


@pytest.mark.parametrize("tp", [1, 3, 4])
def test_the_union_over_the_ranks_is_the_table_in_the_files_and_through_the_row_store(
    wide: Path, tmp_path: Path, tp: int
) -> None:
    made = [pack_here(wide, tmp_path, rank, tp) for rank in range(tp)]
    library = load(built().library)
    for number in range(2):
        table = table_of(wide / f"model-{number + 1:05d}-of-00002.safetensors")
        ids = np.random.default_rng(tp).permutation(len(table))
        union, looked_up = np.zeros_like(table), np.zeros((len(ids), 264), dtype=np.uint8)
        at = 0
        for rank in range(tp):
            found = rows_of(made[rank][number])
            assert found.lo == at, "ranks follow each other"
            union[found.lo : found.hi], at = found.rows, found.hi
            header = jobs(wide, tmp_path, rank, tp)[number].header
            out = np.empty_like(looked_up)
            with RowStore(made[rank][number], expected=header, options=Options(quiet=True), library=library) as store:
                store.lookup(ids, out)
            assert not (out.any(axis=1) & looked_up.any(axis=1)).any(), "a row has one owner"
            looked_up |= out
        assert at == len(table) > 140_000
        assert np.array_equal(union, table)
        assert np.array_equal(looked_up, table[ids])


def test_a_column_count_that_does_not_divide_is_packed_by_equal_rows(small: Path, tmp_path: Path) -> None:
    table = table_of(small / "model-00001-of-00002.safetensors")
    found = [rows_of(pack_here(small, tmp_path, rank, 5)[0]) for rank in range(5)]
    assert np.array_equal(np.vstack([each.rows for each in found]), table)


@pytest.mark.parametrize("library", ["row store", "none"])
def test_the_command_makes_both_files_and_says_by_what(small: Path, tmp_path: Path, library: str) -> None:
    place = str(built().library) if library == "row store" else "/nonexistent/librow_store.so"
    status, events = run_all(pack_argv(small, tmp_path), ENVIRONMENT | {"SPARK_ROW_STORE": place})
    assert status == 0
    assert [event["event"] for event in events if event["event"] not in ("note", "progress")] == ["done", "done"]
    said = [event["text"] for event in events if event["event"] == "note"]
    assert said[0] == "row ranges by this program's own derivation: no sglang in this Python"
    assert said[1].startswith("pages by " + ("the row store's library" if library == "row store" else "numpy, slower"))
    made = pack_here(small, tmp_path / "here")
    assert [path.read_bytes() for path in made] == [(tmp_path / path.name).read_bytes() for path in made]


def test_a_second_run_skips_and_changes_nothing(small: Path, tmp_path: Path) -> None:
    pack_here(small, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    status, events = run(pack_argv(small, tmp_path))
    assert (status, [event["event"] for event in events]) == (0, ["skipped", "skipped"])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


ENGINE = """
import torch_of_no_use_here
from typing import Optional
_STEP = 1
def next_prime(start: "torch_of_no_use_here.Tensor", seen):
    number = start + _STEP
    while number in seen or any(number % factor == 0 for factor in range(2, int(number**0.5) + 1)):
        number += _STEP
    return number
class EngramLayout:
    @classmethod
    def from_config(cls, config) -> Optional[torch_of_no_use_here.Tensor]:
        found, seen = cls(), set()
        found.primes = []
        for _ in config.engram_layer_ids:
            for _ in range(config.engram_max_ngram_size - 1):
                number = config.engram_vocab_size - 1
                for _ in range(config.engram_n_heads):
                    number = next_prime(number, seen)
                    seen.add(number)
                    found.primes.append(number)
        return found
    def column_bounds(self, index):
        mine = self.primes[24 * index : 24 * index + 24]
        return tuple(sum(mine[:count]) for count in range(25))
def shard_range(rows, bounds, rank, size):
    each = 24 // size
    return bounds[rank * each], bounds[(rank + 1) * each]
raise RuntimeError("the module itself is never executed")
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("", ""), None),
        (("24 // size", "24 // size - 1"), r"layer 1: .*rank 0 of 3 the rows \[0, .*\), this program derives \[0"),
        (("vocab_size - 1", "vocab_size"), "layer 1: .*draws other columns: bound 1 is 223, not 211"),
        (("range(25)", "range(24)"), "layer 1: .*draws other columns: 23, not 24"),
        (
            ("return bounds[rank", "assert rows == 1, 'the table is another'; return bounds[rank"),
            "the table is another",
        ),
    ],
)
def test_the_engines_own_ranges_are_asked_and_a_disagreement_ends_the_packing(
    small: Path, tmp_path: Path, change: tuple[str, str], said: str | None
) -> None:
    place = tmp_path / "python/sglang/srt/layers/engram.py"
    place.parent.mkdir(parents=True)
    (tmp_path / "python/sglang/__init__.py").write_text("raise RuntimeError('not imported')\n")
    place.write_text(ENGINE.replace(*change) if change[0] else ENGINE)
    path = f"{ENVIRONMENT['PYTHONPATH']}{os.pathsep}{tmp_path / 'python'}"
    status, events = run_all(pack_argv(small, tmp_path / "out"), ENVIRONMENT | {"PYTHONPATH": path})
    if said is None:
        assert status == 0
        assert re.fullmatch("row ranges by sglang .*'s own shard_range", events[0]["text"])
        return
    assert status == 1
    assert re.search(said, events[-1]["what"]), events
    assert not (tmp_path / "out").exists()


def test_an_engine_without_these_functions_is_stated(small: Path, tmp_path: Path) -> None:
    place = tmp_path / "python/sglang/srt/layers/engram.py"
    place.parent.mkdir(parents=True)
    place.write_text("def something_else(): ...\n")
    path = f"{ENVIRONMENT['PYTHONPATH']}{os.pathsep}{tmp_path / 'python'}"
    status, events = run_all(pack_argv(small, tmp_path / "out"), ENVIRONMENT | {"PYTHONPATH": path})
    assert status == 0
    assert events[0]["text"].startswith("row ranges by this program's own derivation: sglang ")
    assert "KeyError: 'EngramLayout'" in events[0]["text"]


def test_space_is_checked_before_anything_is_written(small: Path, tmp_path: Path, monkeypatch: Any) -> None:
    wanted = jobs(small, tmp_path, 0, 3)
    full = os.statvfs_result((4096, 4096, 100, 10, 10, 1, 1, 1, 0, 255))
    monkeypatch.setattr(engram_pack.os, "statvfs", lambda _: full)
    with pytest.raises(FileError, match="short"):
        engram_pack.check_space(wanted, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_checkpoint_is_an_error_line_not_a_traceback(tmp_path: Path) -> None:
    status, events = run(pack_argv(tmp_path / "none", tmp_path))
    assert status == 1 and events[-1]["event"] == "error" and "share" in events[-1]["fix"]


def test_a_shard_that_is_still_being_downloaded_is_named(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c")
    shard = tmp_path / "c" / "model-00002-of-00002.safetensors"
    os.truncate(shard, shard.stat().st_size - 1)
    status, events = run(pack_argv(tmp_path / "c", tmp_path))
    assert status == 1 and "model-00002-of-00002" in events[-1]["what"]


def test_a_model_without_engram_has_nothing_to_pack(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    status, events = run(pack_argv(tmp_path, tmp_path))
    assert (status, events[0]["event"], events[0]["bytes"]) == (0, "skipped", 0)


def test_info_prints_the_header(small: Path, tmp_path: Path) -> None:
    path = pack_here(small, tmp_path)[1]
    status, [told] = run([*COMMAND, "info", str(path)])
    assert status == 0
    rows = struct.unpack("<2Q", path.read_bytes()[48:64])
    assert (told["layer"], told["rank"], told["tp"], told["revision"]) == (14, 1, 3, REVISION)
    assert (told["row_lo"], told["row_hi"]) == rows == tuple(told["column_bounds"][at] for at in (8, 16))
    assert (told["bytes"], told["complete"], told["by_columns"]) == (path.stat().st_size, True, True)
    os.truncate(path, 5000)
    assert run([*COMMAND, "info", str(path)])[1][0]["complete"] is False
