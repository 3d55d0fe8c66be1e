"""A run outlives its viewers, says how it ended, and goes on after a kill. Real processes, real signals."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparktui.errors import LockHeld, StepFailed
from sparktui.events import (
    Answered,
    Event,
    Finding,
    Note,
    Outcome,
    Question,
    RunFinished,
    RunStarted,
    State,
    StepFinished,
)
from sparktui.runs import answers, journal
from sparktui.runs.cancel import cancel
from sparktui.runs.follow import Condition, current, follow, standing
from sparktui.runs.identity import Identity, own
from sparktui.runs.lock import holder
from sparktui.runs.request import RunRequest, make_run_folder, read_process
from sparktui.runs.start import start
from tests.unit.runs_parts import BLOCK, PROGRAM, write_env

pytestmark = pytest.mark.timeout(90)
UP = ("download", "share", "serve", "smoke")


@pytest.fixture(autouse=True)
def _no_run_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    for path in tmp_path.glob("state/runs/*"):
        process = read_process(path)
        if process:
            process.signal(signal.SIGKILL, group=True)


def request(folder: Path, *verbs: str, **more: object) -> RunRequest:
    return RunRequest(env_file=str(folder / ".env"), verbs=verbs, **more)  # type: ignore[arg-type]


async def begin(folder: Path, *verbs: str, **more: object) -> Path:
    return await start(request(folder, *verbs, **more), folder / "state", program=PROGRAM)


async def events(run_dir: Path) -> list[Event]:
    return [event async for _, event in follow(run_dir)]


async def closing(run_dir: Path) -> RunFinished:
    last = (await events(run_dir))[-1]
    assert isinstance(last, RunFinished)
    return last


async def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.02)


async def gone(process: Identity | None) -> None:
    assert process is not None
    await until(lambda: not process.alive)


def outcomes(seen: list[Event]) -> list[tuple[str, Outcome]]:
    return [(event.step, event.outcome) for event in seen if isinstance(event, StepFinished)]


async def test_a_run_from_start_to_end_and_again(tmp_path: Path) -> None:
    write_env(tmp_path)
    seen = await events(await begin(tmp_path, *UP))
    assert isinstance(seen[0], RunStarted)
    assert outcomes(seen) == [(verb, Outcome.DONE) for verb in UP]
    assert isinstance(seen[-1], RunFinished) and seen[-1].exit_status == 0
    assert (tmp_path / "work/download.done").read_bytes() == (tmp_path / "work/source").read_bytes()
    again = await events(await begin(tmp_path, *UP))
    assert outcomes(again) == [(verb, Outcome.SKIPPED) for verb in UP]
    forced = await events(await begin(tmp_path, "smoke", forced=("smoke",)))
    assert outcomes(forced) == [("smoke", Outcome.DONE)]


def opened(pid: int, number: int) -> str:
    return str(Path(f"/proc/{pid}/fd/{number}").readlink())


async def test_the_process_belongs_to_no_terminal_and_ignores_a_hangup(tmp_path: Path) -> None:
    write_env(tmp_path, SERVE="wait")
    run_dir = await begin(tmp_path, "serve")
    process = standing(run_dir).process
    assert process is not None
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    assert opened(process.pid, 0) == "/dev/null"
    assert opened(process.pid, 1) == str(run_dir / "output.txt")
    await until((tmp_path / "work/serving").exists)
    for number in (signal.SIGHUP, signal.SIGHUP):
        os.kill(process.pid, number)
    await asyncio.sleep(0.2)
    assert standing(run_dir).condition is Condition.RUNNING
    (tmp_path / "work/go").touch()
    assert (await closing(run_dir)).exit_status == 0


async def test_two_viewers_see_the_same_and_a_late_one_starts_where_it_wants(tmp_path: Path) -> None:
    write_env(tmp_path, PAUSE="0.002")
    run_dir = await begin(tmp_path, *UP)
    first, second = await asyncio.gather(events(run_dir), events(run_dir))
    assert first == second == [entry.event for entry in journal.read(run_dir)]
    late = [seq async for seq, _ in follow(run_dir, 5)]
    assert late == list(range(5, len(first) + 1))
    assert [seq async for seq, _ in follow(run_dir, 10_000)] == []


@pytest.mark.parametrize("attempt", range(4))
async def test_kill_9_of_the_run_at_any_moment_then_again(tmp_path: Path, attempt: int) -> None:
    """Nothing is done twice: at most one block more than the source is ever read."""
    write_env(tmp_path, PAUSE="0.004", SOURCE_BYTES=100 * BLOCK)
    moments = random.Random(attempt)
    kills = 0
    while True:
        run_dir = await begin(tmp_path, *UP)
        process = standing(run_dir).process
        assert process is not None
        if kills == 4:
            break
        await asyncio.sleep(moments.uniform(0.0, 0.12))
        killed = process.signal(signal.SIGKILL)
        await gone(process)
        said = standing(run_dir)
        if not killed or said.condition is Condition.FINISHED:
            break
        kills += 1
        assert said.condition is Condition.DIED
        last = await closing(run_dir)
        assert last.exit_status == 1
        assert "killed?" in last.text and (said.step in last.text or not said.step)
        assert current(tmp_path / "state") == said
    seen = await events(run_dir)
    assert seen[-1] == RunFinished(0, seen[-1].text)  # type: ignore[attr-defined]
    if kills:
        assert any(isinstance(event, Note) and "without a closing line" in event.text for event in seen)
    work = tmp_path / "work"
    assert (work / "download.done").read_bytes() == (work / "source").read_bytes()
    read = sum(map(int, (work / "reads").read_text().split()))
    assert read <= 100 * BLOCK + kills * BLOCK
    assert (work / "ran").read_text().split() == ["smoke"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
async def test_the_death_of_the_viewer_that_started_it_changes_nothing(tmp_path: Path, number: signal.Signals) -> None:
    write_env(tmp_path, SERVE="wait")
    viewer = spawn_viewer(tmp_path)
    await until((tmp_path / "work/serving").exists)
    os.killpg(viewer.pid, number)
    await asyncio.to_thread(viewer.wait)
    said = current(tmp_path / "state")
    assert said is not None and said.condition is Condition.RUNNING and said.step == "serve"
    (tmp_path / "work/go").touch()
    assert (await closing(said.run_dir)).exit_status == 0


def spawn_viewer(folder: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", _VIEWER, str(folder)]
    return subprocess.Popen(argv, cwd=Path(__file__).parents[2], start_new_session=True)


_VIEWER = """
import asyncio, sys
from pathlib import Path
from tests.unit.test_runs_process import begin, events
async def main():
    await events(await begin(Path(sys.argv[1]), "serve"))
asyncio.run(main())
"""


async def test_cancel_closes_the_journal_and_lets_the_step_clean_up(tmp_path: Path) -> None:
    write_env(tmp_path, SERVE="wait")
    run_dir = await begin(tmp_path, "serve", "smoke")
    await until((tmp_path / "work/serving").exists)
    said = await cancel(run_dir)
    assert said.condition is Condition.FINISHED
    assert said.finished is not None and said.finished.exit_status == 130
    assert said.finished.text == "cancelled during serve"
    assert (said.step, said.step_outcome) == ("serve", Outcome.CANCELLED)
    assert (tmp_path / "work/cleaned").exists()
    assert holder(tmp_path / "state") is None
    assert await cancel(run_dir) == said  # a second time changes nothing


async def test_cancel_at_random_moments_always_has_a_closing_line(tmp_path: Path) -> None:
    write_env(tmp_path, PAUSE="0.002")
    for attempt in range(5):
        run_dir = await begin(tmp_path, *UP)
        await asyncio.sleep(0.02 * attempt)
        said = await cancel(run_dir)
        assert said.condition is Condition.FINISHED
        assert said.finished is not None and said.finished.exit_status in (0, 130)


async def test_a_run_that_hears_nothing_is_killed_with_its_group(tmp_path: Path) -> None:
    write_env(tmp_path, SERVE="stubborn")
    run_dir = await begin(tmp_path, "serve")
    await until((tmp_path / "work/serving").exists)
    said = await cancel(run_dir, deadline_seconds=0.5)
    assert said.condition is Condition.DIED
    assert said.finished is not None
    assert said.finished.text == "the run ended without a closing line (killed?) at step serve"
    assert holder(tmp_path / "state") is None


async def test_t8_one_run_at_a_time_and_the_other_is_named(tmp_path: Path) -> None:
    write_env(tmp_path, SERVE="wait")
    run_dir = await begin(tmp_path, "serve")
    await until((tmp_path / "work/serving").exists)
    with pytest.raises(LockHeld, match=rf"{run_dir.name} \(serve, at serve\)") as caught:
        await begin(tmp_path, "download")
    assert "sparktui stop" in caught.value.fix
    assert [path.name for path in (tmp_path / "state/runs").iterdir()] == [run_dir.name]
    await cancel(run_dir)
    assert (await closing(await begin(tmp_path, "download"))).exit_status == 0


async def test_of_many_that_start_at_once_one_runs(tmp_path: Path) -> None:
    write_env(tmp_path, SERVE="wait")
    results = await asyncio.gather(*(begin(tmp_path, "serve") for _ in range(3)), return_exceptions=True)
    started = [each for each in results if isinstance(each, Path)]
    assert len(started) == 1
    assert all(isinstance(each, LockHeld) for each in results if not isinstance(each, Path))
    assert list((tmp_path / "state/runs").iterdir()) == started


def lock_content(state: Path, **changes: object) -> None:
    process = own()
    state.mkdir(exist_ok=True)
    said = {"pid": process.pid, "pid_started_ticks": process.started_ticks, "boot_id": process.boot_id, "run_id": "old"}
    (state / "run.lock").write_text(json.dumps(said | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"pid_started_ticks": 1},
        {"boot_id": "another boot"},
        {"pid": 2**22 + 5},
        {"pid": "x"},
        {"run_id": None, "pid": -1},
    ],
)
async def test_a_lock_of_the_dead_is_no_lock_even_when_the_pid_is_reused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    write_env(tmp_path)
    lock_content(tmp_path / "state", **changes)
    assert holder(tmp_path / "state") is None
    assert (await closing(await begin(tmp_path, "download"))).exit_status == 0


async def test_a_failing_row_fails_the_step_and_stops_the_chain(tmp_path: Path) -> None:
    write_env(tmp_path, DOCTOR="fail")
    seen = await events(await begin(tmp_path, "doctor", "download"))
    assert outcomes(seen) == [("doctor", Outcome.FAILED)]
    assert seen[-1] == RunFinished(1, "3 GiB free: the disk is full", "free 200 GiB", "worker1")
    assert [event.state for event in seen if isinstance(event, Finding)] == [State.OK, State.FAIL]


async def test_t9_a_dead_node_is_cause_node_and_status_3(tmp_path: Path) -> None:
    write_env(tmp_path, DOCTOR="unreachable")
    last = await closing(await begin(tmp_path, "doctor", "download"))
    assert last == RunFinished(3, "no answer on port 22", "is it on?", "worker1")


async def test_an_unexpected_error_is_a_sentence_and_its_traceback_a_file(tmp_path: Path) -> None:
    write_env(tmp_path, PACK="boom", API_KEY="hunter2secret")
    run_dir = await begin(tmp_path, "pack")
    last = await closing(run_dir)
    assert last.exit_status == 1
    assert last.text == "pack met an error it does not know (ValueError: bad ••••••et)"
    assert "Traceback" not in (run_dir / "journal.jsonl").read_text() + (run_dir / "output.txt").read_text()
    kept = run_dir / "traceback.txt"
    assert str(kept) in last.fix
    assert "Traceback" in kept.read_text() and "hunter2secret" not in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


async def test_the_cause_inside_a_group_is_found(tmp_path: Path) -> None:
    write_env(tmp_path, PACK="group")
    assert await closing(await begin(tmp_path, "pack")) == RunFinished(1, "no space", "make room", "worker1")


async def test_u103_no_secret_in_any_file_of_a_run(tmp_path: Path) -> None:
    write_env(tmp_path, API_KEY="hunter2secret")
    run_dir = await begin(tmp_path, "share", "smoke")
    process = standing(run_dir).process
    assert (await closing(run_dir)).exit_status == 0
    await gone(process)
    for path in run_dir.iterdir():
        assert b"hunter2secret" not in path.read_bytes(), path
        assert path.stat().st_mode & 0o077 == 0, path
    assert "••••••et" in (run_dir / "journal.jsonl").read_text()


def test_u103_all_secret_settings_are_known_to_the_request() -> None:
    from sparktui.runs.request import SECRET_NAMES
    from sparktui.settings.model import SECRET_NAMES as OF_SETTINGS

    assert OF_SETTINGS == SECRET_NAMES


def test_u103_a_secret_is_not_taken_as_an_override(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="HF_TOKEN is not taken"):
        make_run_folder(tmp_path, RunRequest("/x/.env", ("up",), overrides={"HF_TOKEN": "hf_x"}))
    assert not (tmp_path / "runs").exists()


async def test_bad_settings_are_said_by_the_run_too(tmp_path: Path) -> None:
    write_env(tmp_path, BAD=1)
    last = await closing(await begin(tmp_path, "download"))
    assert last == RunFinished(2, "line 3: BAD is not a setting", "remove the line")


@pytest.mark.parametrize(
    ("code", "said"),
    [("exit('no such luck')", r"status 1\): no such luck"), ("import os; os.kill(os.getpid(), 9)", r"status -9\)")],
)
async def test_a_process_that_cannot_begin_says_why(tmp_path: Path, code: str, said: str) -> None:
    write_env(tmp_path)
    with pytest.raises(StepFailed, match=rf"ended before it began \({said}"):
        await start(request(tmp_path, "download"), tmp_path / "state", program=(sys.executable, "-c", code))
    assert (await closing(await begin(tmp_path, "download"))).exit_status == 0


async def question_of(run_dir: Path) -> tuple[int, Question]:
    async for seq, event in follow(run_dir):
        if isinstance(event, Question):
            return seq, event
    raise AssertionError("no question")


async def test_a_question_is_carried_to_the_viewer_and_back(tmp_path: Path) -> None:
    write_env(tmp_path)
    run_dir = await begin(tmp_path, "build")
    seq, question = await question_of(run_dir)
    rubbish = [
        'torn {"for":1',
        "[1]",
        f'{{"for":{seq},"question":"pin.worker1","answer":"maybe"}}',
        '{"for":1,"question":"pin.worker1","answer":"no"}',
    ]
    (run_dir / "answers.jsonl").write_text("\n".join(rubbish) + "\n")
    assert answers.is_open(run_dir, seq, question)
    answers.answer(run_dir, seq, question, "later")
    answers.answer(run_dir, seq, question, "no")  # a second viewer was slower
    seen = await events(run_dir)
    assert Answered("build", "pin.worker1", "later", "viewer") in seen
    assert (tmp_path / "work/build.done").read_text() == "later"
    assert not answers.is_open(run_dir, seq, question)


async def test_yes_answers_and_unattended_names_the_question(tmp_path: Path) -> None:
    write_env(tmp_path)
    last = await closing(await begin(tmp_path, "build", unattended=True))
    assert (last.exit_status, last.node) == (1, "worker1")
    assert "pin.worker1" in last.text and "--yes" in last.fix
    seen = await events(await begin(tmp_path, "build", unattended=True, yes=True))
    assert Answered("build", "pin.worker1", "yes", "--yes") in seen
    assert isinstance(seen[-1], RunFinished) and seen[-1].exit_status == 0


async def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match=r"question pin\.worker1 in 0 s: Pin\?") as caught:
        await answers.wait(tmp_path, 3, Question("build", "pin.worker1", "Pin?"), deadline_seconds=0.3)
    assert caught.value.node == "worker1"


async def test_a_node_that_does_not_exist(tmp_path: Path) -> None:
    write_env(tmp_path)
    last = await closing(await begin(tmp_path, "download", only_node="worker7"))
    assert last.exit_status == 2
    assert "head, worker1" in last.fix


async def test_an_unknown_host_key_is_asked_about_before_the_first_step(tmp_path: Path) -> None:
    write_env(tmp_path, UNKNOWN_KEY=1)
    run_dir = await begin(tmp_path, "smoke")
    seq, question = await question_of(run_dir)
    assert question.question == "hostkey.worker1" and "SHA256:abc" in question.text
    answers.answer(run_dir, seq, question, "yes")
    assert (await closing(run_dir)).exit_status == 0
    assert (tmp_path / "work/trusted").exists()


async def test_nobody_to_ask_leaves_an_unknown_host_key_to_the_step(tmp_path: Path) -> None:
    write_env(tmp_path, UNKNOWN_KEY=1)
    seen = await events(await begin(tmp_path, "smoke", unattended=True))
    assert not any(isinstance(event, Question) for event in seen)
    assert not (tmp_path / "work/trusted").exists()
