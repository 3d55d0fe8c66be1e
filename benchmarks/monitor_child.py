"""What benchmarks/monitor.py and first_paint.py start in a pseudo-terminal: our app, or an empty one.

    python benchmarks/monitor_child.py scripted|empty|wizard [FOLDER]

`scripted` is the product's app, settings and screens; a picture of four Sparks whose every figure moves comes once a
second instead of the nodes'. `empty` is a Textual app with a line on top, four panes and a line below, all of which
change once a second. `wizard` is the product's app where no settings exist yet.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

if TYPE_CHECKING:
    from sparktui.telemetry.sample import ClusterSnapshot, NodeSample

GIB = 1024**3
NAMES = ("head", "worker1", "worker2", "worker3")
SETTINGS = """\
HEAD_IP=10.0.0.1
WORKER_IPS="10.0.0.2 10.0.0.3 10.0.0.4"
WORKER_HOSTS="spark2 spark3 spark4"
WORKER_FABRIC_IPS="10.1.0.2 10.1.0.3 10.1.0.4"
MODEL_DIR=/srv/DeepSeek-V4.1-Flash-1017
"""


def node(rank: int, second: int) -> NodeSample:
    """Every figure moves, as on a cluster that serves."""
    from sparktui.cluster.fabric import PORT_NAMES
    from sparktui.telemetry.sample import Freshness, GpuReading, MemorySplit, NodeSample, PortReading

    wave = math.sin(second / 7 + rank)
    free = int((6 + wave) * GIB)
    split = MemorySplit(
        total_bytes=120 * GIB,
        held_bytes=100 * GIB,
        processes_bytes=8 * GIB,
        page_cache_bytes=12 * GIB - free,
        free_bytes=free,
        available_bytes=free + 4 * GIB,
        floor_bytes=4 * GIB,
        swap_used_bytes=0,
    )
    ports = tuple(
        PortReading(
            name.device, name.netdev, name.cage, True, "ACTIVE", 200.0, (1 + wave / 2) * 1e9, (1 - wave / 3) * 1e9, 0
        )
        for name in PORT_NAMES
    )
    gpu = GpuReading(second // 5 * 5.0, 90.0 + 5 * wave, 70.0 + wave, 55.0 + 4 * wave, 2400.0, 98 * GIB, False)
    return NodeSample(
        node=NAMES[rank],
        rank=rank,
        freshness=Freshness.LIVE,
        age_seconds=0.3,
        taken_at=float(second),
        split=split,
        stalled_percent=0.0,
        cpu_busy_percent=9.0 + wave,
        ports=ports,
        gpu=gpu,
        nvme_read_bytes_per_second=2e6 * (1 + wave),
        nvme_free_bytes=1800 * GIB,
        uptime_seconds=400_000.0 + second,
        swapped_pages_per_second=0.0,
    )


def picture(second: int) -> ClusterSnapshot:
    from sparktui.telemetry.sample import ClusterSnapshot, EndpointState, Serving

    wave = math.sin(second / 5)
    serving = Serving(
        state=EndpointState.READY,
        url="http://10.0.0.1:8888",
        running_requests=3,
        queued_requests=0,
        decode_tokens_per_second=85.0 + 4 * wave,
        prefill_tokens_per_second=1900.0 + 50 * wave,
        kv_used_fraction=0.4 + wave / 50,
        accept_length=3.1,
        ttft_seconds=0.22,
        taken_at=float(second),
        models=("deepseek-v4.1-flash",),
        was_ready=True,
    )
    return ClusterSnapshot(
        at=float(second), nodes=tuple(node(rank, second) for rank in range(len(NAMES))), serving=serving
    )


def scripted(folder: Path) -> None:
    """The product on these pictures; what it would have loaded to ask nodes is loaded as well."""
    gc.disable()  # as `open_app` does until the first picture
    from textual import work

    from sparktui.runs.parts import product
    from sparktui.ui.app import SparkApp
    from sparktui.ui.messages import SnapshotArrived
    from sparktui.ui.session import Start

    env_file = folder / ".env.tp4"
    env_file.write_text(SETTINGS)

    class Scripted(SparkApp):
        @work(group="telemetry", exclusive=True, exit_on_error=False)
        async def watch_cluster(self) -> None:
            for name in ("sparktui.remote.ssh", "sparktui.telemetry.fleet", "sparktui.telemetry.serving"):
                importlib.import_module(name)
            while True:
                second = int(time.monotonic())
                snapshot = picture(second)
                self.history.take(snapshot)
                self.post_message(SnapshotArrived(snapshot))
                await asyncio.sleep(1 - time.monotonic() % 1)

    Scripted(Start(product(), env_file, mode="monitor")).run()


def empty() -> None:
    from textual.app import App, ComposeResult
    from textual.containers import Grid
    from textual.widgets import Static

    class Empty(App[None]):
        CSS = "Static { height: 1; } Grid { grid-size: 2 2; height: 1fr; } Grid Static { height: 1fr; }"

        def compose(self) -> ComposeResult:
            yield Static("empty", markup=False)
            with Grid():
                for _ in range(4):
                    yield Static("", markup=False)
            yield Static("q quit", markup=False)

        def on_mount(self) -> None:
            self.set_interval(1, self.tick)

        def tick(self) -> None:
            now = f"{time.monotonic():.0f}"
            for pane in self.query(Static):
                pane.update(now)

    Empty().run()


def wizard(folder: Path) -> None:
    from sparktui.cli import main

    sys.exit(main(["--env-file", str(folder / "none.env")]))


if __name__ == "__main__":
    case = sys.argv[1]
    if case == "empty":
        empty()
    else:
        {"scripted": scripted, "wizard": wizard}[case](Path(sys.argv[2]))
