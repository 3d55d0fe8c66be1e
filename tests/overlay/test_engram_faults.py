"""Packed files with something wrong in them: what pack, check and the row store say. docs/engram.md has the table."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from spark_overlay import engram, engram_check, engram_pack
from spark_overlay.crc32c import crc32c
from spark_overlay.engram_file import CRC_OFFSET, FileError
from spark_overlay.row_store import Options, RowStore, RowStoreError, load

from tests.overlay.checkpoints import write_checkpoint
from tests.overlay.packing import REVISION, jobs, pack_here
from tests.overlay.row_store_library import built

NAME = "engram-l1-r1of3.bin"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "engram.md"


@dataclass(frozen=True, slots=True)
class Made:
    """A checkpoint, another one of equal shape, and rank 1 of 3 of the first."""

    model: Path
    other: Path
    packed: Path
    table: np.ndarray


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    from tests.overlay.packing import table_of

    folder = tmp_path_factory.mktemp("faults")
    write_checkpoint(folder / "model", layers=(1,))
    write_checkpoint(folder / "other", layers=(1,), seed=2)
    [path] = pack_here(folder / "model", folder / "good")
    return Made(folder / "model", folder / "other", path, table_of(next((folder / "model").glob("*.safetensors"))))


def flip(place: int, bit: int = 4) -> Callable[[Made, Path], None]:
    def change(_: Made, path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[place] ^= bit
        path.write_bytes(data)

    return change


def cut(size: int) -> Callable[[Made, Path], None]:
    def change(_: Made, path: Path) -> None:
        path.write_bytes(path.read_bytes()[:size])

    return change


def instead(rank: int = 1, tp: int = 3, revision: str = REVISION, other: bool = False) -> Callable[[Made, Path], None]:
    def change(made: Made, path: Path) -> None:
        [found] = pack_here(made.other if other else made.model, path.parent / "other", rank, tp, revision)
        shutil.move(found, path)

    return change


def old_layout(_: Made, path: Path) -> None:
    path.write_bytes(struct.pack("<6Q", 0x31344E4531565344, 1, 0, 10, 30, 264).ljust(4096, b"\0") + bytes(2640))


def moved_page(_: Made, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 5 : 4096 * 6] = data[4096 * 6 : 4096 * 7]
    path.write_bytes(data)


def later_version(_: Made, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8] = 3
    data[CRC_OFFSET : CRC_OFFSET + 4] = struct.pack("<I", crc32c(bytes(data[:CRC_OFFSET])))
    path.write_bytes(data)


def sealed_nonsense(_: Made, path: Path) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("<3I", data, 28, 0, 0, 0)  # rows of no bytes
    data[CRC_OFFSET : CRC_OFFSET + 4] = struct.pack("<I", crc32c(bytes(data[:CRC_OFFSET])))
    path.write_bytes(data)


def notes(_: Made, path: Path) -> None:
    path.write_bytes(b"somebody's notes\n" * 500)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, how it is made, and a part of what each of the three says of it."""

    what: str
    make: Callable[[Made, Path], None]
    pack: str
    check: str
    store: str


PROMISED = r"5000 bytes, its header promises \d+"
FAULTS = [
    Fault("cut in a page", cut(5000), r"5000 bytes, wanted \d+", PROMISED, PROMISED),
    Fault("cut in the header", cut(100), "ends inside its header", "ends inside its header", "ends inside its header"),
    Fault("one byte too many", lambda m, p: p.write_bytes(p.read_bytes() + b"\0") and None, r"bytes, wanted \d+",
          r"its header promises \d+", r"its header promises \d+"),
    Fault("flipped bit in a row", flip(4096 * 30 + 700), r"page 29 does not verify \(checksum or page number\)",
          "page 29", r"offset 122880 \(page 29\): wrong checksum, twice"),
    Fault("flipped bit in a page's CRC", flip(4096 * 30 + 4093), r"page 29 does not verify \(checksum or page number\)",
          "page 29", r"offset 122880 \(page 29\): wrong checksum, twice"),
    Fault("flipped bit in the header", flip(50), "the header's checksum is wrong", "the header's checksum is wrong",
          "the header's checksum is wrong"),
    Fault("a page in another's place", moved_page, r"page 4 does not verify \(checksum or page number\)", "page 4",
          r"offset 20480 \(page 4\): the page there is another page, twice"),
    Fault("another rank's file", instead(rank=0), "is another file: rank 0, wanted 1",
          "is another file: inside are layer 1, rank 0 of 3", "does not fit: rank 0, wanted 1"),
    Fault("another TP's file", instead(tp=4), "is another file: tp 4, wanted 3",
          "is another file: inside are layer 1, rank 1 of 4", "does not fit: tp 4, wanted 3"),
    Fault("another revision's file", instead(revision="fb2764a"), "checkpoint revision fb2764a, wanted 1bae0e1",
          "checkpoint revision fb2764a, wanted 1bae0e1", "checkpoint revision fb2764a, wanted 1bae0e1"),
    Fault("another checkpoint's file", instead(other=True), "is another file: checkpoint contents",
          "is not the checkpoint that .* was packed from: other contents", "checkpoint contents"),
    Fault("an old file", old_layout, r"is an old file \(magic DSV1EN41\): equal-row shards, which SGLang 0.5.23",
          r"is an old file \(magic DSV1EN41\)", r"is an old file \(magic DSV1EN41\)"),
    Fault("a later layout", later_version, "has layout version 3, this program reads version 2", "layout version 3",
          "layout version 3"),
    Fault("a header of nonsense", sealed_nonsense, "the header contradicts itself", "the header contradicts itself",
          "the header contradicts itself"),
    Fault("something else", notes, "is no packed Engram file", "is no packed Engram file", "is no packed Engram file"),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what.replace(" ", "-"))
def test_a_wrong_file_is_refused_with_the_reason_and_left_alone(fault: Fault, made: Made, tmp_path: Path) -> None:
    path = tmp_path / NAME
    shutil.copyfile(made.packed, path)
    fault.make(made, path)
    before = (path.read_bytes(), path.stat().st_mtime_ns)

    [job] = jobs(made.model, tmp_path)
    for act in (lambda: engram_pack.is_done(job), lambda: engram_pack.pack(job, lambda _: None)):
        with pytest.raises(FileError, match=fault.pack) as caught:
            act()
        packs = caught.value.what
        assert str(path) in caught.value.what and f"moving {path} away" in caught.value.fix

    try:
        result = engram_check.check(path, made.model, 50, revision=REVISION)
        assert result["bad_pages"] == 1 and result["first_bad"] == fault.check
        checks, step = engram._bad(result)["what"], engram._bad(result)["fix"]
    except FileError as error:
        checks, step = error.what, error.fix
        assert re.search(fault.check, error.what) and str(path) in error.what + error.fix

    said = store_says(path, job, made)
    assert re.search(fault.store, said), said
    assert str(path) in said
    assert f"move {path} away" in step or f"moving {path} away" in step
    told = {"pack": packs, "check": checks, "row store": said}
    row = guide()[fault.what]
    assert {who: text for who, text in told.items() if not agrees(row[who], text, path)} == {}, row
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def store_says(path: Path, job: engram_pack.Job, made: Made) -> str:
    """At opening, or at the first row that it may not give; every row that it gives before is right."""
    try:
        with RowStore(path, expected=job.header, options=Options(quiet=True), library=load(built().library)) as store:
            for row in range(job.header.row_lo, job.header.row_hi):
                out = np.zeros((1, 264), dtype=np.uint8)
                store.lookup(np.array([row]), out)
                assert np.array_equal(out[0], made.table[row]), "a wrong row"
    except RowStoreError as error:
        return str(error)
    return ""


def test_a_row_that_verifies_but_is_not_the_checkpoints_is_found(made: Made, tmp_path: Path) -> None:
    """As a packer with a fault of its own would make it: page and checksum are right, the row is not."""
    path = tmp_path / NAME
    data = bytearray(made.packed.read_bytes())
    at = 4096 * 8
    data[at + 264 * 2 + 260] ^= 1
    data[at + 4092 : at + 4096] = struct.pack("<I", crc32c(bytes(data[at : at + 4092])))
    path.write_bytes(data)
    header = jobs(made.model, tmp_path)[0].header
    result = engram_check.check(path, made.model)
    assert (result["bad_pages"], result["bad_rows"], result["rows"]) == (0, 1, header.rows)
    assert result["first_bad"] == f"row {header.row_lo + 7 * 15 + 2}"
    assert engram_check.check(path)["first_bad"] is None, "without the checkpoint nothing is wrong with it"


def test_a_file_checked_against_a_checkpoint_of_other_tables_is_refused(made: Made, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "larger", vocab=307, layers=(1,))
    with pytest.raises(FileError, match=r"has rows \[.*larger wants \["):
        engram_check.check(made.packed, tmp_path / "larger")
    write_checkpoint(tmp_path / "elsewhere", layers=(14,))
    with pytest.raises(FileError, match="has no Engram layer 1"):
        engram_check.check(made.packed, tmp_path / "elsewhere")


def guide() -> dict[str, dict[str, str]]:
    """The guide's table: fault -> who says what, with `the same` (as the cell before) and `as above` written out."""
    rows: dict[str, dict[str, str]] = {}
    above = [""] * 4
    for line in GUIDE.read_text(encoding="utf-8").split("| fault | pack |")[1].splitlines()[2:]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for at, cell in enumerate(cells):
            cells[at] = {"the same": cells[at - 1], "as above": above[at]}.get(cell, cell)
        above = cells
        rows[cells[0]] = dict(zip(("pack", "check", "row store"), cells[1:], strict=True))
    return rows


def agrees(cell: str, text: str, path: Path) -> bool:
    """Whether a cell's words are what was said; … is the path, N a number, A anything without a space."""
    pattern = re.escape(cell).replace("…", re.escape(str(path)))
    pattern = re.sub(r"\bN\b", lambda _: r"\d+", pattern)
    return re.match(re.sub(r"\bA\b", lambda _: r"\S+", pattern), text) is not None


def test_the_guide_has_every_fault_and_no_other() -> None:
    assert set(guide()) == {fault.what for fault in FAULTS}
    assert all(
        cell and not cell.startswith(("the same", "as above")) for row in guide().values() for cell in row.values()
    )
