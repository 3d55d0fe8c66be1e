"""Write the tiny DeepSeek-V4.1 checkpoint: `python -m tests.engine.v41.checkpoint FOLDER`, with the engine's Python.

The same bytes each time: a tensor's numbers depend on its name alone. Needs torch, not SGLang.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch

from tests.engine.v41.config import config
from tests.engine.v41.layout import BLOCK, TINY, Entry, Sizes, tensors

DTYPES = {
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
}
WORDS = {dtype: word for word, dtype in DTYPES.items()}
_FP8_SPREAD, _FP4_SPREAD = 64.0, 3.0
"""Root mean square of the stored FP8 numbers and of a random MXFP4 code; the scales bring both back to 1/sqrt(K)."""


def tensor(name: str, entry: Entry, s: Sizes = TINY) -> torch.Tensor:
    """The numbers of one tensor, so scaled that activations stay near one."""
    dice = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    last = name.rsplit(".", 1)[-1]
    if entry.dtype == "I8":
        return torch.randint(0, 256, entry.shape, generator=dice, dtype=torch.uint8).view(torch.int8)
    if entry.dtype == "F8_E4M3":
        spread = 1.0 if ".embed." in name else _FP8_SPREAD
        return (torch.randn(entry.shape, generator=dice) * spread).clamp(-440, 440).to(torch.float8_e4m3fn)
    if entry.dtype == "F8_E8M0":
        if ".embed." in name:
            level = 0
        else:
            spread = _FP4_SPREAD if ".experts." in name else _FP8_SPREAD
            level = round(-math.log2(spread * math.sqrt(entry.shape[1] * BLOCK)))
        exponents = torch.randint(level - 1, level + 2, entry.shape, generator=dice, dtype=torch.int32)
        return (exponents + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
    noise = torch.randn(entry.shape, generator=dice)
    if last.startswith("hc_"):
        width = s.streams * s.hidden
        values = {"fn": noise / math.sqrt(width), "base": noise * 0.5, "scale": 1 + noise * 0.1}[last.rsplit("_", 1)[1]]
    elif last == "attn_sink":
        values = noise
    elif last in ("bias", "bias_vl") and ".gate." in name:
        # As large as the scores differ, so that a wrong bias chooses other experts.
        values = noise * 0.2
    elif "norm" in name or last in ("q_weight", "k_weight"):
        values = 1 + 0.1 * noise
    elif len(entry.shape) == 1:
        values = noise * 0.1
    elif name == "embed.weight":
        values = noise
    else:
        values = noise / math.sqrt(entry.shape[-1])
    return values.to(DTYPES[entry.dtype])


def shard_of(name: str, s: Sizes = TINY) -> int:
    """1: vision, ends and the first layers; 2: the other layers; 3: the draft; then one for each Engram table."""
    parts = name.split(".")
    if ".engram." in name:
        return 4 + s.engram_layers.index(int(parts[1]))
    if parts[0] == "mtp":
        return 3
    return 2 if parts[0] == "layers" and int(parts[1]) >= s.layers // 2 else 1


def save(path: Path, shard: Mapping[str, torch.Tensor]) -> None:
    """One file in the given order: a table's scales lie right behind its weights, as in the real shards."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in shard.items():
        offsets = [end, end := end + values.nbytes]
        header[name] = {"dtype": WORDS[values.dtype], "shape": list(values.shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in shard.values():
            file.write(values.contiguous().view(torch.uint8).numpy().tobytes())


def write(folder: Path, s: Sizes = TINY, changed: Mapping[str, torch.Tensor | None] = {}) -> None:
    """The whole folder. `changed` puts another tensor in a name's place, leaves one out (None), or adds one."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: dict[int, dict[str, torch.Tensor]] = {number: {} for number in range(1, 4 + len(s.engram_layers))}
    table = tensors(s)
    for name in [*table, *(extra for extra in changed if extra not in table)]:
        values = changed[name] if name in changed else tensor(name, table[name], s)
        if values is not None:
            shards[shard_of(name, s)][name] = values
    weight_map = {}
    for number, shard in shards.items():
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save(folder / file, shard)
        weight_map |= dict.fromkeys(shard, file)
    size = sum(values.nbytes for shard in shards.values() for values in shard.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config(s), indent=1), encoding="utf-8")
    write_tokenizer(folder, s)


def write_tokenizer(folder: Path, s: Sizes = TINY) -> None:
    """Words `w0`, `w1`, ...; those past the compressed vocabulary are capitals of the first ones."""
    words = [f"w{n}" for n in range(s.compressed_vocabulary)]
    words += [f"W{n}" for n in range(s.vocabulary - s.compressed_vocabulary)]
    vocabulary = {word: number for number, word in enumerate(words)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"}
    settings = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    for rest in ("truncation", "padding", "normalizer", "post_processor", "decoder"):
        settings[rest] = None
    (folder / "tokenizer.json").write_text(json.dumps(settings), encoding="utf-8")
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1024}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
