"""How far each rank's boot is: a pure state machine, fed with log lines and container events.

`at_seconds` is the viewer's own clock (any monotonic or epoch seconds, the same for all ranks); the engine's own
time stamps are kept beside it, since a viewer may read an old log in one go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sparktui.engine.phases import GRAPH_BAR, LOAD_BEGIN, LOAD_END, SHARDS, Phase, ReadyLine, parse_ready, phase_of
from sparktui.readings.sglang_log import figure, pieces, split_prefix

KEPT_LINES = 40
KEPT_CHARACTERS = 2000
LATE_SECONDS = 60.0
STUCK_SECONDS = 120.0
IDLE_CPU_PERCENT = 5.0
KV_PAGE_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Change:
    """A rung was reached: when, and the line (or event) that shows it."""

    phase: Phase
    at_seconds: float
    line: str
    log_time: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """One load of weights: the model, then the draft. The engine's "GB" are GiB."""

    shards_done: int | None = None
    shards_total: int | None = None
    available_before_gib: float | None = None
    available_after_gib: float | None = None
    used_gib: float | None = None
    seconds: float | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """What the engine said of itself on the way."""

    nccl_version: str | None = None
    target: Load = Load()
    draft: Load = Load()
    bytes_per_token: float | None = None
    kv_available_gib: float | None = None
    unpinned_tokens: int | None = None
    pool_tokens: int | None = None
    context_tokens: int | None = None
    max_running_requests: int | None = None
    chunked_prefill_tokens: int | None = None
    graph_seconds: float | None = None
    graph_gib: float | None = None
    graph_batch: int | None = None
    """The batch size whose capture was last announced."""
    graphs_total: int | None = None
    free_gib: float | None = None
    """Left when everything is in place."""
    engine_seconds: float | None = None
    """From the engine's own start-up line: process start to HTTP server."""


@dataclass(frozen=True, slots=True)
class RankBoot:
    """One rank's boot so far."""

    rank: int
    node: str
    phase: Phase = Phase.NOTHING
    changes: tuple[Change, ...] = ()
    figures: Figures = field(default_factory=Figures)
    lines: tuple[str, ...] = ()
    """The last lines, oldest first, progress bars left out."""
    last_line_at: float | None = None
    exit_code: int | None = None
    oom_killed: bool = False
    exited: bool = False
    ready: ReadyLine | None = None
    asked: bool = True
    """Whether anybody has looked: of a rank that nobody could ask yet it is unknown whether it was started."""
    read: bool = True
    """Whether its log is read; else no more is known than that its container is there."""
    seen_at: float | None = None
    """When it was last heard of, where it cannot be asked now; None while it can."""
    unseen: str = ""
    """Why it cannot be asked now, in a sentence; what is known of it may be old."""

    @property
    def is_head(self) -> bool:
        return self.rank == 0

    @property
    def up(self) -> bool:
        """The head is up with its ready line, a worker with its stand-in server."""
        return not self.exited and self.phase >= (Phase.READY if self.is_head else Phase.SERVER)

    @property
    def last_line(self) -> str:
        return self.lines[-1] if self.lines else ""

    def reached(self, phase: Phase) -> Change | None:
        """The first change at or above this rung."""
        return next((change for change in self.changes if change.phase >= phase), None)

    def container_started(self, at_seconds: float) -> RankBoot:
        """The container of a new boot: what an earlier one said is forgotten."""
        fresh = RankBoot(self.rank, self.node)
        return _climb(fresh, Phase.CONTAINER, at_seconds, "container started", None)

    def container_exited(self, at_seconds: float, exit_code: int | None, oom_killed: bool | None) -> RankBoot:
        return replace(
            self,
            exited=True,
            exit_code=exit_code,
            oom_killed=bool(oom_killed),
            last_line_at=at_seconds if self.last_line_at is None else self.last_line_at,
        )

    def feed(self, raw: str, at_seconds: float) -> RankBoot:
        """One line of the container's log; never raises, whatever it holds."""
        boot = self
        for piece in pieces(raw):
            boot = boot._line(piece[:KEPT_CHARACTERS], at_seconds)
        return boot

    def _line(self, line: str, at_seconds: float) -> RankBoot:
        parts = split_prefix(line)
        text = parts.text
        boot = replace(self, last_line_at=at_seconds)
        shards = SHARDS.search(text)
        bar = GRAPH_BAR.search(text)
        if not shards and not bar:
            boot = replace(boot, lines=(*boot.lines, line)[-KEPT_LINES:])
        before = boot.phase
        if before < Phase.IMPORTS:
            boot = _climb(boot, Phase.IMPORTS, at_seconds, line, parts.at)
        figures = boot.figures
        if LOAD_BEGIN.search(text):
            drafting = figures.target.ended
            load = Load(available_before_gib=figure(text, "avail mem", "GB"))
            figures = replace(figures, draft=load) if drafting else replace(figures, target=load)
            boot = _climb(boot, Phase.DRAFT if drafting else Phase.WEIGHTS, at_seconds, line, parts.at)
        elif LOAD_END.search(text):
            drafting = figures.target.ended or "DSpark" in text
            boot = _climb(boot, Phase.DRAFT if drafting else Phase.WEIGHTS, at_seconds, line, parts.at)
            figures = _load_ended(figures, text, drafting)
        elif shards:
            done, total = int(shards[1]), int(shards[2])
            drafting = figures.target.ended
            boot = _climb(boot, Phase.DRAFT if drafting else Phase.WEIGHTS, at_seconds, line, parts.at)
            if drafting:
                figures = replace(figures, draft=replace(figures.draft, shards_done=done, shards_total=total))
            else:
                figures = replace(figures, target=replace(figures.target, shards_done=done, shards_total=total))
        else:
            phase = phase_of(text)
            if phase is not None:
                boot = _climb(boot, phase, at_seconds, line, parts.at)
            if bar:
                figures = replace(figures, graph_batch=int(bar[1]), graphs_total=int(bar[3]))
            figures = _figures(figures, text)
        ready = parse_ready(text)
        return replace(boot, figures=figures, ready=ready or boot.ready)

    def seconds_in(self, phase: Phase) -> float | None:
        """How long a finished rung took, by the engine's clock where it is known, else by the viewer's."""
        for change, after in zip(self.changes, self.changes[1:], strict=False):
            if change.phase == phase:
                return _between(change, after)
        return None


def _climb(boot: RankBoot, phase: Phase, at_seconds: float, line: str, log_time: str | None) -> RankBoot:
    if phase <= boot.phase:
        return boot
    return replace(boot, phase=phase, changes=(*boot.changes, Change(phase, at_seconds, line, log_time)))


def _load_ended(figures: Figures, text: str, drafting: bool) -> Figures:
    load = figures.draft if drafting else figures.target
    load = replace(
        load,
        ended=True,
        seconds=figure(text, "elapsed", "s"),
        available_after_gib=figure(text, "avail mem", "GB"),
        used_gib=figure(text, "mem usage", "GB"),
    )
    return replace(figures, draft=load) if drafting else replace(figures, target=load)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _figures(figures: Figures, text: str) -> Figures:
    if text.startswith("sglang is using nccl=="):
        return replace(figures, nccl_version=text.removeprefix("sglang is using nccl==").strip())
    if text.startswith("DSV4 memory calculation: "):
        return replace(
            figures,
            bytes_per_token=figure(text, "bytes_per_full_token"),
            kv_available_gib=figure(text, "available_bytes", "GB"),
            unpinned_tokens=_whole(figure(text, "full_token")),
        )
    if text.startswith("Capture ") and "CUDA graph end." in text:
        seconds, used = figure(text, "elapsed", "s"), figure(text, "mem usage", "GB")
        return replace(
            figures,
            graph_seconds=None if seconds is None else (figures.graph_seconds or 0.0) + seconds,
            graph_gib=None if used is None else (figures.graph_gib or 0.0) + used,
        )
    if text.startswith("max_total_num_tokens="):
        return replace(
            figures,
            pool_tokens=_whole(figure(text, "max_total_num_tokens")),
            context_tokens=_whole(figure(text, "context_len")),
            max_running_requests=_whole(figure(text, "max_running_requests")),
            chunked_prefill_tokens=_whole(figure(text, "chunked_prefill_size")),
            free_gib=_first(figure(text, "available_gpu_mem", "GB"), figure(text, "available_cpu_mem", "GB")),
        )
    if text.startswith("Engine startup timings (s): "):
        return replace(figures, engine_seconds=figure(text, "tokenizer_e2e"))
    return figures


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _between(start: Change, end: Change) -> float:
    if start.log_time and end.log_time:
        try:
            return (datetime.fromisoformat(end.log_time) - datetime.fromisoformat(start.log_time)).total_seconds()
        except ValueError:
            pass
    return end.at_seconds - start.at_seconds


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a boot now: `kind` is `exited`, `late` or `stuck`; `fix` names the next steps in order."""

    kind: str
    rank: int
    node: str
    text: str
    fix: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class Boot:
    """All ranks, head first."""

    ranks: tuple[RankBoot, ...]

    @classmethod
    def of(cls, nodes: Sequence[str]) -> Boot:
        return cls(tuple(RankBoot(rank, node) for rank, node in enumerate(nodes)))

    def with_rank(self, boot: RankBoot) -> Boot:
        return Boot(tuple(boot if each.rank == boot.rank else each for each in self.ranks))

    def feed(self, rank: int, raw: str, at_seconds: float) -> Boot:
        return self.with_rank(self.ranks[rank].feed(raw, at_seconds))

    @property
    def ready(self) -> bool:
        """The head said so and no rank has gone; a worker's missing line does not outweigh the head's."""
        return bool(self.ranks) and self.ranks[0].up and not any(each.exited for each in self.ranks)

    @property
    def failed(self) -> bool:
        return any(each.exited for each in self.ranks)

    def troubles(
        self,
        now_seconds: float,
        *,
        cpu_percent: Mapping[int, float] | None = None,
        memory_flat: Mapping[int, bool] | None = None,
    ) -> tuple[Trouble, ...]:
        """What a person should know now; empty while all is well.

        `cpu_percent` and `memory_flat` (by rank) sharpen the stuck rule; without them the silence alone decides.
        """
        gone = tuple(
            Trouble(
                "exited",
                each.rank,
                each.node,
                f"rank {each.rank} ended ({_exit_text(each)})"
                + ("" if each.phase is Phase.NOTHING else f" at {each.phase.title}"),
                f"sparktui logs {each.node}; stop, then serve again",
                each.last_line,
            )
            for each in self.ranks
            if each.exited
        )
        if gone:
            return gone
        return (*self._late(now_seconds), *self._stuck(now_seconds, cpu_percent or {}, memory_flat or {}))

    def _late(self, now_seconds: float) -> tuple[Trouble, ...]:
        there = [change.at_seconds for each in self.ranks if (change := each.reached(Phase.RENDEZVOUS))]
        if not there:
            return ()
        late = now_seconds - max(there)
        if late < LATE_SECONDS:
            return ()
        return tuple(
            Trouble(
                "late",
                each.rank,
                each.node,
                f"rank {each.rank} is late: no rendezvous {late:.0f} s after the others (it is at {each.phase.title})",
                f"sparktui logs {each.node}; is its container running, can it reach the head's rendezvous port?",
                each.last_line,
            )
            for each in self.ranks
            if each.reached(Phase.RENDEZVOUS) is None
        )

    def _stuck(
        self, now_seconds: float, cpu_percent: Mapping[int, float], memory_flat: Mapping[int, bool]
    ) -> tuple[Trouble, ...]:
        waiting = [each for each in self.ranks if each.phase in (Phase.RENDEZVOUS, Phase.NCCL)]
        if not waiting or len(waiting) < len(self.ranks):
            return ()
        for each in waiting:
            silent = 0.0 if each.last_line_at is None else now_seconds - each.last_line_at
            busy = cpu_percent.get(each.rank, 0.0) >= IDLE_CPU_PERCENT or memory_flat.get(each.rank) is False
            if silent < STUCK_SECONDS or busy:
                return ()
        first = waiting[0]
        return (
            Trouble(
                "stuck",
                first.rank,
                first.node,
                f"stuck in NCCL init: every rank has been silent for {STUCK_SECONDS:.0f} s or more",
                "look in this order: GID table of each rank, MTU of both ends, link test, NCCL version of each rank; "
                "then serve again with NCCL_DEBUG=INFO",
                first.last_line,
            ),
        )


def _exit_text(boot: RankBoot) -> str:
    if boot.oom_killed:
        return "out of memory"
    return "exit status unknown" if boot.exit_code is None else f"exit status {boot.exit_code}"


def tokens_text(tokens: int) -> str:
    """750000 -> `750k`, 7474432 -> `7.47M`."""
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.2f}".rstrip("0").rstrip(".") + "M"
    return f"{tokens / 1000:.0f}k" if tokens >= 10_000 else str(tokens)


@dataclass(frozen=True, slots=True)
class KvPool:
    """The pin against what the engine gave."""

    asked_tokens: int
    got_tokens: int

    @property
    def clamped(self) -> bool:
        return self.got_tokens < self.asked_tokens // KV_PAGE_TOKENS * KV_PAGE_TOKENS

    @property
    def text(self) -> str:
        if not self.clamped:
            return f"KV pool: {tokens_text(self.got_tokens)} tokens, as asked"
        return f"KV pool: asked {tokens_text(self.asked_tokens)}, got {tokens_text(self.got_tokens)} (clamped)"


def kv_pool(figures: Figures, asked_tokens: int) -> KvPool | None:
    """None while the engine has not said; before its final line, what it calculated as the limit counts."""
    if figures.pool_tokens is not None:
        return KvPool(asked_tokens, figures.pool_tokens)
    if figures.unpinned_tokens is not None and figures.unpinned_tokens < asked_tokens:
        return KvPool(asked_tokens, figures.unpinned_tokens)
    return None
