"""Write weights as the real checkpoint is laid out: numbered shards, an index, and two Engram tables of a smaller size.

Engram layout: a row is 256 float8_e4m3 weights and 8 float8_e8m0 scales; a layer has 24 columns (3 n-gram orders times
8 heads), each as many rows as its own prime; the primes ascend from `engram_vocab_size - 1` over both layers without a
repeat. Source: `EngramLayout` in SGLang 0.5.23.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

ENGRAM_LAYERS = (1, 14)
ENGRAM_VOCABULARY = 4000
ENGRAM_ORDERS, ENGRAM_HEADS, ENGRAM_HEAD_DIM, SCALE_BLOCK = 3, 8, 256, 32


def _primes_from(start: int) -> Iterator[int]:
    number = start
    while True:
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            yield number
        number += 1


def engram_rows() -> dict[int, int]:
    """Rows of each Engram layer: the sum of its 24 primes."""
    primes = _primes_from(ENGRAM_VOCABULARY)
    return {layer: sum(next(primes) for _ in range(ENGRAM_ORDERS * ENGRAM_HEADS)) for layer in ENGRAM_LAYERS}


def _engram_table(layer: int, rows: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(layer)
    # Any byte but the two NaN codes 0x7f and 0xff of e4m3fn.
    weight = torch.randint(0, 254, (rows, ENGRAM_HEAD_DIM), dtype=torch.uint8, generator=generator)
    weight += (weight >= 127).to(torch.uint8)
    scale = torch.randint(118, 130, (rows, ENGRAM_HEAD_DIM // SCALE_BLOCK), dtype=torch.uint8, generator=generator)
    prefix = f"layers.{layer}.engram.embed"
    return {
        f"{prefix}.weight": weight.view(torch.float8_e4m3fn),
        f"{prefix}.scale": scale.view(torch.float8_e8m0fnu),
    }


def _save_table(table: dict[str, torch.Tensor], path: Path) -> None:
    """Weights first, scales right behind, as in the real shards; safetensors' own writer would turn them round."""
    kinds = {torch.float8_e4m3fn: "F8_E4M3", torch.float8_e8m0fnu: "F8_E8M0"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in table.items():
        offsets = [end, end := end + tensor.nbytes]
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in table.values():
            file.write(tensor.view(torch.uint8).numpy().tobytes())


def write_checkpoint(folder: Path, weights: dict[str, torch.Tensor], text_config: dict[str, Any]) -> None:
    """Two shards of weights, one for each Engram layer (the last ones, as in the real checkpoint), index and config."""
    rows = engram_rows()
    names = sorted(weights)
    half = len(names) // 2
    shards = [{name: weights[name].contiguous() for name in part} for part in (names[:half], names[half:])]
    shards += [_engram_table(layer, rows[layer]) for layer in ENGRAM_LAYERS]
    weight_map: dict[str, str] = {}
    total_bytes = 0
    for number, shard in enumerate(shards, start=1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        if number > 2:
            _save_table(shard, folder / name)
        else:
            save_file(shard, folder / name, metadata={"format": "pt"})
        (folder / name).chmod(0o644)  # safetensors writes 0600; the testbed's user has to read it
        weight_map |= dict.fromkeys(shard, name)
        total_bytes += sum(tensor.nbytes for tensor in shard.values())
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    config = text_config | {
        "engram_layer_ids": list(ENGRAM_LAYERS),
        "engram_num_embeddings": [rows[layer] for layer in ENGRAM_LAYERS],
        "engram_max_ngram_size": ENGRAM_ORDERS + 1,
        "engram_vocab_size": ENGRAM_VOCABULARY,
        "engram_n_heads": ENGRAM_HEADS,
        "engram_head_dim": ENGRAM_HEAD_DIM,
        "engram_pad_token_id": 2,
        "engram_compressed_vocab_size": text_config["vocab_size"],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
