"""Short of memory, the head ends all requests with an error that says so: a Spark that runs out answers nobody.

Decided on rank 0 alone, where SGLang's scheduler asks for its own timeouts: those aborts go to all ranks in the
broadcast that hands out the requests, and each rank drops the same ones in the same step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_overlay import named_error
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Switch, Values

FLOOR = Switch(
    "DSV41_MEMGUARD_MIB",
    1536,
    "MiB of available memory on the head below which all requests are ended and new ones refused; 0 watches nothing",
    256,
    65_536,
    zero_is_off=True,
)
MIB = 1024**2
NAME = "memory_guard: "
STATUS = 503
EASE = 1.25
"""Requests are taken again above the floor times this."""
CALM_SECONDS = 5.0
"""And only when it has been above that for so long: what ended gives its memory back over several steps."""
LOOK_SECONDS = 0.25
GIVE_BACK_SECONDS = 1.0
_POLL = "sglang.srt.managers.scheduler.Scheduler._poll_timeout_aborts"
_ABORT = "sglang.srt.managers.scheduler.Scheduler.abort_request"


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """MemAvailable of the host, which a container sees as well; None where the kernel does not say."""
    try:
        text = meminfo.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if name == "MemAvailable" and len(words) == 2 and words[0].isdecimal():
            return int(words[0]) * 1024
    return None


class Guard:
    """Whether memory is short, looked at every LOOK_SECONDS however often it is asked.

    Attributes:
        low: requests are being ended; set below the floor, cleared after CALM_SECONDS above EASE times it.
        seen: what was available at the last look that told, in bytes.
        blind: the last look told nothing: then `low` stays as it was.
        begun: memory was once above EASE times the floor; before that nothing is ended. A head that is short without
            any request would refuse all of them for ever, and SGLang ends where its own first one is refused.
    """

    def __init__(
        self,
        floor_bytes: int,
        read: Callable[[], int | None] = available_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.floor_bytes, self.seen = floor_bytes, 0
        self.low, self.blind, self.begun = False, False, False
        self._read, self._clock = read, clock
        self._next, self._calm_since = -float("inf"), -float("inf")

    def look(self) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + LOOK_SECONDS
        found = self._read()
        self.blind = found is None
        if found is None:
            return
        self.seen = found
        if found >= self.floor_bytes * EASE:
            self.begun = True
        else:
            self._calm_since = now
        if found < self.floor_bytes and self.begun:
            self.low = True
        elif now - self._calm_since >= CALM_SECONDS:
            self.low = False

    @property
    def text(self) -> str:
        """The error that a client gets."""
        floor = self.floor_bytes / MIB
        return (
            f"{NAME}the head had {self.seen / MIB:.0f} MiB of memory left, {FLOOR.name} is {floor:.0f}: requests are "
            f"ended and refused until it has {floor * EASE:.0f}. Next: wait, then send a shorter prompt"
        )


def _functions(values: Values) -> dict[str, Callable[..., Any]]:
    from http import HTTPStatus

    import torch
    from sglang.srt.managers.io_struct import AbortReq
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    guard = Guard(values[FLOOR.name] * MIB)
    said = {"low": False, "blind": False, "waits": False}
    told: dict[str, str] = {}  # the request whose prompt was being read: SGLang ends it later, without the reason
    gave_back = [-float("inf")]
    meters: list[Any] = []

    def state(scheduler: Any) -> None:
        """One line for each change, and two meters in /metrics, which the monitor reads."""
        if not meters:
            from prometheus_client import Counter, Gauge  # after SGLang has set its folder

            meters.append(
                Gauge("spark_memory_guard_low", "1 while requests are refused", multiprocess_mode="mostrecent")
            )
            meters.append(Counter("spark_memory_guard_trips", "how often running requests were ended"))
        if guard.blind and not said["blind"]:
            print(f"[spark] WARNING {NAME}/proc/meminfo does not say MemAvailable: nothing is guarded", flush=True)
        said["blind"] = guard.blind
        if not guard.begun and not guard.blind and not said["waits"]:
            said["waits"] = True
            floor = guard.floor_bytes / MIB
            print(
                f"[spark] WARNING {NAME}the head has {guard.seen / MIB:.0f} MiB available before any request, "
                f"{FLOOR.name} is {floor:.0f}: nothing is guarded until it has {floor * EASE:.0f}. "
                "Next: end other programs there",
                flush=True,
            )
        if guard.low == said["low"]:
            return
        said["low"] = guard.low
        meters[0].set(int(guard.low))
        if guard.low:
            meters[1].inc()
            running = sum(not req.finished() for req in scheduler.collect_inflight_reqs())
            waiting = len(scheduler.waiting_queue) + len(scheduler.grammar_manager.grammar_queue)
            print(f"[spark] WARNING {guard.text} ({running} running, {waiting} waiting)", flush=True)
        else:
            print(f"[spark] {NAME}{guard.seen / MIB:.0f} MiB available: requests are taken again", flush=True)

    def poll(result: list[Any], scheduler: Any) -> list[Any]:
        guard.look()
        state(scheduler)
        if not guard.low:
            return result
        # In each pass as long as memory is short: it comes behind the pass's new requests, so that none of them starts.
        reason = {"type": "abort", "status_code": HTTPStatus(STATUS), "message": guard.text}
        return [*result, AbortReq(abort_all=True, abort_message=guard.text, finished_reason=reason)]

    def abort(original: Callable[..., Any], scheduler: Any, recv_req: Any) -> Any:
        text = recv_req.abort_message or told.pop(recv_req.rid, "")
        if not text.startswith(NAME):
            return original(scheduler, recv_req)
        reason = FINISH_ABORT(text, HTTPStatus(STATUS), "memory_guard")
        recv_req.abort_message, recv_req.finished_reason = text, reason.to_json()
        if scheduler.chunked_req is not None:
            scheduler.chunked_req.discard_output_reason = reason
            told.clear()
            told[scheduler.chunked_req.rid] = text
        original(scheduler, recv_req)
        if recv_req.abort_all:
            for req in scheduler.grammar_manager.grammar_queue:
                req.to_finish = reason
        if time.monotonic() - gave_back[0] >= GIVE_BACK_SECONDS:
            gave_back[0] = time.monotonic()
            torch.cuda.empty_cache()  # what PyTorch holds for later counts as used
        return None

    return {_POLL: poll, _ABORT: abort, **named_error.functions(NAME, STATUS)}


def check(values: Values) -> None:
    """The memory can be read here, the states follow it, and what is read of the scheduler exists."""
    from sglang.srt.managers.scheduler import Scheduler

    assert available_bytes() is not None, "/proc/meminfo does not say MemAvailable"
    assert callable(getattr(Scheduler, "collect_inflight_reqs", None)), "Scheduler.collect_inflight_reqs is missing"
    now, memory = [0.0], [0]
    guard = Guard(100, lambda: memory[0], lambda: now[0])
    states = []
    for at, available in ((0, 200), (1, 99), (2, 124), (3, 200), (7, 200), (8, 200)):
        now[0], memory[0] = at, available
        guard.look()
        states.append(guard.low)
    assert states == [False, True, True, True, False, False], f"short of memory: {states}"


ADAPTER = Adapter(
    name="memory_guard",
    problem="A head that runs out of memory stalls all ranks and often answers nobody until its power is cut. Below a "
    "floor this ends all requests with a named error (503) and gives PyTorch's unused memory back on every rank. The "
    "head alone is watched: it carries more than the workers.",
    settings=(FLOOR,),
    hooks=(
        HookPoint(_POLL, Kind.AFTER, "(self)", Process.SCHEDULER),
        HookPoint(_ABORT, Kind.AROUND, "(self, recv_req)", Process.SCHEDULER),
        *named_error.HOOKS,
    ),
    engines=("0.5.23",),
    remove_when="SGLang ends requests itself before the host's memory is gone.",
    off=lambda values: "" if values[FLOOR.name] else f"{FLOOR.name}=0",
    functions=_functions,
    check=check,
)
