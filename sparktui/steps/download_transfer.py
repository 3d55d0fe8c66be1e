"""Brings a checkpoint here and says how far it is: restarts a transfer that stalls, waits where the hub asks for it.

Progress is the bytes in the folder against the sizes of the revision, never what the transfer says of itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from sparktui.errors import StepFailed
from sparktui.events import Event, LogLine, Note, Progress, State
from sparktui.readings.checkpoint import parse_index
from sparktui.readings.checkpoint_listing import FolderState, Listing, compare
from sparktui.remote import checkpoint_folder
from sparktui.remote.hub import ChildEvent, HubAccess, HubChild, HubRefused, fetch_request
from sparktui.remote.link import NodeLink
from sparktui.steps.amounts import bytes_text, seconds_text

STEP = "download"
HEAD = "head"
AGAIN = "sparktui download: it resumes where it stopped"


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient a transfer is; tests are less so."""

    tick_seconds: float = 1.0
    stall_seconds: float = 120.0
    restarts: int = 3
    backoff_seconds: float = 5.0
    rate_window_seconds: float = 20.0
    rate_limit_seconds: float = 60.0
    """Where the hub limits the rate without saying for how long; doubled each time in a row."""
    rate_limit_waits: int = 8
    """How many such waits in a row, without a byte between them."""
    retry_pause_seconds: float = 1.0


class Rate:
    """Bytes a second over a window; None until two readings, 0 where nothing came."""

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._readings: deque[tuple[float, int]] = deque()

    def add(self, now: float, amount: int) -> None:
        self._readings.append((now, amount))
        while len(self._readings) > 2 and now - self._readings[0][0] > self._window:
            self._readings.popleft()

    @property
    def per_second(self) -> float | None:
        if len(self._readings) < 2:
            return None
        (first, low), (last, high) = self._readings[0], self._readings[-1]
        return max(high - low, 0) / (last - first) if last > first else None


def progress(state: FolderState, rate: float | None, phase: str = "") -> Progress:
    """The bar: never full while a file is missing or of the wrong size; time left is blank at rate 0."""
    amount = state.present_bytes if state.complete else min(state.present_bytes, state.total_bytes - 1)
    left = (state.total_bytes - amount) / rate if rate else None
    text = phase or f"{state.files_done} of {state.files_total} files"
    return Progress(STEP, HEAD, text, amount, state.total_bytes, rate_per_second=rate, seconds_left=left)


async def folder_state(listing: Listing, model_dir: Path, *, with_index: bool = True) -> FolderState:
    """The head's folder now, from names, sizes and (not every second: it is large) the index file; in a thread."""

    def read() -> FolderState:
        sizes = checkpoint_folder.scan(model_dir)
        index = checkpoint_folder.read_index(model_dir) if with_index else None
        parsed = parse_index(index) if index is not None else None
        return compare(listing, sizes.final_bytes, sizes.partial_bytes, parsed.files if parsed else ())

    return await asyncio.to_thread(read)


class Transfer:
    """One download, however many processes it takes.

    Args:
        mask: hides secrets in a text.
        link: the head's.
    """

    def __init__(
        self,
        access: HubAccess,
        listing: Listing,
        model_dir: Path,
        *,
        workers: int,
        pace: Pace,
        mask: Callable[[str], str],
        link: NodeLink | None = None,
    ) -> None:
        self._link = link
        self._access = access
        self._listing = listing
        self._model_dir = model_dir
        self._workers = workers
        self._pace = pace
        self._mask = mask
        self._xet = True
        self._rate = Rate(pace.rate_window_seconds)
        self._stalled = False
        self._reached = 0

    async def events(self) -> AsyncGenerator[Event, None]:
        """Until every file is there.

        Raises:
            HubRefused: not permitted, not there, no hub, no disk.
            StepFailed: stalled too often, killed, or ended without the whole revision.
        """
        stalls = limits = 0
        while True:
            state = await folder_state(self._listing, self._model_dir)
            if state.complete:
                yield progress(state, self._rate.per_second)
                return
            before, self._stalled = state.present_bytes, False
            request = fetch_request(
                self._access,
                self._model_dir,
                workers=self._workers,
                xet=self._xet,
                pause_seconds=self._pace.retry_pause_seconds,
            )
            child = await HubChild.start(request, self._link)
            try:
                # A closed generator does not close the one inside it: the child must be gone before this returns.
                async with aclosing(self._watch(child, state)) as events:
                    async for event in events:
                        yield event
            finally:
                await child.aclose()
            if self._reached > before:
                stalls = limits = 0
            if self._stalled:
                stalls += 1
                if stalls > self._pace.restarts:
                    raise StepFailed(
                        self._stall_text(stalls), fix=f"check the line to the hub, then {AGAIN}", node=HEAD
                    )
                yield Note(STEP, HEAD, self._restart_text(stalls), State.WARN)
                self._xet = False
                await asyncio.sleep(self._pace.backoff_seconds * 2 ** (stalls - 1))
            elif child.refused and child.refused.kind == "rate_limited" and limits < self._pace.rate_limit_waits:
                limits += 1
                async for event in self._wait_for_hub(child.refused, limits):
                    yield event
            elif child.refused:
                raise HubRefused(
                    self._mask(child.refused.what),
                    kind=child.refused.kind,
                    retry_after_seconds=child.refused.retry_after_seconds,
                )
            elif child.exit_status:
                raise await self._died(child)
            else:
                state = await folder_state(self._listing, self._model_dir)
                if not state.complete:
                    # The transfer says it is done; the folder decides.
                    raise StepFailed(state.text, fix=AGAIN, node=HEAD)

    async def _watch(self, child: HubChild, state: FolderState) -> AsyncGenerator[Event, None]:
        said: asyncio.Queue[ChildEvent] = asyncio.Queue()

        async def listen() -> None:
            async for event in child.events():
                said.put_nowait(event)

        listener = asyncio.create_task(listen())
        last, moved = state.present_bytes, time.monotonic()
        self._reached = last
        try:
            while True:
                yield progress(state, self._rate.per_second)
                ended, _ = await asyncio.wait({listener}, timeout=self._pace.tick_seconds)
                while not said.empty():
                    event = said.get_nowait()
                    if event.name == "done":
                        continue
                    if event.name == "begun":
                        moved = time.monotonic()  # its own start is no stall of the line
                    else:
                        yield self._told(event)
                state = await folder_state(self._listing, self._model_dir, with_index=False)
                now = time.monotonic()
                self._rate.add(now, state.present_bytes)
                if state.present_bytes > last:
                    last, moved = state.present_bytes, now
                    self._reached = max(self._reached, last)
                if ended:
                    await listener
                    return
                if now - moved >= self._pace.stall_seconds:
                    self._stalled = True
                    yield progress(state, 0.0, phase=f"stalled {seconds_text(now - moved)}")
                    return
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    def _told(self, event: ChildEvent) -> Event:
        path = event.fields.get("path", "")
        if event.name == "retry":
            text = f"{path}: {event.fields.get('why')}; goes on at {bytes_text(event.fields.get('at'))}"
        elif event.name == "from_zero":
            text = f"{path}: the server cannot resume, so this file begins anew"
        elif event.name == "file":
            size = bytes_text(event.fields.get("bytes"))
            text = f"{path}: whole, {size}, checked by {event.fields.get('verified')}"
        else:
            text = f"{event.name} {event.fields.get('why', '')}".strip()
        return LogLine(STEP, HEAD, self._mask(text))

    def _restart_text(self, stalls: int) -> str:
        waited = seconds_text(self._pace.stall_seconds)
        return (
            f"stalled: no byte for {waited} at {bytes_text(self._reached)}; "
            f"begun again with xet off ({stalls} of {self._pace.restarts})"
        )

    def _stall_text(self, stalls: int) -> str:
        reached, total = bytes_text(self._reached), bytes_text(self._listing.total_bytes)
        return f"the transfer stalled {stalls} times in a row at {reached} of {total}"

    async def _wait_for_hub(self, refused: HubRefused, limits: int) -> AsyncIterator[Event]:
        wait = refused.retry_after_seconds
        named = wait is not None
        if wait is None:
            wait = self._pace.rate_limit_seconds * 2 ** (limits - 1)
        hint = "" if self._access.token else "; HF_TOKEN in the .env raises the limit"
        source = "as the hub asks" if named else "the hub does not say how long"
        yield Note(STEP, HEAD, f"rate limited by the hub (429): waits {seconds_text(wait)}, {source}{hint}", State.WARN)
        until = time.monotonic() + wait
        while (left := until - time.monotonic()) > 0:
            yield Progress(
                STEP,
                HEAD,
                "rate limited by the hub (429)",
                self._reached,
                self._listing.total_bytes,
                rate_per_second=0.0,
                seconds_left=left,
            )
            await asyncio.sleep(min(self._pace.tick_seconds, left))

    async def _died(self, child: HubChild) -> StepFailed:
        status = child.exit_status or 0
        if status >= 0:
            words = self._mask(child.last_words)
            return StepFailed(
                f"the transfer ended with status {status}: {words or 'no reason given'}", fix=AGAIN, node=HEAD
            )
        available = await asyncio.to_thread(checkpoint_folder.available_memory_bytes)
        memory = f"; {bytes_text(available)} of memory available now" if available is not None else ""
        guess = " (out of memory?)" if status == -9 else ""
        return StepFailed(f"the transfer was killed by signal {-status}{guess}{memory}", fix=AGAIN, node=HEAD)
