"""The container's entry point: `python3 -u -S -m spark_overlay.entry run|args|nfs`.

`run` validates the environment, writes STATE_PATH/launch.json (no secret), starts the engine and watches it. On rank 0
it then waits for /health, warms up and prints the one line that sparktui waits for:

    [spark] READY rank=0 port=8888 model=NAME max_total_num_tokens=N warmup_batch=N boot_seconds=S

Every other line of ours starts with `[spark] ` too. `args --print` only shows the engine's command. `nfs` is the
weights' exporter. Exit status of `run`: the engine's; 2 when the environment was refused; 124 when the engine was not
ready in READY_TIMEOUT_S, or the wait for it broke off.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from spark_overlay import __version__, checkpoint_config
from spark_overlay.arming import values_of
from spark_overlay.health import http_status, local_address
from spark_overlay.key_file import KeyFileError, read_key
from spark_overlay.known_names import NO_EFFECT, known_names, without_effect
from spark_overlay.launch_args import CONTEXT_MAX, Launch, LaunchError, Problem, build, served_name
from spark_overlay.ledger import LEDGER
from spark_overlay.packed_rows import fallback
from spark_overlay.row_store import Options
from spark_overlay.supervisor import Supervisor, python_child
from spark_overlay.switches import SwitchError, unknown
from spark_overlay.warm_up import PROMPT_WORDS, Server, warm_up

REFUSED, NOT_READY = 2, 124
POLL_SECONDS = 2.0
HEALTH_SECONDS = 25.0
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASS")
_SHOWN_PREFIXES = ("NCCL_", "GLOO_", "SGLANG_", "DSV41_", "DSPARK_", "CUDA_", "PYTORCH_", "B12X_", "SPARK_")
_SHOWN_NAMES = frozenset({
    "MODEL_PATH", "STATE_PATH", "SERVER_PORT", "HOST", "HOST_IP", "NODE_RANK", "NNODES", "TP_SIZE", "EP_SIZE",
    "DIST_INIT_ADDR", "CONTEXT_LENGTH", "MEM_FRACTION_STATIC", "MAX_RUNNING_REQUESTS", "MAX_TOTAL_TOKENS",
    "CHUNKED_PREFILL_SIZE", "CUDA_GRAPH_MAX_BS_DECODE", "SPEC_ALGO", "OFFLOAD_MODE", "SERVED_MODEL_NAME",
    "READY_TIMEOUT_S", "WARMUP", "EXTRA_SGLANG_ARGS",
})  # fmt: skip


def say(text: str) -> None:
    print(f"[spark] {text}", flush=True)


def launch_of(environment: Mapping[str, str]) -> Launch:
    """Raises LaunchError with all that is wrong, the adapters' settings too."""
    wrong: list[Problem] = []
    for read in (warm_up_wanted, warm_up_words):
        try:
            read(environment)
        except LaunchError as error:
            wrong += error.problems
    for read_rows in (Options.from_environment, fallback):
        try:
            read_rows(environment)
        except ValueError as error:
            wrong.append(Problem(str(error), f"correct {str(error).partition('=')[0]}"))
    try:
        values_of(LEDGER, environment)
    except SwitchError as error:
        wrong += [Problem(line, f"correct {line.partition('=')[0]}") for line in str(error).splitlines()]
    try:
        launch = build(environment, checkpoint_config.read(Path(environment.get("MODEL_PATH", ""))), os.path.isfile)
    except LaunchError as error:
        raise LaunchError((*error.problems, *wrong)) from error
    if wrong:
        raise LaunchError(tuple(wrong))
    warnings = (*launch.warnings, *unknown(environment, known_names(LEDGER) | NO_EFFECT))
    note = without_effect(environment, LEDGER)
    return replace(launch, warnings=warnings, notes=(note,) if note else ())


def warm_up_wanted(environment: Mapping[str, str]) -> bool:
    """WARMUP, 1 where it is not set. Raises LaunchError."""
    text = environment.get("WARMUP", "").strip()
    if text not in ("", "0", "1"):
        raise LaunchError((Problem(f"WARMUP={text} is neither 0 nor 1", "write WARMUP=0 or WARMUP=1"),))
    return text != "0"


def warm_up_words(environment: Mapping[str, str]) -> tuple[int, ...]:
    """WARMUP_PROMPT_WORDS: the lengths of the warm-up's prompts in words. Raises LaunchError."""
    words = environment.get("WARMUP_PROMPT_WORDS", "").replace(",", " ").split()
    if wrong := [word for word in words if not (word.isdecimal() and 1 <= int(word) <= CONTEXT_MAX)]:
        what = f"WARMUP_PROMPT_WORDS: {wrong[0]} is no whole number from 1 to {CONTEXT_MAX}"
        raise LaunchError((Problem(what, "write numbers of words, as in WARMUP_PROMPT_WORDS=12,200"),))
    return tuple(int(word) for word in words) or PROMPT_WORDS


def write_launch(environment: Mapping[str, str], launch: Launch) -> None:
    """STATE_PATH/launch.json: beside, fsync, rename. Raises OSError."""
    shown = {
        name: value
        for name, value in sorted(environment.items())
        if (name in _SHOWN_NAMES or name.startswith(_SHOWN_PREFIXES))
        and not any(word in name for word in _SECRET_WORDS)
    }
    record = {
        "v": 1,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "overlay": __version__,
        "rank": int(environment.get("NODE_RANK", "").strip() or 0),
        "argv": list(launch.argv),
        "environment": shown,
        "warnings": list(launch.warnings),
    }
    path = Path(environment.get("STATE_PATH") or "/state") / "launch.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise KeyFileError(f"{name}={text} is no positive number of seconds", f"correct {name}")
    return value


class ReadyWatch(threading.Thread):
    """Rank 0: waits for health, warms up, prints READY. `failure` is set when the time is over, or this went wrong."""

    def __init__(self, environment: Mapping[str, str], key: str | None, started: float, seconds: float) -> None:
        super().__init__(name="ready", daemon=True)
        self._environment = environment
        host, port = local_address(dict(environment))
        self._server = Server(host, port, served_name(environment), key)
        self._begun = started
        self._limit_seconds = seconds
        self.failure: str | None = None

    def run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # a thread's exception ends nobody: the container would wait for ever
            self.failure = f"the wait for the engine broke off: {type(error).__name__}: {error}"

    def _watch(self) -> None:
        end = self._begun + self._limit_seconds
        while not self._healthy(end):
            if time.monotonic() + POLL_SECONDS >= end:
                self.failure = f"the engine was not ready within READY_TIMEOUT_S={self._limit_seconds:g}"
                return
            time.sleep(POLL_SECONDS)
        say(f"healthy after {time.monotonic() - self._begun:.1f} s")
        fields: dict[str, object] = {"rank": 0, "port": self._server.port, "model": self._server.model}
        fields["max_total_num_tokens"] = self._server.max_total_num_tokens(HEALTH_SECONDS)
        if warm_up_wanted(self._environment):
            fields["warmup_batch"] = self._warm(end)
        fields["boot_seconds"] = f"{time.monotonic() - self._begun:.1f}"
        say("READY " + " ".join(f"{name}={value}" for name, value in fields.items() if value is not None))

    def _healthy(self, end: float) -> bool:
        seconds = max(0.1, min(HEALTH_SECONDS, end - time.monotonic()))
        try:
            return http_status(self._server.host, self._server.port, "/health", seconds) == 200
        except (OSError, ValueError):
            return False

    def _warm(self, end: float) -> int | None:
        batch = int(self._environment.get("MAX_RUNNING_REQUESTS", "").strip() or 4)
        context = int(self._environment["CONTEXT_LENGTH"])
        result = warm_up(self._server, batch, context, end, warm_up_words(self._environment))
        for note in result.notes:
            say(f"warm-up: {note}")
        for warning in result.warnings:
            say(f"WARNING {warning}")
        return result.batch


def run() -> int:
    started = time.monotonic()
    environment = dict(os.environ)
    rank = environment.get("NODE_RANK", "").strip() or "0"
    try:
        launch = launch_of(environment)
        key = read_key(environment.get("API_KEY_FILE"))
        ready_seconds = _seconds(environment, "READY_TIMEOUT_S", 3600)
        grace_seconds = _seconds(environment, "STOP_GRACE_S", 20)
        if not (Path(environment["MODEL_PATH"]) / "config.json").is_file():
            raise KeyFileError(f"{environment['MODEL_PATH']} holds no config.json", "share or mount the checkpoint")
        write_launch(environment, launch)
    except LaunchError as error:
        for problem in error.problems:
            say(f"ERROR rank={rank} {problem.what}. Next: {problem.fix}.")
        return REFUSED
    except KeyFileError as error:
        say(f"ERROR rank={rank} {error.what}. Next: {error.fix}.")
        return REFUSED
    except OSError as error:
        say(f"ERROR rank={rank} launch.json cannot be written: {error}. Next: check STATE_PATH.")
        return REFUSED
    for warning in launch.warnings:
        say(f"WARNING {warning}")
    for note in launch.notes:
        say(note)
    say(f"rank={rank} starts: {shlex.join(launch.argv)}")
    watch = ReadyWatch(environment, key, started, ready_seconds) if rank == "0" else None
    engine = Supervisor(python_child("spark_overlay.engine_process", launch.argv), environment, grace_seconds)

    def tick() -> str | None:
        if watch is None:
            return None
        if watch.ident is None:
            watch.start()
        return watch.failure

    code = engine.run(tick)
    if watch is not None and watch.failure:
        say(f"ERROR rank={rank} {watch.failure}; engine stopped, code={NOT_READY}")
        return NOT_READY
    why = f" after {engine.stopped_by}" if engine.stopped_by else ""
    say(f"rank={rank} engine ended{why}, code={code}")
    return code


def show_arguments(as_json: bool) -> int:
    try:
        launch = launch_of(os.environ)
    except LaunchError as error:
        for problem in error.problems:
            print(f"{problem.what}. Next: {problem.fix}.", file=sys.stderr)
        return REFUSED
    for warning in launch.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for note in launch.notes:
        print(f"note: {note}", file=sys.stderr)
    print(json.dumps(list(launch.argv)) if as_json else shlex.join(launch.argv))
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="spark_overlay.entry")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("run", help="start the engine and watch it")
    arguments = verbs.add_parser("args", help="show the engine's arguments and stop")
    arguments.add_argument("--print", action="store_true", help="as one shell-quoted line (the default)")
    arguments.add_argument("--json", action="store_true")
    verbs.add_parser("nfs", help="export /export read-only over NFS")
    options = parser.parse_args(argv)
    if options.verb == "run":
        return run()
    if options.verb == "args":
        return show_arguments(options.json)
    from spark_overlay.nfs_exporter import main as export

    return export()


if __name__ == "__main__":
    sys.exit(main())
