"""What this node's container sees of the checkpoint and of its packed rows.

`python3 -m spark_overlay.node_view MODEL [--engram DIR --rank R --tp N --revision HASH]`

Prints one JSON line: hashes of config.json and the index, sizes of the checkpoint's files and, when asked, the state of
this rank's packed Engram files. It proves a mount from inside a container; it writes nothing. Exit status: 0 when it
could look, 2 usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

DISK = "dmesg on this node says why; check its disk and the owner of that file, then sparktui pack"
INDEX = "model.safetensors.index.json"


def checkpoint_view(folder: Path) -> dict[str, Any]:
    """Hashes (None where the file cannot be read) and sizes in bytes of what lies directly in `folder`."""
    try:
        sizes = {each.name: each.stat().st_size for each in sorted(folder.iterdir()) if each.is_file()}
        error = ""
    except OSError as failure:
        sizes, error = {}, failure.strerror or str(failure)
    return {
        "config_sha256": _sha256(folder / "config.json"),
        "index_sha256": _sha256(folder / INDEX),
        "files": sizes,
        "error": error,
    }


def engram_view(folder: Path, out: Path, rank: int, tp: int, revision: str) -> dict[str, Any]:
    """This rank's files as the packer would make them, each with what is there of it."""
    from spark_overlay import engine_ranges, engram_pack
    from spark_overlay.engram_file import FileError
    from spark_overlay.engram_layout import LayoutError, layout_from_config
    from spark_overlay.safetensors_source import read_config

    try:
        config = read_config(folder)
        layout = layout_from_config(config)
        if layout is not None:
            engine_ranges.agree(config, layout, tp)
        jobs = [] if layout is None else engram_pack.plan(folder, out, layout, rank, tp, revision)
    except (FileError, LayoutError, OSError, ValueError) as error:
        return {"files": [], "error": str(error)}
    rows, still_open = [], []
    for job in jobs:
        row = {"layer": job.header.layer, "file": job.path.name, "bytes": job.header.file_bytes, "done": False}
        row |= {"partial_bytes": 0, "error": "", "fix": ""}
        try:
            row["done"] = engram_pack.is_done(job)
            if job.partial.exists():
                row["partial_bytes"] = job.partial.stat().st_size
        except (FileError, OSError, ValueError) as error:
            row |= {"error": str(error), "fix": getattr(error, "fix", DISK)}
        rows.append(row)
        if not row["done"]:
            still_open.append(job)
    needed, free = engram_pack.space(still_open, out) if still_open else (0, None)
    return {"files": rows, "error": "", "needed_bytes": needed, "free_bytes": free}


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="spark_overlay.node_view")
    parser.add_argument("model", type=Path)
    parser.add_argument("--engram", type=Path)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--revision", default="")
    options = parser.parse_args(argv)
    view = checkpoint_view(options.model)
    if options.engram is not None:
        view["engram"] = engram_view(options.model, options.engram, options.rank, options.tp, options.revision)
    print(json.dumps(view, separators=(",", ":")), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
