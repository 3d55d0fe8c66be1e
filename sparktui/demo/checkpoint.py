"""The simulated checkpoint: its listing, its few small files, and weights that are holes of true size."""

from __future__ import annotations

import hashlib
import json
from functools import cache

from sparktui.cluster.disk import CHECKPOINT_BYTES
from sparktui.readings.checkpoint import INDEX_NAME
from sparktui.readings.checkpoint_listing import HubFile, Listing

SHARDS = 48
_TABLE_BYTES = 101_500_000_000
"""Two of the shards hold the Engram tables and are far larger than the others."""


def _shard(number: int) -> str:
    return f"model-{number:05}-of-{SHARDS:05}.safetensors"


@cache
def small_files() -> dict[str, bytes]:
    """Path to content of everything that is no weight."""
    config = {
        "architectures": ["DeepseekV41ForCausalLM"],
        "model_type": "deepseek_v41",
        "simulated": True,
        "text_config": {"num_hidden_layers": 40, "num_attention_heads": 64, "engram_layer_ids": [1, 14]},
        "vision_config": {"patch_size": 14},
        "image_token_id": 129264,
    }
    weights = {f"layers.{number}.simulated.weight": _shard(number) for number in range(1, SHARDS + 1)}
    index = {"metadata": {"total_size": CHECKPOINT_BYTES - 9_000_000}, "weight_map": weights}
    tokenizer = {"version": "1.0", "simulated": True}
    return {
        "README.md": b"Simulated by sparktui demo: no model is here.\n",
        "config.json": json.dumps(config, indent=2).encode() + b"\n",
        "generation_config.json": b'{"temperature": 1.0, "top_p": 0.95}\n',
        INDEX_NAME: json.dumps(index).encode() + b"\n",
        "tokenizer.json": json.dumps(tokenizer).encode() + b"\n",
        "tokenizer_config.json": b'{"model_max_length": 1048576}\n',
    }


@cache
def weight_files() -> dict[str, int]:
    """Shard to bytes; they add up to the published size."""
    left = CHECKPOINT_BYTES - 2 * _TABLE_BYTES - sum(map(len, small_files().values()))
    usual = left // (SHARDS - 2)
    sizes: dict[str, int] = {}
    for number in range(1, SHARDS + 1):
        # No two shards of a real checkpoint have the same size.
        sizes[_shard(number)] = _TABLE_BYTES if number in (2, 3) else usual + (number % 7 - 3) * 1_234_568
    last = _shard(SHARDS)
    sizes[last] += CHECKPOINT_BYTES - sum(map(len, small_files().values())) - sum(sizes.values())
    return sizes


@cache
def revision_of(asked: str) -> str:
    """A full hash that begins with what was asked for."""
    prefix = asked.lower()[:40]
    return prefix + hashlib.sha1(b"sparktui demo", usedforsecurity=False).hexdigest()[: 40 - len(prefix)]


def listing(repo: str, asked: str) -> Listing:
    """What the simulated hub says of a revision."""
    files = [
        HubFile(path, len(data), git_sha1=hashlib.sha1(data, usedforsecurity=False).hexdigest())
        for path, data in small_files().items()
    ]
    files += [HubFile(path, size, hashlib.sha256(path.encode()).hexdigest()) for path, size in weight_files().items()]
    return Listing(repo, asked, revision_of(asked), tuple(sorted(files, key=lambda each: each.path)))
