"""A rank's boot in seconds instead of minutes: every phase of the real one, in the real engine's line shapes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sparktui.demo.checkpoint import SHARDS
from sparktui.demo.machine import Container, Machine
from sparktui.demo.play import Mark, Play
from sparktui.engine.folders import MODEL_PATH

if TYPE_CHECKING:
    from sparktui.demo.world import World

_ALONE = ((Mark.IMPORTS, 0.5), (Mark.RENDEZVOUS, 2.6))
"""Seconds after the container's start that a rank needs by itself."""
_TOGETHER = {
    Mark.NCCL: 0.9,
    Mark.LOAD_BEGIN: 1.8,
    Mark.LOAD_END: 9.6,
    Mark.DRAFT_BEGIN: 10.8,
    Mark.DRAFT_END: 12.6,
    Mark.POOL: 13.4,
    Mark.GRAPHS_BEGIN: 14.4,
    Mark.GRAPHS_END: 17.4,
    Mark.SERVER: 18.2,
    Mark.FIRED_UP: 19.8,
    Mark.READY: 21.6,
}
"""Seconds after all ranks have met."""
_BEHIND = {Mark.RENDEZVOUS: 1.7, Mark.LOAD_END: 0.9, Mark.DRAFT_END: 0.2, Mark.SERVER: 0.3}
"""The last rank is a bit behind."""
_DEATH = 0.55
"""How far through its weights a doomed rank comes."""
_SLOWER = 2.2
_READ_BYTES = 307e9


def engine_play(world: World, machine: Machine, container: Container) -> Play:
    """The whole boot, as far as the other ranks let it come."""
    told = Play()
    started = container.started_at or container.created_at
    marks = told.marks
    marks[Mark.STARTED] = started
    behind = machine.rank == len(world.ranks) - 1
    slower = _SLOWER if container.slow else 1.0

    def own(mark: Mark, seconds: float) -> float:
        return (seconds + (_BEHIND.get(mark, 0.0) if behind else 0.0)) * slower / container.speed

    for mark, seconds in _ALONE:
        marks[mark] = started + own(mark, seconds)
    met = _met(world, container)
    if met is not None:
        for mark, seconds in _TOGETHER.items():
            marks[mark] = met + own(mark, seconds)
        if not machine.is_head:
            del marks[Mark.READY]
    stopped = _another_ended(world, container)
    if stopped is not None and stopped < marks.get(Mark.FIRED_UP, stopped):
        # A rank that lost another waits in NCCL for ever.
        for mark in [mark for mark, at in marks.items() if at > stopped]:
            del marks[mark]
    if container.doomed and Mark.LOAD_END in marks:
        told.ends_at = marks[Mark.LOAD_BEGIN] + _DEATH * (marks[Mark.LOAD_END] - marks[Mark.LOAD_BEGIN])
        told.exit_code = 1
    _write(world, machine, container, told)
    if container.finished_at is not None:
        told.lines = told.until(container.finished_at)
    if Mark.LOAD_BEGIN in marks and Mark.LOAD_END in marks:
        begin, end = marks[Mark.LOAD_BEGIN], marks[Mark.LOAD_END]
        told.reads.append((begin, end, _READ_BYTES / max(len(world.ranks), 1) / max(end - begin, 0.01)))
    told.lines = sorted([*told.lines, *container.extra], key=lambda each: each[0])
    return told


def _met(world: World, container: Container) -> float | None:
    """When the last rank came to the rendezvous; None while one is missing."""
    times = []
    for machine in world.ranks:
        mine = [each for each in machine.containers.values() if each.is_engine and each.started_at is not None]
        there = [each for each in mine if each.finished_at is None or each.finished_at > (container.started_at or 0.0)]
        if not there:
            return None
        other = max(there, key=lambda each: each.started_at or 0.0)
        behind = _BEHIND[Mark.RENDEZVOUS] if machine.rank == len(world.ranks) - 1 else 0.0
        slower = _SLOWER if other.slow else 1.0
        times.append((other.started_at or 0.0) + (dict(_ALONE)[Mark.RENDEZVOUS] + behind) * slower / other.speed)
    return max(times, default=None)


def _another_ended(world: World, container: Container) -> float | None:
    """When the first of the other ranks ended, after this one began."""
    ended = [
        each.finished_at
        for machine in world.ranks
        for each in machine.containers.values()
        if each.is_engine and each is not container and each.finished_at is not None
    ]
    return min((at for at in ended if at > (container.started_at or 0.0)), default=None)


def _write(world: World, machine: Machine, container: Container, told: Play) -> None:
    rank, ranks = machine.rank, max(len(world.ranks), 1)
    marks, sheet = told.marks, world.sheet(rank)
    experts = f" EP{rank}" if container.whole("EP_SIZE", 1) > 1 else ""
    total = float(world.config.get("total_gib", 121.7))
    before = total - sheet["system"]
    weights, draft = sheet["weights"] - 2.6 + sheet["adapters"], 2.6
    after = before - weights
    drafted = after - draft
    pooled = drafted - sheet["kv"]
    graphs = pooled - sheet["graphs"]
    pool = container.whole("MAX_TOTAL_TOKENS", 750_000) // 256 * 256
    context = container.whole("CONTEXT_LENGTH", 32_768)
    chunk = container.whole("CHUNKED_PREFILL_SIZE", 1024)
    most = container.whole("MAX_RUNNING_REQUESTS", 4)
    port = container.whole("SERVER_PORT", 8888)
    batches = list(range(1, most + 1))

    def stamp(at: float, text: str, *, plain: bool = False) -> str:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
        return f"[{clock}{'' if plain else f' TP{rank}{experts}'}] {text}"

    def at(mark: Mark, *texts: str, after_seconds: float = 0.0, plain: bool = False) -> None:
        if mark in marks:
            moment = marks[mark] + after_seconds / container.speed
            if told.ends_at is None or moment < told.ends_at:
                told.say(moment, *(stamp(moment, text, plain=plain) for text in texts))

    def bar(mark: Mark, end: Mark, text: str, parts: int) -> None:
        if mark not in marks or end not in marks:
            return
        begin, whole = marks[mark], marks[end] - marks[mark]
        for part in range(parts + 1):
            moment = begin + whole * (0.06 + 0.88 * part / parts)
            done = round(SHARDS * part / parts)
            if told.ends_at is None or moment < told.ends_at:
                percent = f"{round(100 * done / SHARDS):3}%"
                told.say(moment, f"{text}: {percent} Completed | {done}/{SHARDS} [00:{part:02}<00:{parts - part:02}]")

    told.say(
        marks[Mark.STARTED] + 0.1 / container.speed,
        f"[spark] rank={rank} starts: python3 -m sglang.launch_server --model-path {MODEL_PATH} --nnodes {ranks} "
        f"--node-rank {rank} --tp-size {ranks} (SIMULATED)",
    )
    at(Mark.IMPORTS, "Hybrid SWA model detected. architectures=['DeepseekV4ForCausalLM']", plain=True)
    at(
        Mark.IMPORTS,
        f"server_args={{'model_path': '{MODEL_PATH}', 'nnodes': {ranks}, 'node_rank': {rank}, 'tp_size': {ranks}, "
        f"'context_length': {context}, 'max_total_tokens': {pool}, 'max_running_requests': {most}, "
        f"'chunked_prefill_size': {chunk}}}",
        after_seconds=0.4,
        plain=True,
    )
    at(
        Mark.RENDEZVOUS,
        "Draft checkpoint bundles a DSpark head; loading draft arch DeepseekV4ForCausalLMDSpark.",
        "Init parallel begin.",
    )
    at(Mark.NCCL, "sglang is using nccl==2.30.7")
    at(Mark.NCCL, "CustomAllreduce is disabled because this process group spans across nodes.", after_seconds=0.2)
    at(Mark.NCCL, f"Init parallel ends. elapsed={1.1 + 0.1 * rank:.2f} s, mem usage=0.58 GB", after_seconds=0.6)
    at(Mark.LOAD_BEGIN, f"Load weight begin. avail mem={before:.2f} GB", "Detected fp8 checkpoint.")
    for layer in (1, 14):
        at(Mark.LOAD_BEGIN, f"Exact nvme Engram layer={layer} rank={rank} io_threads=96 packed=True", after_seconds=0.3)
    if machine.is_head:
        bar(Mark.LOAD_BEGIN, Mark.LOAD_END, "Multi-thread loading shards", 16)
    at(Mark.LOAD_END, "Using FP8 KV cache but no scaling factors provided. Defaulting to scaling factors of 1.0.")
    at(
        Mark.LOAD_END,
        f"Load weight end. elapsed={541 + 37 * rank}.{20 + rank} s, type=DeepseekV4ForCausalLM, quant=fp8, "
        f"avail mem={after:.2f} GB, mem usage={weights:.2f} GB.",
    )
    at(Mark.DRAFT_BEGIN, f"Load weight begin. avail mem={after:.2f} GB")
    if machine.is_head:
        bar(Mark.DRAFT_BEGIN, Mark.DRAFT_END, "Multi-thread loading shards", 6)
    at(
        Mark.DRAFT_END,
        f"Load weight end. elapsed={74 + rank}.5{rank} s, type=DeepseekV4ForCausalLMDSpark, quant=fp8, "
        f"avail mem={drafted:.2f} GB, mem usage={draft:.2f} GB.",
    )
    at(
        Mark.POOL,
        f"DSV4 memory calculation: bytes_per_full_token=1670.75, available_bytes={sheet['kv'] * 1.2:.2f} GB, "
        f"c128_state_fixed=0.00 GB, swa_fixed=0.30 GB, full_token={int(pool * 1.2) // 256 * 256}",
        f"Memory pool end. avail mem={pooled:.2f} GB",
    )
    at(Mark.GRAPHS_BEGIN, "Running FlashInfer autotune with cache: /root/.cache/sglang/flashinfer/autotune.json")
    at(Mark.GRAPHS_BEGIN, "FlashInfer autotune completed.", after_seconds=0.5)
    at(
        Mark.GRAPHS_BEGIN,
        f"Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=6, bs={batches}, "
        f"avail mem={pooled:.2f} GB",
        after_seconds=0.6,
    )
    if machine.is_head and Mark.GRAPHS_END in marks:
        for done, batch in enumerate(reversed(batches), 1):
            moment = marks[Mark.GRAPHS_BEGIN] + (0.7 + 1.4 * done / most) / container.speed
            text = f"Capturing batches (bs={batch} avail_mem={pooled - 0.1 * done:.2f} GB): {100 * done // most:3}%"
            told.say(moment, f"{text}|{'█' * done}| {done}/{most} [00:{done:02}<00:{most - done:02}]")
    at(
        Mark.GRAPHS_BEGIN,
        f"Capture target verify CUDA graph end. elapsed=13.4{rank} s, mem usage={sheet['graphs']:.2f} GB, "
        f"avail mem={graphs:.2f} GB.",
        after_seconds=2.2,
    )
    at(Mark.GRAPHS_END, f"Capture draft verify CUDA graph end. elapsed=4.2{rank} s, mem usage=0.00 GB.")
    at(
        Mark.GRAPHS_END,
        f"max_total_num_tokens={pool}, chunked_prefill_size={chunk}, max_prefill_tokens=16384, "
        f"max_running_requests={most}, context_len={context}, available_gpu_mem={graphs:.2f} GB",
        after_seconds=0.2,
    )
    if machine.is_head:
        _server(told, stamp, at, container, port, pool, most)
    else:
        text = f"Dummy health check server started in background thread at 0.0.0.0:{port}"
        at(Mark.SERVER, text, plain=True)
    if told.ends_at is not None:
        _death(told, stamp, after)


def _server(told: Play, stamp: object, at: object, container: Container, port: int, pool: int, most: int) -> None:
    assert callable(at)
    at(Mark.SERVER, "INFO:     Started server process [83]", "INFO:     Waiting for application startup.", plain=True)
    at(
        Mark.SERVER,
        f"INFO:     Uvicorn running on http://{container.environment.get('HOST', '0.0.0.0')}:{port}",
        after_seconds=0.4,
        plain=True,
    )
    at(Mark.FIRED_UP, "The server is fired up and ready to roll!", plain=True)
    if Mark.READY in told.marks:
        ready, started = told.marks[Mark.READY], told.marks[Mark.STARTED]
        model = container.environment.get("SERVED_MODEL_NAME", "").split(",")[0]
        told.say(told.marks[Mark.FIRED_UP] + 0.2 / container.speed, "[spark] healthy after 775.0 s (SIMULATED)")
        told.say(
            ready,
            f"[spark] READY rank=0 port={port} model={model} max_total_num_tokens={pool} warmup_batch={most} "
            f"boot_seconds={ready - started:.1f}",
        )


def _death(told: Play, stamp: object, left: float) -> None:
    assert callable(stamp)
    assert told.ends_at is not None
    moment = told.ends_at - 0.05
    told.say(
        moment,
        stamp(moment, "Scheduler hit an exception: Traceback (most recent call last):"),
        '  File "/opt/sglang/lib/python3.12/site-packages/sglang/srt/model_executor/model_runner.py", line 1341',
        "    self.model = get_model(",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of "
        f"121.69 GiB of which 1.{int(left) % 10}0 GiB is free.",
    )
    told.say(told.ends_at, "[spark] rank ended with status 1, code=1")
    told.lines.sort(key=lambda each: each[0])
