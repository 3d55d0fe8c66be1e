"""T3: a state folder that does not answer (a network disk that is away) freezes neither the screens nor quitting.

A named pipe stands for a file that hangs: whoever opens it to read waits until the test opens it to write.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparktui.errors import DeadlineExceeded
from sparktui.events import Note, StepStarted
from sparktui.runs.follow import follow_entries
from sparktui.runs.identity import own
from sparktui.runs.lock import ClusterLock
from sparktui.runs.request import RunRequest
from sparktui.ui.folder_thread import FolderThread
from sparktui.ui.messages import Copied
from tests.ui.app_in_test import AppInTest, RunInTest, screen_text, settled, until
from tests.ui.test_terminals import UTF8, opened

RESCUE_SECONDS = 30.0
"""Then the pipe is opened whatever the app does, so that a frozen app fails the test instead of hanging it."""


@contextmanager
def hanging(path: Path) -> Iterator[Callable[[], None]]:
    """The file does not answer until the block ends, or until the function that is given is called."""
    aside, pipe = path.with_name(path.name + ".aside"), path.with_name(path.name + ".pipe")
    there = path.exists()
    kept = path.read_bytes() if there else b""
    if there:
        path.rename(aside)
    os.mkfifo(path)
    once = threading.Lock()

    def answers() -> None:
        if not once.acquire(blocking=False):
            return
        path.rename(pipe)  # those that wait for it stay with it
        if there:
            aside.rename(path)
        try:
            fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody waits any more
            return
        os.write(fd, kept)
        os.close(fd)

    rescue = threading.Timer(RESCUE_SECONDS, answers)
    rescue.daemon = True
    rescue.start()
    try:
        yield answers
    finally:
        rescue.cancel()
        answers()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktui.ui.app.NOTICE_SECONDS", 0.1)
    monkeypatch.setattr("sparktui.ui.session.SILENT_SECONDS", 0.3)


async def test_t3_a_hung_state_folder_freezes_no_screen_is_said_and_loses_no_line(app: AppInTest, soon: None) -> None:
    run = app.earlier_run(("doctor", "download"), StepStarted("doctor", ("head",)))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: app.run_view.current == "doctor")
        with hanging(run.run_dir / "process.json") as answers:
            await until(pilot, lambda: "does not answer" in screen_text(app))
            run.say(Note("doctor", "head", "said while nobody could read"), StepStarted("download", ("head",)))
            await pilot.press("m")
            await until(pilot, lambda: app.current_mode == "monitor")
            await pilot.press("w")
            await until(pilot, lambda: app.current_mode == "wizard")
            assert app.run_view.current == "doctor"
            answers()
            await until(pilot, lambda: app.run_view.current == "download")
            await until(pilot, lambda: "answers again" in screen_text(app))
        assert "said while nobody could read" in str(app.run_view)
        run.end()
        await until(pilot, lambda: not app.run_view.active)
        assert [entry.seq async for entry in follow_entries(run.run_dir)] == [1, 2, 3, 4, 5]


async def test_t3_a_run_of_others_and_a_copy_wait_for_the_folder_keys_do_not(app: AppInTest, soon: None) -> None:
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        other = RunInTest(app.session.state_dir, RunRequest(str(app.env_file), ("pack",)))
        lock = ClusterLock(app.session.state_dir)
        lock.acquire(other.run_dir.name, own())
        with hanging(app.session.state_dir / "run.lock") as answers:
            await until(pilot, lambda: app.session.silence())
            app.post_message(Copied("a line", "line"))
            await until(pilot, lambda: app.copied == ["a line"])
            threads = threading.active_count()
            await pilot.press("m")
            await until(pilot, lambda: app.current_mode == "monitor")
            await pilot.pause(0.5)
            assert threading.active_count() <= threads, "one thread waits for the folder, not one a look"
            answers()
            await until(pilot, lambda: app.run_view.verbs == ("pack",))
            await until(pilot, (app.session.state_dir / "copied.txt").exists)
        other.end()
        lock.release()


async def test_t3_q_leaves_while_the_journal_cannot_be_read(app: AppInTest) -> None:
    run = app.earlier_run(("doctor",), StepStarted("doctor", ("head",)))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.run_view.current == "doctor")
        with hanging(run.run_dir / "process.json"):
            await pilot.pause(0.3)
            await pilot.press("q")
            await until(pilot, lambda: app.return_code is not None)
            assert (run.run_dir / "process.json").is_fifo(), "it left only when the folder answered again"
    assert app.return_code == 0


def test_t3_the_process_ends_while_threads_wait_for_the_state_folder(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.mkfifo(state / "run.lock")
    with opened(tmp_path, {"TERM": "xterm-256color", **UTF8}) as app:
        app.until(b"quit")
        app.drain(1.0)
        app.press(b"m", b"monitor")
        app.send(b"q")
        assert app.wait(20) == 0


async def test_the_folder_thread_keeps_order_and_leaves_out_what_nobody_waits_for(tmp_path: Path) -> None:
    thread, gate, done = FolderThread(1.5), threading.Event(), []
    late = thread.do(tmp_path, gate.wait), thread.do(tmp_path, lambda: done.append(-1))
    for error in await asyncio.gather(*late, return_exceptions=True):
        assert isinstance(error, DeadlineExceeded) and "has not answered" in error.what
    assert thread.silent_seconds > 0
    gate.set()
    for _ in range(500):
        if not thread.silent_seconds:
            break
        await asyncio.sleep(0.01)
    await asyncio.gather(*(thread.do(tmp_path, lambda each=each: done.append(each)) for each in range(5)))
    assert done == [0, 1, 2, 3, 4]
    assert thread.silent_seconds == 0
    with pytest.raises(FileNotFoundError):
        await thread.do(tmp_path, (tmp_path / "absent").read_bytes)
