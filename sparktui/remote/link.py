"""The seam to a node: what every step may ask of it, whoever answers (ssh, this machine, a script, the demo)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import docker

    from sparktui.cluster.node import Node

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended.

    Attributes:
        stdout: what the payload printed, login banners removed.
        stderr: its standard error, known ssh chatter removed.
        noise_lines: how many lines the login printed around the payload.
    """

    argv: tuple[str, ...]
    exit_status: int
    stdout: str
    stderr: str
    noise_lines: int = 0

    @property
    def ok(self) -> bool:
        return self.exit_status == 0


class DockerEngine(Protocol):
    """A node's Docker Engine. SDK calls run in a thread, each with a deadline, never on the event loop."""

    async def call(self, work: Callable[[docker.DockerClient], T], *, deadline_seconds: float) -> T:
        """Run `work(client)` in a thread.

        Raises:
            DockerUnavailable: socket absent or not permitted (the text says which).
            DeadlineExceeded: no answer in time.
            docker.errors.APIError: the Engine's own refusal, untouched.
        """
        ...

    async def inspected(self, container: str) -> dict[str, Any] | None:
        """What `docker inspect` says, without the SDK and without a thread; None where there is no such container.

        Raises:
            DockerUnavailable, DeadlineExceeded: as `call`.
        """
        ...

    def lines(
        self, container: str, *, since_seconds: float | None, tail: int | None, follow: bool
    ) -> AsyncIterator[str]:
        """The container's log lines (stdout and stderr), as an async stream that holds no thread."""
        ...


@runtime_checkable
class NodeLink(Protocol):
    """A connection to one node. All calls raise NodeUnreachable when it is gone, DeadlineExceeded when it is slow."""

    node: Node

    async def run(self, argv: Sequence[str], *, deadline_seconds: float, stdin: bytes = b"") -> Completed:
        """Run one command by argv (quoted once, here); a non-zero status is a result, not an error.

        Here and in the calls below the command sees LC_ALL=C, DOCKER_HOST = the node's system socket, the sbin
        folders on PATH; what it leaves in the background ends with it.
        """
        ...

    async def script(self, text: str, *, deadline_seconds: float, values: Mapping[str, str] | None = None) -> Completed:
        """Run a POSIX sh script: sent on stdin to an explicit /bin/sh, payload between random markers.

        `values` become shell variables by quoted assignment; nothing else of them reaches the shell.
        """
        ...

    def lines(self, argv: Sequence[str]) -> AsyncIterator[str]:
        """Follow a command's output; closing the iterator ends the command on the node."""
        ...

    def pipe(self, argv: Sequence[str]) -> AbstractAsyncContextManager[Any]:
        """A running command for bulk: `stdin.write(bytes)`, `stdin.drain()`, `stdin.write_eof()`, `stdout.read(n)`,
        `wait()` -> Completed (with the end of its stderr).

        Only its closed pipes end it, so use it for what reads stdin or writes stdout (docker load, docker save).
        """
        ...

    async def read_file(self, path: str, *, deadline_seconds: float) -> bytes | None:
        """A file's bytes, or None when it does not exist."""
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int, deadline_seconds: float) -> None:
        """Write beside, fsync, rename; parent folders are made; `mode` holds from the first byte on."""
        ...

    async def docker(self) -> DockerEngine:
        """The node's Docker Engine, opened on first use."""
        ...

    async def aclose(self) -> None: ...
