"""What the endpoint's own numbers mean, and its states on the way up and down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparktui.remote import scrape
from sparktui.telemetry import serving as module
from sparktui.telemetry.sample import EndpointState
from sparktui.telemetry.serving import Endpoint, ServingMeter
from tests.telemetry.watched import Clock

KEY = "a-long-secret-key"


def metrics(
    decode: int | None = None,
    *,
    running: int = 1,
    queued: int = 0,
    start: float = 5.0,
    ttft: tuple[float, int] = (0, 0),
) -> str:
    lines = [
        f"process_start_time_seconds {start}",
        f'sglang:num_running_reqs{{tp_rank="0"}} {running}.0',
        f'sglang:num_running_reqs{{tp_rank="1"}} {running}.0',
        f'sglang:num_queue_reqs{{tp_rank="0"}} {queued}.0',
        'sglang:gen_throughput{tp_rank="0"} 51.0',
        'sglang:full_token_usage{tp_rank="0"} 0.25',
        'sglang:spec_accept_length{tp_rank="0"} 3.02',
        f"sglang:time_to_first_token_seconds_sum {ttft[0]}",
        f"sglang:time_to_first_token_seconds_count {ttft[1]}",
    ]
    if decode is not None:
        lines.append(f'sglang:realtime_tokens_total{{mode="decode",tp_rank="0"}} {decode}.0')
        lines.append('sglang:realtime_tokens_total{mode="prefill_compute",tp_rank="0"} 100.0')
    return "\n".join(lines) + "\n"


def test_live_decode_speed_is_the_growth_of_the_live_counter() -> None:
    meter = ServingMeter()
    first = meter.take(metrics(1000), 10.0)
    assert first.decode_tokens_per_second is None, "one look gives no rate"
    found = meter.take(metrics(1120, queued=2), 12.0)
    assert (found.decode_tokens_per_second, found.prefill_tokens_per_second) == (60.0, 0.0)
    assert (found.running_requests, found.queued_requests, found.kv_used_fraction) == (1, 2, 0.25)
    assert found.accept_length == 3.02


def test_steps_of_the_counter_do_not_show_as_zero_and_double() -> None:
    """It moves every 2.4 s: looks in between see no growth at all."""
    meter, shown = ServingMeter(), []
    for tick in range(30):
        at = tick * 2.0
        shown.append(meter.take(metrics(int(at / 2.4) * 120), at).decode_tokens_per_second)
    assert all(value is not None and 40 < value < 60 for value in shown[8:]), shown


def test_idle_is_zero_whatever_the_sticky_gauge_says_and_the_next_request_is_not_averaged_with_it() -> None:
    meter = ServingMeter()
    for tick in range(10):
        found = meter.take(metrics(1000, running=0), tick * 3.0)
        assert found.decode_tokens_per_second == 0.0
    assert meter.take(metrics(1150), 30.0).decode_tokens_per_second == 50.0


def test_an_older_engine_without_the_counter_gives_its_gauge() -> None:
    assert ServingMeter().take(metrics(None), 1.0).decode_tokens_per_second == 51.0
    assert ServingMeter().take(metrics(None, running=0), 1.0).decode_tokens_per_second == 0.0


def test_the_memory_guards_meters_are_read_and_an_engine_without_them_says_nothing() -> None:
    text = metrics(1000) + "spark_memory_guard_low 1.0\nspark_memory_guard_trips_total 3.0\n"
    found = ServingMeter().take(text, 1.0)
    assert (found.memory_guard_low, found.memory_guard_trips) == (True, 3)
    found = ServingMeter().take(metrics(1000), 1.0)
    assert (found.memory_guard_low, found.memory_guard_trips) == (None, None)


def test_a_server_that_was_started_anew_has_no_rate_across_it() -> None:
    meter = ServingMeter()
    meter.take(metrics(1000), 0.0)
    assert meter.take(metrics(5000, start=9.0), 3.0).decode_tokens_per_second is None


def test_time_to_first_token_is_of_the_requests_in_between() -> None:
    meter = ServingMeter()
    assert meter.take(metrics(1, ttft=(90.0, 300)), 0.0).ttft_seconds is None
    assert meter.take(metrics(2, ttft=(90.0, 300)), 3.0).ttft_seconds is None
    assert meter.take(metrics(3, ttft=(91.0, 304)), 6.0).ttft_seconds == 0.25


def test_captured_texts(shared_data: Path) -> None:
    folder = shared_data / "spark/sglang"
    meter = ServingMeter()
    meter.take((folder / "metrics.tp3-running.t0.constructed.prom").read_text(), 0.0)
    found = meter.take((folder / "metrics.tp3-running.t2s.constructed.prom").read_text(), 2.0)
    assert (found.decode_tokens_per_second, found.kv_used_fraction) == (60.0, 0.0058)
    idle = ServingMeter().take((folder / "metrics.tp3-idle-sticky.constructed.prom").read_text(), 0.0)
    assert (idle.running_requests, idle.decode_tokens_per_second) == (0, 0.0)
    old = ServingMeter().take((folder / "metrics.docs-old-labels.trimmed.prom").read_text(), 0.0)
    assert (old.running_requests, old.queued_requests) == (162, 2826)


class Server:
    """An endpoint that answers what a test says; `asked` is what came."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, str]] = {
            "/v1/models": (200, json.dumps({"data": [{"id": "deepseek-v4.1-flash"}]})),
            "/health": (200, ""),
            "/metrics": (200, metrics(1000)),
        }
        self.silent = False
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(request)
        if self.silent:
            await asyncio.sleep(3600)
        status, text = self.answers[request.split()[1]]
        half = len(text) // 2
        body = "".join(f"{len(part):x}\r\n{part}\r\n" for part in (text[:half], text[half:]) if part)
        writer.write(f"HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def listening() -> AsyncIterator[Server]:
    server = Server()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(server.handle(reader, writer)))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()


async def test_ready_and_the_key_is_sent_in_the_header_only() -> None:
    async with listening() as server:
        endpoint = Endpoint(server.url, api_key=KEY, model="deepseek-v4.1-flash", clock=Clock())
        found = await endpoint.look()
        assert (found.state, found.problem, found.models) == (EndpointState.READY, "", ("deepseek-v4.1-flash",))
        assert found.running_requests == 1 and found.was_ready
        assert all(f"Authorization: Bearer {KEY}\r\n" in request for request in server.asked)
        assert KEY not in repr(found)
        await endpoint.look()
    paths = [request.split()[1] for request in server.asked]
    assert paths == ["/v1/models", "/health", "/metrics", "/metrics"], "/health may cost a token: once is enough"


async def test_on_the_way_up_and_down() -> None:
    async with listening() as server:
        clock = Clock()
        endpoint = Endpoint(server.url, clock=clock)
        server.answers["/health"] = (503, "")
        assert (await endpoint.look()).state is EndpointState.STARTING
        server.answers["/health"] = (200, "")
        assert (await endpoint.look()).state is EndpointState.READY
        server.answers["/metrics"] = (404, '{"detail":"Not Found"}')
        found = await endpoint.look()
        assert found.state is EndpointState.READY and "no metrics" in found.problem
        assert found.running_requests is None, "unknown, not zero"
        url = server.url
    found = await endpoint.look()
    assert (found.state, found.was_ready) == (EndpointState.DOWN, True)
    assert found.problem == f"nothing listens at {url}"
    clock.now += 300.0
    assert not (await endpoint.look()).was_ready, "it was stopped, one may think by now"
    endpoint.engine_running = True
    assert (await endpoint.look()).state is EndpointState.STARTING


async def test_another_program_and_a_refused_key() -> None:
    async with listening() as server:
        endpoint = Endpoint(server.url, model="something-else", clock=Clock())
        found = await endpoint.look()
        assert found.state is EndpointState.UNKNOWN and "it serves deepseek-v4.1-flash" in found.problem
        server.answers["/v1/models"] = (401, "")
        assert "refuses the API key" in (await endpoint.look()).problem


async def test_t5_an_endpoint_that_hangs_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.05)
    async with listening() as server:
        endpoint = Endpoint(server.url, clock=Clock())
        server.silent = True
        found = await endpoint.look()
    assert found.state is EndpointState.UNKNOWN
    assert "a rank may be gone while it still listens" in found.problem


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi and more", (200, "hi")),
        (b"HTTP/1.0 503 No\r\n\r\nall of it", (503, "all of it")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\ncut", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n", (200, "abcde")),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nab\r\n0\r\n\r\n", None),
        (b"SSH-2.0-OpenSSH_9.2\r\n", None),
        (b"", None),
    ],
)
def test_answers(raw: bytes, expected: tuple[int, str] | None) -> None:
    found = scrape.parse_answer(raw)
    assert (found and (found.status, found.text)) == expected


async def test_an_endpoint_that_says_nonsense_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    async with listening() as server:
        endpoint = Endpoint(server.url, clock=Clock())
        server.answers["/v1/models"] = (200, "<html>")
        task = asyncio.create_task(endpoint.run())
        try:
            await _until(lambda: len(server.asked) > 3)
            assert endpoint.latest.state is EndpointState.STARTING
            server.answers["/v1/models"] = (200, '{"data": []}')
            await _until(lambda: endpoint.latest.state is EndpointState.READY)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - nothing tells when the server was asked
            await asyncio.sleep(0.01)
