"""The Engram lookup on a GPU: right rows, eager and in captured graphs, and what of it stays visible behind other work.

    python3 benchmarks/gpu/engram_lookup.py --json RESULT.json [--folder F] [--mebibytes 1024] [--engine-kernel FILE]

One call, under five minutes on one NVIDIA GPU. Needs torch for CUDA and g++; no SGLang, no network. Builds the row
store, writes two packed files (random rows, the special bytes in front) and runs each part by itself: one that fails is
recorded and the next one runs. Exit 0 if every part held.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True
SCRIPT = Path(__file__).resolve()
ROOT = SCRIPT.parents[2]
sys.path[:0] = [str(ROOT / "overlay"), str(SCRIPT.parent)]

import lookup_checks  # noqa: E402
import lookup_overlap  # noqa: E402
import packed_table  # noqa: E402
import torch  # noqa: E402
from lookup_checks import DEVICE, Layer  # noqa: E402
from spark_overlay.cuda_runtime import CudaRuntime  # noqa: E402
from spark_overlay.row_store import Backend, Options, RowStore, load  # noqa: E402

LIMIT_S = 290


class Report:
    """What the parts saw; written again after each, so that a process that dies leaves what it had."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.began = path, time.monotonic()
        self.found: dict[str, Any] = {"parts": {}}

    def write(self) -> None:
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.found, indent=1) + "\n")

    def part(self, name: str, run: Callable[[], Any]) -> Any:
        began = time.monotonic()
        try:
            seen, status = run(), "held"
            if isinstance(seen, dict) and "not run" in seen:
                status = "not run"
        except BaseException as error:
            traceback.print_exc()
            seen, status = f"{type(error).__name__}: {error}", "FAILED"
            if isinstance(error, KeyboardInterrupt):
                raise
        took = round(time.monotonic() - began, 2)
        self.found["parts"][name] = {"status": status, "seconds": took, "seen": seen}
        shown = "" if name == "overlap" and status == "held" else json.dumps(seen)
        print(f"{status:8}{took:7.1f} s  {name}: {shown}", flush=True)
        self.write()
        return None if status == "FAILED" else seen

    @property
    def all_held(self) -> bool:
        return all(part["status"] != "FAILED" for part in self.found["parts"].values())


def machine() -> dict[str, Any]:
    """Card, driver, versions; the driver as nvidia-smi says it."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm", "--format=csv,noheader"]
    try:
        smi = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        smi = f"nvidia-smi: {error}"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "card": torch.cuda.get_device_name(DEVICE),
        "capability": list(torch.cuda.get_device_capability(DEVICE)),
        "nvidia_smi": smi,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def open_layers(folder: Path, library: Path, mebibytes: int) -> list[Layer]:
    loaded = load(library)
    layers = []
    for layer, size in ((1, mebibytes), (14, max(64, mebibytes // 4))):
        table = packed_table.make(folder, layer, size, seed=layer)
        store = RowStore(table.path, expected=table.header, options=Options(strict=True), library=loaded)
        layers.append(Layer(table, store))
    return layers


def described(layer: Layer) -> dict[str, Any]:
    info = layer.store.info
    return {
        "layer": info.layer,
        "file_bytes": layer.table.path.stat().st_size,
        "rows": layer.table.header.rows,
        "backend": Backend(info.backend).name.lower(),
        "o_direct": bool(info.direct),
        "page_buffers_registered": bool(info.fixed_memory),
        "depth": Options().depth,
    }


def counted(layers: list[Layer]) -> list[dict[str, int]]:
    """The stores' own counts; a retry or an error would be a finding."""
    counts = []
    for layer in layers:
        found = layer.store.statistics()
        counts.append({name: int(getattr(found, name)) for name, _ in found._fields_})
        assert counts[-1]["errors"] == 0 and counts[-1]["retries"] == 0, counts
    return counts


def run(chosen: argparse.Namespace, report: Report, folder: Path) -> None:
    library = folder / "lib" / "librow_store.so"
    part = report.part

    def build() -> str:
        subprocess.run(["sh", str(ROOT / "overlay/row_store/build.sh"), str(library.parent)], check=True, timeout=180)
        return library.name

    if part("build", build) is None:
        return
    part("the host function cannot call CUDA", lambda: lookup_checks.no_cuda_call(library))
    part("libcudart", lambda: (torch.cuda.init(), Path(CudaRuntime().path).name)[1])
    layers: list[Layer] = []
    part("packed files", lambda: layers.extend(open_layers(folder, library, chosen.mebibytes)) or len(layers))
    if not layers:
        return
    report.found["stores"] = [described(layer) for layer in layers]
    report.found["io_uring_refused_with_errno"] = int(load(library).rs_probe_io_uring())
    print(json.dumps(report.found["stores"]), flush=True)
    part("eager", lambda: lookup_checks.eager(layers))
    part("several in flight", lambda: lookup_checks.in_flight(layers))
    part("captured graphs", lambda: lookup_checks.graphs(layers))
    part("as the engine's hooks call it", lambda: lookup_checks.in_the_engine(layers))
    part("a chunk of 8192 tokens", lambda: lookup_checks.chunk(layers))
    seen = part("overlap", lambda: lookup_overlap.overlap(layers[0], chosen.repeats))
    if seen:
        print(*lookup_overlap.table_lines(seen), sep="\n", flush=True)
    part("a failing read ends the process", lambda: lookup_checks.fail_in_child(SCRIPT, folder / "bad", library))
    part("pinned memory grows in a capture", lambda: lookup_checks.growth(layers))
    part("beside the engine's kernel", lambda: lookup_checks.engine_kernel(chosen.engine_kernel))
    part("the stores' counts", lambda: counted(layers))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help="on the drive in question; a new folder is made there and removed")
    parser.add_argument("--mebibytes", type=int, default=1024, help="of the first layer's file")
    parser.add_argument("--repeats", type=int, default=lookup_overlap.REPEATS)
    parser.add_argument("--engine-kernel", type=Path, help="sglang/kernels/ops/embeddings/engram_gather.py")
    parser.add_argument("--child", choices=("eager", "graph"), help=argparse.SUPPRESS)
    parser.add_argument("--child-file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child-id", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--child-library", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        return lookup_checks.child(chosen.child, chosen.child_file, chosen.child_id, chosen.child_library)
    # A wait that never ends must not take the machine with it: all stacks, then the end.
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    report = Report(chosen.json)
    report.found["machine"] = machine()
    print(json.dumps(report.found["machine"]), flush=True)
    folder = packed_table.folder_for_files(chosen.folder)
    (folder / "bad").mkdir()
    try:
        run(chosen, report, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        report.found["seconds"] = round(time.monotonic() - report.began, 1)
        report.write()
    print(f"{'all parts held' if report.all_held else 'SOMETHING FAILED'}; {report.found['seconds']} s")
    return 0 if report.all_held else 1


if __name__ == "__main__":
    sys.exit(main())
