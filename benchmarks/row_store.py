"""Engram rows from a file: both back ends of the row store beside fio and beside one pread at a time, in one run.

    python benchmarks/row_store.py [--folder F] [--gib 6] [--seconds 3] [--rounds 3] [--depth 96] [--json]

Needs g++ and fio. A synthetic packed file (real pages, every row of this rank) is written to the folder, which must
be on the drive in question, and removed at the end. All reads are O_DIRECT, fio's too: the page cache takes no part,
however large it is. (A virtual drive may have a cache of its own below; fio has the same.) In each round every case
runs once after another; the table shows the median over the rounds. The two that are compared run three times a
round, each between two runs of fio, because a drive and cores that others use drift: the ratio is the median over
these neighbours. CPU is user + system time of the process per row, threads and kernel workers included; interrupts
that the kernel books elsewhere are not. fio: io_uring, registered file and buffers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "overlay"))

import numpy as np  # noqa: E402
from spark_overlay.engram_file import PAGE_BYTES, Header  # noqa: E402
from spark_overlay.engram_pages import build_pages  # noqa: E402
from spark_overlay.row_store import Backend, Options, RowStore, load  # noqa: E402

BATCHES = (8, 48, 192, 768, 8192)
REACH_OF_FIO = 0.95
REACH_CPU = 0.6
CHUNK_PAGES = 8192


@dataclass(frozen=True, slots=True)
class Figure:
    """One case. `rows_per_s` for fio are its reads; p50 and p99 are of a call (fio: of a read)."""

    case: str
    batch: int
    rows_per_s: float
    p50_us: float
    p99_us: float
    cpu_us_per_row: float


def write_file(path: Path, gib: float) -> Header:
    """A packed file of about `gib` GiB in 24 columns, one rank, random rows (one chunk of them, over and over)."""
    pages = max(CHUNK_PAGES, int(gib * 2**30) // PAGE_BYTES // CHUNK_PAGES * CHUNK_PAGES)
    rows = pages * 15
    bounds = tuple(rows * column // 24 for column in range(25))
    header = Header(
        layer=1, rank=0, tp=1, weight_bytes=256, scale_bytes=8, row_lo=0, row_hi=rows, total_rows=rows,
        column_lo=0, column_hi=24, by_columns=True, revision="0" * 40, fingerprint=bytes(32), bounds=bounds,
    )  # fmt: skip
    dice = np.random.default_rng(1)
    weights = dice.integers(0, 256, CHUNK_PAGES * 15 * 256, dtype=np.uint8).tobytes()
    scales = dice.integers(0, 256, CHUNK_PAGES * 15 * 8, dtype=np.uint8).tobytes()
    with path.open("wb") as file:
        file.write(header.packed())
        for first in range(0, pages, CHUNK_PAGES):
            file.write(build_pages(header, first, weights, scales).data)
            file.flush()
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return header


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(case: str, store: RowStore, batch: int, seconds: float, seed: int) -> Figure:
    """Calls with ids drawn over the whole file, none of them made while the clock runs."""
    calls = max(4, 200_000 // batch)
    ids = np.random.default_rng(seed).integers(0, store.info.total_rows, (calls, batch), dtype=np.int64)
    out = np.zeros((batch, store.info.row_bytes), dtype=np.uint8)
    for warm in range(3):
        store.lookup(ids[warm], out)
    took: list[float] = []
    cpu, began = cpu_seconds(), time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        store.lookup(ids[len(took) % calls], out)
        took.append(time.perf_counter() - now)
    elapsed, used = now - began, cpu_seconds() - cpu
    rows = len(took) * batch
    took.sort()
    return Figure(
        case, batch, rows / elapsed, took[len(took) // 2] * 1e6, took[int(len(took) * 0.99)] * 1e6, used / rows * 1e6
    )


def fio(path: Path, depth: int, seconds: float, engine: str = "io_uring") -> Figure:
    command = [
        "fio", "--name=rows", f"--filename={path}", "--rw=randread", "--bs=4k", "--direct=1", "--readonly",
        f"--ioengine={engine}", f"--iodepth={depth}", "--time_based", f"--runtime={seconds:g}", "--norandommap",
        "--randrepeat=0", "--output-format=json",
    ]  # fmt: skip
    if engine == "io_uring":
        command += ["--registerfiles=1", "--fixedbufs=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=True)
    job: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    read = job["read"]
    spread = read["clat_ns"]["percentile"]
    cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return Figure(
        f"fio {engine} depth {depth}", 1, read["iops"], spread["50.000000"] / 1e3, spread["99.000000"] / 1e3,
        cpu / max(1, read["total_ios"]) * 1e6,
    )  # fmt: skip


def median(figures: Sequence[Figure]) -> Figure:
    middle = {
        name: statistics.median(getattr(figure, name) for figure in figures)
        for name in ("rows_per_s", "p50_us", "p99_us", "cpu_us_per_row")
    }
    return Figure(figures[0].case, figures[0].batch, **middle)


@dataclass(frozen=True, slots=True)
class Found:
    """Medians of all cases; ratios of neighbours at the largest batch."""

    figures: list[Figure]
    of_fio: list[float]
    cpu_of_pool: list[float]


def run(path: Path, library: Path, seconds: float, rounds: int, depth: int) -> Found:
    loaded = load(library)
    options = {
        "io_uring": Options(Backend.IO_URING, depth, quiet=True),
        "threads": Options(Backend.THREADS, depth, quiet=True),
        "one pread at a time": Options(Backend.THREADS, 1, quiet=True),
    }
    seen: list[Figure] = []
    of_fio: list[float] = []
    cpu_of_pool: list[float] = []

    def case(name: str, batch: int, seed: int) -> Figure:
        with RowStore(path, options=options[name], library=loaded) as store:
            seen.append(measure(name, store, batch, seconds, seed))
        return seen[-1]

    def reference(reads: int) -> Figure:
        seen.append(fio(path, reads, seconds))
        return seen[-1]

    for number in range(rounds):
        for batch in BATCHES[:-1]:
            for name in options:
                case(name, batch, number)
        reference(1)
        case("one pread at a time", BATCHES[-1], number)
        before = reference(depth)
        for repeat in range(3):
            ring = case("io_uring", BATCHES[-1], 10 * number + repeat)
            after = reference(depth)
            of_fio.append(2 * ring.rows_per_s / (before.rows_per_s + after.rows_per_s))
            cpu_of_pool.append(ring.cpu_us_per_row / case("threads", BATCHES[-1], number).cpu_us_per_row)
            before = after if repeat == 2 else reference(depth)
    by_case: dict[tuple[int, str], list[Figure]] = {}
    for figure in seen:
        by_case.setdefault((figure.batch, figure.case), []).append(figure)
    return Found([median(by_case[key]) for key in sorted(by_case)], of_fio, cpu_of_pool)


def verdicts(found: Found) -> list[str]:
    by_name = {(figure.case, figure.batch): figure for figure in found.figures}
    lines = []
    for what, ratios, reach in (
        ("fio's reads/s", found.of_fio, f">= {REACH_OF_FIO}"),
        ("the thread pool's CPU a row", found.cpu_of_pool, f"<= {REACH_CPU}"),
    ):
        lines.append(
            f"io_uring, batches of {BATCHES[-1]}: {statistics.median(ratios):.2f} of {what} (reach {reach}; "
            f"{len(ratios)} pairs, {min(ratios):.2f} to {max(ratios):.2f})"
        )
    for batch in BATCHES[:-1]:
        left, right = by_name["io_uring", batch], by_name["threads", batch]
        lines.append(
            f"batches of {batch}: io_uring {left.rows_per_s / right.rows_per_s:.2f} of the pool's rows/s, "
            f"{left.cpu_us_per_row / right.cpu_us_per_row:.2f} of its CPU a row"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--gib", type=float, default=6.0)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each case in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--depth", type=int, default=96)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="row-store-", dir=chosen.folder) as name:
        folder = Path(name)
        subprocess.run(["sh", str(ROOT / "overlay/row_store/build.sh"), name], check=True)
        path = folder / "engram-l1-r0of1.bin"
        header = write_file(path, chosen.gib)
        found = run(path, folder / "librow_store.so", chosen.seconds, chosen.rounds, chosen.depth)
        size = path.stat().st_size
    lines = verdicts(found)
    if chosen.json:
        print(json.dumps({"figures": [asdict(figure) for figure in found.figures], "verdicts": lines}))
        return 0
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}; {size / 2**30:.1f} GiB, ", end="")
    print(f"{header.rows} rows; O_DIRECT throughout; median of {chosen.rounds} rounds of {chosen.seconds:g} s a case")
    print(f"{'case':28}{'batch':>6}{'rows/s':>10}{'p50 us':>10}{'p99 us':>10}{'CPU us/row':>12}")
    for figure in found.figures:
        print(
            f"{figure.case:28}{figure.batch:6}{figure.rows_per_s:10.0f}{figure.p50_us:10.0f}{figure.p99_us:10.0f}"
            f"{figure.cpu_us_per_row:12.2f}"
        )
    print(*lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
