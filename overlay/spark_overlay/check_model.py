"""`python -m spark_overlay check-model`: would every rank load this checkpoint? Said before anything boots.

Prints JSON lines and nothing else on standard output: `checking`, `fault` and `rank` for each rank, then `checked`.
A rank is a process of its own, one after the other. Exit status: 0 every rank loads · 1 a fault · 2 usage.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_overlay import __version__, checkpoint_config, checkpoint_headers
from spark_overlay.checkpoint_headers import Fault, Headers
from spark_overlay.engram_file import FileError

GOOD, FAULTY = 0, 1
RANK_SECONDS = 900
MOST_UNUSED = 50


def report(event: dict[str, Any]) -> None:
    print(json.dumps(event, separators=(",", ":")), flush=True)


def main(words: list[str]) -> int:
    options = _options(words)
    folder: Path = options.model_path
    config = checkpoint_config.read(folder)
    if config is None:
        report({"event": "fault", "rank": 0, **_plain(Fault("file", "config.json", f"{folder} holds no config.json"))})
        return _checked(False)
    if other := checkpoint_config.why_another_model(checkpoint_config.flat(config)):
        return _checked(True, skipped=other)
    if options.one is not None:
        return _one(folder, options)
    try:
        headers = checkpoint_headers.read(folder)
    except FileError as error:
        report({"event": "fault", "rank": 0, **_plain(Fault("file", folder.name, error.what))})
        return _checked(False)
    for fault in headers.faults:
        report({"event": "fault", "rank": 0, **_plain(fault)})
    ranks = range(options.tp_size) if options.rank is None else (options.rank,)
    good, unconsumed = not headers.faults, None
    for rank in ranks:
        report({"event": "checking", "rank": rank, "tp": options.tp_size, "ep": options.ep_size})
        ended, left = _in_a_process(options, rank)
        good = good and ended
        unconsumed = left if unconsumed is None else unconsumed & left
    for fault in _unused(unconsumed or set(), options, headers):
        report({"event": "fault", "rank": 0, **_plain(fault)})
        good = False
    return _checked(good, headers)


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="spark_overlay check-model")
    parser.add_argument("--model-path", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--tp-size", type=_count, required=True, help="ranks")
    parser.add_argument("--ep-size", type=_count, default=1, help="expert groups (1)")
    parser.add_argument("--rank", type=int, help="only this rank, instead of one after the other")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)  # in a process of its own: names left go there
    options = parser.parse_args(words)
    if options.tp_size % options.ep_size:
        parser.error(f"--ep-size {options.ep_size} does not divide --tp-size {options.tp_size}")
    if options.rank is not None and not 0 <= options.rank < options.tp_size:
        parser.error(f"--rank {options.rank} is not from 0 to {options.tp_size - 1}")
    return options


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 64")
    return value


def _in_a_process(options: argparse.Namespace, rank: int) -> tuple[bool, set[str]]:
    """Check one rank in a process; whether it loads, and the names that it copied nothing from."""
    with tempfile.TemporaryDirectory() as place:
        left = Path(place) / "unconsumed"
        argv = [
            *(sys.executable, "-m", "spark_overlay", "check-model", "--model-path", str(options.model_path)),
            *("--tp-size", str(options.tp_size), "--ep-size", str(options.ep_size), "--rank", str(rank)),
            *("--one", str(left)),
        ]
        try:
            ended = subprocess.run(argv, timeout=RANK_SECONDS).returncode
        except subprocess.TimeoutExpired:
            ended = -9
        if ended in (GOOD, FAULTY) and left.exists():
            return ended == GOOD, set(left.read_text(encoding="utf-8").splitlines())
    fault = Fault("engine", "", f"the check of rank {rank} ended with status {ended}")
    report({"event": "fault", "rank": rank, **_plain(fault)})
    return False, set()


def _one(folder: Path, options: argparse.Namespace) -> int:
    from spark_overlay import dry_load

    headers = checkpoint_headers.read(folder)
    dry_load.prepare_environment()
    rank = options.rank
    try:
        with _said_to_stderr():
            loaded = dry_load.load(folder, headers.tensors, rank, options.tp_size, options.ep_size)
    except Exception as error:
        import traceback

        traceback.print_exc()
        said = (str(error).splitlines() or [""])[0]
        report({"event": "fault", "rank": rank, **_plain(Fault("engine", "", f"{type(error).__name__}: {said}"))})
        options.one.write_text("", encoding="utf-8")
        return FAULTY
    for fault in loaded.faults:
        report({"event": "fault", "rank": rank, **_plain(fault)})
    options.one.write_text("\n".join(loaded.unconsumed), encoding="utf-8")
    report(
        {
            "event": "rank", "rank": rank, "ok": not loaded.faults, "tensors": len(headers.tensors),
            "padded": loaded.padded, "parameter_bytes": sum(loaded.parameter_bytes.values()),
            "bytes_by_model": loaded.parameter_bytes, "pad_bytes": loaded.pad_bytes,
            "seconds": round(loaded.seconds, 1), "peak_bytes": loaded.peak_bytes,
        }
    )  # fmt: skip
    return FAULTY if loaded.faults else GOOD


@contextlib.contextmanager
def _said_to_stderr() -> Iterator[None]:
    """What the engine and our own adapters print, libraries' C code included, is for a log."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _unused(names: set[str], options: argparse.Namespace, headers: Headers) -> list[Fault]:
    """Names that no rank copied from. Of one rank among several groups the others' experts are not known."""
    if options.rank is not None and options.ep_size > 1:
        names = {name for name in names if ".experts." not in name}
    names -= {fault.tensor for fault in headers.faults}
    files = {each.name: each.file for each in headers.tensors}
    found = [
        Fault("unused", name, f"no rank loads {name} ({files[name]}): the engine knows no such tensor")
        for name in sorted(names)
    ]
    more = len(found) - MOST_UNUSED
    return [*found[:MOST_UNUSED], *([Fault("unused", "", f"and {more} more that no rank loads")] if more > 0 else [])]


def _plain(fault: Fault) -> dict[str, str]:
    return {"kind": fault.kind, "tensor": fault.tensor, "text": fault.text}


def _checked(ok: bool, headers: Headers | None = None, skipped: str = "") -> int:
    try:
        engine = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        engine = "none"
    said: dict[str, Any] = {"event": "checked", "ok": ok, "sglang": engine, "overlay": __version__}
    said |= {"fingerprint": headers.fingerprint} if headers else {}
    said |= {"skipped": skipped} if skipped else {}
    report(said)
    return GOOD if ok else FAULTY
