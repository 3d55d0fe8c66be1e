"""The command line as a person, a script or an agent meets it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktui.runs.follow import Condition, current
from sparktui.runs.lock import holder
from sparktui.runs.request import read_process
from tests.unit.runs_parts import write_env

pytestmark = pytest.mark.timeout(90)
REPO = Path(__file__).parents[2]
CLI = (
    sys.executable,
    "-c",
    "import sys\nfrom tests.unit.runs_parts import PROGRAM, parts\nfrom sparktui.cli import main\n"
    "sys.exit(main(sys.argv[1:], parts(), PROGRAM))",
)
ESCAPES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture(autouse=True)
def _no_run_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    for path in tmp_path.glob("state/runs/*"):
        process = read_process(path)
        if process:
            process.signal(signal.SIGKILL, group=True)


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(REPO)}


def sparktui(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


class Terminal:
    """The command line in a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(CLI[0], [*CLI, *arguments], environment() | {"TERM": "xterm", "COLUMNS": "80"})
        # Or the next terminal's program would hold this one open.
        os.set_inheritable(self._fd, False)
        self.text = ""
        self.status: int | None = None

    def read_until(self, wanted: str, seconds: float = 30.0) -> str:
        end = time.monotonic() + seconds
        while wanted not in self.text:
            assert time.monotonic() < end, f"never saw {wanted!r} in:\n{self.text}"
            if not self._more(0.2) and self.status is not None:
                raise AssertionError(f"ended with {self.status}, never saw {wanted!r} in:\n{self.text}")
        return self.text

    def _more(self, seconds: float) -> bool:
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            data = b""
        if not data and self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.text += data.decode(errors="replace")
        return bool(data)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait(self, seconds: float = 30.0) -> int:
        end = time.monotonic() + seconds
        while self.status is None:
            assert time.monotonic() < end, self.text
            self._more(0.2)
        return self.status

    def hang_up(self) -> None:
        os.close(self._fd)
        os.waitpid(self.pid, 0)  # the signal ends it


def test_up_is_the_chain_and_its_report_is_short(tmp_path: Path) -> None:
    write_env(tmp_path)
    done = sparktui(tmp_path, "up", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    for verb in ("doctor", "download", "build", "share", "pack", "serve", "smoke"):
        assert re.search(rf"^  DONE +{verb} +\d+\.\d s$", done.stdout, re.M), done.stdout
    assert re.search(r"^OK +head +ssh\.login +this machine$", done.stdout, re.M)
    again = sparktui(tmp_path, "up")
    assert again.returncode == 0
    assert len(re.findall(r"^  SKIPPED ", again.stdout, re.M)) == 6
    assert (tmp_path / "work/ran").read_text() == "smoke\n"


def test_up_stops_at_the_first_failure(tmp_path: Path) -> None:
    write_env(tmp_path, DOCTOR="fail")
    failed = sparktui(tmp_path, "up")
    assert failed.returncode == 1
    assert failed.stdout.splitlines()[-2:] == ["worker1: 3 GiB free: the disk is full", "  next: free 200 GiB"]
    assert "download" not in failed.stdout
    assert not (tmp_path / "work/copy.partial").exists()


@pytest.mark.parametrize(
    ("values", "arguments", "status", "first", "second"),
    [
        ({"BAD": 1}, ["up"], 2, "line 3: BAD is not a setting", "  next: remove the line"),
        ({}, ["up", "--env-file", "none.env"], 2, "does not exist", "  next: copy .env.example"),
        ({"DOCTOR": "unreachable"}, ["doctor"], 3, "worker1: no answer on port 22", "  next: is it on?"),
        ({"DOCTOR": "unreachable"}, ["up"], 3, "worker1: no answer on port 22", "  next: is it on?"),
        ({"DOCTOR": "fail"}, ["doctor"], 1, "worker1: 3 GiB free: the disk is full", "  next: free 200 GiB"),
        ({"PACK": "group"}, ["pack"], 1, "worker1: no space", "  next: make room"),
        ({}, ["build"], 1, "worker1: the question pin.worker1 needs an answer", "  next: run it from a terminal"),
        ({}, ["smoke", "--node", "worker9"], 2, "there is no node 'worker9'", "  next: --node takes one of: head"),
        ({}, ["logs", "worker9"], 2, "there is no node 'worker9'", "  next: one of: head, worker1"),
    ],
)
def test_t9_exit_status_and_the_first_two_lines_of_a_failure(
    tmp_path: Path, values: dict[str, Any], arguments: list[str], status: int, first: str, second: str
) -> None:
    write_env(tmp_path, **values)
    failed = sparktui(tmp_path, *arguments)
    assert failed.returncode == status
    said = (failed.stderr or failed.stdout).splitlines()[-2:]
    assert first in said[0] and said[1].startswith(second)
    assert "Traceback" not in failed.stdout + failed.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stats"], "did you mean: sparktui status"),
        (["donwload"], "did you mean: sparktui download"),
        (["xyzzy"], "verbs: up, doctor"),
        (["bench"], "the verb `bench` is not in this version\n  next: the app shows the measured decode speed"),
        (["preview"], "the verb `preview` is not in this version\n  next: it is a pane of the app"),
        (["monitor"], "needs a terminal"),
        ([], "needs a terminal"),
        (["--dry-run"], "takes no --dry-run"),
        (["monitor", "--node", "worker1"], "takes no --node"),
        (["status", "--once"], "--once belongs to `monitor`"),
        (["status", "--ascii"], "belong to the full-screen app"),
        (["up", "worker1"], "--node worker1"),
        (["up", "-f"], "belong to `logs`"),
        (["status", "--dry-run"], "changes nothing"),
        (["up", "--profile", "five"], "invalid choice"),
        (["logs", "-n", "-1"], "-n"),
        (["logs", "-n", "many"], "-n"),
        (["up", "--dry"], "unrecognized"),
    ],
)
def test_usage_errors_are_status_2_and_touch_nothing(tmp_path: Path, arguments: list[str], said: str) -> None:
    write_env(tmp_path)
    failed = sparktui(tmp_path, *arguments)
    assert failed.returncode == 2
    assert said in failed.stderr
    assert failed.stdout == ""
    assert not (tmp_path / "state").exists()


def test_a_mistake_of_ours_is_a_sentence_and_a_file(tmp_path: Path) -> None:
    write_env(tmp_path, CRASH=1)
    failed = sparktui(tmp_path, "up")
    assert failed.returncode == 1
    found = re.fullmatch(
        r"an error that sparktui does not know \(ZeroDivisionError\)\n  next: see (\S+)\n", failed.stderr
    )
    assert found, failed.stderr
    kept = Path(found[1])
    assert "ZeroDivisionError: of ours" in kept.read_text() and kept.stat().st_mode & 0o077 == 0
    kept.unlink()


def test_help_is_short(tmp_path: Path) -> None:
    said = sparktui(tmp_path, "--help")
    assert said.returncode == 0
    assert len(said.stdout.splitlines()) <= 45
    assert "Ctrl-C" in said.stdout and "exit status" in said.stdout


def test_u104_json_is_one_object_a_line_and_nothing_else(tmp_path: Path) -> None:
    write_env(tmp_path, DOCTOR="escape", API_KEY="hunter2secret")
    said = sparktui(tmp_path, "up", "--json", "--yes")
    assert (said.returncode, said.stderr) == (0, "")
    lines = objects(said.stdout)
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert {line["v"] for line in lines} == {1}
    assert lines[0]["kind"] == "run_started" and lines[-1]["kind"] == "run_finished"
    run_dir = tmp_path / "state/runs" / lines[0]["run_id"]
    assert lines == objects((run_dir / "journal.jsonl").read_text())
    assert not ESCAPES.search(said.stdout)
    assert "hunter2secret" not in said.stdout


@pytest.mark.parametrize(("kind", "status"), [("ok", 0), ("fail", 1), ("unreachable", 3)])
def test_u104_doctor_json(tmp_path: Path, kind: str, status: int) -> None:
    write_env(tmp_path, DOCTOR=kind)
    said = sparktui(tmp_path, "doctor", "--json")
    assert said.returncode == status
    lines = objects(said.stdout)
    assert next(line["check"] for line in lines if line["kind"] == "finding") == "ssh.login"
    assert lines[-1]["exit_status"] == status
    assert not (tmp_path / "state").exists()  # it needs no run, and leaves none


def test_u104_errors_before_anything_are_json_too(tmp_path: Path) -> None:
    write_env(tmp_path, BAD=1)
    for arguments, status in ((["up"], 2), (["nonsense"], 2)):
        said = sparktui(tmp_path, *arguments, "--json")
        (line,) = objects(said.stdout)
        assert (said.returncode, line["kind"], line["exit_status"], said.stderr) == (status, "run_finished", 2, "")


def test_u104_dry_run_prints_the_commands_masked_and_does_nothing(tmp_path: Path) -> None:
    write_env(tmp_path, API_KEY="hunter2secret")
    before = sorted(path.name for path in (tmp_path / "work").iterdir())
    said = sparktui(tmp_path, "serve", "--dry-run")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == f"# serve, head: marks\ntouch {tmp_path}/work/serve.done # ••••••et\n"
    lines = objects(sparktui(tmp_path, "up", "--dry-run", "--json").stdout)
    assert [line["step"] for line in lines][:3] == ["doctor", "download", "build"]
    assert {line["kind"] for line in lines} == {"command_shown"}
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == before
    assert not (tmp_path / "state").exists()


def test_a_look_is_its_rows_and_nothing_around_them(tmp_path: Path) -> None:
    write_env(tmp_path)
    assert sparktui(tmp_path, "status").stdout.splitlines() == [
        "INFO    head     no run yet",
        "OK      head     ssh.login                this machine",
    ]
    assert sparktui(tmp_path, "talk").stdout.splitlines()[-1] == "curl -H 'x: y' http://head:8888"


def test_a_node_that_was_not_seen_is_status_3(tmp_path: Path) -> None:
    write_env(tmp_path, DOCTOR="unseen")
    said = sparktui(tmp_path, "status")
    assert said.returncode == 3
    assert said.stdout.splitlines()[-2:] == ["worker1: no answer", "  next: ping"]


def test_what_the_settings_warn_about_is_said_once_where_it_matters(tmp_path: Path) -> None:
    write_env(tmp_path, NOTICE=1)
    warning = "WARN    head     line 7: nobody knows this name"
    assert warning not in sparktui(tmp_path, "doctor").stdout, "doctor has rows of its own for it"
    assert sparktui(tmp_path, "smoke").stdout.count(warning) == 1
    assert warning not in sparktui(tmp_path, "talk").stdout


def test_a_node_cannot_steer_the_terminal(tmp_path: Path) -> None:
    write_env(tmp_path, DOCTOR="escape")
    said = sparktui(tmp_path, "doctor")
    assert "cleared" in said.stdout
    assert not ESCAPES.search(said.stdout)


def test_a_reader_of_doctor_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    write_env(tmp_path)
    code = f"cd {tmp_path}; {shlex.join(CLI)} doctor --json | head -n 1"
    said = subprocess.run(["sh", "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(said.stdout)["kind"] == "step_started"
    assert said.stderr == ""
    assert not (tmp_path / "state").exists()


def test_a_reader_that_leaves_early_stops_nothing(tmp_path: Path) -> None:
    write_env(tmp_path, PAUSE="0.01")
    viewer = subprocess.Popen(
        [*CLI, "download", "--json"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert viewer.stdout is not None and viewer.stderr is not None
    assert json.loads(viewer.stdout.readline())["kind"] == "run_started"
    viewer.stdout.close()
    assert viewer.wait(30) == 1
    assert viewer.stderr.read() == b""
    viewer.stderr.close()
    assert sparktui(tmp_path, "download").returncode == 0
    assert (tmp_path / "work/download.done").stat().st_size == (tmp_path / "work/source").stat().st_size


def test_t8_the_same_verb_reattaches_and_another_is_refused(tmp_path: Path) -> None:
    write_env(tmp_path, SERVE="wait")
    first = Terminal(tmp_path, "serve")
    first.read_until("serve:")
    refused = sparktui(tmp_path, "download")
    assert refused.returncode == 1
    assert re.match(r"head: run \S+-serve-\w+ \(serve, at serve\) is changing this cluster\n  next: ", refused.stderr)
    second = Terminal(tmp_path, "serve")
    second.read_until("attached to run")
    second.read_until("serve:")
    status = sparktui(tmp_path, "status")
    assert re.search(r"run \S+-serve-\w+ \(serve\) is going on, at serve", status.stdout)
    first.hang_up()  # the terminal closes: SIGHUP
    assert current(tmp_path / "state").condition is Condition.RUNNING  # type: ignore[union-attr]
    (tmp_path / "work/go").touch()
    assert second.wait() == 0
    assert "DONE      serve" in second.text
    assert len(list((tmp_path / "state/runs").iterdir())) == 1


def test_t8_after_kill_9_of_everything_the_next_start_says_so_and_goes_on(tmp_path: Path) -> None:
    write_env(tmp_path, PAUSE="0.02")
    viewer = Terminal(tmp_path, "download")
    viewer.read_until("head copy 4.0 KiB")
    os.kill(viewer.pid, signal.SIGKILL)
    viewer.wait()
    said = current(tmp_path / "state")
    assert said is not None and said.process is not None
    said.process.signal(signal.SIGKILL)
    while said.process.alive:
        time.sleep(0.02)
    status = sparktui(tmp_path, "status")
    assert "the run ended without a closing line (killed?) at step download" in status.stdout
    again = sparktui(tmp_path, "download")
    assert again.returncode == 0
    assert f"run {said.run_id}: the run ended without a closing line" in again.stdout
    source = (tmp_path / "work/source").stat().st_size
    assert sum(map(int, (tmp_path / "work/reads").read_text().split())) <= source * 1.05


def test_ctrl_c_cancels_the_run_cleanly(tmp_path: Path) -> None:
    write_env(tmp_path, SERVE="wait")
    terminal = Terminal(tmp_path, "serve")
    terminal.read_until("serve:")
    while not (tmp_path / "work/serving").exists():
        time.sleep(0.02)
    terminal.type("\x03")
    assert terminal.wait() == 130
    assert "cancelled during serve" in terminal.text
    assert (tmp_path / "work/cleaned").exists()
    assert holder(tmp_path / "state") is None


def test_ctrl_c_while_the_run_starts_is_not_lost(tmp_path: Path) -> None:
    write_env(tmp_path, SERVE="wait")
    terminal = Terminal(tmp_path, "serve")
    while not list(tmp_path.glob("state/runs/*/process.json")):
        time.sleep(0.01)
        terminal._more(0)
    terminal.type("\x03")
    assert terminal.wait() == 130
    assert "cancelled" in terminal.text
    assert holder(tmp_path / "state") is None


def test_a_second_ctrl_c_leaves_the_run_and_stop_ends_it(tmp_path: Path) -> None:
    write_env(tmp_path, SERVE="stubborn")
    terminal = Terminal(tmp_path, "serve")
    while not (tmp_path / "work/serving").exists():
        time.sleep(0.02)
        terminal._more(0)
    terminal.type("\x03")
    terminal.read_until("cancelling the run")
    terminal.type("\x03")
    assert terminal.wait() == 130
    assert "goes on in the background; `sparktui stop` cancels it" in terminal.text
    assert current(tmp_path / "state").active  # type: ignore[union-attr]


def test_stop_cancels_the_run_first(tmp_path: Path) -> None:
    write_env(tmp_path, SERVE="wait")
    terminal = Terminal(tmp_path, "serve")
    terminal.read_until("serve:")
    while not (tmp_path / "work/serving").exists():
        time.sleep(0.02)
    stopped = sparktui(tmp_path, "stop")
    assert stopped.returncode == 0, stopped.stderr
    assert re.match(r"cancelling run \S+-serve-\w+\n", stopped.stdout)
    assert (tmp_path / "work/cleaned").exists() and (tmp_path / "work/stop.done").exists()
    assert terminal.wait() == 130


def test_a_question_at_the_terminal(tmp_path: Path) -> None:
    write_env(tmp_path)
    terminal = Terminal(tmp_path, "build")
    terminal.read_until("answer (yes/no/later): ")
    terminal.type("what?\n")
    terminal.type("l\n")
    assert terminal.wait() == 0
    assert (tmp_path / "work/build.done").read_text() == "later"


def test_progress_is_one_changing_line_with_rate_only_where_known(tmp_path: Path) -> None:
    write_env(tmp_path, PAUSE="0.05", SOURCE_BYTES=40 * 4096)
    terminal = Terminal(tmp_path, "download")
    terminal.read_until("160.0 KiB 100 %")
    assert terminal.wait() == 0
    assert "\rhead copy" in terminal.text or "head copy" in terminal.text
    assert "left" not in terminal.text and "/s" not in terminal.text
    assert max(len(line) for line in re.split("[\r\n]", terminal.text)) < 80
