"""A tiny repository with the shape of the real one: config, index, shards."""

from __future__ import annotations

import json
import random
from pathlib import Path


def make_repository(folder: Path, *, shards: int = 3, shard_bytes: int = 200_000) -> Path:
    """Fill `folder`; the same call gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(1017)
    names = [f"model-{number:05d}-of-{shards:05d}.safetensors" for number in range(1, shards + 1)]
    for name in names:
        (folder / name).write_bytes(chance.randbytes(shard_bytes))
    weights = {f"layer.{number}.weight": name for number, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    (folder / "config.json").write_text('{"model_type": "deepseek_v4"}')
    (folder / "encoding").mkdir(exist_ok=True)
    (folder / "encoding" / "encoding.py").write_text("# message encoding\n")
    return folder
