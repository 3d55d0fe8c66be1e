"""The real server on two ranks, on a machine whose memory the test decides: short of it, every request ends by name."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.looping import HELLO
from tests.engine.serving import MODEL, OVERLAY, Serving, serving
from tests.engine.v41 import bench

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]
FLOOR = 1536
PLENTY, BETWEEN, LOW = 8000, 1700, 800
MOUNT = 'mount --bind "$1" /proc/meminfo && shift && exec "$@"'
RECORDER = """
import torch
def recorded():
    print("recorded: empty_cache", flush=True)
torch.cuda.empty_cache = recorded
"""
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/generate")


@dataclass(frozen=True)
class Machine:
    """The server, and the file that its processes read as /proc/meminfo."""

    server: Serving
    meminfo: Path

    def set_available(self, mib: int) -> None:
        text = self.meminfo.read_text()
        line = f"MemAvailable: {mib * 1024:12d} kB"
        with self.meminfo.open("r+") as file:  # the same file, and no shorter: it is mounted
            file.write(re.sub(r"MemAvailable: .{12} kB", line, text))

    def said(self, text: str, since: int = 0, count: int = 1) -> str:
        """The log from `since` on, once `text` stands in it so often."""
        return self.until(lambda: found if (found := self.server.text()[since:]).count(text) >= count else "", text)

    def until(self, ask: Callable[[], str], what: str) -> str:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if found := ask():
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what!r} did not come: {self.server.text()[-3000:]}")


@pytest.fixture(scope="module")
def machine(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("memory")
    meminfo = folder / "meminfo"
    kept = [line for line in Path("/proc/meminfo").read_text().splitlines() if not line.startswith("MemAvailable")]
    meminfo.write_text("\n".join([f"MemAvailable: {PLENTY * 1024:12d} kB", *kept, ""]))
    before = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", str(meminfo)]
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace may be made here")
    (folder / "sitecustomize.py").write_text(RECORDER)
    settings = {"DSV41_MEMGUARD_MIB": str(FLOOR), "DSV41_LOOP_ABORT": "0", "PREFILL_EMPTY_CACHE_TOKENS": "2000"}
    settings["PYTHONPATH"] = f"{folder}:{OVERLAY}"
    with serving("plugin", tiny_model, folder, ranks=2, before=before, **settings) as server:
        yield Machine(server, meminfo)


@pytest.fixture
def short(machine: Machine) -> Iterator[Machine]:
    """The same machine, with its memory back afterwards."""
    since = len(machine.server.text())
    yield machine
    machine.set_available(PLENTY)
    machine.said("requests are taken again", since)


def endless(path: str) -> dict[str, Any]:
    """A request that runs for minutes."""
    common = {"model": MODEL, "max_tokens": 4000, "ignore_eos": True}
    if path == "/v1/messages":
        return {"model": MODEL, "messages": HELLO, "max_tokens": 4000}
    if path == "/v1/responses":
        return {"model": MODEL, "input": "hello", "max_output_tokens": 4000, "ignore_eos": True}
    if path == "/v1/completions":
        return {"prompt": "ab", **common}
    if path == "/generate":
        return {"text": "ab", "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True}}
    return {"messages": HELLO, **common}


def prompt(tokens: int) -> dict[str, Any]:
    ids = [300 + (7 * number) % 200 for number in range(tokens)]
    return {"input_ids": ids, "sampling_params": {"max_new_tokens": 3, "ignore_eos": True}}


def post(machine: Machine, path: str, body: dict[str, Any]) -> httpx.Response:
    return machine.server.client.post(path, json=body)


def test_running_requests_end_with_the_named_error_on_every_route(short: Machine) -> None:
    since = len(short.server.text())
    with ThreadPoolExecutor(len(PATHS)) as pool:
        asked = {path: pool.submit(post, short, path, endless(path)) for path in PATHS}
        short.said("Decode batch", since, 2)
        short.set_available(LOW)
        answers = {path: each.result() for path, each in asked.items()}
    for path, answer in answers.items():
        assert answer.status_code == 503, (path, answer.text)
        assert "memory_guard: the head had 800 MiB of memory left, DSV41_MEMGUARD_MIB is 1536" in answer.text, path
        assert answer.headers.get("x-should-retry") == (None if path == "/generate" else "false"), path
    line = re.search(r"^\[spark\] WARNING memory_guard: .*$", short.server.text()[since:], re.MULTILINE)
    assert line and re.search(r"\((\d) running, (\d) waiting\)$", line[0])


def test_a_stream_ends_with_the_named_error(short: Machine) -> None:
    events: list[Any] = []
    body = endless("/v1/chat/completions") | {"stream": True}
    with short.server.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
                short.set_available(LOW)
    errors = [event["error"] for event in events if "error" in event]
    assert [error["code"] for error in errors] == [503]
    assert errors[0]["message"].startswith("memory_guard: ")
    assert len(events) > 1, "what was sent before stays sent"


def test_prompts_that_are_still_read_or_wait_end_with_it_too(short: Machine) -> None:
    since = len(short.server.text())
    with ThreadPoolExecutor(8) as pool:
        asked: list[Future[httpx.Response]] = [pool.submit(post, short, "/generate", prompt(7900)) for _ in range(8)]
        short.said("Prefill batch", since)
        short.set_available(LOW)
        answers = [each.result() for each in asked]
    named = [answer for answer in answers if answer.status_code == 503 and "memory_guard: " in answer.text]
    whole = [each for each in answers if each.status_code == 200 and each.json()["meta_info"]["completion_tokens"] == 3]
    assert len(named) + len(whole) == 8, [answer.text[:300] for answer in answers]
    assert len(named) >= 4


def test_while_memory_is_short_requests_are_refused_and_afterwards_taken_again(machine: Machine) -> None:
    since = len(machine.server.text())
    machine.set_available(LOW)
    machine.said("WARNING memory_guard: ", since)
    assert post(machine, "/generate", prompt(30)).status_code == 503
    grammar = endless("/v1/chat/completions") | {"regex": "[a-z]{40}[0-9]{41}"}
    refused = post(machine, "/v1/chat/completions", grammar)
    assert (refused.status_code, "memory_guard: " in refused.text) == (503, True), refused.text
    assert machine.server.client.get("/health").status_code == 200
    text = machine.server.client.get("/metrics").text
    assert re.search(r"^spark_memory_guard_low(\{.*\})? 1\.0$", text, re.MULTILINE)
    trips = re.search(r"^spark_memory_guard_trips_total(?:\{.*\})? ([0-9.]+)$", text, re.MULTILINE)
    assert trips and float(trips[1]) == machine.server.text().count("WARNING memory_guard: ")

    machine.set_available(BETWEEN)
    assert post(machine, "/generate", prompt(30)).status_code == 503, "above the floor, and not above its ease"
    machine.set_available(PLENTY)
    machine.said("[spark] memory_guard: 8000 MiB available: requests are taken again", since)
    answer = post(machine, "/generate", prompt(30))
    assert (answer.status_code, answer.json()["meta_info"]["completion_tokens"]) == (200, 3)
    text = machine.server.client.get("/metrics").text
    assert re.search(r"^spark_memory_guard_low(\{.*\})? 0\.0$", text, re.MULTILINE)


@pytest.mark.parametrize(("tokens", "chunks"), [(1900, 0), (2100, 1), (4000, 4)])
def test_unused_memory_is_given_back_after_each_chunk_beyond_the_setting(
    machine: Machine, tokens: int, chunks: int
) -> None:
    """Chunks of 768 end at 768, 1536, 2304, 3072, 3840; both ranks do the same."""
    post(machine, "/flush_cache", {})
    since = len(machine.server.text())
    body = prompt(tokens) | {"sampling_params": {"max_new_tokens": 12, "ignore_eos": True}}
    assert post(machine, "/generate", body).status_code == 200
    assert machine.server.text()[since:].count("recorded: empty_cache") == 2 * chunks


@pytest.fixture(scope="module")
def cases(tiny_model: Path) -> dict[str, Any]:
    return bench.answer(["tests.engine.memory_cases"], 300)


def test_the_engine_scores_a_chunk_in_blocks_of_the_budget_each_row_once(cases: Any) -> None:
    found = cases["scores"]
    assert found["without"] == {"rows": [4096], "mib": 1024, "each row once": True}
    assert found["with 16"] == {"rows": [64] * 64, "mib": 16, "each row once": True}


def test_scores_and_chosen_positions_are_the_same_in_smaller_blocks(cases: Any) -> None:
    found = cases["scores"]["torch"]
    assert (len(found["without"]), sum(found["without"])) == (1, 512)
    assert (len(found["with 16"]), sum(found["with 16"])) == (8, 512)
    assert found["largest difference"] <= 1e-4 and found["same positions"]


def test_only_steps_of_a_long_prompt_give_memory_back_and_none_in_a_capture(cases: Any) -> None:
    given = {name for name, count in cases["steps"].items() if count}
    assert given == {"a long prompt", "with decodes"}
