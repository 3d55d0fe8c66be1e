"""Reading a framed script's answer from byte streams; the same for ssh channels and local processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Protocol

from sparktui.errors import RemoteCommandFailed, SparktuiError
from sparktui.remote.link import Completed
from sparktui.remote.posix_script import HEARTBEAT_SECONDS, Unframed, begin_of, end_of, quiet, unframe

_CHUNK_BYTES = 65536
_TAIL_BYTES = 16384
_LONGEST_LINE_BYTES = 65536
_LEFTOVER_SECONDS = 0.5
"""After the end marker the streams close at once, unless the payload left a process that holds them."""


class Reader(Protocol):
    async def read(self, n: int = -1, /) -> bytes: ...


class Writer(Protocol):
    def write(self, data: bytes, /) -> object: ...


async def collect(stdout: Reader, stderr: Reader, marker: str) -> Unframed:
    """Everything up to the end marker (or both ends of file)."""
    errors = bytearray()

    async def keep_errors() -> None:
        while chunk := await stderr.read(_CHUNK_BYTES):
            errors.extend(chunk)

    side = asyncio.create_task(keep_errors())
    end, got = end_of(marker), bytearray()
    try:
        while chunk := await stdout.read(_CHUNK_BYTES):
            looked = max(0, len(got) - len(end))
            got.extend(chunk)
            if (at := got.find(end, looked)) >= 0 and b"\n" in got[at + 1 :]:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LEFTOVER_SECONDS):
                        while chunk := await stdout.read(_CHUNK_BYTES):
                            got.extend(chunk)
                break
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEFTOVER_SECONDS):
                await asyncio.shield(side)
    finally:
        side.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await side
    return unframe(bytes(got), bytes(errors), marker)


async def follow(
    stdin: Writer, stdout: Reader, stderr: Reader, marker: str, *, node: str, what: str, ended: str
) -> AsyncIterator[str]:
    """The payload's lines as they come, without line ends; the node hears all the while that somebody follows.

    Raises:
        RemoteCommandFailed: the command ended with a non-zero status, or (`ended`) without saying one.
    """
    begin, last = begin_of(marker), f"{marker}-end ".encode()
    tail = bytearray()

    async def keep_errors() -> None:
        while chunk := await stderr.read(_CHUNK_BYTES):
            tail.extend(chunk)
            del tail[:-_TAIL_BYTES]

    side = asyncio.create_task(keep_errors())
    beat = asyncio.create_task(_heartbeat(stdin))

    async def failure(status: int, how: str) -> RemoteCommandFailed:
        await asyncio.wait({side}, timeout=_LEFTOVER_SECONDS)
        text = _after(bytes(tail), begin, end_of(marker))
        said = last_line(text)
        return RemoteCommandFailed(
            f"{what} {how}{': ' + said if said else ''}", exit_status_remote=status, stderr=text, node=node
        )

    held, inside, blank = b"", False, False
    try:
        while chunk := await stdout.read(_CHUNK_BYTES):
            held += chunk
            if not inside:
                _, found, rest = held.partition(begin)
                if not found:
                    continue
                held, inside = rest, True
            *lines, held = held.split(b"\n")
            for line in lines:
                if line.startswith(last):
                    # One line break before the marker is the frame's own: the blank line that waits is dropped.
                    status = int(line[len(last) :])
                    if status:
                        raise await failure(status, f"ended with status {status}")
                    return
                if blank:
                    yield ""
                blank = not line
                if line:
                    yield line.decode("utf-8", "replace")
            if len(held) > _LONGEST_LINE_BYTES:
                yield held.decode("utf-8", "replace")
                held = b""
        raise await failure(-1, ended)
    finally:
        beat.cancel()
        side.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await side


async def _heartbeat(stdin: Writer) -> None:
    """Without it the node ends the command: a head that has gone without a word must not leave it running."""
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        with contextlib.suppress(Exception):  # a broken stream is told by its end of file, on the reading side
            stdin.write(b"\n")


def completed(answer: Unframed, argv: tuple[str, ...], *, node: str) -> Completed:
    """The contract's value.

    Raises:
        RemoteCommandFailed: the payload never began or never said how it ended.
    """
    if answer.began and answer.exit_status is not None:
        return Completed(argv, answer.exit_status, answer.stdout, answer.stderr, len(answer.noise))
    said = last_line(answer.stderr) or (answer.noise[-1] if answer.noise else "") or "it said nothing"
    if not answer.began:
        raise RemoteCommandFailed(
            f"the login did not start /bin/sh: {said}",
            exit_status_remote=-1,
            stderr=answer.stderr,
            fix="log in by hand and see what the shell's start-up files do; the account needs a normal login shell",
            node=node,
        )
    raise RemoteCommandFailed(
        f"the command was killed before it ended: {said}", exit_status_remote=-9, stderr=answer.stderr, node=node
    )


class PipeOutput:
    """A bulk command's standard output, login noise skipped."""

    def __init__(self, stdout: Reader, marker: str) -> None:
        self._stdout, self._begin = stdout, begin_of(marker)
        self._held, self._inside = b"", False

    async def read(self, n: int = _CHUNK_BYTES) -> bytes:
        """The next bytes, at most `n` of them; b'' at the end."""
        while not self._inside:
            chunk = await self._stdout.read(_CHUNK_BYTES)
            if not chunk:
                return b""
            self._held += chunk
            _, found, rest = self._held.partition(self._begin)
            if found:
                self._held, self._inside = rest, True
        if self._held:
            part, self._held = self._held[:n], self._held[n:]
            return part
        return await self._stdout.read(n)


class Pipe:
    """A running bulk command: write to `stdin`, read from `stdout`, then `wait()`."""

    def __init__(
        self, argv: tuple[str, ...], stdin: Any, stdout: Reader, stderr: Reader, marker: str, status: Any
    ) -> None:
        self.argv, self.stdin, self.stdout = argv, stdin, PipeOutput(stdout, marker)
        self._status = status
        self._tail = bytearray()
        self._side = asyncio.create_task(self._keep_errors(stderr))

    async def _keep_errors(self, stderr: Reader) -> None:
        with contextlib.suppress(SparktuiError, OSError):  # a lost node is told by the streams that somebody waits for
            while chunk := await stderr.read(_CHUNK_BYTES):
                self._tail.extend(chunk)
                del self._tail[:-_TAIL_BYTES]

    async def wait(self) -> Completed:
        """Read what is left of its output (kept if small), then its exit status."""
        out = bytearray()
        while chunk := await self.stdout.read():
            out.extend(chunk)
            del out[:-_TAIL_BYTES]
        await asyncio.wait({self._side}, timeout=5)
        status: int = await self._status()
        text = quiet(self._tail.decode("utf-8", "replace"))
        return Completed(self.argv, status, out.decode("utf-8", "replace"), text)

    def abandon(self) -> None:
        self._side.cancel()


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _after(stderr: bytes, begin: bytes, end: bytes) -> str:
    _, seen, rest = stderr.partition(begin)
    return quiet((rest if seen else stderr).replace(end + b"\n", b"").decode("utf-8", "replace"))
