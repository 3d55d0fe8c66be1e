"""The engine's opening of a rank's packed file, without an engine: what is refused, what is said, what stands in."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from spark_overlay.checkpoint_rows import CheckpointRows
from spark_overlay.engram_file import PAGE_BYTES, file_name
from spark_overlay.engram_layout import layout_from_config, shard_range
from spark_overlay.packed_rows import RowsError, Wanted, open_rows
from spark_overlay.row_store import RowStore, RowStoreError, Status
from spark_overlay.safetensors_source import read_config

from sparktui.engine.launch import launch_specs
from tests.overlay.checkpoints import write_checkpoint
from tests.overlay.conftest import OVERLAY
from tests.overlay.packing import REVISION, pack_here, table_of
from tests.overlay.row_store_library import built
from tests.unit.settings_texts import THREE_SPARKS, read

TP = 3
SOURCE = "python3 -m spark_overlay.engram pack --source"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def packed(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    for rank, tp in ((0, 3), (1, 3), (0, 4)):
        pack_here(checkpoint, folder, rank, tp)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"DSV41_PACKED_DIR": str(tmp_path), "DSV41_IO_THREADS": "4", "HF_REVISION": REVISION[:7]}


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_ROW_STORE", str(built().library))


def wanted_of(checkpoint: Path, rank: int = 0) -> Wanted:
    """Layer 1 for a rank of three, as the engine would ask."""
    layout = layout_from_config(read_config(checkpoint))
    assert layout is not None
    rows = shard_range(layout.bounds[0], rank, TP)
    return Wanted(1, rank, TP, rows.lo, rows.hi, layout.bounds[0], 256, checkpoint)


def test_a_good_file_is_opened_and_stated_in_one_line(
    checkpoint: Path, packed: Path, environment: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    wanted = wanted_of(checkpoint)
    rows = open_rows(wanted, environment | {"DSV41_PACKED_DIR": str(packed)})
    assert isinstance(rows, RowStore) and rows.strict
    [line] = [line for line in capfd.readouterr().out.splitlines() if "Exact nvme" in line]
    assert line == (
        f"[spark] Exact nvme Engram layer=1 rank=0 rows=[0,{wanted.row_hi}) cache=0.0GiB (0 slots, 4-way, "
        f"0.0% of owned rows) scales=0.0GiB io_threads=4 packed=True file={packed}/engram-l1-r0of3.bin "
        f"backend={rows.backend.name.lower()}"
    )
    rows.close()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - PAGE_BYTES)


def flipped_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[77] ^= 4
    path.write_bytes(data)


def recipes(path: Path) -> None:
    path.write_bytes(b"DSV1EN41" + path.read_bytes()[8:])


@pytest.mark.parametrize(
    ("take", "change", "more", "said"),
    [
        (file_name(1, 1, 3), None, {}, "does not match this engine and checkpoint: rank 1, wanted 0"),
        (file_name(1, 0, 4), None, {}, "does not match this engine and checkpoint: tp 4, wanted 3"),
        (file_name(14, 0, 3), None, {}, "does not match this engine and checkpoint: layer 14, wanted 1"),
        (file_name(1, 0, 3), None, {"HF_REVISION": "2222222"}, f"checkpoint revision {REVISION}, wanted 2222222"),
        (file_name(1, 0, 3), cut, {}, "bytes"),
        (file_name(1, 0, 3), flipped_header, {}, "the header's checksum is wrong"),
        (file_name(1, 0, 3), recipes, {}, "is an old file (magic DSV1EN41)"),
        (file_name(1, 0, 3), None, {"DSV41_IO_THREADS": "many"}, "DSV41_IO_THREADS=many is no whole number"),
        (file_name(1, 0, 3), None, {"DSV41_ENGRAM_FALLBACK": "ram"}, "DSV41_ENGRAM_FALLBACK=ram is neither"),
    ],
)
def test_another_file_is_refused_and_left_as_it_is(
    checkpoint: Path,
    packed: Path,
    environment: dict[str, str],
    tmp_path: Path,
    take: str,
    change: Callable[[Path], None] | None,
    more: dict[str, str],
    said: str,
) -> None:
    path = tmp_path / file_name(1, 0, 3)
    shutil.copy(packed / take, path)
    if change is not None:
        change(path)
    before = path.read_bytes()
    with pytest.raises(RowsError) as caught:
        open_rows(wanted_of(checkpoint), environment | {"DSV41_ENGRAM_FALLBACK": "checkpoint"} | more)
    assert str(caught.value).startswith("Engram rows (layer=1 rank=0 of 3): ")
    assert said in str(caught.value)
    assert path.read_bytes() == before
    if "does not match" in said:
        assert f"{SOURCE} {checkpoint} --out {tmp_path} --rank 0 --tp 3 --revision COMMIT`" in str(caught.value)


@pytest.mark.parametrize(("commit", "refused"), [(REVISION, False), ("2" * 40, True)])
def test_a_rank_that_sparktui_starts_takes_rows_of_the_recorded_commit_and_no_others(
    checkpoint: Path, packed: Path, environment: dict[str, str], tmp_path: Path, commit: str, refused: bool
) -> None:
    started = launch_specs(read(THREE_SPARKS), {0: 3, 1: 3, 2: 3}, revision=commit)[0].container.environment
    assert started["HF_REVISION"] == commit
    shutil.copy(packed / file_name(1, 0, 3), tmp_path)
    asked = environment | {"HF_REVISION": started["HF_REVISION"]}
    if not refused:
        open_rows(wanted_of(checkpoint), asked)
        return
    with pytest.raises(RowsError, match=f"checkpoint revision {REVISION}, wanted {commit}") as caught:
        open_rows(wanted_of(checkpoint), asked)
    assert f"--revision {commit}`" in caught.value.fix


def test_a_file_of_another_checkpoint_is_told_by_its_contents(
    packed: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    write_checkpoint(other, seed=2)
    shutil.copy(packed / file_name(1, 0, 3), tmp_path)
    with pytest.raises(RowsError, match=r"checkpoint contents [0-9a-f]{16}, wanted [0-9a-f]{16}"):
        open_rows(wanted_of(other), environment)


def test_a_checkpoint_without_its_tables_is_no_reason_to_refuse(
    checkpoint: Path, packed: Path, environment: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = replace(wanted_of(checkpoint), checkpoint=tmp_path / "elsewhere")
    open_rows(wanted, environment | {"DSV41_PACKED_DIR": str(packed)})
    assert "[spark] WARNING engram-l1-r0of3.bin is not compared with the checkpoint" in capsys.readouterr().out


def test_a_missing_file_names_itself_the_step_and_the_command(
    checkpoint: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(RowsError) as caught:
        open_rows(wanted_of(checkpoint, 1), environment | {"HF_REVISION": "ab" * 20})
    assert f"--revision {'ab' * 20}`;" in str(caught.value)
    with pytest.raises(RowsError) as caught:
        open_rows(wanted_of(checkpoint, 1), environment)
    assert str(caught.value) == (
        f"Engram rows (layer=1 rank=1 of 3): {tmp_path}/engram-l1-r1of3.bin is missing: this rank's rows are not "
        f"packed. Next: `sparktui pack`, which runs `{SOURCE} {checkpoint} --out {tmp_path} --rank 1 --tp 3 "
        "--revision COMMIT`; DSV41_ENGRAM_FALLBACK=checkpoint starts without it and reads the rows from the "
        "checkpoint, slowly"
    )


@pytest.mark.parametrize("rank", range(TP))
def test_the_checkpoints_own_rows_are_the_packed_ones_byte_for_byte(
    checkpoint: Path, environment: dict[str, str], rank: int, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = wanted_of(checkpoint, rank)
    for _ in range(2):
        rows = open_rows(wanted, environment | {"DSV41_ENGRAM_FALLBACK": "checkpoint"})
        assert isinstance(rows, CheckpointRows)
        said = capsys.readouterr().out
        assert said.startswith("[spark] WARNING DSV41_ENGRAM_FALLBACK=checkpoint: the Engram rows of layer=1 rank=")
        assert "packed=False" in said and SOURCE in said
    table = table_of(checkpoint / "model-00001-of-00002.safetensors")
    ids = np.random.default_rng(rank).integers(0, len(table), 4000)
    ids[:4] = (wanted.row_lo, wanted.row_hi - 1, 0, len(table) - 1)
    expected = np.where(((ids >= wanted.row_lo) & (ids < wanted.row_hi))[:, None], table[ids], 0)
    out = np.full((len(ids), 264), 9, dtype=np.uint8)
    rows.lookup(ids, out)
    assert np.array_equal(out, expected)

    # As the driver calls it: on a thread of its own, with one address.
    out[:] = 9
    request = rows.request(ids.ctypes.data, len(ids), out.ctypes.data)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(rows.host_function)
    thread = threading.Thread(target=function, args=(ctypes.addressof(request),))
    thread.start()
    thread.join(60)
    assert request.status == 0 and np.array_equal(out, expected)


def test_an_id_outside_the_table_gives_zeros_and_its_number(checkpoint: Path, environment: dict[str, str]) -> None:
    rows = open_rows(wanted_of(checkpoint), environment | {"DSV41_ENGRAM_FALLBACK": "checkpoint"})
    out = np.full((2, 264), 9, dtype=np.uint8)
    with pytest.raises(RowStoreError, match="id -1 is outside the table") as caught:
        rows.lookup(np.array([0, -1]), out)
    assert caught.value.status is Status.BAD_ID and not out.any()


ENDS = """
import ctypes, sys
sys.path[:0] = [sys.argv[1]]
import os
from pathlib import Path
import numpy as np
from spark_overlay.packed_rows import Wanted, open_rows
checkpoint, bounds = Path(sys.argv[2]), tuple(map(int, sys.argv[3].split(",")))
rows = open_rows(Wanted(1, 0, 1, 0, bounds[-1], bounds, 256, checkpoint), os.environ)
for path in checkpoint.glob("*.safetensors"):
    os.truncate(path, 5000)
ids, out = np.array([bounds[-1] - 1]), np.zeros((1, 264), dtype=np.uint8)
request = rows.request(ids.ctypes.data, 1, out.ctypes.data)
ctypes.CFUNCTYPE(None, ctypes.c_void_p)(rows.host_function)(ctypes.addressof(request))
print("went on")
"""


def test_a_checkpoint_that_ends_meanwhile_ends_the_process_with_file_and_row(tmp_path: Path) -> None:
    bounds = write_checkpoint(tmp_path / "checkpoint").bounds[0]
    done = subprocess.run(
        [sys.executable, "-B", "-c", ENDS, OVERLAY, tmp_path / "checkpoint", ",".join(map(str, bounds))],
        env={**os.environ, "DSV41_PACKED_DIR": str(tmp_path), "DSV41_ENGRAM_FALLBACK": "checkpoint"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 71 and "went on" not in done.stdout
    assert f"[spark] ERROR Engram rows: {tmp_path}/checkpoint/model-00001-of-00002.safetensors at byte" in done.stderr
    assert f"row {bounds[-1] - 1}: the file ends" in done.stderr
