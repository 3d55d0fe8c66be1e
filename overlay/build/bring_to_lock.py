"""At image build: does the base carry the engine that the lock names? If not, install the lock, every wheel by its hash.

`python3 bring_to_lock.py auto|never`. `never` only reports (a base without pip, or an engine that is mounted at run time).
Reads versions from installed metadata, so nothing of the engine is imported. Exit status 1 with a sentence where the lock does not fit.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import subprocess
import sys
from pathlib import Path

ENGINE = "sglang"
ALSO_SHOWN = ("torch", "flashinfer-python", "sglang-kernel", "nvidia-nccl-cu13")
PYTHON_OF = {"aarch64": (3, 12), "x86_64": (3, 11)}
"""The Python that each lock was resolved for."""


def locked_versions(text: str) -> dict[str, str]:
    """`name==version` lines of a lock."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE))


def installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def main(argv: list[str]) -> int:
    mode = argv[0] if argv else "auto"
    if mode not in ("auto", "never"):
        print(f"BRING_TO_LOCK={mode} is neither auto nor never", file=sys.stderr)
        return 2
    machine = platform.machine()
    lock = Path(__file__).resolve().parent / f"engine-{machine}.lock"
    if machine not in PYTHON_OF or not lock.is_file():
        print(f"no engine lock for the architecture {machine}", file=sys.stderr)
        return 1
    wanted = locked_versions(lock.read_text(encoding="utf-8"))
    found = installed_version(ENGINE)
    for name in (ENGINE, *ALSO_SHOWN):
        here = installed_version(name)
        print(f"{name}: base {here or 'none'}, lock {wanted.get(name, 'none')}", flush=True)
    if found == wanted[ENGINE] or mode == "never":
        return 0
    if sys.version_info[:2] != PYTHON_OF[machine]:
        wants = ".".join(map(str, PYTHON_OF[machine]))
        print(f"the lock for {machine} is for Python {wants}, the base has {platform.python_version()}", file=sys.stderr)
        return 1
    if importlib.util.find_spec("pip") is None:
        print("the base has another engine and no pip to change it with: use a base with sglang "
              f"{wanted[ENGINE]}, or BRING_TO_LOCK=never", file=sys.stderr)  # fmt: skip
        return 1
    return subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--break-system-packages", "--require-hashes",
         "--only-binary=:all:", "--no-deps", "--requirement", str(lock)],
    ).returncode  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
