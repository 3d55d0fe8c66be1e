"""Pictures of the logs screen: calm, working, failing, in the two sizes that people have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ui.app_in_test import until
from tests.ui.talking_ranks import AppWithLogs


def decode(rank: int, second: int) -> str:
    return (
        f"[2026-11-29 18:36:{second:02} TP{rank}] Decode batch. #running-req: 4, #full token: {8000 + 40 * second}, "
        f"token usage: 0.03, cuda graph: True, gen throughput (token/s): 51.{second % 10}, #queue-req: 0"
    )


FAILURE = (
    "[2026-11-29 18:41:02 TP1] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/sgl/scheduler.py", line 3, in run_event_loop',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
)
CONSEQUENCE = "[2026-11-29 18:41:04 TP0] RuntimeError: connection closed by peer [10.0.0.2]:3123"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
@pytest.mark.parametrize("state", ["calm", "working", "failing"])
def test_logs(snap_compare: Any, tmp_path: Path, state: str, size: tuple[int, int]) -> None:
    def prepare(links: Any) -> None:
        if state == "failing":
            links[2].unreachable("no route to 10.0.0.3")
        if state != "calm":
            for link in links:
                link.say(*(decode(link.node.rank, second) for second in range(40)))

    app = AppWithLogs(tmp_path, mode="logs", prepare=prepare)

    async def shown(pilot: Any) -> None:
        await until(pilot, lambda: app.ranks)
        logs = app.screen
        ranks = {"calm": 0, "working": 3, "failing": 2}[state]
        await until(pilot, lambda: logs.book.end >= 40 * ranks)
        if state == "failing":
            app.ranks[1].say(*FAILURE)
            await until(pilot, lambda: logs.book.end >= 83)
            app.ranks[0].say(CONSEQUENCE)
            await until(pilot, lambda: logs.book.end >= 85 and logs.intake.silent)
            await pilot.press("exclamation_mark")
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=shown)
