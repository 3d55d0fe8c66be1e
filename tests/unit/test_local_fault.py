"""What the head's own files, disks and limits refuse: cause, path and next step, and no traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparktui.command import run_text
from sparktui.errors import StepFailed
from sparktui.events import Note, RunFinished
from sparktui.local_fault import LocalFault, local_fault
from sparktui.runs.follow import Condition, current
from sparktui.runs.journal import Journal, read
from sparktui.runs.start import refuse_foreign
from tests.unit.runs_parts import write_env
from tests.unit.test_cli import CLI, environment

ROOT = os.geteuid() == 0
AS_ROOT = pytest.mark.skipif(not ROOT, reason="mounts and other users need root")
VERBS = ("status", "doctor", "talk", "up", "download", "smoke", "stop", "logs", "plan")
STARTS_A_RUN = frozenset({"up", "download", "smoke", "stop"})
NOBODY = 65534


def shell(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    """The command line below a shell that sets the scene (`ulimit`, closed streams)."""
    line = words.replace("SPARKTUI", '"$@"')
    return subprocess.run(
        ["sh", "-c", line, "sh", *CLI],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


def check(done: subprocess.CompletedProcess[str], *said: str, status: int) -> None:
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert "does not know" not in text, text
    for each in said:
        assert each in text, text
    assert done.returncode == status, text


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full(state: Path) -> Iterator[Path]:
    with mounted(state, "size=64k"), (state / "fill").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            yield state


@contextmanager
def read_only(state: Path) -> Iterator[Path]:
    with mounted(state, "ro"):
        yield state


@contextmanager
def no_inodes(state: Path) -> Iterator[Path]:
    with mounted(state, "nr_inodes=1"):
        yield state


@contextmanager
def a_file(state: Path) -> Iterator[Path]:
    state.write_text("x")
    yield state


@contextmanager
def a_link_to_itself(state: Path) -> Iterator[Path]:
    state.symlink_to(state.name)
    yield state


SCENES = {
    "its disk is full": full,
    "its file system is read-only": read_only,
    "no inodes left": no_inodes,
    "is a file, and a folder belongs there": a_file,
    "is a link that leads back to itself": a_link_to_itself,
}


@AS_ROOT
@pytest.mark.parametrize("verb", VERBS[:-2])
@pytest.mark.parametrize("said", SCENES)
def test_a_state_folder_that_cannot_be_written(tmp_path: Path, said: str, verb: str) -> None:
    write_env(tmp_path)
    with SCENES[said](tmp_path / "state"):
        done = shell(tmp_path, f"SPARKTUI {verb}")
    if verb == "stop":
        check(done, said, "stopping without a journal", status=0)
        assert (tmp_path / "work" / "stop.done").exists()
    elif verb in STARTS_A_RUN:
        check(done, said, str(tmp_path / "state"), "next: ", status=1)
    else:
        check(done, status=0)


@AS_ROOT
def test_a_run_that_fills_its_disk_still_says_so_in_its_closing_line(tmp_path: Path) -> None:
    with mounted(tmp_path / "state", "size=128k") as state:
        journal = Journal(state)
        journal.write(Note("pack", "head", "begun"))
        with (state / "fill").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        with pytest.raises(StepFailed, match="its disk is full") as caught:
            for number in range(200):
                journal.write(Note("pack", "head", f"{number} " + "x" * 100))
        journal.write(RunFinished(1, caught.value.what, caught.value.fix, "head"))
        journal.close()
        last = read(state)[-1].event
        assert isinstance(last, RunFinished)
        assert "its disk is full" in last.text
        assert not (state / "reserve").exists()


@pytest.mark.parametrize("verb", ["status", "download", "stop"])
@pytest.mark.parametrize("kind", ["a folder", "a link to itself"])
def test_a_journal_of_an_earlier_run_that_cannot_be_read_is_one_line(tmp_path: Path, kind: str, verb: str) -> None:
    write_env(tmp_path)
    run = tmp_path / "state" / "runs" / "20260101T000000000Z-up-abcd"
    run.mkdir(parents=True)
    journal = run / "journal.jsonl"
    journal.mkdir() if kind == "a folder" else journal.symlink_to(journal.name)
    done = shell(tmp_path, f"SPARKTUI {verb}")
    check(done, "cannot be read", str(journal), status=0)
    assert sum("cannot be read" in line for line in done.stdout.splitlines()) == 1


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own lets only its user in."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def another_user() -> Iterator[None]:
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@AS_ROOT
def test_the_journal_of_a_run_under_sudo_is_one_line_with_the_command(open_folder: Path) -> None:
    run = open_folder / "runs" / "20260101T000000000Z-up-abcd"
    run.mkdir(parents=True, mode=0o700)
    (run / "journal.jsonl").write_text("{}")
    with another_user():
        said = current(open_folder)
        assert said is not None
        text = run_text(said)
    assert said.condition is Condition.UNREADABLE
    assert (
        text == f"the last run cannot be read: {run} belongs to root. Next: make it yours: sudo chown -R nobody: {run}"
    )


@AS_ROOT
def test_files_of_another_user_are_said_by_name_before_anything_starts(open_folder: Path) -> None:
    for name in ("api-key", "run.lock"):
        (open_folder / name).write_text("")
        (open_folder / name).chmod(0o600)
    with another_user(), pytest.raises(LocalFault) as caught:
        refuse_foreign(open_folder, open_folder / "logs")
    names = f"{open_folder}, {open_folder / 'api-key'}, {open_folder / 'run.lock'}"
    assert caught.value.lines() == [
        f"head: {names} belong to root",
        f"  next: make it yours: sudo chown -R nobody: {names.replace(',', '')}",
    ]
    refuse_foreign(open_folder, open_folder / "logs")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("scene", "said", "status"),
    [
        ("mkdir gone && cd gone && rmdir ../gone && SPARKTUI VERB", "the working folder is gone", 2),
        ("SPARKTUI VERB --env-file '~nosuchuser/.env'", "~nosuchuser/.env: there is no such user", 2),
        ("SPARKTUI VERB >&-", "standard output is closed", 2),
        ("HOME= TMPDIR=/nonexistent SPARKTUI VERB --env-file /nonexistent/.env", "/nonexistent/.env", 2),
    ],
    ids=["deleted working folder", "no such user", "closed stdout", "no home, no /tmp"],
)
def test_what_the_shell_gave_is_wrong(tmp_path: Path, verb: str, scene: str, said: str, status: int) -> None:
    write_env(tmp_path)
    check(shell(tmp_path, scene.replace("VERB", verb)), said, "next: ", status=status)


def test_a_closed_stdin_is_nobody_who_could_answer(tmp_path: Path) -> None:
    write_env(tmp_path)
    check(shell(tmp_path, "SPARKTUI download <&-"), status=0)


def test_few_open_files_are_named_as_the_limit(tmp_path: Path) -> None:
    write_env(tmp_path)
    check(shell(tmp_path, "ulimit -n 6; SPARKTUI download"), "may open no more files", "ulimit -n", status=1)


@pytest.mark.parametrize(("umask", "wanted"), [("000", 0o755), ("777", 0o700), ("022", 0o755), ("077", 0o700)])
def test_the_shells_umask_neither_opens_the_state_to_others_nor_shuts_us_out(
    tmp_path: Path, umask: str, wanted: int
) -> None:
    write_env(tmp_path)
    check(shell(tmp_path, f"umask {umask}; SPARKTUI download"), status=0)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == wanted
    for path in (tmp_path / "state").rglob("*"):
        assert not path.stat().st_mode & 0o022, path
        assert path.stat().st_mode & 0o400, path


@pytest.mark.parametrize("number", [value for name, value in vars(errno).items() if name.startswith("E")])
@pytest.mark.parametrize("named", [True, False])
def test_every_error_of_the_system_has_a_cause_and_a_next_step_or_none(
    tmp_path: Path, number: int, named: bool
) -> None:
    error = OSError(number, os.strerror(number), *([str(tmp_path / "state" / "x")] if named else []))
    fault = local_fault(error)
    if fault is not None:
        assert fault.what
        assert fault.fix
        assert fault.node == "head"
        assert (
            not named
            or str(tmp_path) in fault.what
            or number in (errno.EMFILE, errno.ENFILE, errno.EAGAIN)
            or (number in (errno.ENOMEM, errno.EFBIG))
        )


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.EPIPE])
def test_an_error_of_a_connection_is_no_fault_of_this_machine(number: int) -> None:
    assert local_fault(OSError(number, os.strerror(number))) is None
