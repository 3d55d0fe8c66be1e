"""Opens one layer's packed file for the rank that this engine process is, or says why it must not be used.

What the file must be comes from the engine (layer, rank, TP size, row range by its own shard_range), from the
checkpoint that is mounted here (fingerprint of the table), and from HF_REVISION where that is set. A file that is
another one is refused and left alone. One that is missing is an error, or with DSV41_ENGRAM_FALLBACK=checkpoint slow
reads of the checkpoint.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_overlay.engram_file import HEADER_BYTES, FileError, Header, file_name, parse_header
from spark_overlay.engram_layout import SCALE_BLOCK
from spark_overlay.row_store import Options, RowStore, RowStoreError, Status
from spark_overlay.safetensors_source import EngramSource, find_engram, fingerprint, read_up_to

if TYPE_CHECKING:
    from spark_overlay.checkpoint_rows import CheckpointRows

FOLDER = "/engram"
FALLBACK = "DSV41_ENGRAM_FALLBACK"
FALLBACKS = ("", "checkpoint")
_COMMIT = re.compile("[0-9a-f]{40}")
CHECKPOINT_THREADS = 32
"""At most; with one, a step over NFS waits for every row in turn."""


class RowsError(RuntimeError):
    """The rows of a layer cannot be had: `what` names layer, rank and file, `fix` says what to do, '' where that is
    plain.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(f"{what}. Next: {fix}" if fix else what)
        self.what, self.fix = what, fix


@dataclass(frozen=True, slots=True)
class Wanted:
    """One layer's table as the engine has it, and this process's part of it.

    Attributes:
        bounds: the table's column bounds, first 0, last its rows.
        row_lo, row_hi: this rank's rows, by the engine's own shard_range.
        checkpoint: the folder that the engine loads from.
    """

    layer: int
    rank: int
    tp: int
    row_lo: int
    row_hi: int
    bounds: tuple[int, ...]
    weight_bytes: int
    checkpoint: Path

    @property
    def scale_bytes(self) -> int:
        return self.weight_bytes // SCALE_BLOCK

    @property
    def name(self) -> str:
        return f"layer={self.layer} rank={self.rank} of {self.tp}"


def fallback(environment: Mapping[str, str]) -> str:
    """Raises ValueError that names the setting."""
    text = environment.get(FALLBACK, "").strip()
    if text not in FALLBACKS:
        raise ValueError(f"{FALLBACK}={text} is neither empty nor checkpoint")
    return text


def open_rows(wanted: Wanted, environment: Mapping[str, str], files: int = 2) -> RowStore | CheckpointRows:
    """This rank's rows of one layer, opened and stated in the log. `files`: how many layers share DSV41_CACHE_GIB.

    Raises RowsError.
    """
    path = Path(environment.get("DSV41_PACKED_DIR", "").strip() or FOLDER) / file_name(
        wanted.layer, wanted.rank, wanted.tp
    )
    try:
        options = Options.from_environment(environment, files)
        allowed = fallback(environment)
        if not path.exists():
            rows: RowStore | CheckpointRows = _of_the_checkpoint(wanted, path, environment, options, allowed)
        else:
            expected = _expected(wanted, path, environment)
            rows = RowStore(path, expected=expected, options=options)
    except FileError as error:
        raise RowsError(f"Engram rows ({wanted.name}): {error.what}", error.fix) from error
    except (RowStoreError, ValueError, OSError) as error:
        fix = _next_step(error, wanted, path, environment)
        raise RowsError(f"Engram rows ({wanted.name}): {error}", fix) from error
    _say(wanted, rows, path, options)
    return rows


_OPENING = (
    ("cannot be loaded", "sparktui build: the image lacks this library or has another machine's"),
    ("could not be started", "a smaller DSV41_IO_THREADS ({depth} now), or more processes allowed in the container"),
    ("row cache", "a smaller DSV41_CACHE_GIB ({cache} now), or more free memory on this node"),
    ("page buffers", "more free memory on this node, or a smaller DSV41_IO_THREADS ({depth} now)"),
    ("bad_alloc", "more free memory on this node"),
)
"""What the row store says when it cannot be opened though the file is right, and what then helps."""


def _next_step(error: Exception, wanted: Wanted, path: Path, environment: Mapping[str, str]) -> str:
    if isinstance(error, ValueError):
        return "correct this setting, then sparktui serve"
    if isinstance(error, OSError):
        place = error.filename or path
        return f"the container has to be able to read {place}: see its owner, its mount and dmesg on this node"
    if isinstance(error, RowStoreError) and error.status is Status.BAD_FILE:
        if "(errno " in str(error):
            return _unread(path)
        return f"move {path} away, then `sparktui pack`, which runs `{pack_command(wanted, path.parent, environment)}`"
    values = {"depth": environment.get("DSV41_IO_THREADS") or "96", "cache": environment.get("DSV41_CACHE_GIB") or "0"}
    known = (step.format(**values) for said, step in _OPENING if said in str(error))
    return next(known, "sparktui build: the image's overlay and its row store do not fit each other")


def _unread(path: Path) -> str:
    return (
        "see its owner, dmesg and the drive's health (nvme smart-log) on this node; a file that cannot be read: "
        f"move {path} away, then `sparktui pack`"
    )


def pack_command(wanted: Wanted, folder: Path, environment: Mapping[str, str]) -> str:
    """What the pack step runs for this rank, in a container like this one; COMMIT where only its beginning is known."""
    revision = environment.get("HF_REVISION", "").strip()
    revision = revision if _COMMIT.fullmatch(revision) else "COMMIT"
    words = ["python3", "-m", "spark_overlay.engram", "pack", "--source", str(wanted.checkpoint), "--out", str(folder)]
    return shlex.join([*words, "--rank", str(wanted.rank), "--tp", str(wanted.tp), "--revision", revision])


def _expected(wanted: Wanted, path: Path, environment: Mapping[str, str]) -> Header:
    """The header that `path` must have. Raises FileError for a file that is another one."""
    with path.open("rb") as file:
        found = parse_header(read_up_to(file.fileno(), 0, HEADER_BYTES, path, _unread(path)), str(path))
    revision = environment.get("HF_REVISION", "").strip() or found.revision
    # The setting may be the beginning of the commit that the packer wrote.
    revision = found.revision if found.revision.startswith(revision) else revision
    expected = replace(
        found, layer=wanted.layer, rank=wanted.rank, tp=wanted.tp, row_lo=wanted.row_lo, row_hi=wanted.row_hi,
        total_rows=wanted.bounds[-1], bounds=wanted.bounds, weight_bytes=wanted.weight_bytes,
        scale_bytes=wanted.scale_bytes, revision=revision,
    )  # fmt: skip
    try:
        expected = replace(expected, fingerprint=fingerprint(_source(wanted)))
    except (FileError, OSError) as error:
        reason = error.what if isinstance(error, FileError) else str(error)
        print(
            f"[spark] WARNING {path.name} is not compared with the checkpoint, whose table cannot be read: {reason}",
            flush=True,
        )
    different = expected.difference(found)
    if different:
        raise FileError(
            f"{path} does not match this engine and checkpoint: {different}",
            f"move it away, then `sparktui pack`, which runs `{pack_command(wanted, path.parent, environment)}`",
        )
    return expected


def _source(wanted: Wanted) -> EngramSource:
    return find_engram(wanted.checkpoint, wanted.layer, wanted.bounds[-1], wanted.weight_bytes, wanted.scale_bytes)


def _of_the_checkpoint(
    wanted: Wanted, path: Path, environment: Mapping[str, str], options: Options, allowed: str
) -> CheckpointRows:
    from spark_overlay.checkpoint_rows import CheckpointRows  # numpy: the entry point runs without

    command = pack_command(wanted, path.parent, environment)
    if not allowed:
        raise FileError(
            f"{path} is missing: this rank's rows are not packed",
            f"`sparktui pack`, which runs `{command}`; "
            f"{FALLBACK}=checkpoint starts without it and reads the rows from the checkpoint, slowly",
        )
    source = _source(wanted)
    print(
        f"[spark] WARNING {FALLBACK}=checkpoint: the Engram rows of {wanted.name} are read from {source.weight.path}, "
        f"slowly, because {path} is missing. `sparktui pack` makes it: `{command}`",
        flush=True,
    )
    header = Header(
        layer=wanted.layer, rank=wanted.rank, tp=wanted.tp, weight_bytes=wanted.weight_bytes,
        scale_bytes=wanted.scale_bytes, row_lo=wanted.row_lo, row_hi=wanted.row_hi, total_rows=wanted.bounds[-1],
        column_lo=0, column_hi=0, by_columns=False, revision="", fingerprint=bytes(32), bounds=wanted.bounds,
    )  # fmt: skip
    return CheckpointRows(source, header, min(options.depth, CHECKPOINT_THREADS))


def _say(wanted: Wanted, rows: Any, path: Path, options: Options) -> None:
    """The line that says whose rows come from where; its fields are those of the recipe's."""
    info, owned = rows.info, wanted.row_hi - wanted.row_lo
    share = 100 * info.cache_slots / owned if owned else 0.0
    packed = isinstance(rows, RowStore)
    line = (
        f"Exact nvme Engram layer={wanted.layer} rank={wanted.rank} rows=[{wanted.row_lo},{wanted.row_hi}) "
        f"cache={info.cache_bytes / 2**30:.1f}GiB ({info.cache_slots} slots, {options.cache_ways}-way, "
        f"{share:.1f}% of owned rows) scales=0.0GiB io_threads={options.depth} packed={packed}"
    )
    where = f"file={path} backend={rows.backend.name.lower()}" if packed else f"checkpoint={wanted.checkpoint}"
    print(f"[spark] {line} {where}", flush=True)
