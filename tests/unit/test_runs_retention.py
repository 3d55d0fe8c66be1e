"""Old runs go, the one that is going on never does."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sparktui.runs.identity import Identity, own
from sparktui.runs.request import RunRequest, make_run_folder, run_folders, write_process
from sparktui.runs.retention import prune

DEAD = Identity(2**22 + 7, 1, "x")


def make(state: Path, number: int, *, size: int = 10, process: Identity | None = DEAD) -> Path:
    folder = make_run_folder(state, RunRequest("/x/.env", ("up",)))
    named = folder.with_name(f"20260101T0000{number:05}Z-up-{number:04x}")
    folder.rename(named)
    (named / "journal.jsonl").write_bytes(b"x" * size)
    if process:
        write_process(named, process)
    return named


def test_the_oldest_beyond_twenty_go(tmp_path: Path) -> None:
    made = [make(tmp_path, number) for number in range(25)]
    assert prune(tmp_path) == made[:5]
    assert run_folders(tmp_path) == made[5:]


def test_the_oldest_beyond_the_bytes_go_but_the_newest_stays(tmp_path: Path) -> None:
    made = [make(tmp_path, number, size=30_000) for number in range(5)]
    prune(tmp_path, kept_bytes=70_000)
    assert run_folders(tmp_path) == made[3:]
    prune(tmp_path, kept_bytes=10)
    assert run_folders(tmp_path) == made[4:]


def test_a_run_whose_process_lives_stays_whatever_its_age(tmp_path: Path) -> None:
    going_on = make(tmp_path, 0, process=own())
    made = [make(tmp_path, number) for number in range(1, 25)]
    starting = make(tmp_path, 30, process=None)
    newest = make(tmp_path, 31)
    prune(tmp_path, kept_runs=3)
    assert run_folders(tmp_path) == [going_on, starting, newest]
    assert not any(path.exists() for path in made)


def test_a_start_that_never_became_a_run_goes_after_a_while(tmp_path: Path) -> None:
    never = make(tmp_path, 0, process=None)
    newest = make(tmp_path, 1)
    old = time.time() - 3600
    os.utime(never, (old, old))
    prune(tmp_path, kept_runs=1)
    assert run_folders(tmp_path) == [newest]


def test_foreign_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "runs/my notes").mkdir(parents=True)
    make(tmp_path, 1)
    make(tmp_path, 2)
    prune(tmp_path, kept_runs=1)
    assert (tmp_path / "runs/my notes").is_dir()


def test_a_clock_that_was_set_back_does_not_put_a_new_run_before_an_older_one(tmp_path: Path) -> None:
    request = RunRequest(env_file="/x/.env", verbs=("status",))
    made = [make_run_folder(tmp_path, request)]
    future = made[0].with_name("2099" + made[0].name[4:])
    made[0].rename(future)
    made = [future, *(make_run_folder(tmp_path, request) for _ in range(3))]
    assert run_folders(tmp_path) == made
    assert prune(tmp_path, kept_runs=1) == []  # young ones may be starting
    for folder in made:
        os.utime(folder, (1, 1))
    assert prune(tmp_path, kept_runs=1) == made[:3]
    assert run_folders(tmp_path) == made[3:]


def test_a_run_of_another_user_is_neither_counted_nor_a_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for number in range(3):
        (tmp_path / "runs" / f"2026010{number + 1}T000000000Z-up-abcd").write_text("a file where a folder belongs")
    prune(tmp_path, kept_runs=1)
