"""The packed Engram file, version 2: one file a layer and rank, little-endian, every page verifiable.

Header, 4,096 bytes:

    offset  type     meaning
         0  8 bytes  magic "SPKENG02"
         8  u32      version, 2
        12  u32      header bytes, 4096
        16  u32      layer        20  u32  rank        24  u32  tp
        28  u32      row bytes (264)   32  u32  weight bytes (256)   36  u32  scale bytes (8)
        40  u32      page bytes, 4096  44  u32  rows a page (15)
        48  u64      first row         56  u64  one past the last row
        64  u64      rows of the whole table     72  u64  pages in this file
        80  u32      first column      84  u32  one past the last column
        88  u32      columns of the whole table  92  u32  flags: bit 0 = the range is whole columns
        96  64 bytes checkpoint revision, ASCII, zero-padded
       160  32 bytes fingerprint of the source (see safetensors_source.fingerprint)
       192  u32      number of column bounds      196  u32  zero
       200  u64 * n  column bounds of the table, first 0, last its rows
      4092  u32      CRC32C of bytes 0-4091

Page p, 4,096 bytes at 4096 * (1 + p): 15 rows of 264 bytes (weights, then scales; unused slots of the last page are
zero), at 3960 u64 the page number p, zeros, at 4092 u32 the CRC32C of bytes 0-4091. With other row sizes the number
follows the last whole slot in the same way: rows a page = (4096 - 16) // row bytes. Row r is slot (r - first) % 15 of
page (r - first) // 15. No row crosses a page.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise

from spark_overlay.crc32c import crc32c

MAGIC = b"SPKENG02"
OLD_MAGIC = b"DSV1EN41"
"""What the public recipe's packer writes: equal-row shards without checksums, which SGLang 0.5.23 does not use."""
VERSION = 2
HEADER_BYTES = 4096
PAGE_BYTES = 4096
PAGE_TAIL_BYTES = 16
CRC_OFFSET = PAGE_BYTES - 4
REVISION_BYTES = 64
_FIXED = struct.Struct("<8s10I4Q4I64s32s2I")
assert _FIXED.size == 200
MAX_BOUNDS = (HEADER_BYTES - 4 - _FIXED.size) // 8


class FileError(Exception):
    """A packed file that cannot be used: `what` is wrong and `fix` says what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Header:
    """What one packed file holds. Row numbers are the whole table's."""

    layer: int
    rank: int
    tp: int
    weight_bytes: int
    scale_bytes: int
    row_lo: int
    row_hi: int
    total_rows: int
    column_lo: int
    column_hi: int
    by_columns: bool
    revision: str
    fingerprint: bytes
    bounds: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return self.weight_bytes + self.scale_bytes

    @property
    def rows_per_page(self) -> int:
        return (PAGE_BYTES - PAGE_TAIL_BYTES) // self.row_bytes

    @property
    def rows(self) -> int:
        return self.row_hi - self.row_lo

    @property
    def pages(self) -> int:
        return -(-self.rows // self.rows_per_page)

    @property
    def number_offset(self) -> int:
        """Where a page's number stands in it."""
        return self.rows_per_page * self.row_bytes

    @property
    def file_bytes(self) -> int:
        return HEADER_BYTES + self.pages * PAGE_BYTES

    def packed(self) -> bytes:
        revision = self.revision.encode("ascii")
        if len(revision) > REVISION_BYTES or len(self.fingerprint) != 32 or len(self.bounds) > MAX_BOUNDS:
            raise ValueError("revision, fingerprint or column bounds do not fit the header")
        fixed = _FIXED.pack(
            MAGIC, VERSION, HEADER_BYTES, self.layer, self.rank, self.tp,
            self.row_bytes, self.weight_bytes, self.scale_bytes, PAGE_BYTES, self.rows_per_page,
            self.row_lo, self.row_hi, self.total_rows, self.pages,
            self.column_lo, self.column_hi, len(self.bounds) - 1, int(self.by_columns),
            revision, self.fingerprint, len(self.bounds), 0,
        )  # fmt: skip
        body = (fixed + struct.pack(f"<{len(self.bounds)}Q", *self.bounds)).ljust(CRC_OFFSET, b"\0")
        return body + struct.pack("<I", crc32c(body))

    def difference(self, other: Header) -> str | None:
        """In words, the first thing in which `other` (a file found) differs from this header (the one wanted); None if
        nothing.
        """
        for label, mine, theirs in (
            ("layer", self.layer, other.layer),
            ("tp", self.tp, other.tp),
            ("rank", self.rank, other.rank),
            ("rows", f"[{self.row_lo}, {self.row_hi})", f"[{other.row_lo}, {other.row_hi})"),
            ("row bytes", self.row_bytes, other.row_bytes),
            ("checkpoint revision", self.revision, other.revision),
            ("checkpoint contents", self.fingerprint.hex()[:16], other.fingerprint.hex()[:16]),
        ):
            if mine != theirs:
                return f"{label} {theirs}, wanted {mine}"
        return None if self == other else "another column layout"


def file_name(layer: int, rank: int, tp: int) -> str:
    return f"engram-l{layer}-r{rank}of{tp}.bin"


def parse_header(data: bytes, name: str) -> Header:
    """The header from a file's first 4,096 bytes. Raises FileError that says which kind of wrong file it is."""
    remove = f"pack again after moving {name} away"
    if data[:8] == OLD_MAGIC:
        raise FileError(
            f"{name} is an old file (magic DSV1EN41): equal-row shards, which SGLang 0.5.23 does not use",
            remove,
        )
    if data[:8] != MAGIC:
        raise FileError(f"{name} is no packed Engram file (magic {data[:8]!r})", remove)
    if len(data) < HEADER_BYTES:
        raise FileError(f"{name} ends inside its header", remove)
    if struct.unpack_from("<I", data, CRC_OFFSET)[0] != crc32c(data[:CRC_OFFSET]):
        raise FileError(f"{name}: the header's checksum is wrong", remove)
    fields = _FIXED.unpack_from(data)
    shape, place = fields[:11], fields[11:]
    _, version, header_bytes, layer, rank, tp, row_bytes, weight_bytes, scale_bytes, page_bytes, rows_per_page = shape
    row_lo, row_hi, total_rows, pages, column_lo, column_hi, columns, flags, revision, fingerprint, count, _ = place
    if version != VERSION or header_bytes != HEADER_BYTES or page_bytes != PAGE_BYTES or not 2 <= count <= MAX_BOUNDS:
        raise FileError(f"{name} has layout version {version}, this program reads version {VERSION}", remove)
    if not 0 < weight_bytes + scale_bytes <= PAGE_BYTES - PAGE_TAIL_BYTES:
        raise FileError(f"{name}: the header contradicts itself", remove)
    header = Header(
        layer=layer, rank=rank, tp=tp, weight_bytes=weight_bytes, scale_bytes=scale_bytes,
        row_lo=row_lo, row_hi=row_hi, total_rows=total_rows, column_lo=column_lo, column_hi=column_hi,
        by_columns=bool(flags & 1), revision=revision.rstrip(b"\0").decode("ascii", "replace"), fingerprint=fingerprint,
        bounds=struct.unpack_from(f"<{count}Q", data, _FIXED.size),
    )  # fmt: skip
    bounds, meant = header.bounds, (header.row_bytes, header.rows_per_page, header.pages, len(header.bounds) - 1)
    sound = (row_bytes, rows_per_page, pages, columns) == meant and rank < tp and row_lo < row_hi <= total_rows
    sound = sound and bounds[0] == 0 and bounds[-1] == total_rows and all(a < b for a, b in pairwise(bounds))
    sound = sound and column_lo < column_hi <= columns
    if sound and header.by_columns:
        sound = (bounds[column_lo], bounds[column_hi]) == (row_lo, row_hi)
    if not sound:
        raise FileError(f"{name}: the header contradicts itself", remove)
    return header
