"""The image's step that compiles the row store: what it says where it cannot; a wrong library ends the build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.overlay.conftest import OVERLAY
from tests.overlay.row_store_library import built
from tests.testbed.compiler import STAND_IN

TOOLS = ("sh", "dirname", "mktemp", "rm", "mkdir", "mv", "cp", "sed", "sort", "dpkg-query")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder for PATH with the few programs of a bare base."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, name
        (programs / name).symlink_to(found)
    (programs / "python3").write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
    (programs / "python3").chmod(0o755)
    return programs


def install(tmp_path: Path, base: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The step, its sources beside it as the Dockerfile lays them."""
    sources = Path(shutil.copytree(OVERLAY / "row_store", tmp_path / "row_store"))
    shutil.copy(OVERLAY / "build/install_row_store.sh", sources)
    return subprocess.run(
        ["sh", str(sources / "install_row_store.sh"), str(tmp_path / "lib")],
        env={"PATH": str(base), **more}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def stand_in(tmp_path: Path, library: bytes) -> str:
    """A compiler that hands out `library`."""
    folder = tmp_path / "compiler"
    folder.mkdir()
    shutil.copy(STAND_IN, folder / "g++")
    (folder / "librow_store.so").write_bytes(library)
    return str(folder / "g++")


def test_a_base_without_compiler_and_apt_is_refused_with_what_to_do(tmp_path: Path, base: Path) -> None:
    done = install(tmp_path, base)
    assert done.returncode == 1
    assert done.stderr.startswith("this base has neither g++ nor apt-get to install it with. ")
    assert "use a base with g++" in done.stderr
    assert not (tmp_path / "lib").exists()


def test_a_build_that_reaches_no_packages_says_so(tmp_path: Path, base: Path) -> None:
    (base / "apt-get").write_text("#!/bin/sh\necho 'Temporary failure resolving' >&2\nexit 100\n")
    (base / "apt-get").chmod(0o755)
    done = install(tmp_path, base)
    assert done.returncode == 1
    assert "Temporary failure resolving" in done.stderr
    assert "this base has no g++, and apt-get could not install it" in done.stderr


def test_what_was_compiled_is_loaded_and_counts_right(tmp_path: Path, base: Path) -> None:
    compiler = stand_in(tmp_path, built().library.read_bytes())
    done = install(tmp_path, base, CXX=compiler)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/lib/librow_store.so: loads and counts right; io_uring in this build: ")
    assert [path.name for path in (tmp_path / "lib").iterdir()] == ["librow_store.so"]


def test_a_library_that_does_not_load_ends_the_build(tmp_path: Path, base: Path) -> None:
    done = install(tmp_path, base, CXX=stand_in(tmp_path, b"no library"))
    assert done.returncode != 0
    assert "librow_store.so" in done.stderr
