"""What packing takes of the memory that a Spark's GPU shares: the process itself, and the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark_overlay import engram_check, engram_pack

from tests.overlay.checkpoints import write_checkpoint
from tests.overlay.packing import ENVIRONMENT, jobs, pack_argv
from tests.overlay.row_store_library import built


def cached_pages(path: Path) -> int:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        held = (ctypes.c_ubyte * -(-len(view) // mmap.PAGESIZE))()
        start = ctypes.addressof(ctypes.c_char.from_buffer(view))
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(view)), held) == 0
        return sum(each & 1 for each in held)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        pytest.skip(f"{folder} is a {kind}: its files are the page cache")
    write_checkpoint(folder, vocab=10007, layers=(1,))  # 64 MB
    return folder


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through-the-cache"])
def test_packing_and_checking_leave_nothing_in_the_page_cache(
    model: Path, tmp_path: Path, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of the shard, which a download left there, nor of the result; where the file system takes O_DIRECT, not
    even meanwhile.
    """
    if not direct:
        monkeypatch.setattr(os, "O_DIRECT", 0)
    shard = next(model.glob("*.safetensors"))
    subprocess.run(["sync", shard], check=True)
    shard.read_bytes()
    assert cached_pages(shard) > 10_000, "the test begins with a cached shard"
    [job] = jobs(model, tmp_path, 0, 1)
    meanwhile: list[int] = []

    def look(_: dict[str, Any]) -> None:
        meanwhile.append(cached_pages(job.partial) if job.partial.stat().st_size else 0)

    engram_pack.pack(job, look)
    assert (cached_pages(shard), cached_pages(job.path)) == (0, 0)
    if direct:
        assert meanwhile == [0] * len(meanwhile)
    engram_check.check(job.path, model)
    assert (cached_pages(shard), cached_pages(job.path)) == (0, 0)
    assert engram_pack.is_done(job)
    assert cached_pages(job.path) == 0


@pytest.mark.parametrize("library", ["row store", "none"])
def test_packing_stays_below_300_mb_of_memory(model: Path, tmp_path: Path, library: str) -> None:
    """With blocks of the real size, all buffers used: what more rows would add is nothing (see docs/engram.md)."""
    watch = (
        "import resource,subprocess,sys\n"
        "subprocess.run(sys.argv[1:],check=True,stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    place = str(built().library) if library == "row store" else "/nonexistent/librow_store.so"
    done = subprocess.run(
        [sys.executable, "-c", watch, *pack_argv(model, tmp_path, 0, 1)],
        capture_output=True, text=True, env=ENVIRONMENT | {"SPARK_ROW_STORE": place}, timeout=120, check=True,
    )  # fmt: skip
    assert int(done.stdout) * 1024 < 300e6
