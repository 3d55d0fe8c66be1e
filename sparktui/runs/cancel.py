"""Ends a run: asked first, then killed."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

from sparktui.runs.follow import Standing, standing
from sparktui.runs.identity import Identity

CANCEL_SECONDS = 30.0


async def cancel(run_dir: Path, *, deadline_seconds: float = CANCEL_SECONDS) -> Standing:
    """SIGTERM to the run's process, then SIGKILL to its group; what is true of the run afterwards.

    Long work on a node (a labelled container) is not ended by this: `sparktui stop` does that.
    """
    process = standing(run_dir).process
    if process is None or not process.signal(signal.SIGTERM):
        return standing(run_dir)
    if not await _gone(process, deadline_seconds):
        process.signal(signal.SIGKILL, group=True)
        await _gone(process, 5.0)
    return standing(run_dir)


async def _gone(process: Identity, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while process.alive:
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(0.05)
    return True
