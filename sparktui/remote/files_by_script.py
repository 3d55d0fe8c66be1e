"""Reading and writing a node's files through `script`, so that ssh and the head behave alike."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol

from sparktui.errors import DeadlineExceeded, RemoteCommandFailed
from sparktui.remote.link import Completed
from sparktui.remote.script_streams import last_line

_READ = """[ -e "$path" ] || [ -L "$path" ] || exit 44
base64 <"$path"
"""
# umask first: the file is never readable by others, not even for a moment. `sync FILE` is coreutils' fsync.
_WRITE = """set -e
umask 077
folder=$(dirname "$path")
[ -d "$folder" ] || { umask 022; mkdir -p "$folder"; umask 077; }
trap 'rm -f "$beside"' EXIT
cat >"$beside"
chmod "$mode" "$beside"
sync "$beside"
mv -f "$beside" "$path"
sync "$folder" || :
"""


class _RunsScripts(Protocol):
    async def __call__(self, text: str, values: dict[str, str], data: bytes, deadline_seconds: float) -> Completed: ...


class NodeFiles:
    """A node's files. At most one probe a path waits for an answer: a dead mount does not pile up children."""

    def __init__(self, node: str, script: _RunsScripts) -> None:
        self._node, self._script = node, script
        self._waiting: dict[str, asyncio.Task[Completed]] = {}

    async def read(self, path: str, *, deadline_seconds: float) -> bytes | None:
        """A file's bytes; None when there is none."""

        def start() -> Awaitable[Completed]:
            return self._script(_READ, {"path": path}, b"", deadline_seconds)

        done = await self._one_at_a_time(path, start, deadline_seconds)
        if done.exit_status == 44:
            return None
        self._check(done, f"cannot read {path}")
        return base64.b64decode(done.stdout)

    async def write(self, path: str, data: bytes, *, mode: int, deadline_seconds: float) -> None:
        values = {"path": path, "beside": f"{path}.{secrets.token_hex(6)}.part", "mode": f"{mode:o}"}
        done = await self._script(_WRITE, values, data, deadline_seconds)
        self._check(done, f"cannot write {path}")

    async def aclose(self) -> None:
        """End what still waits; a child that is stuck in the kernel is not waited for."""
        for task in self._waiting.values():
            task.cancel()
        if self._waiting:
            await asyncio.wait(self._waiting.values(), timeout=2)
        self._waiting.clear()

    async def _one_at_a_time(
        self, path: str, start: Callable[[], Awaitable[Completed]], deadline_seconds: float
    ) -> Completed:
        task = self._waiting.get(path)
        if task is None or task.done():
            task = asyncio.ensure_future(_as_coroutine(start()))
            self._waiting[path] = task
        try:
            async with asyncio.timeout(deadline_seconds):
                return await asyncio.shield(task)
        except TimeoutError:
            raise DeadlineExceeded(
                f"{path}: no answer for {deadline_seconds:g} s",
                fix="a network mount whose server is gone looks like this; see `mount` and the share step",
                node=self._node,
            ) from None
        finally:
            if task.done():
                self._waiting.pop(path, None)
                if not task.cancelled():
                    task.exception()

    def _check(self, done: Completed, what: str) -> None:
        if not done.ok:
            raise RemoteCommandFailed(
                f"{what}: {last_line(done.stderr) or f'status {done.exit_status}'}",
                exit_status_remote=done.exit_status,
                stderr=done.stderr,
                node=self._node,
            )


async def _as_coroutine(call: Awaitable[Completed]) -> Completed:
    return await call
