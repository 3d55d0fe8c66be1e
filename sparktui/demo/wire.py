"""The way to the simulated cluster's process: starts it where it does not run, asks it, follows its streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sparktui.demo.home import DemoHome
from sparktui.demo.stamp import STAMP
from sparktui.errors import DeadlineExceeded, SparktuiError

_START_SECONDS = 20.0
_LINE_BYTES = 1 << 26


class Wire:
    """Calls of one demo home; a call is a connection of its own."""

    def __init__(self, home: DemoHome) -> None:
        self._home = home

    async def ask(self, call: str, **fields: Any) -> dict[str, Any]:
        """One call, one answer: `value`, or `error` and `what`."""
        async with self._connected() as (reader, writer):
            await _send(writer, {"call": call, **fields})
            line = await reader.readline()
        if not line:
            raise _lost(self._home)
        answer = json.loads(line)
        return dict(answer)

    async def follow(self, call: str, **fields: Any) -> AsyncIterator[dict[str, Any]]:
        """The lines of a stream, its `end` (or `error`) last."""
        async with self._connected() as (reader, writer):
            await _send(writer, {"call": call, **fields})
            while line := await reader.readline():
                plain = json.loads(line)
                yield plain
                if "line" not in plain:
                    return
        raise _lost(self._home)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        path = str(self._home.rpc_socket)
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_BYTES)
        except OSError:
            await asyncio.to_thread(ensure_running, self._home)
            reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_BYTES)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()


def ensure_running(home: DemoHome) -> None:
    """Start the process unless it answers; one of an older version is asked to leave first. Blocking."""
    home.check()
    until = time.monotonic() + _START_SECONDS
    started: subprocess.Popen[bytes] | None = None
    while time.monotonic() < until:
        said = _hello(home)
        if said == STAMP:
            return
        if said is not None:
            _tell(home, {"call": "leave"})
            time.sleep(0.1)
            continue
        if started is None or started.poll() is not None:
            if started is None:
                home.renew_port()
            started = _spawn(home)
        time.sleep(0.05)
    raise DeadlineExceeded(
        f"the simulated cluster did not start in {_START_SECONDS:.0f} s", fix=f"see {home.root / 'cluster.log'}"
    )


def leave(home: DemoHome) -> None:
    """End the process, where one runs. Blocking."""
    until = time.monotonic() + 5
    while _hello(home) is not None and time.monotonic() < until:
        _tell(home, {"call": "leave"})
        time.sleep(0.05)


def _hello(home: DemoHome) -> str | None:
    answer = _tell(home, {"call": "hello"})
    return None if answer is None else str((answer.get("value") or {}).get("stamp", ""))


def _tell(home: DemoHome, plain: dict[str, Any]) -> dict[str, Any] | None:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
            wire.settimeout(3)
            wire.connect(str(home.rpc_socket))
            wire.sendall(json.dumps(plain).encode() + b"\n")
            answer = json.loads(wire.makefile("rb").readline() or b"{}")
            return answer if isinstance(answer, dict) else {}
    except (OSError, ValueError):
        return None


def _spawn(home: DemoHome) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    source = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [source, environment.get("PYTHONPATH", "")]))
    fd = os.open(home.root / "cluster.log", os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "sparktui.demo.cluster", str(home.root)],
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            env=environment,
            cwd=home.root,
        )
    finally:
        os.close(fd)


async def _send(writer: asyncio.StreamWriter, plain: dict[str, Any]) -> None:
    writer.write(json.dumps(plain).encode() + b"\n")
    await writer.drain()


def _lost(home: DemoHome) -> SparktuiError:
    return SparktuiError(
        "the simulated cluster's process ended in the middle of a call",
        fix=f"run it again: it starts anew; see {home.root / 'cluster.log'}",
    )
