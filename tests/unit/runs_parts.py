"""Steps that do real work on files, for the tests of runs and of the command line.

The env file is KEY=VALUE lines; WORK names the folder where the steps' files are: the truth that `inspect()` asks.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sparktui.cluster.node import Node
from sparktui.envfile import Problem, Severity
from sparktui.errors import HostKeyUnknown, NodeUnreachable, SettingsError, StepFailed
from sparktui.events import Finding, LogLine, NodeOutcome, Note, Outcome, Progress, Question, State
from sparktui.runs.parts import Parts
from sparktui.runs.request import RunRequest
from sparktui.steps.step import Command, Inspection

PROGRAM = (
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    "from tests.unit.runs_parts import parts\nfrom sparktui.runs import process\n"
    "process.leave(process.main(sys.argv[1:], parts()))",
)
BLOCK = 4096
NODES = (Node("head", 0, "10.0.0.1"), Node("worker1", 1, "10.0.0.2", ssh_host="spark2"))


def write_env(folder: Path, **values: object) -> Path:
    """An env file and its work folder; SOURCE_BYTES of source to copy."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "source").write_bytes(os.urandom(int(str(values.get("SOURCE_BYTES", 40 * BLOCK)))))
    path = folder / ".env"
    path.write_text("".join(f"{key}={value}\n" for key, value in {"WORK": work, **values}.items()))
    return path


def load_settings(request: RunRequest) -> Any:
    path = Path(request.env_file)
    if not path.exists():
        raise SettingsError(f"{path} does not exist", fix="copy .env.example")
    values = dict(line.split("=", 1) for line in path.read_text().splitlines() if line)
    if "BAD" in values:
        raise SettingsError("line 3: BAD is not a setting", fix="remove the line")
    if "CRASH" in values:
        raise ZeroDivisionError("of ours")
    secret = values.get("API_KEY", "")
    home = path.parent
    return SimpleNamespace(
        values=values,
        work=Path(values["WORK"]),
        profile=SimpleNamespace(name=request.profile or "three"),
        state_dir=home / "state",
        logs_dir=home / "logs",
        notices=[Problem(7, "nobody knows this name", severity=Severity.WARNING)] if "NOTICE" in values else [],
        mask=lambda text: text.replace(secret, "••••••" + secret[-2:]) if secret else text,
    )


class FileLink:
    """A node that can only be logged in to; UNKNOWN_KEY=1 makes worker1's host key one to confirm."""

    def __init__(self, node: Node, settings: Any) -> None:
        self.node = node
        self._settings = settings

    async def run(self, argv: Any, *, deadline_seconds: float) -> None:
        trusted = self._settings.work / "trusted"
        if self.node.name == "worker1" and "UNKNOWN_KEY" in self._settings.values and not trusted.exists():
            raise HostKeyUnknown(
                "nobody has confirmed the host key of spark2 yet: ssh-ed25519 SHA256:abc",
                known_hosts_line=str(trusted),
                fingerprint="SHA256:abc",
                fix="compare it",
                node="worker1",
            )

    async def aclose(self) -> None:
        return None


async def open_links(settings: Any) -> Any:
    return tuple(FileLink(node, settings) for node in NODES)


class FileStep:
    """Done when its file is there."""

    def __init__(self, verb: str) -> None:
        self.name = self.title = verb

    def file(self, context: Any) -> Path:
        return context.settings.work / f"{self.name}.done"

    async def inspect(self, context: Any) -> Inspection:
        done = self.file(context).exists()
        return Inspection(done=done, summary=f"{self.file(context).name} is there" if done else "to do")

    async def plan(self, context: Any) -> list[Command]:
        return [Command("head", f"touch {self.file(context)} # {context.settings.values.get('API_KEY', '')}", "marks")]

    async def run(self, context: Any) -> Any:
        self.file(context).touch()
        with (context.settings.work / "ran").open("a") as file:
            file.write(self.name + "\n")
        yield NodeOutcome(self.name, "head", Outcome.DONE, "file made")


class Check(FileStep):
    async def inspect(self, context: Any) -> Inspection:
        return Inspection(done=False, summary="")

    async def run(self, context: Any) -> Any:
        kind = context.settings.values.get("DOCTOR", "ok")
        yield Finding(self.name, "ssh.login", "head", State.OK, "this machine")
        if kind == "fail":
            yield Finding(
                self.name, "disk.model", "worker1", State.FAIL, "3 GiB free", "the disk is full", "free 200 GiB"
            )
        if self.name == "talk":
            yield Note(self.name, "head", f"curl -H 'x: {context.settings.mask('y')}' http://head:8888")
        if kind == "unreachable":
            raise NodeUnreachable("no answer on port 22", fix="is it on?", node="worker1")
        if kind == "unseen":
            yield Finding(
                self.name, "rank", "worker1", State.UNKNOWN, "no answer", fix="ping", data={"unreachable": True}
            )
        if kind == "escape":
            yield Note(self.name, "head", "\x1b[2Jcleared\x9b31m")


class Copy(FileStep):
    """Copies a file block by block, resumes from what is there, and counts what it read in `reads`."""

    async def run(self, context: Any) -> Any:
        work = context.settings.work
        source, partial = work / "source", work / "copy.partial"
        total = source.stat().st_size
        with source.open("rb") as read, partial.open("ab") as write, (work / "reads").open("ab") as reads:
            read.seek(partial.stat().st_size)
            while block := read.read(BLOCK):
                os.write(reads.fileno(), b"%d\n" % len(block))
                os.write(write.fileno(), block)
                yield Progress(self.name, "head", "copy", read.tell(), total)
                await asyncio.sleep(float(context.settings.values.get("PAUSE", "0")))
        partial.rename(self.file(context))
        yield NodeOutcome(self.name, "head", Outcome.DONE)


class Ask(FileStep):
    async def run(self, context: Any) -> Any:
        answer = await context.ask(Question(self.name, "pin.worker1", "Pin this digest?", ("yes", "no", "later")))
        if answer == "no":
            raise StepFailed("you said no", fix="say yes", node="worker1")
        self.file(context).write_text(answer)
        yield Note(self.name, "head", f"answer was {answer}")


class Talkative(FileStep):
    async def run(self, context: Any) -> Any:
        key = context.settings.values.get("API_KEY", "")
        yield LogLine(self.name, "head", f"key is {key}")
        yield Finding(self.name, "a.b", "head", State.INFO, f"key {key}", data={"deep": [{"key": key}]})
        print(f"printed {key}", flush=True)
        self.file(context).touch()


class Boom(FileStep):
    async def run(self, context: Any) -> Any:
        if context.settings.values.get("PACK") == "boom":
            raise ValueError(f"bad {context.settings.values.get('API_KEY', 'thing')}")
        if context.settings.values.get("PACK") == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fail())
        self.file(context).touch()
        yield NodeOutcome(self.name, "head", Outcome.DONE)

    async def _fail(self) -> None:
        raise StepFailed("no space", fix="make room", node="worker1")


class Hang(FileStep):
    """Waits until told; SERVE=stubborn hears nothing, SERVE=quick is done at once."""

    async def run(self, context: Any) -> Any:
        work = context.settings.work
        kind = context.settings.values.get("SERVE", "quick")
        (work / "serving").write_text(str(os.getpid()))
        try:
            while kind != "quick":
                if kind == "stubborn":
                    time.sleep(0.05)  # noqa: ASYNC251 (holds the loop: that is the point)
                else:
                    await asyncio.sleep(0.05)
                if (work / "go").exists():
                    break
        finally:
            (work / "cleaned").touch()
        self.file(context).touch()
        yield NodeOutcome(self.name, "head", Outcome.DONE)


STEPS = {
    "doctor": Check,
    "download": Copy,
    "build": Ask,
    "share": Talkative,
    "pack": Boom,
    "serve": Hang,
    "smoke": FileStep,
    "stop": FileStep,
    "status": Check,
    "talk": Check,
}


def step(verb: str) -> Any:
    return STEPS[verb](verb)


def parts() -> Parts:
    return Parts(load_settings, open_links, step, lambda line: Path(line).touch())
