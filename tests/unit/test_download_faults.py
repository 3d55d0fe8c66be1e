"""download when the hub stalls, limits, cuts, lies or refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktui.errors import StepFailed
from sparktui.events import Event, Note, Progress
from sparktui.remote.hub import HubRefused
from sparktui.steps.download import Download
from tests.hub import Faults, Hub, make_repository
from tests.unit.download_parts import (
    QUICK,
    STALLING,
    TOKEN,
    assert_complete,
    child_of,
    context_for,
    files_below,
    of_kind,
    run,
    running_hub,
    settings_for,
)

__all__ = ["running_hub"]


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
                child_of(settings.model_dir)
                looked = True
        assert looked
        assert_complete(hub, settings)
    said = repr(events) + repr(planned)
    assert TOKEN not in said
    assert "XY" in said, "masked, with its last two characters"
    assert not [path for path in files_below(settings.model_dir) if TOKEN.encode() in path.read_bytes()]
