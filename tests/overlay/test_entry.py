"""The container's entry point as a process, with a stand-in for the engine: ready line, key, signals, exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from spark_overlay.ledger import LEDGER

from tests.overlay.conftest import OVERLAY
from tests.overlay.stand_in_engine import write_stand_in

KEY = "sk-spark-9f3b7c21"
ADAPTERS_OFF = {adapter.settings[0].name: "0" for adapter in LEDGER}
"""The stand-in has none of the functions that adapters change."""
COMMAND = [sys.executable, "-u", "-S", "-m", "spark_overlay.entry", "run"]


@dataclass
class Entry:
    """A started entry point; `lines` are those read so far."""

    process: subprocess.Popen[str]
    lines: list[str]

    def until(self, pattern: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if re.search(pattern, line):
                return line
        raise AssertionError(f"{pattern!r} was not printed:\n" + "\n".join(self.lines))

    def end(self) -> int:
        assert self.process.stdout is not None
        self.lines += [line.rstrip("\n") for line in self.process.stdout]
        return self.process.wait(timeout=30)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "state").mkdir()
    write_stand_in(tmp_path / "site")
    return tmp_path


@pytest.fixture
def start(state: Path) -> Iterator[Callable[..., Entry]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": f"{OVERLAY}:{state / 'site'}", "PYTHONDONTWRITEBYTECODE": "1",
        "MODEL_PATH": str(state / "model"), "STATE_PATH": str(state / "state"), "SERVER_PORT": str(port),
        "TP_SIZE": "1", "CONTEXT_LENGTH": "4096", "MAX_RUNNING_REQUESTS": "3", "HF_TOKEN": "hf_never_shown",
        **ADAPTERS_OFF,
    }  # fmt: skip
    started: list[Entry] = []

    def begin(*prefix: str, command: list[str] = COMMAND, **changed: str) -> Entry:
        process = subprocess.Popen(
            [*prefix, *command], env=environment | changed, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        started.append(Entry(process, []))
        return started[-1]

    yield begin
    for entry in started:
        if entry.process.poll() is None:
            # unshare lets no SIGTERM through.
            for pid in (*children(entry.process.pid), entry.process.pid):
                os.kill(pid, signal.SIGTERM)
            entry.end()


@pytest.fixture
def key_file(state: Path) -> Path:
    path = state / "key"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    return path


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_it_warms_up_and_prints_one_ready_line(start: Callable[..., Entry], state: Path) -> None:
    entry = start(SERVED_MODEL_NAME="deepseek-v4.1-flash,alias")
    line = entry.until("READY")
    assert re.fullmatch(
        r"\[spark\] READY rank=0 port=\d+ model=deepseek-v4\.1-flash max_total_num_tokens=749824 warmup_batch=3 "
        r"boot_seconds=[\d.]+\n",
        line,
    )
    requests = [json.loads(text) for text in (state / "state" / "requests").read_text().splitlines()]
    words = [count - 4 for count, tokens in requests if tokens == 24]
    assert words == [12, 200, 900, 2036], "the longest prompt is capped by the context"
    assert sum(tokens == 48 for _, tokens in requests) == 3
    entry.process.terminate()
    assert entry.end() == 0
    assert entry.lines[-1] == "[spark] rank=0 engine ended after SIGTERM, code=0"
    assert sum("READY" in text for text in entry.lines) == 1


def test_the_key_reaches_the_engine_and_is_seen_nowhere(
    start: Callable[..., Entry], state: Path, key_file: Path
) -> None:
    entry = start(API_KEY_FILE=str(key_file))
    entry.until("READY.*warmup_batch=3")
    [engine] = children(entry.process.pid)
    for pid in (entry.process.pid, engine):
        for name in ("cmdline", "environ"):
            assert KEY.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    launch = (state / "state" / "launch.json").read_text()
    entry.process.terminate()
    entry.end()
    output = "\n".join(entry.lines)
    assert "'api_key': '••••••21'" in output
    assert KEY not in output and KEY not in launch and "hf_never_shown" not in launch
    assert json.loads(launch)["argv"][:1] == ["--model-path"]


def test_a_key_file_that_others_can_read_is_refused(start: Callable[..., Entry], key_file: Path) -> None:
    key_file.chmod(0o644)
    entry = start(API_KEY_FILE=str(key_file))
    assert entry.end() == 2
    assert "chmod 600" in entry.lines[-1] and KEY not in entry.lines[-1]


def test_a_corrupt_batch_is_loud_and_not_fatal(start: Callable[..., Entry]) -> None:
    entry = start(STAND_IN="garbage")
    entry.until("WARNING the warm-up batch of 3 is not clean prose in 3 answers: holds CJK")
    assert "warmup_batch" not in entry.until("READY")


def test_without_warm_up_nothing_is_asked(start: Callable[..., Entry], state: Path) -> None:
    assert "warmup_batch" not in start(WARMUP="0").until("READY")
    assert not (state / "state" / "requests").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"WARMUP_PROMPT_WORDS": "12,long"}, "WARMUP_PROMPT_WORDS: long is no whole number from 1 to 1048576"),
        ({"WARMUP_PROMPT_WORDS": "12,0"}, "WARMUP_PROMPT_WORDS: 0 is no whole number"),
        ({"WARMUP": "off"}, "WARMUP=off is neither 0 nor 1. Next: write WARMUP=0 or WARMUP=1."),
        ({"READY_TIMEOUT_S": "nan"}, "READY_TIMEOUT_S=nan is no positive number of seconds"),
    ],
)
def test_a_setting_of_the_wait_that_cannot_be_meant_is_refused_before_anything_starts(
    start: Callable[..., Entry], changed: dict[str, str], said: str
) -> None:
    entry = start(**changed)
    assert entry.end() == 2
    assert len(entry.lines) == 1 and f"[spark] ERROR rank=0 {said}" in entry.lines[0]


def test_the_prompts_of_the_warm_up_are_as_long_as_asked_for(start: Callable[..., Entry], state: Path) -> None:
    start(WARMUP_PROMPT_WORDS="7, 30").until("READY")
    requests = [json.loads(text) for text in (state / "state" / "requests").read_text().splitlines()]
    assert [count - 4 for count, tokens in requests if tokens == 24] == [7, 30]


def test_a_wait_that_breaks_off_ends_the_container_and_says_why(start: Callable[..., Entry]) -> None:
    # Whatever goes wrong in that thread: here a warm-up that raises what nobody foresaw.
    script = (
        "import sys\nfrom spark_overlay import entry\n"
        "def broken(*_): raise LookupError('unforeseen')\n"
        "entry.warm_up = broken\nsys.exit(entry.main(['run']))"
    )
    entry = start(command=[sys.executable, "-u", "-S", "-c", script])
    assert entry.end() == 124
    said = "[spark] ERROR rank=0 the wait for the engine broke off: LookupError: unforeseen; engine stopped, code=124"
    assert entry.lines[-1] == said


def test_the_engines_exit_code_is_ours_and_the_last_line_says_so(start: Callable[..., Entry]) -> None:
    entry = start(STAND_IN="exit-7")
    assert entry.end() == 7
    assert entry.lines[-1] == "[spark] rank=0 engine ended, code=7"


def test_an_engine_that_is_not_ready_in_time_is_stopped(start: Callable[..., Entry]) -> None:
    entry = start(STAND_IN="never-healthy", READY_TIMEOUT_S="1")
    assert entry.end() == 124
    assert "READY_TIMEOUT_S=1" in entry.lines[-1]


def test_a_stubborn_engine_is_killed_after_its_grace(start: Callable[..., Entry]) -> None:
    entry = start(STAND_IN="stubborn", STOP_GRACE_S="1")
    entry.until("READY")
    entry.process.terminate()
    assert entry.end() == 137


def test_a_second_signal_kills_at_once(start: Callable[..., Entry]) -> None:
    entry = start(STAND_IN="stubborn", STOP_GRACE_S="600")
    entry.until("READY")
    entry.process.send_signal(signal.SIGINT)
    time.sleep(1.5)  # two signals in one moment are one
    entry.process.send_signal(signal.SIGTERM)
    assert entry.end() == 137
    assert entry.lines[-1] == "[spark] rank=0 engine ended after SIGINT, code=137"


@pytest.mark.parametrize("kind", ["worker", "daemon"])
def test_what_the_engine_leaves_behind_is_killed(start: Callable[..., Entry], state: Path, kind: str) -> None:
    entry = start(STAND_IN=kind)
    entry.until("READY")
    worker = int((state / "state" / "worker").read_text())
    assert Path(f"/proc/{worker}").exists()
    entry.process.terminate()
    assert entry.end() == 0
    assert not Path(f"/proc/{worker}").exists(), "killed, and reaped before the last line"


def test_a_worker_only_waits(start: Callable[..., Entry]) -> None:
    entry = start(NODE_RANK="1", NNODES="2", DIST_INIT_ADDR="127.0.0.1:1")
    entry.until("engine sglang=")
    entry.until("server_args")
    entry.process.send_signal(signal.SIGTERM)
    assert entry.end() in (0, 143)
    assert not any("READY" in line or "healthy" in line for line in entry.lines)


def test_all_refusals_are_printed_with_the_next_step_and_nothing_starts(start: Callable[..., Entry]) -> None:
    entry = start(OFFLOAD_MODE="ram", CONTEXT_LENGTH="1")
    assert entry.end() == 2
    assert len(entry.lines) == 2
    assert all(line.startswith("[spark] ERROR rank=0 ") and "Next: " in line for line in entry.lines)


def test_a_misspelt_setting_warns_and_an_adapters_wrong_value_is_refused(start: Callable[..., Entry]) -> None:
    entry = start(DSV41_LOOP_NGRAMS="9", WARMUP="0")
    entry.until("WARNING DSV41_LOOP_NGRAMS is read by nothing; DSV41_LOOP_NGRAM is")
    entry.until("READY")
    entry = start(DSV41_LOOP_NGRAM="9000")
    assert entry.end() == 2
    assert entry.lines == [
        "[spark] ERROR rank=0 DSV41_LOOP_NGRAM=9000 is not 0 or from 4 to 256. Next: correct DSV41_LOOP_NGRAM."
    ]


def test_every_process_states_each_adapter(start: Callable[..., Entry]) -> None:
    entry = start(WARMUP="0")
    entry.until("READY")
    said = [line for line in entry.lines if line.startswith("[spark] server: adapter ")]
    assert said == [f"[spark] server: adapter {a.name}: off ({a.settings[0].name}=0)" for a in LEDGER]


def test_a_missing_checkpoint_is_named(start: Callable[..., Entry], state: Path) -> None:
    (state / "model" / "config.json").unlink()
    entry = start()
    assert entry.end() == 2 and "share or mount the checkpoint" in entry.lines[-1]


@pytest.mark.testbed
def test_as_pid_1_it_reaps_orphans_and_leaves_nobody(start: Callable[..., Entry]) -> None:
    unshare = shutil.which("unshare")
    assert unshare
    entry = start(unshare, "--pid", "--fork", "--mount-proc", "--kill-child=TERM", STAND_IN="orphan")
    entry.until("READY")
    [pid_1] = children(entry.process.pid)
    end = time.monotonic() + 20
    while len(left := children(pid_1)) > 1 and time.monotonic() < end:
        time.sleep(0.05)  # the orphan may live a moment longer than the start takes
    assert len(left) == 1, "only the engine is left; the orphan is reaped"
    os.kill(pid_1, signal.SIGTERM)
    assert entry.end() == 0


def test_the_health_check_tells_answers_from_silence(start: Callable[..., Entry]) -> None:
    entry = start(WARMUP="0")
    port = entry.until("READY").split("port=")[1].split()[0]
    check = [sys.executable, "-S", "-m", "spark_overlay.health"]
    environment = {"PYTHONPATH": str(OVERLAY), "PYTHONDONTWRITEBYTECODE": "1", "SERVER_PORT": port}
    assert subprocess.run(check, env=environment, timeout=60, stdout=subprocess.DEVNULL).returncode == 0
    entry.process.terminate()
    entry.end()
    assert subprocess.run(check, env=environment, timeout=60, stdout=subprocess.DEVNULL).returncode == 1


def test_the_health_check_loads_nothing_heavy() -> None:
    script = (
        "import sys, spark_overlay.health; print(sorted({'torch','http','asyncio','logging','re'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], env={"PYTHONPATH": str(OVERLAY), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
