"""The packer as its user meets it: a process, JSON lines, files; killed, resumed, damaged, refused."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark_overlay import engram_pack
from spark_overlay.engram_file import FileError, parse_header
from spark_overlay.engram_layout import shard_range

from tests.overlay.checkpoints import write_checkpoint
from tests.overlay.conftest import OVERLAY

COMMAND = [sys.executable, "-m", "spark_overlay.engram"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(OVERLAY), "PYTHONDONTWRITEBYTECODE": "1"}


def pack_argv(source: Path, out: Path, rank: int = 1, tp: int = 3, revision: str = "1bae0e1") -> list[str]:
    options = ["--source", str(source), "--out", str(out), "--rank", str(rank), "--tp", str(tp), "--revision", revision]
    return [*COMMAND, "pack", *options]


def run(argv: list[str]) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(argv, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 190 MB a layer, so that a packer can be killed in the middle of it."""
    folder = tmp_path_factory.mktemp("large")
    write_checkpoint(folder, vocab=30011, layers=(1,))
    return folder


@pytest.mark.parametrize("tp", [1, 3, 4, 5])
def test_every_row_of_the_table_lies_in_exactly_one_rank_and_reads_back(small: Path, tmp_path: Path, tp: int) -> None:
    for rank in range(tp):
        status, events = run(pack_argv(small, tmp_path, rank, tp))
        assert status == 0 and [event["event"] for event in events if event["event"] != "progress"] == ["done", "done"]
    layout = write_checkpoint(tmp_path / "again")
    for number, (layer, bounds) in enumerate(zip(layout.layer_ids, layout.bounds, strict=True)):
        data = (small / f"model-{number + 1:05d}-of-00002.safetensors").read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        rows = 0
        for rank in range(tp):
            packed = (tmp_path / f"engram-l{layer}-r{rank}of{tp}.bin").read_bytes()
            header = parse_header(packed[:4096], "file")
            part = shard_range(bounds, rank, tp)
            assert (header.row_lo, header.row_hi, len(packed)) == (part.lo, part.hi, header.file_bytes)
            for row in range(part.lo, part.hi):
                page, slot = divmod(row - part.lo, 15)
                at = 4096 * (1 + page) + 264 * slot
                weight = data[start + 256 * row :][:256]
                scale = data[start + 256 * bounds[-1] + 8 * row :][:8]
                assert packed[at : at + 264] == weight + scale
                rows += 1
        assert rows == bounds[-1]


def test_a_second_run_skips_and_changes_nothing(small: Path, tmp_path: Path) -> None:
    run(pack_argv(small, tmp_path))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    status, events = run(pack_argv(small, tmp_path))
    assert (status, [event["event"] for event in events]) == (0, ["skipped", "skipped"])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_killed_in_the_middle_it_goes_on_where_it_was(large: Path, tmp_path: Path) -> None:
    argv = pack_argv(large, tmp_path, 0, 1)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as first:
        partial = tmp_path / "engram-l1-r0of1.bin.partial"
        assert first.stdout is not None
        first.stdout.readline()
        while not partial.exists() or partial.stat().st_size < 24 << 20:
            assert first.poll() is None, "the packer ended before it could be killed"
        os.kill(first.pid, signal.SIGKILL)
    assert not partial.with_suffix("").exists()
    kept = partial.stat().st_size
    status, events = run(argv)
    assert status == 0
    resumed = next(event for event in events if event["event"] == "progress")
    assert kept - 4096 <= resumed["done_bytes"] <= kept, "whole pages that were written are not written again"
    status, events = run([*COMMAND, "check", str(partial.with_suffix("")), "--source", str(large), "--sample", "300"])
    assert status == 0 and events[0]["bad_pages"] == events[0]["bad_rows"] == 0
    assert run([*COMMAND, "check", str(partial.with_suffix(""))])[0] == 0


def test_damage_at_the_end_of_a_partial_file_is_written_anew(small: Path, tmp_path: Path) -> None:
    run(pack_argv(small, tmp_path))
    good = tmp_path / "engram-l1-r1of3.bin"
    whole = good.read_bytes()
    partial = good.with_name(good.name + ".partial")
    good.unlink()
    # As after a power loss: the length is there, the last pages are zeros, one page is torn.
    partial.write_bytes(whole[: 4096 * 20] + bytes(4096 * 7) + whole[:100])
    status, events = run(pack_argv(small, tmp_path))
    assert status == 0 and events[1]["event"] == "progress" and events[1]["done_bytes"] == 4096 * 20
    assert good.read_bytes() == whole


def test_a_partial_file_of_another_checkpoint_starts_anew(small: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_checkpoint(other, seed=2)
    run(pack_argv(other, tmp_path))
    good = tmp_path / "engram-l1-r1of3.bin"
    good.rename(good.with_name(good.name + ".partial"))
    (tmp_path / "engram-l14-r1of3.bin").unlink()
    assert run(pack_argv(small, tmp_path))[0] == 0
    assert run([*COMMAND, "check", str(good), "--source", str(small)])[0] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"revision": "fb2764a"}, "checkpoint revision 1bae0e1, wanted fb2764a"),
        ({"seed": 2}, "checkpoint contents"),
    ],
)
def test_a_file_of_another_checkpoint_is_refused_and_kept(
    small: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    run(pack_argv(small, tmp_path))
    before = (tmp_path / "engram-l1-r1of3.bin").read_bytes()
    source = small
    if "seed" in change:
        source = tmp_path / "other"
        write_checkpoint(source, seed=change["seed"])
    status, events = run(pack_argv(source, tmp_path, revision=change.get("revision", "1bae0e1")))
    assert status == 1 and said in events[-1]["what"] and "moving" in events[-1]["fix"]
    assert (tmp_path / "engram-l1-r1of3.bin").read_bytes() == before


def test_another_ranks_file_under_this_name_is_refused(small: Path, tmp_path: Path) -> None:
    run(pack_argv(small, tmp_path, 0))
    (tmp_path / "engram-l1-r0of3.bin").rename(tmp_path / "engram-l1-r1of3.bin")
    status, events = run(pack_argv(small, tmp_path, 1))
    assert status == 1 and "rank 0, wanted 1" in events[-1]["what"]


def test_a_file_of_the_old_layout_is_refused_with_the_reason(small: Path, tmp_path: Path) -> None:
    old = tmp_path / "engram-l1-r1of3.bin"
    old.write_bytes(struct.pack("<6Q", 0x31344E4531565344, 1, 0, 10, 30, 264).ljust(4096, b"\0") + bytes(2640))
    status, events = run(pack_argv(small, tmp_path))
    assert status == 1 and "DSV1EN41" in events[-1]["what"] and "0.5.23" in events[-1]["what"]
    assert old.stat().st_size == 4096 + 2640


def test_a_cut_file_and_a_flipped_bit_are_named(small: Path, tmp_path: Path) -> None:
    run(pack_argv(small, tmp_path))
    good = tmp_path / "engram-l14-r1of3.bin"
    with good.open("r+b") as file:
        file.seek(4096 * 31 + 700)
        byte = file.read(1)
        file.seek(4096 * 31 + 700)
        file.write(bytes([byte[0] ^ 4]))
    status, events = run([*COMMAND, "check", str(good)])
    assert status == 1 and events[-1]["first_bad"] == "page 30" and events[-1]["bad_pages"] == 1
    os.truncate(good, 5000)
    status, events = run(pack_argv(small, tmp_path))
    assert status == 1 and "5000 bytes" in events[-1]["what"]


def test_a_page_in_the_wrong_place_does_not_verify(small: Path, tmp_path: Path) -> None:
    run(pack_argv(small, tmp_path))
    good = tmp_path / "engram-l14-r1of3.bin"
    data = bytearray(good.read_bytes())
    data[4096 * 5 : 4096 * 6] = data[4096 * 6 : 4096 * 7]
    good.write_bytes(data)
    assert run([*COMMAND, "check", str(good)])[1][-1]["first_bad"] == "page 4"


def test_space_is_checked_before_anything_is_written(small: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from spark_overlay.engram_layout import layout_from_config
    from spark_overlay.safetensors_source import read_config

    layout = layout_from_config(read_config(small))
    assert layout is not None
    jobs = engram_pack.plan(small, tmp_path, layout, 0, 3, "1bae0e1")
    full = os.statvfs_result((4096, 4096, 100, 10, 10, 1, 1, 1, 0, 255))
    monkeypatch.setattr(engram_pack.os, "statvfs", lambda _: full)
    with pytest.raises(FileError, match="short"):
        engram_pack.check_space(jobs, tmp_path)
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


def test_packing_stays_below_300_mb_of_memory(large: Path, tmp_path: Path) -> None:
    watch = (
        "import resource,subprocess,sys\n"
        "subprocess.run(sys.argv[1:],check=True,stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", watch, *pack_argv(large, tmp_path, 0, 1)],
        capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=True,
    )  # fmt: skip
    assert int(done.stdout) * 1024 < 300e6
