"""The Engram packer beside a durable `cp` of the same bytes, in one run on one drive.

    python benchmarks/packer.py [--folder F] [--gib 3] [--rounds 5] [--rest 0] [--numpy] [--json]

Needs g++. A synthetic checkpoint of one layer (random bytes, real tensor names and prime layout) is written to the
folder, which must be on the drive in question, and removed at the end. A round is `cp SHARD COPY` with fsync of file
and folder, then the packer as the pack step starts it, then cp again; the packer's ratio is against the mean of the cps
beside it, because a drive that others use drifts. Both begin with a shard that is not in the page cache and an empty
place. The packer writes 3.4 % more than it reads (page numbers, checksums, spare bytes); that is its own loss here.
Also told: the packer's largest resident set and what it left of its files in the page cache.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "overlay")]

from spark_overlay.engram_file import file_name  # noqa: E402

from tests.overlay.checkpoints import write_checkpoint  # noqa: E402

REACH = 0.9
COLUMNS, ROW_BYTES, LAYER = 24, 264, 1
MAKERS = ("the row store's library", "numpy")


@dataclass(frozen=True, slots=True)
class Pack:
    """One run of the packer. `of_cp` is a cp's seconds by the packer's."""

    maker: str
    seconds: float
    of_cp: float
    peak_rss_mb: float
    cached_bytes: int


def cached_bytes(path: Path) -> int:
    """What the page cache holds of a file, in bytes (mincore)."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        count = -(-len(view) // mmap.PAGESIZE)
        held = (ctypes.c_ubyte * count)()
        start = ctypes.addressof(ctypes.c_char.from_buffer(view))
        if ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(view)), held):
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(each & 1 for each in held) * mmap.PAGESIZE


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def forget(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def durable_cp(shard: Path, place: Path) -> float:
    forget(shard)
    place.mkdir()
    began = time.perf_counter()
    subprocess.run(["cp", shard, place / "copy"], check=True)
    sync(place / "copy")
    sync(place)
    took = time.perf_counter() - began
    shutil.rmtree(place)
    return took


def pack(model: Path, shard: Path, place: Path, library: str) -> tuple[float, float, int]:
    """Seconds, peak RSS in MB, bytes of shard and result that are in the page cache afterwards."""
    forget(shard)
    place.mkdir()
    command = [sys.executable, "-m", "spark_overlay.engram", "pack", "--source", model, "--out", place]
    command += ["--rank", "0", "--tp", "1", "--revision", "0" * 40]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "overlay"), "SPARK_ROW_STORE": library}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    began = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as child:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    took = time.perf_counter() - began
    if child.returncode:
        raise SystemExit(f"the packer ended with {child.returncode}")
    left = cached_bytes(shard) + cached_bytes(place / file_name(LAYER, 0, 1))
    shutil.rmtree(place)
    return took, used.ru_maxrss * 1024 / 1e6, left


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--gib", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rest", type=float, default=0.0, help="seconds between runs, for a drive with a burst")
    parser.add_argument("--numpy", action="store_true", help="also without the row store's library")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    packs: list[Pack] = []
    cps: list[float] = []
    with tempfile.TemporaryDirectory(prefix="packer-", dir=chosen.folder) as name:
        folder = Path(name)
        subprocess.run(["sh", str(ROOT / "overlay/row_store/build.sh"), name], check=True)
        model = folder / "model"
        write_checkpoint(model, vocab=int(chosen.gib * 2**30 / COLUMNS / ROW_BYTES), layers=(LAYER,))
        shard = next(model.glob("*.safetensors"))
        sync(shard)
        size = shard.stat().st_size
        makers = [(MAKERS[0], str(folder / "librow_store.so")), (MAKERS[1], "/nonexistent")][: 1 + chosen.numpy]
        for _ in range(chosen.rounds):
            time.sleep(chosen.rest)
            cps.append(durable_cp(shard, folder / "cp"))
            for maker, library in makers:
                time.sleep(chosen.rest)
                took, rss, left = pack(model, shard, folder / "packed", library)
                time.sleep(chosen.rest)
                cps.append(durable_cp(shard, folder / "cp"))
                packs.append(Pack(maker, took, (cps[-2] + cps[-1]) / 2 / took, rss, left))
    if chosen.json:
        print(json.dumps({"bytes": size, "cp_seconds": cps, "packs": [asdict(each) for each in packs]}))
        return 0
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}; {size / 2**30:.2f} GiB of rows, "
        f"{chosen.rounds} rounds"
    )
    print(
        f"{'':42}{'seconds':>9}{'MB/s':>7}{'of cp':>7}  {'(least to most)':17}{'peak RSS MB':>12}{'left in cache':>15}"
    )
    middle = statistics.median(cps)
    print(f"{'cp and fsync':42}{middle:9.2f}{size / middle / 1e6:7.0f}")
    for maker, _ in makers:
        mine = [each for each in packs if each.maker == maker]
        ratios = [each.of_cp for each in mine]
        middle = statistics.median(each.seconds for each in mine)
        print(
            f"{'packer, pages by ' + maker:42}{middle:9.2f}{size / middle / 1e6:7.0f}{statistics.median(ratios):7.2f}"
            f"  ({min(ratios):.2f} to {max(ratios):.2f})   {max(each.peak_rss_mb for each in mine):12.0f}"
            f"{max(each.cached_bytes for each in mine):15d}"
        )
    print(f"reach: {REACH} of cp")
    return 0


if __name__ == "__main__":
    sys.exit(main())
