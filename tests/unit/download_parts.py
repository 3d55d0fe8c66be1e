"""What the tests of download share: a local hub, settings, a head, and what became of the transfer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparktui.events import Event, Question
from sparktui.readings.checkpoint_listing import RECORD_FOLDER
from sparktui.remote.local import LocalLink
from sparktui.settings import Settings, parse_settings
from sparktui.steps.download import Download
from sparktui.steps.download_transfer import Pace
from sparktui.steps.step import Context
from tests.hub import Hub, make_repository

QUICK = Pace(
    tick_seconds=0.05,
    stall_seconds=60.0,
    backoff_seconds=0.05,
    rate_limit_seconds=0.1,
    rate_limit_waits=2,
    retry_pause_seconds=0.01,
)
STALLING = replace(QUICK, stall_seconds=3.0)
"""Longer than the child takes to begin on a busy machine."""
TOKEN = "hf_verysecrettokenXY"


@pytest.fixture(name="hub")
def running_hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(make_repository(tmp_path / "repository")) as running:
        yield running


def settings_for(hub: Hub, tmp_path: Path, **changed: str) -> Settings:
    values = {
        "HEAD_IP": "10.9.0.1",
        "WORKER_IPS": "10.9.0.2 10.9.0.3",
        "MODEL_DIR": str(tmp_path / "models/DeepSeek-V4.1-Flash-1017"),
        "COMMON_MODEL": str(tmp_path / "common/DeepSeek-V4.1-Flash-1017"),
        "ENGRAM_DIR": str(tmp_path / "engram"),
        "HF_ENDPOINT": hub.url,
    } | changed
    text = "".join(f'{name}="{value}"\n' for name, value in values.items())
    environment = {"HOME": str(tmp_path / "home")}
    return parse_settings(text, env_path=tmp_path / ".env", profile="three", environment=environment)


def context_for(settings: Settings, tmp_path: Path, answer: str = "yes") -> Context:
    async def ask(question: Question) -> str:
        return answer

    return Context(settings, (LocalLink(settings.nodes[0], docker_socket=str(tmp_path / "no-docker.sock")),), ask)


async def run(context: Context, pace: Pace = QUICK) -> list[Event]:
    return [event async for event in Download(pace).run(context)]


def of_kind(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def assert_complete(hub: Hub, settings: Settings) -> None:
    for name, source in hub.files.items():
        assert (Path(settings.model_dir) / name).read_bytes() == source.read_bytes(), name


def child_of(model_dir: str) -> int:
    """The process that holds the folder's lock; its command line names neither folder nor token."""
    lock = Path(model_dir) / RECORD_FOLDER / "lock"
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if any(each.readlink() == lock for each in (process / "fd").iterdir()):
                assert TOKEN.encode() not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                return int(process.name)
    raise AssertionError("nobody holds the lock")


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("not within 30 s")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def exists(path: str) -> bool:
    return Path(path).exists()


def is_same(one: str, other: str) -> bool:
    return Path(one).samefile(other)


def files_below(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("*") if path.is_file()]
