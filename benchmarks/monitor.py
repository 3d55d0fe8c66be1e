"""What the monitor of four nodes costs: resident memory and processor time of its process tree, beside an empty app.

    python benchmarks/monitor.py [--seconds 60] [--size 120x40] [--demo | --env-file FILE] [--json]

Without a source the nodes' pictures are scripted, once a second, every figure moving (benchmarks/monitor_child.py).
`--demo` watches the simulated cluster, `--env-file` real nodes. Our app and an empty Textual app with as many panes,
which also change once a second, run at the same time, each in a pseudo-terminal. Linux only: /proc is read.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.in_a_terminal import InTerminal

CHILD = str(Path(__file__).with_name("monitor_child.py"))
REACH_MIB, REACH_PERCENT = 80.0, 1.0
START_SECONDS, SETTLE_SECONDS = 90.0, 8.0
WATCHING = b" GiB"
"""Seen as soon as a node's picture is there."""


def command(options: argparse.Namespace, folder: str) -> list[str]:
    if options.demo:
        return [sys.executable, "-m", "sparktui", "demo", "monitor"]
    if options.env_file:
        return [sys.executable, "-m", "sparktui", "monitor", "--env-file", options.env_file]
    return [sys.executable, CHILD, "scripted", folder]


def measured(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    columns, rows = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        cases = {
            "monitor": InTerminal(command(options, folder), columns, rows),
            "empty app": InTerminal([sys.executable, CHILD, "empty"], columns, rows),
        }
        try:
            if not cases["monitor"].read(START_SECONDS, until=WATCHING):
                said = cases["monitor"].seen.decode(errors="replace")[-4000:]
                raise SystemExit(f"no node's memory was shown:\n{said}")
            _wait(cases, SETTLE_SECONDS)
            for key in options.press:
                cases["monitor"].press(key.encode())
            _wait(cases, 2.0)
            began = time.monotonic()
            before = {name: case.processor_seconds() for name, case in cases.items()}
            memory: dict[str, list[float]] = {name: [] for name in cases}
            while time.monotonic() - began < options.seconds:
                _wait(cases, 2.0)
                for name, case in cases.items():
                    memory[name].append(case.resident_bytes() / 1024**2)
            seconds = time.monotonic() - began
            if cases["monitor"].process.poll() is not None:
                raise SystemExit("the monitor ended by itself:\n" + cases["monitor"].seen.decode(errors="replace"))
            return {
                name: {
                    "resident_mib": statistics.median(memory[name]),
                    "largest_mib": max(memory[name]),
                    "core_percent": (case.processor_seconds() - before[name]) / seconds * 100,
                }
                for name, case in cases.items()
            }
        finally:
            for case in cases.values():
                case.stop()


def _wait(cases: dict[str, InTerminal], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for case in cases.values():
            case.read(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--press", default="", help="keys that are pressed first, such as 3")
    parser.add_argument("--json", action="store_true")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--demo", action="store_true")
    source.add_argument("--env-file")
    options = parser.parse_args()
    figures = measured(options)
    if options.json:
        print(json.dumps(figures))
        return 0
    for name, values in figures.items():
        print(
            f"{name:<10} {values['resident_mib']:6.1f} MiB (largest {values['largest_mib']:.1f})"
            f"   {values['core_percent']:5.2f} % of a core"
        )
    ours, bare = figures["monitor"], figures["empty app"]
    print(
        f"ratio      {ours['resident_mib'] / bare['resident_mib']:6.2f} x"
        f"   {ours['core_percent'] / max(bare['core_percent'], 0.01):5.2f} x"
    )
    reached = ours["largest_mib"] <= REACH_MIB and ours["core_percent"] <= REACH_PERCENT
    print(f"reach: {REACH_MIB:.0f} MiB and {REACH_PERCENT:.1f} %: {'met' if reached else 'not met in this run'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
