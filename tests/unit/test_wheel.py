"""The built wheel holds everything that the program needs beside its code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sparktui.steps.overlay_content import content_hash

PROJECT = Path(__file__).resolve().parents[2]
LOOK = """\
from sparktui.shipped import shipped
from sparktui.steps.overlay_content import content_hash
print(shipped("assets"), content_hash(shipped("overlay")))
"""


def test_the_wheel_carries_assets_overlay_and_examples(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=PROJECT, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "installed")]
    subprocess.run(
        [*pip, str(wheel)],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    installed = tmp_path / "installed"
    for name in ("assets/smoke.json", "assets/smoke.png", "overlay/Dockerfile", "env.example", "env.tp4.example"):
        assert (installed / "sparktui/shipped" / name).is_file(), name
    found = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, env={"PYTHONPATH": str(installed)},
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.split()  # fmt: skip
    assert Path(found[0]) == installed / "sparktui/shipped/assets"
    assert found[1] == content_hash(PROJECT / "overlay"), "the wheel's overlay is the checkout's"
