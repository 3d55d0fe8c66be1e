"""What the wizard shows in its pictures: calm (all done), working (pack goes on), failing (disk full, node dead)."""

from __future__ import annotations

from collections.abc import Callable

from sparktui.errors import NodeUnreachable
from sparktui.events import (
    Event,
    Finding,
    LogLine,
    NodeOutcome,
    Note,
    Outcome,
    Progress,
    Question,
    RunFinished,
    State,
    StepFinished,
    StepStarted,
    Unit,
)
from sparktui.steps.step import Inspection
from tests.ui import cluster_values
from tests.ui.app_in_test import NOON, AppInTest, run_of, started

NODES = ("head", "worker1", "worker2")
GIB = cluster_values.GIB
CHAIN = ("doctor", "download", "build", "share", "pack", "serve", "smoke")
GOOD = (
    ("ssh.login", "logged in by ~/.ssh/id_ed25519 (found by: ssh config)"),
    ("docker.engine", "Docker 28.5.1, the user may use it"),
    ("memory.total", "121.7 GiB"),
    ("link.p0", "200 Gb/s, ACTIVE, MTU 4096"),
    ("link.p1", "200 Gb/s, ACTIVE, MTU 4096"),
)


def healthy(*nodes: str) -> list[Event]:
    return [Finding("doctor", check, node, State.OK, what) for check, what in GOOD for node in nodes or NODES]


WARNING = Finding(
    "doctor",
    "driver.drift",
    "worker2",
    State.WARN,
    "driver 580.95.05, the others have 580.126.09",
    "it was updated on two of three",
    "update worker2 and restart it: sudo apt upgrade",
)
DISK = "3.2 GiB free in /srv/engram, 65.2 GiB are needed"
SMOKE = (
    ("arithmetic", State.OK, "42", 0.62),
    ("json", State.OK, '{"answer": 42}', 0.91),
    ("tool", State.OK, "lookup_fixture(alpha), then the value", 1.84),
    ("picture", State.INFO, "NOT SERVED BY THIS MODEL: its config names no vision part", 0.01),
    ("cut", State.OK, "a cut-off call ends with 'length', and its history is answered", 0.42),
    ("reasoning", State.OK, "second turn with reasoning in its history 200, without 200", 0.58),
    ("loop", State.OK, "a loop ends as the error loop_abort", 2.13),
    ("placeholder", State.OK, "the image token's name in a text is text", 0.24),
    ("thinking", State.OK, "Anthropic thinking without a budget is answered", 0.31),
)


def skipped(verb: str) -> tuple[Event, Event]:
    return StepStarted(verb, NODES), StepFinished(verb, Outcome.SKIPPED, 0.4, f"{verb} is done on all nodes")


def smoke_findings() -> list[Event]:
    return [
        Finding("smoke", check, "head", state, what, data={"seconds": seconds}) for check, state, what, seconds in SMOKE
    ]


def _calm_run() -> list[Event | tuple[float, Event]]:
    return [
        (0.0, started(*CHAIN)),
        (0.0, StepStarted("doctor", NODES)),
        *healthy(),
        (24.0, StepFinished("doctor", Outcome.DONE, 24.0)),
        *skipped("download"),
        *skipped("build"),
        *skipped("share"),
        *skipped("pack"),
        (30.0, StepStarted("serve", NODES)),
        (31.0, Progress("serve", "head", "ready", 11, 11)),
        *(NodeOutcome("serve", node, Outcome.DONE, f"rank {rank} is up") for rank, node in enumerate(NODES)),
        (778.0, StepFinished("serve", Outcome.DONE, 748.0)),
        (779.0, StepStarted("smoke", ("head",))),
        *smoke_findings(),
        (783.0, StepFinished("smoke", Outcome.DONE, 3.4)),
        (783.5, RunFinished(0, "done in 776 s; 3 of 7 steps had something to do")),
    ]


def _working_run() -> list[Event | tuple[float, Event]]:
    half = 65.2 * GIB
    return [
        (0.0, started(*CHAIN)),
        (0.0, StepStarted("doctor", NODES)),
        *healthy(),
        WARNING,
        (24.0, StepFinished("doctor", Outcome.DONE, 24.0)),
        (24.1, StepStarted("download", ("head",))),
        (24.5, StepFinished("download", Outcome.SKIPPED, 0.4, "48 of 48 shards, sizes as the hub lists them")),
        (24.5, StepStarted("build", NODES)),
        (90.0, StepFinished("build", Outcome.DONE, 66.0)),
        (90.0, StepStarted("share", NODES)),
        (97.0, StepFinished("share", Outcome.DONE, 7.0)),
        (100.0, StepStarted("pack", NODES)),
        (101.0, Note("pack", "head", "two tables, columns 0 to 7 of 24")),
        (101.0, Note("pack", "worker1", "two tables, columns 8 to 15 of 24")),
        (101.0, Note("pack", "worker2", "two tables, columns 16 to 23 of 24")),
        (299.0, LogLine("pack", "worker2", "layer 3: 9.6 GiB in 31 s")),
        (300.0, Progress("pack", "head", "layer 1", 24.1 * GIB, half, rate_per_second=0.32 * GIB, seconds_left=128.0)),
        (300.0, Progress("pack", "worker1", "layer 1", 22.8 * GIB, half, rate_per_second=0.3 * GIB, seconds_left=141)),
        (300.0, Progress("pack", "worker2", "layer 1", 22.5 * GIB, half, rate_per_second=0.3 * GIB, seconds_left=142)),
    ]


def _failing_run() -> list[Event | tuple[float, Event]]:
    fix = "make room there, or set WORKER_ENGRAM_DIR to another disk"
    finding = Finding("pack", "disk.engram", "worker1", State.FAIL, DISK, "", fix)
    return [
        (0.0, started("pack")),
        (1.0, StepStarted("pack", NODES)),
        finding,
        Finding("pack", "disk.engram", "head", State.OK, "1.4 TiB free"),
        Finding("pack", "disk.engram", "worker2", State.OK, "1.4 TiB free"),
        (4.0, StepFinished("pack", Outcome.FAILED, 3.0, DISK, fix, "worker1")),
        (4.0, RunFinished(1, DISK, fix, "worker1")),
    ]


def before_calm(app: AppInTest) -> None:
    app.all_done("download", "build", "share", "pack", "serve")
    app.step("serve").inspection = Inspection(done=True, summary="all ranks run and the head answers")


def show_calm(app: AppInTest) -> None:
    app.snapshot = cluster_values.CALM
    app.run_view = run_of(_calm_run(), begin=NOON - 900)


def before_working(app: AppInTest) -> None:
    app.all_done("download", "build", "share")


def show_working(app: AppInTest) -> None:
    app.snapshot = cluster_values.PACKING
    app.run_view = run_of(_working_run())


def before_failing(app: AppInTest) -> None:
    app.all_done("download", "build")
    app.step("share").inspection = NodeUnreachable("no answer on port 22", fix="is it on?", node="worker1")
    app.step("serve").inspection = Inspection(False, "", blocked="pack is not done", fix="sparktui pack")


def show_failing(app: AppInTest) -> None:
    app.snapshot = cluster_values.FAILING
    app.remembered = {step.verb: step for step in run_of(_calm_run(), begin=NOON - 90_000).steps[:1]}
    app.run_view = run_of(_failing_run(), begin=NOON + 1)
    app.now = NOON + 60


def show_doctor(app: AppInTest) -> None:
    """A look that found something on two nodes."""
    app.snapshot = cluster_values.FAILING
    unseen = Finding(
        "doctor",
        "node",
        "worker1",
        State.UNKNOWN,
        "no answer on port 22",
        "",
        "is it on, and is its address right?",
        {"unreachable": True},
    )
    app.run_view = run_of(
        [
            (0.0, started("doctor")),
            (0.0, StepStarted("doctor", NODES)),
            *healthy("head", "worker2"),
            WARNING,
            unseen,
            (20.0, StepFinished("doctor", Outcome.FAILED, 20.0, unseen.what, unseen.fix, "worker1")),
            (20.0, RunFinished(3, unseen.what, unseen.fix, "worker1")),
        ],
        begin=NOON + 1,
    )
    app.now = NOON + 60


def show_boot(app: AppInTest) -> None:
    app.snapshot = cluster_values.WORKING
    app.boots = cluster_values.BOOTS_WORKING
    app.monotonic = lambda: 170.0
    app.run_view = run_of(
        [
            (0.0, started("serve")),
            (0.0, StepStarted("serve", NODES)),
            *(
                Progress("serve", boot.node, boot.phase.title, float(boot.phase), 11.0, Unit.PHASES)
                for boot in app.boots
            ),
            (120.0, Note("serve", "worker1", "rank 1: weights: Load weight begin. avail mem=118.40 GB")),
        ]
    )


BASE_QUESTION = Question(
    "build",
    "base.digest",
    "lmsysorg/sglang:v0.5.23 is sha256:4b1f0de23c9a" + "0" * 40 + " now. Pin it in .env?",
)


def show_question(app: AppInTest) -> None:
    app.snapshot = cluster_values.CALM
    app.run_dir = app.env_file.parent
    app.run_view = run_of([(0.0, started("build")), (0.0, StepStarted("build", NODES)), (2.0, BASE_QUESTION)])


STATES: dict[str, tuple[Callable[[AppInTest], None], Callable[[AppInTest], None]]] = {
    "calm": (before_calm, show_calm),
    "working": (before_working, show_working),
    "failing": (before_failing, show_failing),
    "doctor": (before_failing, show_doctor),
    "boot": (before_calm, show_boot),
    "question": (before_working, show_question),
}
