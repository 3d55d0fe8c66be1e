"""A boot watched on three ranks that answer from a script: what ends the wait, whom it blames, what stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from sparktui.engine.launch import LaunchSpec, launch_specs
from sparktui.errors import NodeUnreachable, SparktuiError, StepFailed
from sparktui.events import Event, LogLine, NodeOutcome, Note, Outcome, Progress, State, Unit
from sparktui.settings import Settings, parse_settings
from sparktui.steps import serve_boot
from sparktui.steps.serve_boot import BootWatch
from tests.memory_engine import MemoryContainer
from tests.scripted_link import ScriptedLink

KEY = "a-long-secret-key"
READY = "[spark] READY rank=0 port=8888 model=deepseek-v4.1-flash max_total_num_tokens=749824 boot_seconds=812.3"
PARALLEL = "[2026-09-11 23:34:02 TP{}] Init parallel begin."
NO_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
PEER_LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:43210"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_boot, "STATE_SECONDS", 0.01)
    monkeypatch.setattr(serve_boot, "SETTLE_SECONDS", 0.05)


class Boot:
    """Three ranks whose containers run; `events()` watches them to the end."""

    def __init__(self, folder: Path, **more: str) -> None:
        values = {
            "HEAD_IP": "10.0.0.1",
            "WORKER_IPS": "10.0.0.2 10.0.0.3",
            "WORKER_HOSTS": "spark2 spark3",
            "MODEL_DIR": "/srv/model",
            "API_KEY": KEY,
        } | more
        self.settings: Settings = parse_settings(
            "".join(f'{name}="{value}"\n' for name, value in values.items()),
            env_path=folder / ".env",
            profile="three",
            environment={"HOME": str(folder)},
        )
        self.specs: tuple[LaunchSpec, ...] = launch_specs(self.settings, {0: 3, 1: 3, 2: 3})
        self.links = [ScriptedLink(node) for node in self.settings.nodes]
        for link, spec in zip(self.links, self.specs, strict=True):
            link.engine.add_container(spec.container.name, labels=spec.container.labels)

    def rank(self, number: int) -> MemoryContainer:
        return self.links[number].engine.containers[self.specs[number].container.name]

    def logs(self, number: int, *lines: str) -> None:
        self.rank(number).log.extend(lines)

    def ends(self, number: int, code: int, at: str, *lines: str, oom: bool = False) -> None:
        rank = self.rank(number)
        rank.log.extend(lines)
        rank.status, rank.exit_code, rank.finished_at, rank.oom_killed = "exited", code, at, oom

    async def watch(self, on: Callable[[Event], None] | None = None) -> tuple[list[Event], SparktuiError | None]:
        seen: list[Event] = []
        try:
            async for event in BootWatch(self.settings, self.links, self.specs).events():
                seen.append(event)
                if on:
                    on(event)
        except SparktuiError as error:
            return seen, error
        return seen, None

    @property
    def actions(self) -> list[list[str]]:
        return [link.engine.actions for link in self.links]


def outcomes(seen: list[Event]) -> dict[str, tuple[Outcome, str]]:
    return {each.node: (each.outcome, each.text) for each in seen if isinstance(each, NodeOutcome)}


def notes(seen: list[Event], node: str) -> list[Note]:
    return [each for each in seen if isinstance(each, Note) and each.node == node]


async def test_the_ready_line_ends_the_wait_and_changes_nothing(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    for number in range(3):
        boot.logs(number, PARALLEL.format(number))
    boot.logs(0, READY)
    seen, error = await boot.watch()
    assert error is None
    assert {node: outcome for node, (outcome, _) in outcomes(seen).items()} == dict.fromkeys(
        ("head", "worker1", "worker2"), Outcome.DONE
    )
    assert any("ready" in each.text for each in notes(seen, "head"))
    assert boot.actions == [[], [], []]


async def test_a_log_that_is_read_again_counts_its_lines_once(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    shards = [f"Multi-thread loading shards:  {done * 33}% Completed | {done}/3" for done in (1, 2, 3)]
    boot.logs(0, PARALLEL.format(0), "[2026-09-11 23:34:05 TP0] Load weight begin.", *shards)
    looks = 0
    own = boot.links[0].engine.found

    def found(name: str) -> MemoryContainer:
        nonlocal looks
        looks += 1
        if looks == 12:
            boot.logs(0, READY)
        return own(name)

    boot.links[0].engine.found = found  # type: ignore[method-assign]
    seen, error = await boot.watch()
    assert error is None
    loaded = [each for each in seen if isinstance(each, Progress) and each.unit is Unit.ITEMS]
    assert [(each.phase, each.amount, each.total) for each in loaded] == [
        ("weights", done, 3.0) for done in (1.0, 2.0, 3.0)
    ]


async def test_a_rank_that_exits_ends_the_wait_with_its_cause_and_last_lines(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.ends(1, 1, "2026-11-29T18:00:11Z", *(f"line {n}" for n in range(50)), NO_MEMORY)
    seen, error = await boot.watch()
    assert isinstance(error, StepFailed)
    assert error.node == "worker1"
    assert "rank 1 ended (exit code 1)" in error.what
    assert "the GPU ran out of memory" in error.what
    assert "CHUNKED_PREFILL_SIZE" in error.fix
    lines = [each.text for each in seen if isinstance(each, LogLine) and each.node == "worker1"]
    assert lines[-1] == NO_MEMORY
    assert lines[0] == "line 21"
    assert outcomes(seen)["worker1"] == (Outcome.FAILED, "rank 1 ended: exit code 1")


async def test_the_others_are_halted_and_kept_and_nothing_is_removed(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.ends(2, 137, "2026-11-29T18:00:11Z", "the last words", oom=True)
    boot.logs(0, "the head's words")
    seen, error = await boot.watch()
    assert error is not None
    assert "out of memory" in error.what
    assert boot.actions == [["stop dsv41-head"], ["stop dsv41-worker"], []]
    assert [boot.rank(number).status for number in range(3)] == ["exited", "exited", "exited"]
    assert outcomes(seen)["head"][0] is Outcome.CANCELLED
    assert "keeps its log" in outcomes(seen)["worker1"][1]
    kept = {each.name.rpartition("-")[2]: each.read_text() for each in boot.settings.logs_dir.glob("*.log")}
    assert kept["worker2.log"] == "the last words\n"
    assert kept["head.log"] == "the head's words\n"


async def test_the_first_dead_rank_is_blamed_not_its_consequence(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    # By the clock the worker that lost its peer is first: clocks of nodes differ.
    boot.ends(1, 1, "2026-11-29T18:00:10Z", "Traceback (most recent call last):", PEER_LOST)
    boot.ends(2, 1, "2026-11-29T18:00:12Z", NO_MEMORY)
    seen, error = await boot.watch()
    assert isinstance(error, StepFailed)
    assert (error.node, "the GPU ran out of memory" in error.what) == ("worker2", True)
    assert {each.node for each in seen if isinstance(each, LogLine)} == {"worker2"}
    assert outcomes(seen)["worker1"][0] is Outcome.FAILED
    assert boot.actions == [["stop dsv41-head"], [], []]


async def test_a_rank_that_cannot_be_stopped_does_not_hide_the_cause(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.ends(1, 1, "2026-11-29T18:00:11Z", NO_MEMORY)

    def refused(container: str, timeout: int | None = None) -> None:
        raise docker.errors.APIError("500 Server Error: cannot stop container: tried to kill, no exit event")

    boot.links[0].engine.client.api.stop = refused  # type: ignore[method-assign]
    seen, error = await boot.watch()
    assert isinstance(error, StepFailed)
    assert (error.node, "the GPU ran out of memory" in error.what) == ("worker1", True)
    assert any("dsv41-head could not be stopped" in each.text for each in notes(seen, "head"))
    assert boot.actions[2] == ["stop dsv41-worker"]


async def test_two_causes_blame_the_rank_that_ended_first(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.ends(0, 1, "2026-11-29T18:00:12Z", NO_MEMORY)
    boot.ends(2, 1, "2026-11-29T18:00:10Z", NO_MEMORY)
    _, error = await boot.watch()
    assert error is not None
    assert error.node == "worker2"


async def test_a_container_that_somebody_removed_ends_the_wait(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    del boot.links[1].engine.containers["dsv41-worker"]
    _, error = await boot.watch()
    assert isinstance(error, StepFailed)
    assert (error.node, "its container was removed" in error.what) == ("worker1", True)


async def test_the_key_is_masked_in_last_lines_and_kept_logs(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.ends(0, 1, "2026-11-29T18:00:10Z", f"server_args=ServerArgs(api_key='{KEY}')", NO_MEMORY)
    seen, error = await boot.watch()
    assert error is not None
    assert KEY not in repr(seen) + repr(error)
    assert [KEY in each.read_text() for each in boot.settings.logs_dir.glob("*.log")] == [False]


async def test_a_node_that_cannot_be_asked_is_named_and_the_others_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_boot, "SILENT_NODE_SECONDS", 0.1)
    boot = Boot(tmp_path)
    boot.links[2].unreachable("no route to 10.0.0.3")
    seen, error = await boot.watch()
    assert isinstance(error, NodeUnreachable)
    assert (error.node, error.exit_status) == ("worker2", 3)
    assert "no route to 10.0.0.3" in error.what
    assert [each.state for each in notes(seen, "worker2")] == [State.UNKNOWN]
    assert boot.actions == [[], [], []]


async def test_a_node_that_answers_again_is_forgiven(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.links[1].unreachable()

    def then(event: Event) -> None:
        if isinstance(event, Note) and event.state is State.UNKNOWN:
            boot.links[1].reachable()
            boot.logs(1, PARALLEL.format(1))
        if isinstance(event, Note) and event.node == "worker1" and "rendezvous" in event.text:
            boot.logs(0, READY)

    _, error = await boot.watch(then)
    assert error is None


async def test_a_boot_that_is_too_late_names_the_rank_that_is_behind(tmp_path: Path) -> None:
    boot = Boot(tmp_path)
    boot.logs(0, PARALLEL.format(0), "[2026-09-11 23:34:05 TP0] sglang is using nccl==2.28.3")
    boot.logs(1, PARALLEL.format(1), "[2026-09-11 23:34:05 TP1] sglang is using nccl==2.28.3")
    boot.logs(2, PARALLEL.format(2))
    clock, awaited = Clock(), {"rank 0: NCCL", "rank 1: NCCL", "rank 2: rendezvous"}

    def then(event: Event) -> None:
        if isinstance(event, Note):
            awaited.difference_update({each for each in awaited if event.text.startswith(each)})
        if not awaited:
            clock.ahead_seconds = boot.settings.ready_seconds + 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve_boot, "time", clock)
        _, error = await boot.watch(then)
    assert isinstance(error, StepFailed)
    assert error.node == "worker2"
    assert "rank 2 is at rendezvous" in error.what
    assert "Init parallel begin." in error.what
    assert "READY_TIMEOUT" in error.fix


class Clock:
    """The time module, as far as the watch uses it, that can be put forward."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        import time

        return time.monotonic() + self.ahead_seconds
