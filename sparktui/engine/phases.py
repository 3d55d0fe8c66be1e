"""The rungs of a boot and the log lines that lead to each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum


class Phase(IntEnum):
    """In the order of a boot; a rank only climbs."""

    NOTHING = 0
    CONTAINER = 1
    IMPORTS = 2
    RENDEZVOUS = 3
    NCCL = 4
    WEIGHTS = 5
    DRAFT = 6
    KV_POOL = 7
    GRAPHS = 8
    SERVER = 9
    WARM_UP = 10
    READY = 11

    @property
    def title(self) -> str:
        return TITLES[self]


TITLES = {
    Phase.NOTHING: "not started",
    Phase.CONTAINER: "container up",
    Phase.IMPORTS: "imports",
    Phase.RENDEZVOUS: "rendezvous",
    Phase.NCCL: "NCCL",
    Phase.WEIGHTS: "weights",
    Phase.DRAFT: "draft",
    Phase.KV_POOL: "KV pool",
    Phase.GRAPHS: "graphs",
    Phase.SERVER: "server",
    Phase.WARM_UP: "warm-up",
    Phase.READY: "ready",
}

# SGLang 0.5.23 says "Init parallel"; the dev builds before it said "Init torch distributed".
_PATTERNS = (
    (Phase.READY, re.compile(r"\[spark\] READY ")),
    (
        Phase.WARM_UP,
        re.compile(r"The server is fired up and ready to roll!|\[spark\] (?:warm-?up|healthy)\b", re.IGNORECASE),
    ),
    (
        Phase.SERVER,
        re.compile(r"Dummy health check server started|INFO:\s+Started server process|Uvicorn running on "),
    ),
    (Phase.GRAPHS, re.compile(r"Capture .{0,80}CUDA graph begin\.|Running FlashInfer autotune|Capturing batches \(")),
    (
        Phase.KV_POOL,
        re.compile(r"DSV4 memory calculation: |DSV4 pool sizes: |KV Cache is allocated\.|Memory pool end\."),
    ),
    (Phase.NCCL, re.compile(r"sglang is using nccl==|Init (?:torch distributed|parallel) ends\.")),
    (Phase.RENDEZVOUS, re.compile(r"Init (?:torch distributed|parallel) begin\.")),
)
LOAD_BEGIN = re.compile(r"Load weight begin\.")
LOAD_END = re.compile(r"Load weight end\. ")
SHARDS = re.compile(
    r"(?:Multi-thread loading shards|Loading safetensors checkpoint shards):"
    r"\s+\d{1,3}% Completed \| (\d{1,6})/(\d{1,6})"
)
GRAPH_BAR = re.compile(r"Capturing batches \(bs=(\d{1,5})\b.{0,200}?\|\s*(\d{1,5})/(\d{1,5}) \[")
_READY_PAIR = re.compile(r"(\w+)=(\S+)")


def phase_of(text: str) -> Phase | None:
    """The rung that a line (without its prefix) proves, weights and draft excepted: those need the history."""
    for phase, pattern in _PATTERNS:
        if pattern.search(text):
            return phase
    return None


@dataclass(frozen=True, slots=True)
class ReadyLine:
    """`[spark] READY rank=0 port=8888 model=… max_total_num_tokens=… warmup_batch=… boot_seconds=…`."""

    rank: int | None
    port: int | None
    model: str | None
    max_total_num_tokens: int | None
    warmup_batch: int | None
    boot_seconds: float | None


def parse_ready(line: str) -> ReadyLine | None:
    """None for any other line; a key that is left out or unreadable is None."""
    start = line.find("[spark] READY ")
    if start < 0:
        return None
    read = dict(_READY_PAIR.findall(line[start:]))

    def whole(name: str) -> int | None:
        text = read.get(name, "")
        return int(text) if re.fullmatch(r"\d{1,18}", text) else None

    seconds = read.get("boot_seconds", "")
    return ReadyLine(
        rank=whole("rank"),
        port=whole("port"),
        model=read.get("model"),
        max_total_num_tokens=whole("max_total_num_tokens"),
        warmup_batch=whole("warmup_batch"),
        boot_seconds=float(seconds) if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", seconds) else None,
    )
