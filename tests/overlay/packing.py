"""The packer as tests start it: its command in a process of its own, or its function here."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from spark_overlay import engram_pack
from spark_overlay.engram_file import HEADER_BYTES, PAGE_BYTES, parse_header
from spark_overlay.engram_layout import layout_from_config
from spark_overlay.safetensors_source import read_config

from tests.overlay.conftest import OVERLAY

COMMAND = [sys.executable, "-m", "spark_overlay.engram"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(OVERLAY), "PYTHONDONTWRITEBYTECODE": "1"}
REVISION = "1bae0e1"


def pack_argv(source: Path, out: Path, rank: int = 1, tp: int = 3, revision: str = REVISION) -> list[str]:
    options = ["--source", str(source), "--out", str(out), "--rank", str(rank), "--tp", str(tp), "--revision", revision]
    return [*COMMAND, "pack", *options]


def run(argv: list[str], environment: dict[str, str] | None = None) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and events, its remarks (kind note) left out."""
    status, events = run_all(argv, environment)
    return status, [event for event in events if event.get("event") != "note"]


def run_all(argv: list[str], environment: dict[str, str] | None = None) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(argv, capture_output=True, text=True, env=environment or ENVIRONMENT, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def jobs(source: Path, out: Path, rank: int = 1, tp: int = 3, revision: str = REVISION) -> list[engram_pack.Job]:
    layout = layout_from_config(read_config(source))
    assert layout is not None
    out.mkdir(exist_ok=True)
    return engram_pack.plan(source, out, layout, rank, tp, revision)


def pack_here(source: Path, out: Path, rank: int = 1, tp: int = 3, revision: str = REVISION) -> list[Path]:
    made = jobs(source, out, rank, tp, revision)
    for job in made:
        engram_pack.pack(job, lambda _: None)
    return [job.path for job in made]


def table_of(shard: Path) -> np.ndarray:
    """uint8 [rows, 264]: a shard's weights and scales side by side, read without the packer's code."""
    data = shard.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    rows = (len(data) - start) // 264
    weights = np.frombuffer(data, np.uint8, rows * 256, start).reshape(rows, 256)
    scales = np.frombuffer(data, np.uint8, rows * 8, start + rows * 256).reshape(rows, 8)
    return np.hstack([weights, scales])


@dataclass(frozen=True, slots=True)
class Rows:
    """A packed file's rows, taken out by the format's description alone."""

    lo: int
    hi: int
    rows: np.ndarray


def rows_of(path: Path) -> Rows:
    data = path.read_bytes()
    header = parse_header(data[:HEADER_BYTES], path.name)
    assert len(data) == header.file_bytes
    pages = np.frombuffer(data, np.uint8, offset=HEADER_BYTES).reshape(-1, PAGE_BYTES)
    slots = pages[:, : 15 * 264].reshape(-1, 264)
    return Rows(header.row_lo, header.row_hi, slots[: header.row_hi - header.row_lo])
