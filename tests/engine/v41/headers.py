"""Headers of a checkpoint of the real sizes in sparse files: `python -m tests.engine.v41.headers FOLDER`. No data.

475 GiB to `ls`, 18 MiB on the disk. With the engine's Python: the tokenizer's maker needs torch.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

from tests.engine.v41.checkpoint import write_tokenizer
from tests.engine.v41.config import config
from tests.engine.v41.layout import REAL, Entry, Sizes, tensors

FILES = 46
"""Files of the tensors that are no Engram table; each of the two tables has one of its own."""


def write(folder: Path, s: Sizes = REAL) -> int:
    """The whole folder; the number of its tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    table = tensors(s)
    plain = {name: entry for name, entry in table.items() if ".engram.embed." not in name}
    share = sum(entry.nbytes for entry in plain.values()) / FILES
    shards: list[dict[str, Entry]] = [{} for _ in range(FILES + len(s.engram_layers))]
    filled = 0
    for name, entry in plain.items():
        shards[min(FILES - 1, int(filled // share))][name] = entry
        filled += entry.nbytes
    for name, entry in table.items():
        if name not in plain:
            shards[FILES + s.engram_layers.index(int(name.split(".")[1]))][name] = entry
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _save(folder / file, shard)
        weight_map |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": sum(each.nbytes for each in table.values())}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config(s), indent=1), encoding="utf-8")
    write_tokenizer(folder, s)
    return len(table)


def _save(path: Path, shard: dict[str, Entry]) -> None:
    header: dict[str, object] = {}
    end = 0
    for name, entry in shard.items():
        offsets = [end, end := end + entry.nbytes]
        header[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
