"""The journal of a run: append-only JSON lines, written by one process, followed by any number of viewers.

A line is `{"v":1,"seq":N,"at":"2026-11-29T17:20:46.120Z","kind":…,…}`; `seq` starts at 1 and grows by one a line.

Segments keep it bounded without ever renaming a file under a reader: `journal.jsonl`, `journal.1.jsonl`, … are each
closed at SEGMENT_BYTES. The first and the newest KEPT_WHOLE stay whole; those between lose their progress and
log lines, and go oldest first when even that is more than JOURNAL_BYTES.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

from sparktui.errors import StepFailed
from sparktui.events import Event, LogLine, Progress, RunFinished, from_plain, to_plain
from sparktui.local_fault import local_fault

VERSION = 1
SEGMENT_BYTES = 2 * 1024 * 1024
KEPT_WHOLE = 2
JOURNAL_BYTES = 8 * 1024 * 1024
TEXT_LIMIT = 16_384
"""Characters of one text value; the rest is counted, not kept."""
RESERVE, RESERVE_BYTES = "reserve", 16_384
PROGRESS_SECONDS = 0.5
BULKY = ("progress", "log_line")
_SEGMENT = re.compile(r"journal(?:\.(\d+))?\.jsonl")
# Names that our own code gives. A secret that happens to be "head" must not hide which node failed.
_IDENTIFIERS = frozenset({"kind", "step", "check", "node", "nodes", "phase", "run_id", "verbs", "question", "by"})


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal.

    Attributes:
        seq: 1 for the first line; 0 where a later version's line has none.
        at: RFC 3339, UTC.
        event: None for a kind or a version that this program does not know.
        plain: the line as it was read.
    """

    seq: int
    at: str
    event: Event | None
    plain: dict[str, Any]


def segments(run_dir: Path) -> list[tuple[int, Path]]:
    """The journal's files in order of writing; empty when there is none (yet)."""
    found: list[tuple[int, Path]] = []
    try:
        names = [entry.name for entry in os.scandir(run_dir)]
    except FileNotFoundError:
        return []
    for name in names:
        match = _SEGMENT.fullmatch(name)
        if match:
            found.append((int(match[1] or 0), run_dir / name))
    return sorted(found)


def segment_path(run_dir: Path, number: int) -> Path:
    return run_dir / (f"journal.{number}.jsonl" if number else "journal.jsonl")


def envelope(event: Event, seq: int, mask: Callable[[str], str]) -> dict[str, Any]:
    """The event as a journal line: secrets masked, long texts cut, values JSON can hold."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line: dict[str, Any] = {"v": VERSION, "seq": seq, "at": at}
    for name, value in to_plain(event).items():
        line[name] = value if name in _IDENTIFIERS else _clean(value, mask)
    return line


def dumps(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=str)


def dumps_ascii(line: dict[str, Any]) -> str:
    """For a terminal or a pipe: nothing in it can be a control byte or fail to encode."""
    return json.dumps(line, separators=(",", ":"), default=str)


def _clean(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        text = mask(value).encode("utf-8", "replace").decode()
        return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}… ({len(text) - TEXT_LIMIT} more characters)"
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _clean(each, mask) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(each, mask) for each in value]
    return value if value is None or isinstance(value, bool | int) else _clean(str(value), mask)


def parse_line(raw: bytes) -> Entry | None:
    """One line; None for anything that is not a whole JSON object (torn by a kill or a full disk)."""
    try:
        plain = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(plain, dict):
        return None
    seq = plain.get("seq")
    try:
        event = from_plain(plain)
    except (TypeError, ValueError):
        event = None
    if not isinstance(seq, int) or isinstance(seq, bool):
        seq = 0
    return Entry(seq, str(plain.get("at", "")), event, plain)


def read(run_dir: Path, from_seq: int = 0) -> list[Entry]:
    """Everything that is in the journal now, from `from_seq` on."""
    tail = Tail(run_dir, from_seq)
    try:
        return list(tail.poll())
    finally:
        tail.close()


class Tail:
    """Reads a journal that grows. `poll()` gives what is new; a line without its end is left for the next poll."""

    def __init__(self, run_dir: Path, from_seq: int = 0) -> None:
        self._run_dir = run_dir
        self._next_seq = from_seq
        self._file: BinaryIO | None = None
        self._number = -1
        self._rest = b""

    def poll(self) -> Iterator[Entry]:
        while True:
            # Looked up before reading: once a later segment exists, this one gets no more lines.
            later = [each for each in segments(self._run_dir) if each[0] > self._number]
            if self._file is not None:
                yield from self._read_open()
            if not later:
                return
            self.close()
            self._number, path = later[0]
            try:
                self._file = path.open("rb")
            except FileNotFoundError:
                continue

    def _read_open(self) -> Iterator[Entry]:
        assert self._file is not None
        while chunk := self._file.read(1 << 20):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for raw in lines:
                entry = parse_line(raw)
                if entry and (entry.seq == 0 or entry.seq >= self._next_seq):
                    self._next_seq = max(self._next_seq, entry.seq + 1)
                    yield entry

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._rest = None, b""


class Journal:
    """The writer. One a run; every line is one `write`, so a `kill -9` tears none.

    Progress is written at most every PROGRESS_SECONDS for a step, node and phase (the last value is never lost:
    it follows with the next line or `tick()`). All but progress and log lines is on the disk before `write` returns.

    Raises:
        StepFailed: the disk refuses an event that matters (`write`).
    """

    def __init__(
        self,
        run_dir: Path,
        mask: Callable[[str], str] = str,
        *,
        clock: Callable[[], float] = time.monotonic,
        segment_bytes: int = SEGMENT_BYTES,
        journal_bytes: int = JOURNAL_BYTES,
    ) -> None:
        self.mask = mask
        self._run_dir = run_dir
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._journal_bytes = journal_bytes
        existing = segments(run_dir)
        self._number = existing[-1][0] if existing else 0
        self.seq = max((entry.seq for entry in read(run_dir)), default=0)
        self._written_at: dict[tuple[str, str, str], float] = {}
        self._waiting: dict[tuple[str, str, str], Progress] = {}
        self._fd = -1
        self._open()
        self._reserve(run_dir / RESERVE)

    def _reserve(self, path: Path) -> None:
        """Room on the disk that is given back for the closing line: a full disk must not silence its own cause."""
        self._reserved: Path | None = path
        with contextlib.suppress(OSError), path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)

    def _open(self) -> None:
        path = segment_path(self._run_dir, self._number)
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._torn = self._size > 0 and os.pread(self._fd, 1, self._size - 1) != b"\n"

    def write(self, event: Event) -> int:
        """Append the event; its sequence number, or that of the last line when this one was held back."""
        if isinstance(event, Progress):
            key = (event.step, event.node, event.phase)
            last = self._written_at.get(key)
            whole = event.total is not None and event.amount is not None and event.amount >= event.total
            if last is not None and self._clock() - last < PROGRESS_SECONDS and not whole:
                self._waiting[key] = event
                return self.seq
            self._put_progress(key, event)
            return self.seq
        if isinstance(event, LogLine):
            self._append(event, matters=False)
            return self.seq
        self._flush_waiting()
        self._append(event, matters=True)
        return self.seq

    def tick(self) -> None:
        """Write what progress was held back long enough. Called every half second or so."""
        now = self._clock()
        for key, event in list(self._waiting.items()):
            if now - self._written_at.get(key, -math.inf) >= PROGRESS_SECONDS:
                self._put_progress(key, event)

    def _give_reserve_back(self) -> None:
        if self._reserved is not None:
            self._reserved.unlink(missing_ok=True)
            self._reserved = None

    def close(self) -> None:
        self._give_reserve_back()
        if self._fd >= 0:
            self._flush_waiting()
            os.close(self._fd)
            self._fd = -1

    def _flush_waiting(self) -> None:
        for key, event in list(self._waiting.items()):
            self._put_progress(key, event)

    def _put_progress(self, key: tuple[str, str, str], event: Progress) -> None:
        self._waiting.pop(key, None)
        self._written_at[key] = self._clock()
        self._append(event, matters=False)

    def _append(self, event: Event, *, matters: bool) -> None:
        line = (dumps(envelope(event, self.seq + 1, self.mask)) + "\n").encode()
        try:
            if self._size and self._size + len(line) > self._segment_bytes:
                self._rotate()
            self._write_whole(line)
            if matters:
                os.fsync(self._fd)
        except OSError as error:
            if isinstance(event, RunFinished) and self._reserved is not None:
                self._give_reserve_back()
                self._append(event, matters=matters)
                return
            if matters:
                fault = local_fault(OSError(error.errno, error.strerror or "", str(self._run_dir)))
                why = fault.what if fault else error.strerror or str(error)
                fix = fault.fix if fault else f"ls -la {self._run_dir}"
                raise StepFailed(f"the journal cannot be written: {why}", fix=fix, node="head") from error
            return
        self.seq += 1

    def _write_whole(self, line: bytes) -> None:
        # A piece that a full disk cut off ends here, so that this line does not continue it.
        data = b"\n" + line if self._torn else line
        while data:
            written = os.write(self._fd, data)
            self._size += written
            data = data[written:]
            self._torn = bool(data)

    def _rotate(self) -> None:
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._number += 1
        self._open()
        self._bound()

    def _bound(self) -> None:
        between = segments(self._run_dir)[1:-KEPT_WHOLE]
        if between:
            _thin(between[-1][1])
        sizes = {path: path.stat().st_size for _, path in between}
        room = self._journal_bytes - (1 + KEPT_WHOLE) * self._segment_bytes
        for path in list(sizes):
            if sum(sizes.values()) <= room:
                break
            path.unlink()
            del sizes[path]


def _thin(path: Path) -> None:
    """Drop the bulky lines. Followers that have the file open go on reading the old one."""
    beside = path.with_suffix(".thin")
    with path.open("rb") as old, os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as new:
        for raw in old:
            entry = parse_line(raw)
            if entry and entry.plain.get("kind") not in BULKY:
                new.write(raw)
        new.flush()
        os.fsync(new.fileno())
    beside.replace(path)
