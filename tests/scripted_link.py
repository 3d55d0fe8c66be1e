"""A node that answers from a script: what a step asked is recorded, what it is told is chosen by pattern.

    link = ScriptedLink("worker1")
    link.answer(r"nvidia-smi", stdout="NVIDIA GB10\\n")          # matched against the argv or the script's text
    link.answer(r"id -Gn", exit_status=1, stderr="no")
    link.unreachable("no route to 10.0.0.2")                     # from now on every call raises NodeUnreachable
    link.engine.add_image("sparktui:1", labels={...}); link.engine.containers["dsv41-head"].status = "exited"
    assert link.asked == [...]; assert link.files["/x/y"].data == b"…"

A question nobody prepared an answer for raises AssertionError with the question: no test passes on a silent default.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparktui.cluster.node import Node
from sparktui.errors import DeadlineExceeded, NodeUnreachable
from sparktui.remote.link import Completed
from tests.memory_engine import MemoryEngine

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of a step. `kind` is run, script, lines, pipe, read, write or docker."""

    kind: str
    text: str
    argv: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    deadline_seconds: float | None = None


@dataclass(slots=True)
class StoredFile:
    data: bytes
    mode: int


@dataclass(slots=True)
class _Answer:
    pattern: re.Pattern[str]
    stdout: str | Callable[[Asked], str]
    stderr: str
    exit_status: int
    times: int | None
    error: Exception | None


class ScriptedPipe:
    """A bulk command of a scripted node: what was written is kept, what it prints is given."""

    def __init__(self, argv: tuple[str, ...], answer: Completed) -> None:
        self.argv, self.stdin, self.written, self.closed = argv, self, bytearray(), False
        self.stdout = self
        self._answer, self._left = answer, answer.stdout.encode()

    def write(self, data: bytes) -> None:
        self.written.extend(data)

    async def drain(self) -> None: ...

    def write_eof(self) -> None:
        self.closed = True

    async def read(self, n: int = 65536) -> bytes:
        part, self._left = self._left[:n], self._left[n:]
        return part

    async def wait(self) -> Completed:
        return self._answer


class ScriptedLink:
    """Implements NodeLink (and connects to nothing)."""

    def __init__(self, node: Node | str = "head", *, rank: int | None = None) -> None:
        if isinstance(node, str):
            rank = rank if rank is not None else (0 if node == "head" else int(node.removeprefix("worker")))
            node = Node(node, rank, f"10.0.0.{rank + 1}", ssh_host="" if rank == 0 else f"spark{rank + 1}")
        self.node = node
        self.asked: list[Asked] = []
        self.files: dict[str, StoredFile] = {}
        self.engine = MemoryEngine(node.name)
        self.pipes: list[ScriptedPipe] = []
        self.closed = False
        self._answers: list[_Answer] = []
        self._gone: Exception | None = None

    # -- preparing ----------------------------------------------------------------------------------------------

    def answer(
        self,
        pattern: str,
        stdout: str | Callable[[Asked], str] = "",
        *,
        stderr: str = "",
        exit_status: int = 0,
        times: int | None = None,
        error: Exception | None = None,
    ) -> None:
        """Answer what matches (`re.search`, dot matches line breaks). A later answer wins; `times` lets it run out."""
        self._answers.insert(0, _Answer(re.compile(pattern, re.DOTALL), stdout, stderr, exit_status, times, error))

    def unreachable(self, what: str = "connection refused", *, fix: str = "is it on?") -> None:
        self._gone = NodeUnreachable(what, fix=fix, node=self.node.name)

    def silent(self) -> None:
        """From now on every call runs into its deadline (without waiting for it)."""
        self._gone = DeadlineExceeded("no answer", node=self.node.name)

    def reachable(self) -> None:
        self._gone = None

    def put_file(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        self.files[path] = StoredFile(data.encode() if isinstance(data, str) else data, mode)

    @property
    def commands(self) -> list[str]:
        """Text of every run, script, lines and pipe, in order."""
        return [each.text for each in self.asked if each.kind in ("run", "script", "lines", "pipe")]

    # -- NodeLink -----------------------------------------------------------------------------------------------

    async def run(self, argv: Sequence[str], *, deadline_seconds: float, stdin: bytes = b"") -> Completed:
        words = tuple(argv)
        return self._reply(Asked("run", shlex.join(words), words, {}, stdin, deadline_seconds))

    async def script(self, text: str, *, deadline_seconds: float, values: Mapping[str, str] | None = None) -> Completed:
        return self._reply(Asked("script", text, ("/bin/sh",), dict(values or {}), b"", deadline_seconds))

    async def lines(self, argv: Sequence[str]) -> AsyncIterator[str]:
        words = tuple(argv)
        for line in self._reply(Asked("lines", shlex.join(words), words)).stdout.splitlines():
            await asyncio.sleep(0)
            yield line

    @asynccontextmanager
    async def pipe(self, argv: Sequence[str]) -> AsyncIterator[ScriptedPipe]:
        words = tuple(argv)
        pipe = ScriptedPipe(words, self._reply(Asked("pipe", shlex.join(words), words)))
        self.pipes.append(pipe)
        yield pipe

    async def read_file(self, path: str, *, deadline_seconds: float) -> bytes | None:
        self._note(Asked("read", path, deadline_seconds=deadline_seconds))
        stored = self.files.get(path)
        return stored.data if stored else None

    async def write_file(self, path: str, data: bytes, *, mode: int, deadline_seconds: float) -> None:
        self._note(Asked("write", path, stdin=data, deadline_seconds=deadline_seconds))
        self.files[path] = StoredFile(data, mode)

    async def docker(self) -> ScriptedEngine:
        if self._gone:
            raise self._gone
        return ScriptedEngine(self)

    async def aclose(self) -> None:
        self.closed = True

    # -- inside -------------------------------------------------------------------------------------------------

    def _note(self, asked: Asked) -> None:
        self.asked.append(asked)
        if self._gone:
            raise self._gone

    def _reply(self, asked: Asked) -> Completed:
        self._note(asked)
        for each in self._answers:
            if each.times != 0 and each.pattern.search(asked.text):
                if each.times is not None:
                    each.times -= 1
                if each.error is not None:
                    raise each.error
                out = each.stdout(asked) if callable(each.stdout) else each.stdout
                return Completed(asked.argv, each.exit_status, out, each.stderr)
        raise AssertionError(f"{self.node.name} was asked without an answer prepared: {asked.text}")


class ScriptedEngine:
    """The DockerEngine of a scripted node: `work` gets the in-memory client."""

    def __init__(self, link: ScriptedLink) -> None:
        self._link = link
        self.node = link.node

    async def call(self, work: Callable[[Any], T], *, deadline_seconds: float) -> T:
        self._link._note(Asked("docker", getattr(work, "__name__", "work"), deadline_seconds=deadline_seconds))
        await asyncio.sleep(0)
        if self._link.engine.broken is not None:
            raise self._link.engine.broken
        return work(self._link.engine.client)

    async def inspected(self, container: str) -> dict[str, Any] | None:
        self._link._note(Asked("docker", f"inspect {container}"))
        await asyncio.sleep(0)
        if self._link.engine.broken is not None:
            raise self._link.engine.broken
        return next((each.attrs for each in self._link.engine.containers.values() if each.name == container), None)

    async def lines(
        self, container: str, *, since_seconds: float | None, tail: int | None, follow: bool
    ) -> AsyncIterator[str]:
        self._link._note(Asked("docker", f"logs {container}"))
        text = list(self._link.engine.found(container).log)
        for line in text[-tail:] if tail is not None else text:
            await asyncio.sleep(0)
            yield line


def scripted_cluster(count: int = 3) -> tuple[ScriptedLink, ...]:
    """Links of a cluster, head first."""
    return tuple(ScriptedLink("head" if rank == 0 else f"worker{rank}") for rank in range(count))
