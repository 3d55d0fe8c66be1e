"""The row store's library and self-test program, compiled once and kept in the cache."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.overlay.conftest import OVERLAY

SOURCES = OVERLAY / "row_store"
CROSS = "aarch64-linux-gnu-g++"


@dataclass(frozen=True, slots=True)
class Built:
    library: Path
    self_test: Path


@functools.cache
def built(compiler: str = "g++") -> Built:
    """Both results of build.sh, kept in the cache under a hash of the sources and of the compiler's version."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is missing")
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=60).stdout
    digest = hashlib.sha256(version + compiler.encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    cache = Path(os.environ.get("SPARKTUI_CACHE", "/var/cache/sparktui"))
    if not os.access(cache, os.W_OK):
        cache = Path(tempfile.gettempdir()) / f"sparktui-{os.getuid()}"
    folder = cache / "row-store" / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    result = Built(folder / "librow_store.so", folder / "row_store_self_test")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.self_test.exists():
            done = subprocess.run(
                ["sh", str(SOURCES / "build.sh"), str(folder), "--self-test"],
                env={**os.environ, "CXX": compiler}, capture_output=True, text=True, timeout=280,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert not done.stderr, "a warning is an error"
    return result
