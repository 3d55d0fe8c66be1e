"""A small checkpoint folder with real Engram tensors (shape and naming of the real one, random bytes), written without
torch.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

from spark_overlay.engram_layout import EngramLayout, layout_from_config

HEAD_DIM = 256


def engram_config(vocab: int, layers: tuple[int, ...] = (1, 14), orders: int = 3, heads: int = 8) -> dict[str, Any]:
    """A config whose `engram_num_embeddings` agree with its primes."""
    used: set[int] = set()
    rows = []
    for _ in layers:
        total = 0
        for _ in range(orders):
            number = vocab - 1
            for _ in range(heads):
                number += 1
                while number in used or any(number % factor == 0 for factor in range(2, int(number**0.5) + 1)):
                    number += 1
                used.add(number)
                total += number
        rows.append(total)
    return {
        "model_type": "deepseek_v41",
        "text_config": {
            "engram_layer_ids": list(layers), "engram_num_embeddings": rows, "engram_max_ngram_size": orders + 1,
            "engram_vocab_size": vocab, "engram_n_heads": heads, "engram_head_dim": HEAD_DIM, "engram_pad_token_id": 2,
        },
    }  # fmt: skip


def write_checkpoint(folder: Path, vocab: int = 211, layers: tuple[int, ...] = (1, 14), seed: int = 1) -> EngramLayout:
    """config.json, the index, one shard a layer. Returns the layout."""
    folder.mkdir(parents=True, exist_ok=True)
    config = engram_config(vocab, layers)
    (folder / "config.json").write_text(json.dumps(config))
    layout = layout_from_config(config)
    assert layout is not None
    weight_map = {}
    dice = random.Random(seed)
    for number, (layer, bounds) in enumerate(zip(layout.layer_ids, layout.bounds, strict=True)):
        rows = bounds[-1]
        name = f"model-{number + 1:05d}-of-{len(layers):05d}.safetensors"
        prefix = f"layers.{layer}.engram.embed"
        entries = {
            f"{prefix}.weight": {"dtype": "F8_E4M3", "shape": [rows, 256], "data_offsets": [0, rows * 256]},
            f"{prefix}.scale": {"dtype": "F8_E8M0", "shape": [rows, 8], "data_offsets": [rows * 256, rows * 264]},
        }
        header = json.dumps(entries).encode()
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            left = rows * 264
            while left:
                part = min(left, 1 << 22)
                file.write(dice.randbytes(part))
                left -= part
        weight_map |= dict.fromkeys(entries, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return layout
