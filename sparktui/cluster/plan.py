"""The memory sheet: what one rank's memory goes to, whether that fits, and why.

An estimate with its sources named. Two boots of one configuration differ by about a GiB, since the engine sizes its
pool from what is free at that moment; only what cannot fit by more than that is refused. All GiB are 2^30.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sparktui.cluster.padding import padding_bytes

GIB = 1024**3
ASSUMED_TOTAL_GIB = 121.7
"""MemTotal of an NVIDIA-branded Spark; other makers' boxes have a little less, so it is read where a node answers."""
WEIGHTS_GIB = {2: 145.0, 3: 101.0, 4: 77.0}
"""A rank's share of weights without Engram, published by the recipe."""
ALL_WEIGHTS_GIB = 305.0
BEFORE_LOAD_GIB = 8.7
"""System, driver and CUDA on a worker: 121.7 less the 113.0 that a worker had free before loading (log of 11 Sep)."""
HEAD_EXTRA_GIB = 1.3
"""HTTP server, tokenizer and NFS exporter on the head: the same log, the head had 111.5 free."""
BYTES_PER_TOKEN = 1670.75
PAGE_TOKENS = 256
SLIDING_WINDOW_GIB = 0.30
MULTIMODAL_RESERVE_GIB = 0.10
GRAPH_GIB_PER_BATCH_SIZE = 0.15
"""0.58 GiB for four batch sizes in the same log."""
CONNECTIONS_PER_CHANNEL = 16
LL_BYTES = 512 * 1024
LL128_DEFAULT_BYTES = 4_915_200
SIMPLE_DEFAULT_BYTES = 4 * 1024 * 1024
INDEXER_BYTES = 14
"""Bytes for each pair of chunk token and prompt token while a long prompt is read."""
INDEXER_BUDGET_MIB = 2048
"""SGLang 0.5.23 works through the scores in blocks of this budget where DSV41_INDEXER_SCORE_BUDGET_MIB names none."""
LONG_PROMPT_LIMIT = 2.02e8
"""Chunk times prompt that owners of three Sparks found safe."""
STRAINING_PROMPT_TOKENS = 32_768
"""Up to this a head of three Sparks is left alone: what the recipe advises where nobody watches."""
LONGEST_SEEN_TOKENS = 208_000
"""The longest prompt that the recipe reports from three Sparks."""
RESERVE_GIB = 2.0
"""Below this a Spark is close to a hang that only a power cycle ends."""
TIGHT_GIB = 4.0
UNCERTAINTY_GIB = 1.5


@dataclass(frozen=True, slots=True)
class Unexplained:
    """What reported boots hold beside published weights and computed padding, GiB: from `low` to `high`.

    Attributes:
        counted: what the sheet takes.
        source: the boots that the ends come from.
    """

    low: float
    counted: float
    high: float
    source: str


UNEXPLAINED = {
    3: Unexplained(
        -5.3,
        2.5,
        3.2,
        "one of 11 Sep loaded 96.7 GiB in all; later ones had pools of 658,000 to 750,000 tokens at a fraction of 0.95 "
        "and none at 0.9436",
    ),
    4: Unexplained(-0.2, 0.5, 2.6, "pools of 7.5 to 7.8 million tokens with SGLang's loader, 6.0 to 6.5 with another"),
}
UNEXPLAINED_ELSE = Unexplained(-0.2, 0.5, 2.6, "as for four Sparks: no boot of this many is reported")


class Fit(StrEnum):
    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True, slots=True)
class MemoryInput:
    """The settings that decide; plain values, so that anything can ask.

    Attributes:
        total_bytes: MemTotal by rank, where a node was read.
        weights_gib: a rank's weights where they are known better than by the table.
        score_budget_mib: for a block of index scores.
    """

    ranks: int
    context_tokens: int
    pool_tokens: int
    max_running_requests: int
    chunk_tokens: int
    head_fraction: float
    worker_fraction: float
    engram_cache_gib: float
    expert_groups: int
    nccl_buffer_bytes: int
    nccl_ll128_bytes: int
    nccl_protocols: str
    nccl_channels: int
    total_bytes: Mapping[int, int | None]
    weights_gib: float | None = None
    score_budget_mib: int = INDEXER_BUDGET_MIB


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the sheet."""

    name: str
    gib: float
    source: str


@dataclass(frozen=True, slots=True)
class RankMemory:
    """One rank's sheet.

    Attributes:
        total_source: `read from the node` or the assumption in words.
        pool_tokens: what the engine will be able to give, by its own formula; below the pin it clamps silently.
    """

    rank: int
    total_gib: float
    total_source: str
    items: tuple[Item, ...]
    kv_budget_gib: float
    pool_tokens: int
    fit: Fit
    reasons: tuple[str, ...]

    @property
    def used_gib(self) -> float:
        return sum(item.gib for item in self.items)

    @property
    def free_gib(self) -> float:
        return self.total_gib - self.used_gib


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """All ranks. `refusals` stop a start; `warnings` do not; `advice` holds for the settings as shipped as well."""

    ranks: tuple[RankMemory, ...]
    refusals: tuple[str, ...]
    warnings: tuple[str, ...]
    advice: tuple[str, ...] = ()

    @property
    def fit(self) -> Fit:
        states = {rank.fit for rank in self.ranks}
        return next(state for state in (Fit.DOES_NOT_FIT, Fit.TIGHT, Fit.FITS) if state in states or state is Fit.FITS)

    @property
    def pool_tokens(self) -> int:
        """The smallest rank's: all ranks take the same."""
        return min(rank.pool_tokens for rank in self.ranks)


def rank_weights_gib(ranks: int) -> float:
    return WEIGHTS_GIB.get(ranks, ALL_WEIGHTS_GIB / max(1, ranks))


def nccl_gib(plan: MemoryInput) -> float:
    """NCCL's pinned buffers: for each connection one buffer a protocol, sixteen connections a channel."""
    text = plan.nccl_protocols.upper()
    names = set(text.lstrip("^").replace(" ", "").split(","))
    every = {"LL", "LL128", "SIMPLE"}
    wanted = every - names if text.startswith("^") else names & every or every
    sizes = {
        "SIMPLE": plan.nccl_buffer_bytes if plan.nccl_buffer_bytes > 0 else SIMPLE_DEFAULT_BYTES,
        "LL128": plan.nccl_ll128_bytes if plan.nccl_ll128_bytes > 0 else LL128_DEFAULT_BYTES,
        "LL": LL_BYTES,
    }
    return sum(sizes[name] for name in wanted) * plan.nccl_channels * CONNECTIONS_PER_CHANNEL / GIB


def pages(tokens: int) -> int:
    """A pin as the engine takes it: whole pages of 256 tokens."""
    return tokens // PAGE_TOKENS * PAGE_TOKENS


def memory_plan(plan: MemoryInput) -> MemoryPlan:
    ranks = tuple(_rank(plan, rank) for rank in range(plan.ranks))
    refusals: list[str] = []
    warnings: list[str] = []
    worst = min(ranks, key=lambda each: each.kv_budget_gib)
    most = _tokens(worst.kv_budget_gib + UNCERTAINTY_GIB)
    got = worst.pool_tokens
    asked = pages(plan.pool_tokens)
    who = "the head" if worst.rank == 0 else f"rank {worst.rank}"
    if most <= 0:
        refusals.append(
            f"no memory is left for a KV pool: {who} is {-worst.kv_budget_gib:.1f} GiB short. "
            "A lower MEM_FRACTION_STATIC frees nothing, it takes from the pool"
        )
    elif asked > most:
        refusals.append(
            f"MAX_TOTAL_TOKENS={plan.pool_tokens} needs {_gib(asked):.1f} GiB and {who} has about "
            f"{max(0.0, worst.kv_budget_gib):.1f}: about {max(0, got):,} tokens fit"
        )
    elif asked > got:
        warnings.append(f"MAX_TOTAL_TOKENS={plan.pool_tokens} will be cut to about {max(0, got):,} tokens ({who})")
    if 0 < most < plan.context_tokens:
        refusals.append(
            f"CONTEXT_LENGTH={plan.context_tokens} is longer than any pool that fits (about {max(0, got):,} tokens)"
        )
    elif plan.context_tokens > plan.pool_tokens:
        warnings.append(
            f"CONTEXT_LENGTH={plan.context_tokens} is longer than the pool MAX_TOTAL_TOKENS={plan.pool_tokens}: "
            "one request can use the pool's length at most"
        )
    if plan.ranks <= 3 and plan.chunk_tokens * plan.context_tokens > LONG_PROMPT_LIMIT:
        longest = int(LONG_PROMPT_LIMIT / plan.chunk_tokens)
        warnings.append(
            f"prompts over about {longest:,} tokens are risky with CHUNKED_PREFILL_SIZE={plan.chunk_tokens}: "
            "a head that runs out of memory stalls all ranks"
        )
    for rank in ranks:
        if rank.free_gib < RESERVE_GIB:
            name = "the head" if rank.rank == 0 else f"rank {rank.rank}"
            text = f"{name} {rank.reasons[0]}"
            (refusals if rank.free_gib + UNCERTAINTY_GIB < 0 else warnings).append(text)
    return MemoryPlan(ranks, tuple(refusals), tuple(warnings), _advice(plan))


def _advice(plan: MemoryInput) -> tuple[str, ...]:
    if plan.ranks > 3 or plan.context_tokens <= STRAINING_PROMPT_TOKENS:
        return ()
    text = (
        f"CONTEXT_LENGTH={plan.context_tokens}: a prompt over about 32,000 tokens strains the head's memory on three "
        "Sparks"
    )
    if plan.context_tokens > LONGEST_SEEN_TOKENS:
        text += f", and one over {LONGEST_SEEN_TOKENS:,} was never seen to work"
    return (f"{text}. Write CONTEXT_LENGTH={STRAINING_PROMPT_TOKENS} where nobody watches",)


def _gib(tokens: int) -> float:
    return tokens * BYTES_PER_TOKEN / GIB


def _tokens(kv_budget_gib: float) -> int:
    return pages(math.floor(kv_budget_gib * GIB / BYTES_PER_TOKEN))


def _rank(plan: MemoryInput, rank: int) -> RankMemory:
    read = plan.total_bytes.get(rank)
    total = ASSUMED_TOTAL_GIB if read is None else read / GIB
    weights = rank_weights_gib(plan.ranks) if plan.weights_gib is None else plan.weights_gib
    padding = padding_bytes(plan.ranks, plan.expert_groups) / GIB
    unexplained = UNEXPLAINED.get(plan.ranks, UNEXPLAINED_ELSE)
    before = BEFORE_LOAD_GIB + (HEAD_EXTRA_GIB if rank == 0 else 0.0)
    fraction = plan.head_fraction if rank == 0 else plan.worker_fraction
    # the engine's own rule: free after loading, less the share it must leave of what was free before;
    # the row cache fills later, so it does not count here and does below
    free_before = total - before
    budget = free_before - weights - padding - unexplained.counted - (1 - fraction) * free_before
    budget -= MULTIMODAL_RESERVE_GIB + SLIDING_WINDOW_GIB
    got = min(pages(plan.pool_tokens), max(0, _tokens(budget)))
    score = INDEXER_BYTES * plan.chunk_tokens * plan.context_tokens / GIB
    items = [
        Item(
            "system, driver, CUDA", BEFORE_LOAD_GIB, "a worker's log of 11 Sep: 113.0 of 121.7 GiB free before loading"
        )
    ]
    if rank == 0:
        items.append(Item("server, tokenizer, exporter", HEAD_EXTRA_GIB, "the head of the same boot had 111.5 GiB"))
    items += [
        Item("weights", weights, "published by the recipe" if plan.weights_gib is None else "size of this checkpoint"),
        Item("padding", padding, f"computed from the tensors' sizes for TP_SIZE={plan.ranks}"),
        Item(
            "not explained",
            unexplained.counted,
            f"estimate; reported boots lie between {unexplained.low} and {unexplained.high} GiB: {unexplained.source}",
        ),
        Item("Engram cache", plan.engram_cache_gib, "DSV41_CACHE_GIB"),
        Item("KV pool", _gib(got) + SLIDING_WINDOW_GIB, f"{got:,} tokens of {BYTES_PER_TOKEN} bytes, and the window"),
        Item("CUDA graphs", GRAPH_GIB_PER_BATCH_SIZE * plan.max_running_requests, "0.15 GiB a batch size, estimate"),
        Item("NCCL buffers", nccl_gib(plan), "NCCL_BUFFSIZE and so on, at most"),
        Item(
            "indexer, longest prompt",
            min(score, plan.score_budget_mib / 1024),
            f"14 bytes x chunk x prompt, in blocks of {plan.score_budget_mib} MiB; only while a long prompt is read",
        ),
    ]
    used = sum(item.gib for item in items)
    free = total - used
    reasons = []
    if free < RESERVE_GIB:
        reasons.append(f"needs {used:.1f} GiB and {RESERVE_GIB:.0f} GiB to spare, has {total:.1f}")
    if budget <= 0:
        reasons.append(f"the KV budget is {budget:.1f} GiB")
    fit = Fit.DOES_NOT_FIT if reasons else Fit.TIGHT if free < TIGHT_GIB else Fit.FITS
    source = f"assumed: {ASSUMED_TOTAL_GIB} GiB as NVIDIA's own Sparks have" if read is None else "read from the node"
    return RankMemory(rank, total, source, tuple(items), budget, got, fit, tuple(reasons))
