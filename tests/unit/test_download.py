"""download against a real local hub: the revision, resuming, faults, completeness, secrets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparktui.errors import SparktuiError, StepFailed
from sparktui.events import CommandShown, Event, Finding, NodeOutcome, Note, Outcome, Progress, Question, State
from sparktui.readings.checkpoint_listing import RECORD_FILE, RECORD_FOLDER
from sparktui.remote import checkpoint_folder
from sparktui.remote.hub import HubAccess, HubRefused, fetch_request, list_revision
from sparktui.remote.local import LocalLink
from sparktui.settings import Settings, parse_settings
from sparktui.steps.download import Download
from sparktui.steps.download_transfer import Pace
from sparktui.steps.step import Context
from tests.hub import Faults, Hub, make_repository

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


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
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


async def test_a_bare_folder_is_filled_and_a_second_run_fetches_nothing(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    context = context_for(settings, tmp_path)
    events = await run(context)
    assert_complete(hub, settings)
    assert hub.served_bytes == hub.total_bytes
    assert of_kind(events, NodeOutcome)[-1].outcome is Outcome.DONE
    notes = " ".join(note.text for note in of_kind(events, Note))
    assert "MIT licence" in notes
    assert is_same(settings.common_model, settings.model_dir)

    asked = len(hub.requests)
    again = await run(context)
    assert of_kind(again, NodeOutcome)[-1].outcome is Outcome.SKIPPED
    assert len(hub.requests) == asked, "a resolved and complete revision needs no hub"
    inspection = await Download(QUICK).inspect(context)
    assert inspection.done
    assert await Download(QUICK).plan(context) == []


async def test_the_prefix_becomes_the_one_full_hash_shown_and_recorded(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    events = await run(context_for(settings, tmp_path))
    revision = next(each for each in of_kind(events, Finding) if each.check == "download.revision")
    assert hub.revision in revision.what
    assert revision.data["revision"] == hub.revision
    record = checkpoint_folder.read_record(Path(settings.model_dir))
    assert record is not None
    assert (record.revision, record.asked) == (hub.revision, "1bae0e1")


@pytest.mark.parametrize(
    ("asked", "kind"), [("deadbee", "not_found"), ("1bae0e1", "ambiguous"), ("f" * 40, "not_found")]
)
async def test_an_unknown_or_ambiguous_revision_is_an_error(tmp_path: Path, asked: str, kind: str) -> None:
    others = ("1bae0e1" + "0" * 33,) if kind == "ambiguous" else ()
    with Hub(make_repository(tmp_path / "repository"), other_commits=others) as hub:
        settings = settings_for(hub, tmp_path, HF_REVISION=asked)
        with pytest.raises(HubRefused) as error:
            await run(context_for(settings, tmp_path))
    assert error.value.kind == kind
    assert asked in error.value.what
    assert not exists(settings.model_dir), "nothing is touched before the revision is known"


async def test_a_folder_without_the_suffix_is_refused(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path, MODEL_DIR=str(tmp_path / "models/DeepSeek-V4.1-Flash"))
    with pytest.raises(StepFailed, match="-1017"):
        await run(context_for(settings, tmp_path))
    inspection = await Download(QUICK).inspect(context_for(settings, tmp_path))
    assert "-1017" in inspection.blocked


async def test_an_older_folder_is_named_with_its_size_and_left_alone(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    older = tmp_path / "models/DeepSeek-V4.1-Flash"
    older.mkdir(parents=True)
    for name, source in hub.files.items():
        if name.endswith(".safetensors"):
            (older / name).write_bytes(source.read_bytes())
    events = await run(context_for(settings, tmp_path))
    row = next(each for each in of_kind(events, Finding) if each.check == "download.older")
    assert str(older) in row.what
    assert row.data["bytes"] == 600_000
    assert hub.served_bytes == hub.total_bytes, "the older shards were not reused"


async def test_u35_a_complete_copy_elsewhere_is_offered_for_adoption(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    copy = tmp_path / "home/models/DeepSeek-V4.1-Flash-1017"
    make_repository(copy)
    inspection = await Download(QUICK).inspect(context_for(settings, tmp_path))
    row = next(each for each in inspection.findings if each.check == "download.adopt")
    assert str(copy) in row.what
    assert str(copy) in row.fix
    (copy / "model-00002-of-00003.safetensors").write_bytes(b"short")
    inspection = await Download(QUICK).inspect(context_for(settings, tmp_path))
    assert not [each for each in inspection.findings if each.check == "download.adopt"]


async def test_a_kill_at_half_way_costs_at_most_five_percent(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository", shards=2, shard_bytes=4_000_000)
    with Hub(repository, faults=Faults(bytes_per_second=4_000_000)) as hub:
        settings = settings_for(hub, tmp_path)
        step = Download(QUICK).run(context_for(settings, tmp_path))
        killed = False
        with pytest.raises(StepFailed, match="killed by signal 9"):
            async for event in step:
                half = isinstance(event, Progress) and (event.amount or 0) >= hub.total_bytes / 2
                if half and not killed:
                    killed = True
                    os.kill(_child_of(settings.model_dir), signal.SIGKILL)
        assert killed
        hub.faults.bytes_per_second = None
        await run(context_for(settings, tmp_path))
        assert_complete(hub, settings)
        assert hub.served_bytes <= hub.total_bytes * 1.05


def _child_of(model_dir: str) -> int:
    """The process that holds the folder's lock; its command line names neither folder nor token."""
    lock = Path(model_dir) / RECORD_FOLDER / "lock"
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if any(each.readlink() == lock for each in (process / "fd").iterdir()):
                assert TOKEN.encode() not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                return int(process.name)
    raise AssertionError("nobody holds the lock")


async def test_closing_the_step_ends_the_transfer(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository", shards=1, shard_bytes=1_000_000)
    with Hub(repository, faults=Faults(bytes_per_second=100_000)) as hub:
        settings = settings_for(hub, tmp_path)
        async with aclosing(Download(QUICK).run(context_for(settings, tmp_path))) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, Progress) and (event.amount or 0) > 100_000:
                    child = _child_of(settings.model_dir)
                    break
        assert not is_alive(child)


async def test_the_transfer_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository", shards=1, shard_bytes=1_000_000)
    with Hub(repository, faults=Faults(bytes_per_second=100_000)) as hub:
        settings = settings_for(hub, tmp_path)
        model_dir = Path(settings.model_dir)
        listing = await list_revision(HubAccess(hub.url), hub.repo, hub.revision)
        checkpoint_folder.write_record(model_dir, listing)
        request = fetch_request(HubAccess(hub.url), model_dir, workers=1, xet=False)
        parent = await asyncio.create_subprocess_exec(sys.executable, "-c", _PARENT, json.dumps(request))
        lock = model_dir / RECORD_FOLDER / "lock"
        await _until(lambda: lock.exists() and sum(checkpoint_folder.scan(model_dir).partial_bytes.values()) > 0)
        child = _child_of(settings.model_dir)
        parent.kill()
        await parent.wait()
        await _until(lambda: not is_alive(child))


_PARENT = """
import asyncio, json, sys
from sparktui.remote.hub import HubChild
async def main():
    child = await HubChild.start(json.loads(sys.argv[1]))
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def _until(holds: Callable[[], bool]) -> None:
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


async def test_cut_connections_are_resumed_from_the_byte_reached(hub: Hub, tmp_path: Path) -> None:
    hub.faults.cut_after_bytes, hub.faults.cuts = 50_000, 5
    settings = settings_for(hub, tmp_path)
    await run(context_for(settings, tmp_path))
    assert_complete(hub, settings)
    assert hub.served_bytes == hub.total_bytes


async def test_a_server_without_ranges_still_ends_complete(hub: Hub, tmp_path: Path) -> None:
    hub.faults.cut_after_bytes, hub.faults.cuts, hub.faults.no_ranges = 50_000, 1, True
    settings = settings_for(hub, tmp_path)
    await run(context_for(settings, tmp_path))
    assert_complete(hub, settings)


async def test_u64_a_stall_is_named_and_begun_again_with_xet_off(hub: Hub, tmp_path: Path) -> None:
    hub.faults.stall_after_bytes, hub.faults.stalls = 250_000, 4
    settings = settings_for(hub, tmp_path)
    events = await run(context_for(settings, tmp_path), STALLING)
    assert_complete(hub, settings)
    stalled = [each for each in of_kind(events, Progress) if each.phase.startswith("stalled")]
    assert stalled
    assert all(each.rate_per_second == 0 and each.seconds_left is None for each in stalled)
    assert any("xet off (1 of 3)" in note.text for note in of_kind(events, Note))
    amounts = [each.amount for each in of_kind(events, Progress)]
    assert amounts == sorted(amounts), "bytes never fall: the restart resumed"


async def test_u64_a_line_that_stays_dead_is_given_up_after_three_restarts(hub: Hub, tmp_path: Path) -> None:
    hub.faults.stall_after_bytes, hub.faults.stalls = 100_000, 1_000
    settings = settings_for(hub, tmp_path)
    events: list[Event] = []
    with pytest.raises(StepFailed, match="stalled 4 times") as error:
        async for event in Download(STALLING).run(context_for(settings, tmp_path)):
            events.append(event)
    assert len([note for note in of_kind(events, Note) if "xet off" in note.text]) == 3
    assert "resumes" in error.value.fix


async def test_u65_the_bar_is_never_full_before_every_size_matches(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    name = "model-00003-of-00003.safetensors"
    hub.faults.stall_after_bytes, hub.faults.stalls = hub.total_bytes - 1_000, 1
    events = await run(context_for(settings, tmp_path), STALLING)
    bars = of_kind(events, Progress)
    assert all(each.total == hub.total_bytes for each in bars)
    unfinished = [each for each in bars if each.phase != f"{len(hub.files)} of {len(hub.files)} files"]
    assert unfinished
    assert all(each.amount < each.total for each in unfinished)
    assert bars[-1].amount == bars[-1].total

    (Path(settings.model_dir) / name).write_bytes(b"x" * 199_999)
    inspection = await Download(QUICK).inspect(context_for(settings, tmp_path))
    assert not inspection.done
    assert f"{name}: 199999 bytes, should be 200000" in inspection.summary


async def test_u69_429_waits_as_the_hub_asks_and_hints_to_log_in(hub: Hub, tmp_path: Path) -> None:
    hub.faults.rate_limited, hub.faults.retry_after = 1, "1"
    settings = settings_for(hub, tmp_path)
    events = await run(context_for(settings, tmp_path))
    assert_complete(hub, settings)
    countdown = [each for each in of_kind(events, Progress) if "429" in each.phase]
    assert countdown
    assert all(0 < each.seconds_left <= 1 for each in countdown)
    note = next(note for note in of_kind(events, Note) if "429" in note.text)
    assert "1 s" in note.text
    assert "HF_TOKEN" in note.text


async def test_u69_429_without_end_fails_instead_of_passing_an_incomplete_folder(hub: Hub, tmp_path: Path) -> None:
    hub.faults.rate_limited, hub.faults.retry_after = 10_000, None
    settings = settings_for(hub, tmp_path)
    with pytest.raises(HubRefused) as error:
        await run(context_for(settings, tmp_path))
    assert error.value.kind == "rate_limited"
    assert not (await Download(QUICK).inspect(context_for(settings, tmp_path))).done


@pytest.mark.parametrize("change", [-500, 500])
async def test_a_file_of_another_size_than_listed_is_refused(hub: Hub, tmp_path: Path, change: int) -> None:
    hub.faults.wrong_size["model-00002-of-00003.safetensors"] = change
    settings = settings_for(hub, tmp_path)
    with pytest.raises(HubRefused) as error:
        await run(context_for(settings, tmp_path))
    assert error.value.kind == "size"
    assert "model-00002-of-00003.safetensors" in error.value.what
    assert not (Path(settings.model_dir) / "model-00002-of-00003.safetensors").exists()


async def test_content_that_is_not_what_the_hub_lists_is_not_kept(hub: Hub, tmp_path: Path) -> None:
    hub.faults.spoiled.add("model-00001-of-00003.safetensors")
    settings = settings_for(hub, tmp_path)
    with pytest.raises(HubRefused) as error:
        await run(context_for(settings, tmp_path))
    assert error.value.kind == "content"
    assert not (Path(settings.model_dir) / "model-00001-of-00003.safetensors").exists()
    hub.faults.spoiled.clear()
    await run(context_for(settings, tmp_path))
    assert_complete(hub, settings)


async def test_without_a_token_a_closed_repository_says_what_to_set(hub: Hub, tmp_path: Path) -> None:
    hub.faults.token = TOKEN
    settings = settings_for(hub, tmp_path)
    with pytest.raises(HubRefused) as error:
        await run(context_for(settings, tmp_path))
    assert error.value.kind == "unauthorised"
    assert "HF_TOKEN" in error.value.fix


async def test_the_token_reaches_the_hub_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    repository = make_repository(tmp_path / "repository", shards=1, shard_bytes=400_000)
    with Hub(repository, faults=Faults(token=TOKEN, bytes_per_second=400_000)) as hub:
        settings = settings_for(hub, tmp_path, HF_TOKEN=TOKEN)
        context = context_for(settings, tmp_path)
        planned = await Download(QUICK).plan(context)
        events: list[Event] = []
        looked = False
        async for event in Download(QUICK).run(context):
            events.append(event)
            if isinstance(event, Progress) and 0 < (event.amount or 0) < hub.total_bytes and not looked:
                _child_of(settings.model_dir)
                looked = True
        assert looked
        assert_complete(hub, settings)
    said = repr(events) + repr(planned)
    assert TOKEN not in said
    assert "XY" in said, "masked, with its last two characters"
    assert not [path for path in files_below(settings.model_dir) if TOKEN.encode() in path.read_bytes()]


async def test_no_hub_and_no_record_is_blocked_with_the_reason(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    inspection = await Download(QUICK).inspect(context_for(settings, tmp_path))
    assert not inspection.done
    assert "127.0.0.1:9" in inspection.blocked
    assert inspection.findings[0].state is State.UNKNOWN
    with pytest.raises(HubRefused):
        await run(context_for(settings, tmp_path))


async def test_no_hub_with_a_record_still_judges_by_size(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    await run(context_for(settings, tmp_path))
    gone = settings_for(hub, tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    inspection = await Download(QUICK).inspect(context_for(gone, tmp_path))
    assert inspection.done
    assert any("recorded earlier" in each.what for each in inspection.findings)


async def test_a_record_of_another_revision_is_asked_anew(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    await run(context_for(settings, tmp_path))
    record = checkpoint_folder.read_record(Path(settings.model_dir))
    assert record is not None
    checkpoint_folder.write_record(Path(settings.model_dir), replace(record, revision="0" * 40))
    await run(context_for(settings, tmp_path))
    record = checkpoint_folder.read_record(Path(settings.model_dir))
    assert record is not None
    assert record.revision == hub.revision


async def test_u19_too_little_room_fails_before_a_byte_is_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "df").write_text(
        "#!/bin/sh\necho 'Filesystem 1-blocks Used Available Capacity Mounted on'\n"
        "echo '/dev/nvme0n1p2 4000000000000 3999999000000 500000 99% /'\n"
    )
    (tools / "df").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    settings = settings_for(hub, tmp_path)
    with pytest.raises(StepFailed, match="short by") as error:
        await run(context_for(settings, tmp_path))
    assert "checkpoint" in error.value.what
    assert hub.served_bytes == 0
    assert not (Path(settings.model_dir) / RECORD_FILE).exists()


async def test_two_downloads_into_one_folder_do_not_mix(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository", shards=1, shard_bytes=2_000_000)
    with Hub(repository, faults=Faults(bytes_per_second=4_000_000)) as hub:
        settings = settings_for(hub, tmp_path)
        results = await asyncio.gather(
            run(context_for(settings, tmp_path)),
            run(context_for(settings, tmp_path)),
            return_exceptions=True,
        )
        assert not [each for each in results if isinstance(each, BaseException) and not isinstance(each, SparktuiError)]
        assert_complete(hub, settings)
        assert hub.served_bytes == hub.total_bytes


async def test_the_dry_run_prints_what_run_executes(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    context = context_for(settings, tmp_path)
    planned = [row.text for row in await Download(QUICK).plan(context)]
    assert hub.requests == [], "a dry run asks nobody"
    shown = [event.command for event in await run(context) if isinstance(event, CommandShown)]
    assert shown
    assert set(shown) <= set(planned)
