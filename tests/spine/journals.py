"""Reads a run's journal on a simulated Spark, and waits for what it says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def read(run_dir: Path) -> list[dict[str, Any]]:
    """All whole lines."""
    path = run_dir / "journal.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def wait_for(
    runs: Callable[[], list[Path]], found: Callable[[dict[str, Any]], bool], *, seconds: float
) -> tuple[Path, dict[str, Any]]:
    """The newest run's first line that `found` accepts."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for run_dir in runs()[-1:]:
            for line in read(run_dir):
                if found(line):
                    return run_dir, line
        time.sleep(0.2)
    last = read(runs()[-1])[-3:] if runs() else "no run"
    raise AssertionError(f"not seen in {seconds:g} s; the journal ends with {last}")


def of_kind(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


def outcomes(lines: list[dict[str, Any]]) -> dict[str, str]:
    """Step name to how it ended."""
    return {line["step"]: line["outcome"] for line in of_kind(lines, "step_finished")}
