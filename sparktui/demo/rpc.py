"""What a link asks of the simulated cluster: one JSON line a connection, answered by one line or a stream."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sparktui.demo import scripts
from sparktui.demo.faults import OFF, SLOW
from sparktui.demo.hub import hub_events
from sparktui.demo.images import image_in, load
from sparktui.demo.machine import Machine
from sparktui.demo.memory import meminfo_text, memory_of
from sparktui.demo.scripts import UnknownOnDemo
from sparktui.demo.stamp import STAMP
from sparktui.demo.streams import CommandEnded, NodeGone, command_lines

if TYPE_CHECKING:
    from sparktui.demo.world import World

UNREACHABLE, UNKNOWN = "unreachable", "unknown"
_ANSWER_SECONDS = 0.12
"""A login and a script take a moment."""
_OFF_SECONDS = 1.0
_SLOW_SECONDS = 1.8


class Host(Protocol):
    """What an answer needs of the process."""

    leaving: asyncio.Event

    async def engine_of(self, name: str) -> None: ...


async def answer(host: Host, world: World, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, one call."""

    def send(plain: dict[str, Any]) -> None:
        writer.write(json.dumps(plain).encode() + b"\n")

    try:
        line = await reader.readline()
        if not line:
            return
        call = json.loads(line)
        working = asyncio.create_task(_work(host, world, call, send, writer))
        # The other side's end of file ends a stream: nothing goes on for somebody who has left.
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, gone):
                task.cancel()
            await asyncio.gather(working, gone, return_exceptions=True)
    except (ConnectionError, ValueError, asyncio.LimitOverrunError):
        return
    finally:
        writer.close()
        with contextlib.suppress(Exception):
            await writer.wait_closed()


async def _work(host: Host, world: World, call: dict[str, Any], send: Any, writer: asyncio.StreamWriter) -> None:
    kind = str(call.get("call"))
    try:
        if kind in _STREAMS:
            machine = await _reached(world, str(call["node"]))
            status, stderr = 0, ""
            try:
                async for line in _STREAMS[kind](world, machine, call):
                    send({"line": line})
                    await writer.drain()
            except CommandEnded as ended:
                status, stderr = ended.status, ended.stderr
            send({"end": status, "stderr": stderr})
        elif kind == "hello":
            send({"value": {"stamp": STAMP}})
        elif kind == "leave":
            send({"value": None})
            host.leaving.set()
        elif kind == "configure":
            if call["config"] != world.config:
                world.config = dict(call["config"])
                world.save()
            for node in world.config.get("nodes", []):
                await host.engine_of(str(node["name"]))
            send({"value": None})
        else:
            send({"value": await _value(world, kind, call)})
    except (NodeGone, _Off):
        send({"error": UNREACHABLE, "what": ""})
    except UnknownOnDemo as error:
        send({"error": UNKNOWN, "what": str(error)})
    await writer.drain()


class _Off(Exception):
    pass


async def _reached(world: World, name: str) -> Machine:
    faults = world.faults(name)
    if OFF in faults:
        await asyncio.sleep(world.pause(_OFF_SECONDS))
        raise _Off
    await asyncio.sleep(world.pause(_SLOW_SECONDS if SLOW in faults else _ANSWER_SECONDS))
    world.settle()
    return world.machine(name)


async def _value(world: World, kind: str, call: dict[str, Any]) -> Any:
    machine = await _reached(world, str(call["node"]))
    match kind:
        case "alive":
            return True
        case "script":
            return scripts.answer(world, machine, str(call["name"]), call.get("values") or {})
        case "run":
            return scripts.run_answer(world, machine, list(map(str, call["argv"])))
        case "save":
            return machine.image(str(call["reference"]))
        case "load":
            image = call.get("image") or image_in(base64.b64decode(call.get("data") or ""))
            return load(world, machine, image) if image else (1, "it is no image that the simulated cluster knows")
        case "read":
            return _read(world, machine, str(call["path"]))
        case "write":
            return _write(world, machine, call)
    raise UnknownOnDemo(f"the simulated cluster does not know the call {kind}")


def _read(world: World, machine: Machine, path: str) -> str | None:
    if path == "/proc/meminfo":
        return base64.b64encode(meminfo_text(memory_of(world, machine)).encode()).decode()
    if path in machine.files:
        return machine.files[path]
    if not machine.is_head or not world.home.holds(path):
        return None
    try:
        return base64.b64encode(Path(path).read_bytes()).decode()
    except OSError:
        return None


def _write(world: World, machine: Machine, call: dict[str, Any]) -> None:
    path, data, mode = str(call["path"]), str(call["data"]), int(call["mode"])
    if machine.is_head and world.home.holds(path):
        from sparktui.demo.files import write_real

        write_real(Path(path), base64.b64decode(data), mode)
        return
    machine.files[path] = data
    world.save()


def _followed(world: World, machine: Machine, call: dict[str, Any]) -> AsyncIterator[str]:
    return command_lines(world, machine, list(map(str, call["argv"])))


def _hub(world: World, machine: Machine, call: dict[str, Any]) -> AsyncIterator[str]:
    return hub_events(world, dict(call["request"]))


_STREAMS = {"lines": _followed, "hub": _hub}
