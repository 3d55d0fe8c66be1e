"""A checkout of the project on a simulated head, whose overlay a test may change, and `build` run from it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.testbed import Testbed

PROJECT = Path(__file__).resolve().parents[2]
HOME = "/home/spark/build-test"
IMAGE = "sparktui:build-test"


class Checkout:
    """A copy of the project in the head's home, whose overlay a test may change."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed
        self.folder = bed.head.path(HOME)
        for name in ("sparktui", "overlay", "assets"):
            shutil.copytree(PROJECT / name, self.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.env = f"{HOME}/.env"
        self.set()

    def set(self, **changed: str) -> None:
        text = self.bed.env_text(IMAGE=IMAGE, BUILD_ARGS="BRING_TO_LOCK=never", **changed)
        self.bed.head.write_file(self.env, text, mode=0o600)

    def digest(self) -> str:
        """What a build has pinned the base to."""
        found = re.search(r"^BASE_DIGEST=.*(sha256:[0-9a-f]{64})", self.bed.head.read_file(self.env), re.MULTILINE)
        return found[1] if found else ""

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "sparktui", "build", "--json", "--yes", "--env-file", self.env, *words]

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": HOME, "PYTHONDONTWRITEBYTECODE": "1"}

    def build(self, *words: str, status: int = 0) -> list[dict[str, Any]]:
        done = self.bed.head.run(
            self.argv(*words),
            env=self.environment,
            cwd=HOME,
            timeout=600,
            check=False,
        )
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start_build(self) -> subprocess.Popen[str]:
        return self.bed.head.popen(
            self.argv(), env=self.environment, cwd=HOME, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )

    def ballast(self, megabytes: int) -> int:
        """Make the overlay's layer that much heavier, with bytes that nobody has yet; how many."""
        size = megabytes << 20
        (self.folder / "overlay/spark_overlay/ballast.bin").write_bytes(os.urandom(size))
        return size

    def remove(self) -> None:
        for node in self.bed.nodes:
            node.docker("rmi", "--force", IMAGE, check=False)
        shutil.rmtree(self.folder)

    def sent(self, events: list[dict[str, Any]]) -> dict[str, int]:
        """Node name to the bytes that it was sent; a node that was sent nothing is not in it."""
        outcomes = [each for each in events if each["kind"] == "node_outcome" and "sent_bytes" in each["data"]]
        return {each["node"]: int(each["data"]["sent_bytes"]) for each in outcomes}
