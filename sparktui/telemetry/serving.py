"""The endpoint as its own /metrics and /v1/models tell it. Asked from the head, so the key never leaves it.

Live rates come from `realtime_tokens_total`, which moves every 40 steps (about 2.4 s), so they are over RATE_SECONDS.
`gen_throughput` keeps its last value when idle; `generation_tokens_total` grows only when a request ends.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from sparktui.readings.sglang_metrics import Metrics, parse_metrics
from sparktui.remote.scrape import Answer, ScrapeFailed, get
from sparktui.telemetry.sample import EndpointState, Serving

POLL_SECONDS = 3.0
RATE_SECONDS = 15.0
MODELS_SECONDS = 60.0
ANSWER_SECONDS = 5.0
LOST_SECONDS = 120.0
"""An endpoint that went away is missed for this long, or as long as its container is known to run."""
_WANTED = (
    "num_running_reqs",
    "num_queue_reqs",
    "gen_throughput",
    "token_usage",
    "full_token_usage",
    "spec_accept_length",
    "realtime_tokens_total",
    "time_to_first_token_seconds_sum",
    "time_to_first_token_seconds_count",
    "process_start_time_seconds",
    "spark_memory_guard_low",
    "spark_memory_guard_trips_total",
)
_LINES = tuple(f"{prefix}{name}" for name in _WANTED for prefix in ("sglang:", "sglang_", ""))


class Rate:
    """A counter's growth a second between the moments at which it was seen to move; one that goes back begins anew.

    Between two steps of such a counter nothing is known: it is no slower because somebody looked in between.
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()

    def take(self, value: float | None, at: float) -> float | None:
        points = self._points
        if value is None or (points and value < points[-1][1]):
            points.clear()
        if value is None:
            return None
        if not points or value != points[-1][1]:
            points.append((at, value))
        while len(points) > 2 and at - points[1][0] >= RATE_SECONDS:
            points.popleft()
        (first_at, first), (last_at, last) = points[0], points[-1]
        if at - last_at > RATE_SECONDS or (len(points) == 1 and at > first_at):
            return 0.0
        return (last - first) / (last_at - first_at) if last_at > first_at else None


class ServingMeter:
    """Texts of /metrics -> what is served now; pure but for what a rate needs."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._reset()

    def _reset(self) -> None:
        self._decode, self._prefill, self._waits, self._starts = Rate(), Rate(), Rate(), Rate()

    def take(self, text: str, at: float) -> Serving:
        # Most of the text is histograms: only the lines that are used go through the parser.
        kept = [line for line in text.split("\n")[:-1] if line.startswith(_LINES)]
        metrics = parse_metrics("\n".join([*kept, ""]))
        began = metrics.process_start_time_seconds
        if began != self._began:
            self._reset()  # the server was started anew
            self._began = began
        running, queued = _count(metrics.gauge("num_running_reqs")), _count(metrics.gauge("num_queue_reqs"))
        if running == 0:
            self._decode = Rate()  # what comes next is not averaged with the idle time before it
        decode = self._decode.take(metrics.counter("realtime_tokens_total", mode="decode"), at)
        prefill = self._prefill.take(metrics.counter("realtime_tokens_total", mode="prefill_compute"), at)
        if metrics.counter("realtime_tokens_total", mode="decode") is None:
            decode = metrics.gauge("gen_throughput")
        usage = metrics.gauge("full_token_usage")
        return Serving(
            state=EndpointState.READY,
            running_requests=running,
            queued_requests=queued,
            decode_tokens_per_second=0.0 if running == 0 else decode,
            prefill_tokens_per_second=prefill,
            kv_used_fraction=metrics.gauge("token_usage") if usage is None else usage,
            accept_length=metrics.gauge("spec_accept_length"),
            ttft_seconds=self._ttft(metrics, at),
            taken_at=at,
            memory_guard_low=None if (low := metrics.gauge("spark_memory_guard_low")) is None else low > 0,
            memory_guard_trips=_count(metrics.counter("spark_memory_guard_trips_total")),
        )

    def _ttft(self, metrics: Metrics, at: float) -> float | None:
        """Mean over the requests whose first token came in the last interval; None when there was none."""
        waited = self._waits.take(metrics.counter("time_to_first_token_seconds_sum"), at)
        first_tokens = self._starts.take(metrics.counter("time_to_first_token_seconds_count"), at)
        return waited / first_tokens if waited is not None and first_tokens else None


class Endpoint:
    """Follows one endpoint; `latest` is what is known now.

    Attributes:
        engine_running: whether the head's container runs, told by whoever knows (a boot watch); None is unknown.
            It tells a boot (STARTING) from nothing (DOWN), since nothing listens for most of a boot.
        warming_up: it answers, and its ready line is still to come (from the same); then it is not READY.
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, model: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._url, self._key, self._model, self._clock = url, api_key, model, clock
        self._meter = ServingMeter()
        self._models: tuple[str, ...] = ()
        self._models_at: float | None = None
        self._ready = False
        self._ready_at: float | None = None
        self.engine_running: bool | None = None
        self.warming_up = False
        self.latest = Serving(url=url)

    async def run(self) -> None:
        """Until cancelled; never raises for the endpoint's failure."""
        while True:
            try:
                self.latest = await self.look()
            except Exception as error:  # whatever it answered, the watch goes on
                self.latest = self._known(EndpointState.UNKNOWN, f"{type(error).__name__}: {error}")
            await asyncio.sleep(POLL_SECONDS)

    async def look(self) -> Serving:
        """One round of questions."""
        try:
            if not self._ready or self._models_at is None or self._clock() - self._models_at > MODELS_SECONDS:
                problem = await self._readiness()
                if problem is not None:
                    return problem
            answer = await self._get("/metrics")
        except ScrapeFailed as error:
            return self._failed(error)
        at = self._clock()
        if answer.status == 200:
            return self._known(EndpointState.READY, "", self._meter.take(answer.text, at))
        why = (
            "it exports no metrics (--enable-metrics is off)" if answer.status == 404 else f"/metrics: {answer.status}"
        )
        return self._known(EndpointState.READY, why)

    async def _readiness(self) -> Serving | None:
        """None when it is ready. /health is asked once on the way up: it may cost a token each time."""
        answer = await self._get("/v1/models")
        if answer.status in (401, 403):
            return self._known(EndpointState.UNKNOWN, f"it refuses the API key ({answer.status})")
        models = _models(answer.text) if answer.status == 200 else None
        if models is None:
            return self._known(EndpointState.STARTING, f"/v1/models answers {answer.status}")
        self._models, self._models_at = models, self._clock()
        if self._model and self._model not in models:
            return self._known(EndpointState.UNKNOWN, f"another program: it serves {', '.join(models) or 'nothing'}")
        if not self._ready and (await self._get("/health")).status != 200:
            return self._known(EndpointState.STARTING, "it is still starting")
        self._ready = True
        return None

    def _failed(self, error: ScrapeFailed) -> Serving:
        if error.kind == "timeout":
            # Its rate of answers says nothing of the other ranks: silent is not gone.
            return self._known(EndpointState.UNKNOWN, f"{error.what}: a rank may be gone while it still listens")
        was, self._ready = self._ready, False
        self._meter = ServingMeter()
        booting = self.engine_running is True and not was and not self.latest.was_ready
        return self._known(EndpointState.STARTING if booting else EndpointState.DOWN, error.what)

    def _known(self, state: EndpointState, problem: str, serving: Serving | None = None) -> Serving:
        at = self._clock()
        if state is EndpointState.READY and self.warming_up:
            state, problem = EndpointState.STARTING, "it answers; its warm-up is not over"
        if state is EndpointState.READY:
            self._ready_at = at
        elif self.engine_running is False:
            self._ready_at = None
        was_ready = self._ready_at is not None and (self.engine_running is True or at - self._ready_at < LOST_SECONDS)
        return replace(
            serving or Serving(taken_at=at),
            state=state,
            problem=problem,
            url=self._url,
            models=self._models,
            was_ready=was_ready,
        )

    async def _get(self, path: str) -> Answer:
        return await get(self._url, path, api_key=self._key, deadline_seconds=ANSWER_SECONDS)


def _models(text: str) -> tuple[str, ...] | None:
    try:
        return tuple(str(each["id"]) for each in json.loads(text)["data"])
    except (ValueError, KeyError, TypeError):
        return None


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)
