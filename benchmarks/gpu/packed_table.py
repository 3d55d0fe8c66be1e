"""A packed Engram file made up for the lookup on a GPU, and the table it holds, for comparison: numpy and torch on the
CPU only, none of the code that is measured.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from spark_overlay.engram_file import PAGE_BYTES, Header, file_name
from spark_overlay.engram_pages import build_pages

CHUNK_PAGES = 8192
WEIGHTS, SCALES = 256, 8
FACTORS = torch.tensor([2.0 ** (exponent - 127) for exponent in range(255)] + [float("inf")], dtype=torch.float32)
"""By scale byte. 255 is infinity, as in the engine's GPU kernel."""


@dataclass(frozen=True, slots=True)
class Table:
    """One rank's part of a layer. `own`: uint8 [rows, 264], the rows from `header.row_lo` on."""

    path: Path
    header: Header
    own: np.ndarray

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """uint8 [ids, 264]: zeros for the rows of other ranks."""
        header = self.header
        mine = (ids >= header.row_lo) & (ids < header.row_hi)
        rows = self.own[np.where(mine, ids - header.row_lo, 0)]
        rows[~mine] = 0
        return rows

    def draw(self, dice: np.random.Generator, count: int, *, own_only: bool = True) -> np.ndarray:
        header = self.header
        lo, hi = (header.row_lo, header.row_hi) if own_only else (0, header.total_rows)
        return dice.integers(lo, hi, count, dtype=np.int64)

    def kinds(self, dice: np.random.Generator, count: int) -> dict[str, np.ndarray]:
        """Random and adversarial ids, `count` of each kind."""
        header = self.header
        lo, hi, total = header.row_lo, header.row_hi, header.total_rows
        borders = [0, 1, lo - 1, lo, lo + 1, lo + 14, lo + 15, lo + 16, hi - 1, hi, total - 1, lo, hi - 1]
        others = np.where(dice.random(count) < 0.5, dice.integers(0, lo, count), dice.integers(hi, total, count))
        return {
            "own rows": self.draw(dice, count),
            "all ranks' rows": self.draw(dice, count, own_only=False),
            "other ranks' rows": others.astype(np.int64),
            "one row over and over": np.full(count, lo + 77_777, dtype=np.int64),
            "few rows, repeated": dice.choice(self.draw(dice, 5), count),
            "borders": dice.choice(np.array(borders, dtype=np.int64), count),
            "NaN, zero and largest bytes": lo + dice.integers(0, len(SPECIAL), count, dtype=np.int64),
        }


SPECIAL = [
    (weight, scale) for weight in (0x00, 0x80, 0x7F, 0xFF, 0x7E, 0xFE, 0x01, 0x81) for scale in (0, 1, 127, 254, 255)
]
"""(weight byte, scale byte) of the first rows: both zeros, both NaNs, the largest and the smallest of either sign."""


def expected_values(rows: np.ndarray) -> torch.Tensor:
    """bfloat16 [ids, 256] of uint8 [ids, 264]: float32 product, rounded once."""
    raw = torch.from_numpy(rows)
    weights = raw[:, :WEIGHTS].contiguous().view(torch.float8_e4m3fn).float().unflatten(-1, (SCALES, -1))
    return (weights * FACTORS[raw[:, WEIGHTS:].long()].unsqueeze(-1)).flatten(-2).to(torch.bfloat16)


def differences(found: torch.Tensor, expected: torch.Tensor) -> int:
    """Values whose bits differ; two NaNs are the same."""
    left, right = found.reshape(-1).cpu(), expected.reshape(-1)
    if left.shape != right.shape:
        return max(left.numel(), right.numel())
    other = (left.view(torch.int16) != right.view(torch.int16)) & ~(left.isnan() & right.isnan())
    return int(other.sum())


def make(folder: Path, layer: int, mebibytes: int, seed: int) -> Table:
    """Rank 1 of 3 of a table in 24 columns; the ranks beside it have as many rows."""
    chunks = max(1, mebibytes * 2**20 // (CHUNK_PAGES * PAGE_BYTES))
    rows = chunks * CHUNK_PAGES * 15 - 4  # the last page is not full
    lo, total = rows - 1001, 3 * rows
    bounds = (
        *(lo * column // 8 for column in range(8)),
        *(lo + rows * column // 8 for column in range(8)),
        *(lo + rows + (total - lo - rows) * column // 8 for column in range(9)),
    )
    header = Header(
        layer=layer, rank=1, tp=3, weight_bytes=WEIGHTS, scale_bytes=SCALES, row_lo=lo, row_hi=lo + rows,
        total_rows=total, column_lo=8, column_hi=16, by_columns=True, revision="0" * 40, fingerprint=bytes(32),
        bounds=bounds,
    )  # fmt: skip
    dice = np.random.default_rng(seed)
    own = dice.integers(0, 2**64, rows * 264 // 8, dtype=np.uint64).view(np.uint8).reshape(rows, 264)
    for place, (weight, scale) in enumerate(SPECIAL):
        own[place, :WEIGHTS], own[place, WEIGHTS:] = weight, scale
    path = folder / file_name(layer, 1, 3)
    with path.open("wb") as file:
        file.write(header.packed())
        for first in range(0, chunks * CHUNK_PAGES, CHUNK_PAGES):
            part = own[first * 15 : (first + CHUNK_PAGES) * 15]
            pages = build_pages(header, first, part[:, :WEIGHTS].tobytes(), part[:, WEIGHTS:].tobytes())
            file.write(pages.data)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return Table(path, header, own)


def damage(table: Table, page: int) -> int:
    """Flips a bit of a page of the file; returns the first id whose row lies there."""
    offset = PAGE_BYTES * (1 + page) + 100
    with table.path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))
        file.flush()
        os.fsync(file.fileno())
    return table.header.row_lo + 15 * page


def folder_for_files(wanted: Path | None) -> Path:
    """A new folder where files can be read past the page cache, if there is one."""
    candidates = [wanted] if wanted else [Path("/var/tmp"), Path(tempfile.gettempdir()), Path.cwd()]
    for candidate in candidates:
        probe = candidate / f"direct-{os.getpid()}"
        try:
            os.close(os.open(probe, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600))
        except OSError:
            continue
        finally:
            probe.unlink(missing_ok=True)
        return Path(tempfile.mkdtemp(prefix="engram-lookup-", dir=candidate))
    return Path(tempfile.mkdtemp(prefix="engram-lookup-", dir=wanted))
