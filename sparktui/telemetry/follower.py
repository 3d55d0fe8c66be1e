"""One node, followed: its stream is opened again when it ends; whatever goes wrong costs this node's row only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparktui.errors import DeadlineExceeded, SparktuiError
from sparktui.readings.sampler_stream import SamplerStream
from sparktui.remote.link import NodeLink
from sparktui.telemetry.gpu import GPU_SECONDS, GpuStream, gpu_argv
from sparktui.telemetry.meter import Meter
from sparktui.telemetry.sample import Freshness, GpuReading, NodeSample
from sparktui.telemetry.sampler import INTERVAL_SECONDS, sampler_argv

LIVE_SECONDS = 3.5
"""A sample is the present for this long; a busy node may miss two."""
GONE_SECONDS = 15.0
"""Then nobody should believe that the node is there."""
HANG_SECONDS = 20.0
"""An open stream that says nothing for this long is given up and opened anew."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
UNSEEN_PAUSE_SECONDS = 120.0
"""The longest for a node that never answered: it may refuse the key, and logins that fail get addresses banned."""
GPU_STALE_SECONDS = 4 * GPU_SECONDS
_GPU_PAUSE_SECONDS = 60.0
_NO_GPU_PAUSE_SECONDS = 900.0
_CLOSE_SECONDS = 0.8


class NodeFollower:
    """Owns one node's stream.

    Attributes:
        last_seen: what an earlier watch kept of it, said while it has not answered this one.

    Args:
        clock: seconds, monotonic.
        folders: whose file systems' free space is wanted.
        gpu: follow nvidia-smi as well.
    """

    def __init__(
        self,
        link: NodeLink,
        *,
        clock: Callable[[], float],
        folders: Sequence[str] = (),
        gpu: bool = True,
        floor_bytes: int | None = None,
    ) -> None:
        self._link, self._clock, self._folders, self._wants_gpu = link, clock, tuple(folders), gpu
        self._meter = Meter(link.node, floor_bytes)
        self._last: NodeSample | None = None
        self._gpu: GpuReading | None = None
        self._opened_at = self._heard_at = clock()
        self._problem = ""
        self._count = 0
        self._no_gpu = False
        self.last_seen = ""

    # -- what is known ------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._link.node.name

    @property
    def count(self) -> int:
        """How many samples have come."""
        return self._count

    @property
    def failed(self) -> bool:
        """The last stream could not be opened or broke; a slow node has not failed."""
        return bool(self._problem)

    def sample(self, now: float) -> NodeSample:
        """The node as it is known at `now`; the last values stay when nothing comes."""
        last = self._last
        if last is None or last.taken_at is None:
            waited = now - self._opened_at
            state = Freshness.GONE if self._problem else Freshness.WAITING
            problem = self._problem or (f"no sample yet, {waited:.0f} s" if waited > LIVE_SECONDS else "")
            if problem and self.last_seen:
                problem = f"{problem}; {self.last_seen}"
            return NodeSample(self._link.node.name, self._link.node.rank, state, problem=problem)
        age = max(0.0, now - last.taken_at)
        gpu = self._gpu if self._gpu and now - self._gpu.taken_at <= GPU_STALE_SECONDS else None
        if age <= LIVE_SECONDS:
            return replace(last, age_seconds=age, gpu=gpu)
        state = Freshness.GONE if age > GONE_SECONDS else Freshness.STALE
        problem = self._problem or f"no sample for {age:.0f} s although the connection is open"
        return replace(last, freshness=state, age_seconds=age, problem=problem, gpu=gpu)

    # -- following ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled; never raises for the node's failure."""
        tasks = [asyncio.create_task(self._follow(self._samples, self._fails, self._pause()))]
        if self._wants_gpu:
            tasks.append(asyncio.create_task(self._follow(self._gpu_rows, _nobody, self._gpu_pause)))
        try:
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)

    async def _follow(
        self, stream: Callable[[], object], failed: Callable[[str], None], pause: Callable[[], float]
    ) -> None:
        while True:
            try:
                await stream()  # type: ignore[misc]
                failed("its sampler ended")
            except SparktuiError as error:
                failed(f"{error.what}{'; ' + error.fix if error.fix else ''}")
            except Exception as error:  # anything else of this node's is this node's row as well
                failed(str(error) or type(error).__name__)
            await asyncio.sleep(pause())

    def _fails(self, why: str) -> None:
        self._problem = why

    def _pause(self) -> Callable[[], float]:
        """1, 2, 4, … s; 1 s again after a stream that gave samples."""
        seconds, seen = FIRST_PAUSE_SECONDS, 0

        def pause() -> float:
            nonlocal seconds, seen
            if self._count > seen:
                seconds, seen = FIRST_PAUSE_SECONDS, self._count
            now, seconds = seconds, min(2 * seconds, LONGEST_PAUSE_SECONDS if self._count else UNSEEN_PAUSE_SECONDS)
            return now

        return pause

    async def _samples(self) -> None:
        """One stream to its end.

        Raises:
            DeadlineExceeded: it is open and says nothing.
        """
        self._heard_at = self._clock()
        reading = asyncio.create_task(self._read())
        try:
            while not (await asyncio.wait({reading}, timeout=HANG_SECONDS / 4))[0]:
                if self._clock() - self._heard_at > HANG_SECONDS:
                    text = f"it has said nothing for {HANG_SECONDS:.0f} s, although the connection is open"
                    raise DeadlineExceeded(text, node=self._link.node.name)
            reading.result()
        finally:
            reading.cancel()
            await asyncio.wait({reading}, timeout=_CLOSE_SECONDS)

    async def _read(self) -> None:
        stream = SamplerStream()
        self._meter.restarted()
        async for line in self._link.lines(sampler_argv(self._folders, interval_seconds=INTERVAL_SECONDS)):
            record = stream.feed(line)
            if record is not None:
                self._heard_at = self._clock()
                self._last = self._meter.take(record, self._heard_at)
                self._problem = ""
                self._count += 1

    async def _gpu_rows(self) -> None:
        stream = GpuStream()
        async for line in self._link.lines(gpu_argv()):
            reading = stream.feed(line, self._clock())
            if reading is not None:
                self._gpu = reading
            self._no_gpu = stream.absent

    def _gpu_pause(self) -> float:
        return _NO_GPU_PAUSE_SECONDS if self._no_gpu else _GPU_PAUSE_SECONDS


def _nobody(_why: str) -> None:
    """A missing GPU reading is shown as unknown; the node's own row has its own reason."""
