"""The journal: whole lines or none, bounded, masked, followed."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktui.errors import StepFailed
from sparktui.events import (
    Event,
    Finding,
    LogLine,
    Note,
    Outcome,
    Progress,
    RunFinished,
    RunStarted,
    State,
    StepFinished,
    StepStarted,
)
from sparktui.runs import journal
from sparktui.runs.journal import Journal, Tail, read

STARTED = RunStarted("r1", ("up",), "three", "/x/.env", 1, 2, "0.1.0")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def texts(entries: list[journal.Entry]) -> list[str]:
    return [entry.event.text for entry in entries if isinstance(entry.event, Note | LogLine)]


def total_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_events_come_back_with_sequence_and_version(tmp_path: Path) -> None:
    events: list[Event] = [
        STARTED,
        StepStarted("doctor", ("head", "worker1")),
        Finding("doctor", "ssh.login", "head", State.OK, "naïve ✓", data={"port": 22, "list": [1, 2]}),
        StepFinished("doctor", Outcome.DONE, 1.5),
        RunFinished(0, "done"),
    ]
    writer = Journal(tmp_path)
    assert [writer.write(event) for event in events] == [1, 2, 3, 4, 5]
    writer.close()
    assert [entry.event for entry in read(tmp_path)] == events
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [(line["v"], line["seq"]) for line in lines] == [(1, seq) for seq in range(1, 6)]
    assert lines[0]["at"].endswith("Z")
    assert (tmp_path / "journal.jsonl").stat().st_mode & 0o077 == 0


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, 3000), count=st.integers(0, 12), tail=st.binary(max_size=40))
def test_any_truncation_gives_the_whole_lines_before_it(cut: int, count: int, tail: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = Journal(folder)
        for number in range(count):
            writer.write(Note("s", "head", f"line {number} ü" * (number % 3 + 1)))
        writer.close()
        path = folder / "journal.jsonl"
        data = path.read_bytes()[:cut]
        whole = data.count(b"\n")
        path.write_bytes(data)
        assert [entry.seq for entry in read(folder)] == list(range(1, whole + 1))
        # Rubbish after the cut (a disk that lied) is no line either, and a new writer starts on a line of its own.
        path.write_bytes(data + tail.replace(b"\n", b""))
        again = Journal(folder)
        again.write(Note("s", "head", "after"))
        again.close()
        seen = read(folder)
        assert texts(seen)[-1] == "after"
        assert [entry.seq for entry in seen] == sorted({entry.seq for entry in seen})


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_a_follower_sees_each_line_once_however_the_bytes_arrive(pieces: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as made:
        writer = Journal(Path(made))
        for number in range(8):
            writer.write(Note("s", "head", f"é {number}"))
        writer.close()
        data = (Path(made) / "journal.jsonl").read_bytes()
        tail = Tail(Path(name))
        seen = []
        with (Path(name) / "journal.jsonl").open("ab", buffering=0) as file:
            for size in [*pieces, len(data)]:
                file.write(data[:size])
                data = data[size:]
                seen += [entry.seq for entry in tail.poll()]
        tail.close()
        assert seen == list(range(1, 9))


def test_later_versions_and_unknown_kinds_are_tolerated(tmp_path: Path) -> None:
    lines = [
        '{"v":1,"seq":1,"at":"","kind":"note","step":"s","node":"head","text":"one"}',
        '{"v":2,"seq":2,"at":"","kind":"hologram","depth":3}',
        '{"v":2,"seq":3,"at":"","kind":"note","step":"s","node":"head","text":"three","colour":"red"}',
        '{"v":2,"seq":4,"at":"","kind":"note","step":"s"}',
        '{"v":2,"seq":5,"at":"","kind":"note","step":"s","node":"head","text":"five","state":"PURPLE"}',
        '{"v":9,"kind":"note","seq":"six"}',
        "[1,2]",
        "null",
        "{{{",
        "[" * 100_000,
        '{"v":1,"seq":7,"at":"","kind":"note","step":"s","node":"head","text":"seven"}',
    ]
    (tmp_path / "journal.jsonl").write_text("\n".join(lines) + "\n")
    assert texts(read(tmp_path)) == ["one", "three", "seven"]
    assert [entry.seq for entry in read(tmp_path)] == [1, 2, 3, 4, 5, 0, 7]
    assert texts(read(tmp_path, 4)) == ["seven"]


def test_no_journal_yet(tmp_path: Path) -> None:
    assert read(tmp_path) == []
    assert read(tmp_path / "absent") == []


def test_progress_is_held_back_but_the_last_value_is_not_lost(tmp_path: Path) -> None:
    clock = Clock()
    writer = Journal(tmp_path, clock=clock)
    for amount in range(100):
        writer.write(Progress("s", "head", "p", amount, 1000))
        writer.write(Progress("s", "worker1", "p", amount, 1000))
        clock.now += 0.01
    assert len(read(tmp_path)) == 4  # 1 s of it: the first and one after half a second, of each node
    clock.now += 0.6
    writer.tick()
    amounts = [entry.event.amount for entry in read(tmp_path) if isinstance(entry.event, Progress)]
    assert amounts[-2:] == [99, 99]
    writer.write(Progress("s", "head", "p", 500, 1000))
    writer.write(Progress("s", "head", "p", 1000, 1000))  # the end of a phase is never held back
    assert read(tmp_path)[-1].event == Progress("s", "head", "p", 1000, 1000)
    writer.write(Progress("s", "head", "p", 7, 1000))
    writer.write(Note("s", "head", "next"))
    assert [type(entry.event) for entry in read(tmp_path)[-2:]] == [Progress, Note]
    writer.close()


def test_values_that_json_cannot_hold(tmp_path: Path) -> None:
    writer = Journal(tmp_path)
    writer.write(Progress("s", "head", "p", math.nan, math.inf))
    writer.write(
        Finding("s", "c", "head", State.OK, "\ud800 lone", data={"path": Path("/x"), "set": {1}, "n": math.nan})
    )
    writer.write(LogLine("s", "head", "x" * 1_000_000))
    writer.close()
    entries = read(tmp_path)
    assert len(entries) == 3
    assert entries[0].event == Progress("s", "head", "p", None, None)
    assert entries[1].plain["data"] == {"path": "/x", "set": [1], "n": None}
    assert len(entries[2].plain["text"]) < 17_000
    assert "983616 more characters" in entries[2].plain["text"]


def test_u103_secrets_are_masked_everywhere_but_names_stay(tmp_path: Path) -> None:
    secret = 'he"ad\\é'
    writer = Journal(tmp_path, lambda text: text.replace(secret, "••••••"))
    writer.write(
        Finding("s", "c", "head", State.OK, secret, secret, f"a {secret} b", {"x": [{"y": secret}], "z": secret})
    )
    writer.write(LogLine("s", "head", f"--api-key {secret}"))
    writer.close()
    raw = (tmp_path / "journal.jsonl").read_text()
    assert secret not in raw
    assert json.dumps(secret)[1:-1] not in raw
    assert json.dumps(secret, ensure_ascii=False)[1:-1] not in raw
    assert raw.count("••••••") == 6

    writer = Journal(tmp_path, lambda text: text.replace("head", "••••••ad"))  # a password that is a node's name
    writer.write(Note("serve", "head", "head has it"))
    writer.close()
    assert read(tmp_path)[-1].event == Note("serve", "head", "••••••ad has it")


def test_rotation_keeps_the_beginning_the_turning_points_and_the_end(tmp_path: Path) -> None:
    limit = 64 * 1024
    writer = Journal(tmp_path, segment_bytes=limit // 4, journal_bytes=limit)
    writer.write(STARTED)
    follower = Tail(tmp_path)
    seen = []
    for number in range(3000):
        writer.write(LogLine("serve", "head", f"{number} " + "x" * 200))
        if number % 500 == 0:
            writer.write(StepStarted(f"step{number}"))
        if number % 20 == 0:
            seen += [entry.seq for entry in follower.poll()]
        assert number % 100 or total_bytes(tmp_path) <= limit * 1.05
    writer.write(RunFinished(0, "done"))
    writer.close()
    seen += [entry.seq for entry in follower.poll()]
    follower.close()
    assert seen == list(range(1, writer.seq + 1))  # who follows loses nothing

    late = read(tmp_path)
    assert late[0].event == STARTED
    assert late[-1].event == RunFinished(0, "done")
    assert [entry.seq for entry in late] == sorted(entry.seq for entry in late)
    steps = [entry.event.step for entry in late if isinstance(entry.event, StepStarted)]
    assert steps == [f"step{number}" for number in range(0, 3000, 500)]
    assert texts(late)[-1].startswith("2999 ")

    again = Journal(tmp_path, segment_bytes=limit // 4, journal_bytes=limit)
    assert again.write(Note("s", "head", "more")) == writer.seq + 1
    again.close()


def test_even_turning_points_are_bounded(tmp_path: Path) -> None:
    writer = Journal(tmp_path, segment_bytes=8192, journal_bytes=32768)
    writer.write(STARTED)
    for number in range(2000):
        writer.write(Note("s", "head", f"{number}"))
    writer.close()
    assert total_bytes(tmp_path) <= 33_000
    assert read(tmp_path)[0].event == STARTED
    assert texts(read(tmp_path))[-1] == "1999"


def test_a_full_disk_says_so_and_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Journal(tmp_path)
    writer.write(Note("s", "head", "before"))
    real, room = journal.os.write, [30]

    def limited(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        done = real(fd, data[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr(journal.os, "write", limited)
    with pytest.raises(StepFailed, match="its disk is full"):
        writer.write(Note("s", "head", "torn"))
    writer.write(LogLine("s", "head", "not worth an error"))
    monkeypatch.undo()
    assert writer.write(Note("s", "head", "after")) == 2
    writer.close()
    assert texts(read(tmp_path)) == ["before", "after"]
    assert [entry.seq for entry in read(tmp_path)] == [1, 2]
