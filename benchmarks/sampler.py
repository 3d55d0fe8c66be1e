"""What watching one node costs there: its processes' share of one core, with and without nvidia-smi.

    python benchmarks/sampler.py [--seconds 60] [--json]

Run it on any node (or, on the testbed, inside one: `python -m tests.testbed run spk1 -- …`). The streams are those of
the monitor, framing and heartbeats included; every process of a stream's session is counted, ended ones too. Where
there is no nvidia-smi a stand-in that prints a row prints it: the figure is then that of the loop around it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktui.cluster.node import Node
from sparktui.readings.sampler_stream import Record, SamplerStream
from sparktui.remote.local import LocalLink
from sparktui.telemetry.gpu import APPS_SECONDS, FIELDS, GPU_SECONDS, gpu_argv
from sparktui.telemetry.meter import Meter
from sparktui.telemetry.sampler import sampler_argv

REACH_PERCENT = 0.5
SETTLE_SECONDS = 3.0
_TICKS = os.sysconf("SC_CLK_TCK")
_STAND_IN = """#!/bin/sh
case "$*" in *query-compute-apps*) exit 0 ;; esac
while :; do echo "@ROW@"; sleep @SECONDS@; done
"""


def below(pid: int) -> list[int]:
    """The process and all its descendants that are alive."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(words[1]), []).append(int(path.parent.name))
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += parents.get(one, [])
    return found


def ticks_of(pids: Sequence[int]) -> int:
    """CPU ticks of these processes and of those of their children that have ended."""
    total = 0
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(word) for word in words[11:15])
    return total


async def cost_of(argv: Sequence[str], seconds: float) -> tuple[float, list[str], float]:
    """Percent of a core on the node, the lines that came, and percent of a core that reading them takes here."""
    link = LocalLink(Node("head", 0, "127.0.0.1"))
    lines: list[str] = []
    stream, meter = SamplerStream(), Meter(link.node)

    async def read() -> None:
        async for line in link.lines(argv):
            lines.append(line)
            record = stream.feed(line)
            if record is not None:
                meter.take(record, time.monotonic())

    before = set(below(os.getpid()))
    reading = asyncio.create_task(read())
    await asyncio.sleep(SETTLE_SECONDS)
    (shell,) = [pid for pid in below(os.getpid()) if pid not in before and _parent(pid) == os.getpid()]
    began, here, ticks = time.monotonic(), time.process_time(), ticks_of(below(shell))
    await asyncio.sleep(seconds)
    took, here = time.monotonic() - began, time.process_time() - here
    ticks = ticks_of(below(shell)) - ticks
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await link.aclose()
    return 100 * ticks / _TICKS / took, lines, 100 * here / took


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def last_record(lines: Sequence[str]) -> Record:
    stream, last = SamplerStream(), Record()
    for line in lines:
        last = stream.feed(line) or last
    return last


def stand_in(folder: Path) -> None:
    """Put an `nvidia-smi` that costs nothing where it is found."""
    row = "61, 96, 74.20, 2405" + ", Not Active" * (len(FIELDS) - 4)
    path = folder / "nvidia-smi"
    path.write_text(_STAND_IN.replace("@ROW@", row).replace("@SECONDS@", str(GPU_SECONDS)))
    path.chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


async def measure(seconds: float) -> dict[str, object]:
    sampler, lines, here = await cost_of(sampler_argv((str(Path.home()),)), seconds)
    record = last_record(lines)
    with tempfile.TemporaryDirectory() as folder:
        real = shutil.which("nvidia-smi") is not None
        if not real:
            stand_in(Path(folder))
        gpu, _, _ = await cost_of(gpu_argv(), seconds)
    return {
        "sampler_percent_of_a_core": round(sampler, 3),
        "reach_percent": REACH_PERCENT,
        "nvidia_smi_percent_of_a_core": round(gpu, 3),
        "nvidia_smi": "the nvidia-smi on PATH here" if real else "a stand-in: this says nothing of the real one's cost",
        "nvidia_smi_seconds": [GPU_SECONDS, APPS_SECONDS],
        "reading_percent_of_a_core": round(here, 3),
        "rdma_devices": None if record.ports is None else len(record.ports),
        "lines_a_second": round(len(lines) / (seconds + SETTLE_SECONDS), 1),
        "seconds": seconds,
        "cores": os.cpu_count(),
        "machine": os.uname().machine,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(options.seconds))
    if options.json:
        print(json.dumps(found))
    else:
        print(f"sampler, one node     {found['sampler_percent_of_a_core']} % of a core (reach: {REACH_PERCENT})")
        print(f"nvidia-smi's stream   {found['nvidia_smi_percent_of_a_core']} % of a core ({found['nvidia_smi']})")
        print(f"reading it, the head  {found['reading_percent_of_a_core']} % of a core")
        print(f"{found['rdma_devices']} RDMA devices, {found['lines_a_second']} lines a second, {found['machine']}")
    return 0 if float(str(found["sampler_percent_of_a_core"])) <= REACH_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
