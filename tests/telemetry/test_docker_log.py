"""A container's log by many lines at a time: frames, stamps, and what the Engine refuses."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.errors import DockerUnavailable
from sparktui.remote import docker_log
from sparktui.remote.docker_log import just_after, log_parts, stamp_of, unframe


def framed(text: str, stream: int = 1) -> bytes:
    data = text.encode()
    return struct.pack(">BxxxL", stream, len(data)) + data


class Engine:
    def __init__(self, *, tty: bool = False) -> None:
        self.tty, self.log, self.queries = tty, b"", list[dict[str, list[str]]]()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words = (await reader.readuntil(b"\r\n\r\n")).decode().split()
        url = urlsplit(words[1])
        if "gone" in url.path:
            writer.write(b"HTTP/1.0 404 Not Found\r\n\r\n{}")
        elif url.path.endswith("/json"):
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps({"Config": {"Tty": self.tty}}).encode())
        else:
            self.queries.append(parse_qs(url.query))
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: x\r\n\r\n" + self.log)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def listening(folder: Path, engine: Engine) -> AsyncIterator[str]:
    path = str(folder / "docker.sock")
    server = await asyncio.start_unix_server(engine.handle, path)
    try:
        yield path
    finally:
        server.close()


STAMP = "2026-11-29T18:00:11.123456789Z"


async def test_lines_lose_frames_and_stamps_and_the_last_moment_is_known(tmp_path: Path) -> None:
    engine = Engine()
    engine.log = (
        framed(f"{STAMP} one\r\n")
        + framed("2026-11-29T18:00:11.000000001Z tw", 2)
        + framed("o\n")
        + framed(f"{STAMP} end")
    )
    async with listening(tmp_path, engine) as socket:
        parts = [p async for p in log_parts(socket, "c", tail=7, follow=True, node="head")]
    assert [line for part in parts for line in part.lines] == ["one", "two", "end"]
    assert parts[-1].until == STAMP
    assert engine.queries == [{"stdout": ["1"], "stderr": ["1"], "timestamps": ["1"], "follow": ["1"], "tail": ["7"]}]


async def test_a_line_of_the_other_stream_that_comes_late_does_not_turn_the_time_back(tmp_path: Path) -> None:
    engine = Engine()
    engine.log = framed(f"{STAMP} out\n") + framed("2026-11-29T18:00:11.000000005Z err\n", 2)
    async with listening(tmp_path, engine) as socket:
        parts = [p async for p in log_parts(socket, "c", tail=None, follow=False, node="head")]
    assert [line for part in parts for line in part.lines] == ["out", "err"]
    assert parts[-1].until == STAMP


async def test_after_asks_for_what_came_later(tmp_path: Path) -> None:
    engine = Engine()
    async with listening(tmp_path, engine) as socket:
        assert [p async for p in log_parts(socket, "c", after=STAMP, tail=None, follow=False, node="head")] == []
    assert engine.queries[0]["since"] == ["1795975211.123456790"]


async def test_a_terminals_log_has_no_frames(tmp_path: Path) -> None:
    engine = Engine(tty=True)
    engine.log = f"{STAMP} plain\r\n".encode()
    async with listening(tmp_path, engine) as socket:
        parts = [p async for p in log_parts(socket, "c", tail=None, follow=False, node="head")]
    assert parts[0].lines == ["plain"]


async def test_no_such_container_and_no_engine(tmp_path: Path) -> None:
    async with listening(tmp_path, Engine()) as socket:
        with pytest.raises(DockerUnavailable, match="there is no container gone"):
            await anext(log_parts(socket, "gone", tail=None, follow=False, node="head"))
    with pytest.raises(OSError):
        await anext(log_parts(str(tmp_path / "absent"), "c", tail=None, follow=False, node="head"))


async def test_a_line_without_an_end_is_cut_not_kept_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_log, "_LONGEST_BYTES", 100)
    engine = Engine()
    engine.log = framed("x" * 1000)
    async with listening(tmp_path, engine) as socket:
        parts = [p async for p in log_parts(socket, "c", tail=None, follow=False, node="head")]
    assert "".join(line for part in parts for line in part.lines) == "x" * 1000


def test_stamps() -> None:
    assert stamp_of(b"2026-11-29T18:00:12Z text") == "2026-11-29T18:00:12Z"
    assert stamp_of(b"[2026-11-29 18:00:12] text") is None
    assert just_after("2026-11-29T18:00:11.999999999Z") == "1795975212.000000000"
    assert just_after("nonsense") is None


@given(st.lists(st.binary(max_size=40)), st.integers(0, 60))
def test_frames_may_be_cut_anywhere(payloads: list[bytes], cut: int) -> None:
    data = b"".join(struct.pack(">BxxxL", 1, len(each)) + each for each in payloads)
    first, held = unframe(data[:cut])
    second, left = unframe(held + data[cut:])
    assert (first + second, left) == (b"".join(payloads), b"")
