"""The sampler's own script on this machine, through the local link: what it prints is what the kernel says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from sparktui.cluster.node import Node
from sparktui.readings.meminfo import parse_meminfo
from sparktui.readings.sampler_stream import Record, SamplerStream
from sparktui.remote.local import LocalLink
from sparktui.telemetry.sampler import sampler_argv


async def records(argv: Sequence[str], count: int) -> list[Record]:
    stream, found = SamplerStream(), list[Record]()
    lines: Any = LocalLink(Node("head", 0, "127.0.0.1")).lines(argv)
    async with asyncio.timeout(60), aclosing(lines):
        async for line in lines:
            record = stream.feed(line)
            if record is not None:
                found.append(record)
            if len(found) == count:
                break
    return found


async def test_two_records_of_this_machine(tmp_path: Path) -> None:
    first, second = await records(sampler_argv((str(tmp_path), "/no/such/folder")), 2)
    told = parse_meminfo(_bytes(Path("/proc/meminfo")).decode())
    assert told is not None and first.memory is not None
    assert first.memory.total_bytes == told.total_bytes
    assert first.memory.available_bytes and first.memory.anon_bytes and first.memory.slab_reclaimable_bytes is not None
    assert first.uptime_seconds and second.uptime_seconds
    assert 0.5 < second.uptime_seconds - first.uptime_seconds < 30
    assert first.cpu_all_ticks and second.cpu_all_ticks and second.cpu_all_ticks > first.cpu_all_ticks
    assert first.ports is not None
    assert first.free_bytes and first.free_bytes > 0
    assert first.swapped_in_pages is not None


async def test_leaving_leaves_nothing_behind() -> None:
    mark = f"/no/such/{id(object())}"
    await records(sampler_argv((mark,)), 1)
    for _ in range(100):
        if not (left := _running(mark)):
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"still there: {left}")


def _running(mark: str) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _bytes(path)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_path_is_no_shell_text(tmp_path: Path) -> None:
    odd = f"{tmp_path}/$(touch {tmp_path}/made)`id`'\" ;"
    argv = sampler_argv((odd,))
    assert argv[-1] == odd and odd not in argv[2]
    asyncio.run(records(argv, 1))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "module", ["sparktui.telemetry.fleet", "sparktui.telemetry.of_settings", "sparktui.telemetry.history"]
)
def test_watching_loads_no_docker_no_http_library_and_no_screen(module: str) -> None:
    heavy = ("docker", "requests", "httpx", "asyncssh", "textual", "huggingface_hub")
    code = f"import {module}, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
