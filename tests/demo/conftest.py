"""A simulated cluster of its own for each test, with time that runs fast."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparktui.demo.home import DemoHome
from sparktui.demo.wire import leave

SPEED = "12"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Demo:
    """The command line on a simulated cluster, and the folder that it may write in."""

    home: DemoHome
    environment: dict[str, str]

    def start(self, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "sparktui", "demo", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv, env=self.environment, cwd=self.home.root.parent, stdout=pipe, stderr=pipe, stdin=pipe, text=True
        )

    def run(self, *words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def events(self, *words: str, status: int = 0) -> list[dict[str, Any]]:
        """A verb with --json; its events."""
        done = self.run(*words, "--json")
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def cluster_pid(self) -> int:
        return int(json.loads((self.home.root / "cluster.lock").read_text())["pid"])


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Demo]:
    # A short path: a Unix socket's has a hundred bytes.
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        base = Path(folder)
        (base / "home").mkdir()
        (base / "tmp").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(base / "tmp"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "SPARKTUI_"))}
        environment = {
            **kept,
            "HOME": str(base / "home"),
            "XDG_CACHE_HOME": str(base / "cache"),
            "SPARKTUI_DEMO_SPEED": SPEED,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
            "TMPDIR": str(base / "tmp"),
        }
        home = DemoHome(base / "cache" / "sparktui" / "demo")
        home.root.parent.mkdir(parents=True)
        try:
            yield Demo(home, environment)
        finally:
            with contextlib.suppress(Exception):
                leave(home)
