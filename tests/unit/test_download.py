"""download against a real local hub: the revision, folders, resuming after a kill, what is planned."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from sparktui.errors import SparktuiError, StepFailed
from sparktui.events import CommandShown, Finding, NodeOutcome, Note, Outcome, Progress, Question, State
from sparktui.readings.checkpoint_listing import RECORD_FILE, RECORD_FOLDER
from sparktui.remote import checkpoint_folder
from sparktui.remote.hub import HubAccess, HubRefused, fetch_request, list_revision
from sparktui.steps.download import Download
from sparktui.steps.step import Context
from tests.hub import Faults, Hub, make_repository
from tests.scripted_link import ScriptedLink
from tests.unit.download_parts import (
    QUICK,
    assert_complete,
    child_of,
    context_for,
    exists,
    is_alive,
    is_same,
    of_kind,
    run,
    running_hub,
    settings_for,
    until,
)

__all__ = ["running_hub"]


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
                    os.kill(child_of(settings.model_dir), signal.SIGKILL)
        assert killed
        hub.faults.bytes_per_second = None
        await run(context_for(settings, tmp_path))
        assert_complete(hub, settings)
        assert hub.served_bytes <= hub.total_bytes * 1.05


async def test_closing_the_step_ends_the_transfer(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository", shards=1, shard_bytes=1_000_000)
    with Hub(repository, faults=Faults(bytes_per_second=100_000)) as hub:
        settings = settings_for(hub, tmp_path)
        async with aclosing(Download(QUICK).run(context_for(settings, tmp_path))) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, Progress) and (event.amount or 0) > 100_000:
                    child = child_of(settings.model_dir)
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
        await until(lambda: lock.exists() and sum(checkpoint_folder.scan(model_dir).partial_bytes.values()) > 0)
        child = child_of(settings.model_dir)
        parent.kill()
        await parent.wait()
        await until(lambda: not is_alive(child))


_PARENT = """
import asyncio, json, sys
from sparktui.remote.hub import HubChild
async def main():
    child = await HubChild.start(json.loads(sys.argv[1]))
    await asyncio.sleep(600)
asyncio.run(main())
"""


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


@pytest.mark.parametrize(("answer", "workers"), [("yes", 2), ("no", None)])
async def test_u67_a_download_beside_a_serving_head_needs_a_yes_and_is_gentle(
    hub: Hub, tmp_path: Path, answer: str, workers: int | None
) -> None:
    asked: list[str] = []

    async def ask(question: Question) -> str:
        asked.append(question.question)
        return answer

    head = ScriptedLink("head")
    context = Context(settings_for(hub, tmp_path), (head,), ask)
    assert await Download(QUICK)._workers(context, ask=True) == 4
    head.engine.add_container("dsv41-head", labels={"sparktui.owner": "sparktui", "sparktui.role": "engine"})
    if workers is None:
        with pytest.raises(StepFailed, match="serving"):
            await Download(QUICK)._workers(context, ask=True)
    else:
        assert await Download(QUICK)._workers(context, ask=True) == workers
    assert asked == ["download.while_serving"]
