"""The hub, seen from a step: what a revision consists of, and a transfer that can be watched, killed and begun again.

Both run in `sparktui.remote.hub_child`, started on the head through its link: the token goes to it on stdin, so it is
in no argv and no environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

import sparktui
from sparktui.cluster.node import Node
from sparktui.errors import DeadlineExceeded, SparktuiError
from sparktui.readings.checkpoint_listing import Listing, parse_listing
from sparktui.remote.link import Completed, NodeLink
from sparktui.remote.local import LocalLink
from sparktui.remote.script_streams import last_line

TOKEN_NAMES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
LIST_DEADLINE_SECONDS = 90.0
CHILD_MODULE = "sparktui.remote.hub_child"
_CHUNK_BYTES = 65536
_SOURCE = str(Path(sparktui.__file__).resolve().parent.parent)
"""So that the child finds this very package, whatever its working folder is."""


class HubRefused(SparktuiError):
    """The hub, the network or the disk said no.

    Attributes:
        kind: rate_limited, unauthorised, not_found, ambiguous, unreachable, size, content, disk, locked or other.
        retry_after_seconds: what the hub asked to wait, for rate_limited; None when it did not say.
    """

    def __init__(self, what: str, *, kind: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(what, fix=_NEXT_STEP.get(kind, ""), node="head")
        self.kind = kind
        self.retry_after_seconds = retry_after_seconds


_NEXT_STEP = {
    "rate_limited": "wait, then run `sparktui download` again; HF_TOKEN in the .env raises the limit",
    "unauthorised": "set HF_TOKEN in the .env to a token that may read this repository",
    "not_found": "compare HF_REPO and HF_REVISION in the .env with the repository's page",
    "ambiguous": "write the full 40-digit hash into HF_REVISION",
    "unreachable": "check this machine's way to the hub (HF_ENDPOINT, proxy, DNS), then run `sparktui download` again",
    "size": "the repository changed under its own hash: run `sparktui download` again, then report it",
    "content": "run `sparktui download` again: the file is fetched anew",
    "disk": "free space or mend the file system, then run `sparktui download` again: it resumes",
    "locked": "wait for the other download, or end it",
}


@dataclass(frozen=True, slots=True)
class HubAccess:
    """Where the hub is and who asks. `endpoint` '' means what HF_ENDPOINT or the library says."""

    endpoint: str = ""
    token: SecretStr | None = None

    @property
    def fields(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "token": self.token.get_secret_value() if self.token else ""}

    @property
    def shown(self) -> str:
        return self.endpoint or os.environ.get("HF_ENDPOINT", "") or "the public hub"


@dataclass(frozen=True, slots=True)
class ChildEvent:
    """A line of the child: begun (files), retry (path, at, why), from_zero, xet_off, file (path, bytes, verified)."""

    name: str
    fields: dict[str, Any]


class HubChild:
    """The running child, on the head and through its link. Always closed with `aclose()`, which ends what is left."""

    def __init__(self, pipe: Any, stack: contextlib.AsyncExitStack) -> None:
        self._pipe = pipe
        self._stack = stack
        self._ended: Completed | None = None
        self.refused: HubRefused | None = None

    @classmethod
    async def start(cls, request: dict[str, Any], link: NodeLink | None = None) -> HubChild:
        """Start it; without a `link` on this machine."""
        head = link or LocalLink(Node(name="head", rank=0, address=""))
        stack = contextlib.AsyncExitStack()
        pipe = await stack.enter_async_context(head.pipe(child_argv()))
        # stdin stays open: its end is how the child learns that this process is gone.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            pipe.stdin.write(json.dumps({**request, "end_with_stdin": True}).encode() + b"\n")
            await pipe.stdin.drain()
        return cls(pipe, stack)

    @property
    def exit_status(self) -> int | None:
        """None until its output has ended; negative for a signal."""
        return None if self._ended is None else self._ended.exit_status

    async def events(self) -> AsyncIterator[ChildEvent]:
        """Until its stdout ends; a refusal is kept in `refused` and not yielded."""
        held = bytearray()
        while chunk := await self._pipe.stdout.read(_CHUNK_BYTES):
            held.extend(chunk)
            if b"\n" not in chunk:
                continue
            *lines, rest = bytes(held).split(b"\n")
            held = bytearray(rest)
            for line in lines:
                event = self._event(line)
                if event is not None:
                    yield event
        self._ended = await self._pipe.wait()

    def _event(self, line: bytes) -> ChildEvent | None:
        try:
            plain = json.loads(line)
            name = str(plain.pop("event"))
        except (ValueError, KeyError, AttributeError):
            return None
        if name != "refused":
            return ChildEvent(name, plain)
        kind, what = str(plain.get("kind")), str(plain.get("what"))
        self.refused = HubRefused(what, kind=kind, retry_after_seconds=plain.get("retry_after"))
        return None

    async def aclose(self) -> None:
        await self._stack.aclose()

    @property
    def last_words(self) -> str:
        return "" if self._ended is None else last_line(self._ended.stderr)


def child_argv() -> list[str]:
    """The child's command on the head; no token is in its environment, nor in what `ps` shows."""
    path = os.pathsep.join(filter(None, [_SOURCE, os.environ.get("PYTHONPATH", "")]))
    argv = ["env", *(word for name in TOKEN_NAMES for word in ("-u", name)), f"PYTHONPATH={path}"]
    argv += ["HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_DISABLE_PROGRESS_BARS=1"]
    return [*argv, sys.executable, "-m", CHILD_MODULE]


async def list_revision(
    access: HubAccess,
    repo: str,
    asked: str,
    *,
    link: NodeLink | None = None,
    deadline_seconds: float = LIST_DEADLINE_SECONDS,
) -> Listing:
    """Ask the hub which one commit `asked` names and what it holds.

    Args:
        link: the head's; without one this machine asks.

    Raises:
        HubRefused: it does not exist, is ambiguous, is not permitted, is rate limited, or no hub answers.
        DeadlineExceeded: nothing within the deadline.
    """
    child = await HubChild.start({"do": "list", "repo": repo, "asked": asked, **access.fields}, link)
    try:
        listing: Listing | None = None
        async with asyncio.timeout(deadline_seconds):
            async for event in child.events():
                if event.name == "listing":
                    listing = parse_listing(json.dumps(event.fields["listing"]))
        if child.refused and child.refused.kind == "unreachable":
            raise HubRefused(f"{access.shown} does not answer ({child.refused.what})", kind="unreachable")
        if child.refused:
            raise child.refused
        if listing is None:
            words = f": {child.last_words}" if child.last_words else ""
            raise HubRefused(f"the hub's list of {repo} could not be read{words}", kind="other")
        return listing
    except TimeoutError as error:
        what = f"{access.shown} did not list {repo} within {deadline_seconds:.0f} s"
        raise DeadlineExceeded(what, fix=_NEXT_STEP["unreachable"], node="head") from error
    finally:
        await child.aclose()


def fetch_request(
    access: HubAccess, model_dir: Path, *, workers: int, xet: bool, pause_seconds: float = 1.0
) -> dict[str, Any]:
    """What the child is told; which files and sizes it reads from the record in `model_dir`."""
    return {
        "do": "fetch",
        "model_dir": str(model_dir),
        "workers": workers,
        "xet": xet,
        "pause_seconds": pause_seconds,
        **access.fields,
    }
