"""download: the pinned checkpoint into MODEL_DIR on the head, resumable, judged by sizes."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from sparktui.errors import DeadlineExceeded, DockerUnavailable, SparktuiError, StepFailed
from sparktui.events import CommandShown, Event, Finding, NodeOutcome, Note, Outcome, Question, State
from sparktui.readings.checkpoint_listing import FOLDER_SUFFIX, FolderState, Listing, compare
from sparktui.readings.sections import sections
from sparktui.remote import checkpoint_folder
from sparktui.remote.hub import HubAccess, HubRefused, fetch_request, list_revision
from sparktui.steps.amounts import bytes_text
from sparktui.steps.checkpoint_probe import CHECKPOINT_SCRIPT, FolderReading, read_folder
from sparktui.steps.download_folders import adoptable_folders, adoption_text, older_folders
from sparktui.steps.download_transfer import AGAIN, HEAD, STEP, Pace, Transfer, folder_state
from sparktui.steps.head_disk import head_disk
from sparktui.steps.step import Command, Context, Inspection

if TYPE_CHECKING:
    from sparktui.settings import Settings

LICENCE = "the weights are DeepSeek's, under the MIT licence; sparktui does not contain or change them"
FOLDER_DEADLINE_SECONDS = 20.0
WORKERS = 4
WORKERS_BESIDE_SERVING = 2
"""A transfer's buffers come out of the memory that the model is served from."""


@dataclass(frozen=True, slots=True)
class _Truth:
    """What is known before anything is done."""

    reading: FolderReading
    listing: Listing | None
    source: str
    """Where the listing is from: `the hub`, or `recorded earlier`."""
    refused: SparktuiError | None = None

    @property
    def state(self) -> FolderState | None:
        if self.listing is None:
            return None
        return compare(self.listing, self.reading.files, self.reading.parts, self.reading.index_shards)


class Download:
    """Step `download`. Runs on the head; workers never fetch from the hub."""

    name = STEP
    title = "Download the checkpoint"

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()

    async def inspect(self, context: Context) -> Inspection:
        settings = context.settings
        wrong = folder_name_problem(settings)
        if wrong:
            return Inspection(False, wrong.what, blocked=wrong.what, fix=wrong.fix)
        truth = await self._truth(context)
        state = truth.state
        if truth.listing is None or state is None:
            refused = truth.refused or StepFailed("the revision is not known")
            finding = _finding("download.revision", State.UNKNOWN, refused.what, fix=refused.fix)
            return Inspection(False, refused.what, blocked=refused.what, fix=refused.fix, findings=(finding,))
        rows = [_revision_finding(settings, truth.listing, truth.source), _checkpoint_finding(state, truth.reading)]
        if not state.complete:
            rows += await self._folder_findings(settings, truth.listing)
            disk = await head_disk(context, truth.listing)
            rows.append(replace(disk, step=STEP))
            if disk.state is State.FAIL:
                return Inspection(False, state.text, blocked=disk.what, fix=disk.fix, findings=tuple(rows))
        have = f"{bytes_text(state.present_bytes)} of {bytes_text(state.total_bytes)}"
        return Inspection(state.complete, f"{state.text}, {have}", findings=tuple(rows))

    async def plan(self, context: Context) -> list[Command]:
        settings = context.settings
        wrong = folder_name_problem(settings)
        if wrong:
            raise wrong
        reading = await self._read_folder(context)
        record = reading.record
        known = record if record and record.answers(settings.hf_repo, settings.hf_revision) else None
        if known and compare(known, reading.files, reading.parts, reading.index_shards).complete:
            return []
        model_dir = Path(settings.model_dir)
        rows = []
        if known is None:
            ask = {"do": "list", "repo": settings.hf_repo, "asked": settings.hf_revision, **hub_access(settings).fields}
            rows.append(Command(HEAD, _typed(settings, ask), "which commit is it, and which files has it"))
            rows.append(Command(HEAD, f"mkdir -p {shlex.quote(str(model_dir))}", "the answer is kept in it"))
        workers = await self._workers(context)
        fetch = fetch_request(hub_access(settings), model_dir, workers=workers, xet=True)
        rows.append(Command(HEAD, _typed(settings, fetch), "fetch what is missing"))
        if settings.common_model != settings.model_dir:
            link = shlex.join(["ln", "-sfn", settings.model_dir, settings.common_model])
            rows.append(Command(HEAD, link, "the path that every node knows it by"))
        return rows

    async def run(self, context: Context) -> AsyncIterator[Event]:
        settings = context.settings
        wrong = folder_name_problem(settings)
        if wrong:
            raise wrong
        model_dir = Path(settings.model_dir)
        truth = await self._truth(context)
        if truth.listing is None or truth.state is None:
            raise truth.refused or StepFailed("the revision is not known", node=HEAD)
        listing, state = truth.listing, truth.state
        yield _revision_finding(settings, listing, truth.source)
        if not state.complete:
            yield Note(STEP, HEAD, LICENCE)
            for finding in await self._folder_findings(settings, listing):
                yield finding
            disk = replace(await head_disk(context, listing), step=STEP)
            yield disk
            if disk.state is State.FAIL:
                raise StepFailed(disk.what, fix=disk.fix, node=HEAD)
            workers = await self._workers(context, ask=True)
            await asyncio.to_thread(checkpoint_folder.write_record, model_dir, listing)
            access = hub_access(settings)
            request = fetch_request(access, model_dir, workers=workers, xet=True)
            yield CommandShown(STEP, HEAD, _typed(settings, request))
            transfer = Transfer(
                access,
                listing,
                model_dir,
                workers=workers,
                pace=self._pace,
                mask=settings.mask,
                link=context.head,
            )
            async with aclosing(transfer.events()) as events:
                async for event in events:
                    yield event
        elif truth.reading.record != listing:
            await asyncio.to_thread(checkpoint_folder.write_record, model_dir, listing)
        final = await folder_state(listing, model_dir)
        if not final.complete:
            raise StepFailed(final.text, fix=AGAIN, node=HEAD)
        await asyncio.to_thread(checkpoint_folder.remove_spent_parts, model_dir)
        async for event in self._link(settings):
            yield event
        outcome = Outcome.SKIPPED if state.complete else Outcome.DONE
        text = f"{final.files_total} files, {bytes_text(final.total_bytes)}, revision {listing.revision}"
        yield NodeOutcome(STEP, HEAD, outcome, text)

    async def _truth(self, context: Context) -> _Truth:
        """A revision that was resolved once is not asked for again: a full hash never changes its files."""
        settings = context.settings
        reading = await self._read_folder(context)
        record = reading.record
        if record is not None and record.answers(settings.hf_repo, settings.hf_revision):
            return _Truth(reading, record, "recorded earlier")
        try:
            listing = await list_revision(
                hub_access(settings), settings.hf_repo, settings.hf_revision, link=context.head
            )
        except (HubRefused, DeadlineExceeded) as error:
            return _Truth(reading, None, "", error)
        return _Truth(reading, listing, "the hub")

    async def _read_folder(self, context: Context) -> FolderReading:
        answer = await context.head.script(
            CHECKPOINT_SCRIPT,
            deadline_seconds=FOLDER_DEADLINE_SECONDS,
            values={"MODEL_DIR": context.settings.model_dir},
        )
        reading = read_folder(sections(answer.stdout))
        if reading.state in ("other", "denied"):
            word = "is not a folder" if reading.state == "other" else "cannot be opened"
            raise StepFailed(
                f"MODEL_DIR {context.settings.model_dir} {word}", fix="mend it or change MODEL_DIR", node=HEAD
            )
        return reading

    async def _folder_findings(self, settings: Settings, listing: Listing) -> list[Finding]:
        model_dir = Path(settings.model_dir)
        older = await asyncio.to_thread(older_folders, model_dir)
        adoptable = await asyncio.to_thread(adoptable_folders, settings, listing)
        rows = [
            _finding(
                "download.older",
                State.INFO,
                f"{each.path} ({bytes_text(each.bytes)}) is an older checkpoint: it is never reused",
                fix=f"delete it yourself when you no longer want it: it would free {bytes_text(each.bytes)}",
                path=str(each.path),
                bytes=each.bytes,
            )
            for each in older
        ]
        rows += [
            _finding(
                "download.adopt",
                State.WARN,
                f"{path} already holds this revision, complete by size",
                fix=adoption_text(path, settings),
                path=str(path),
            )
            for path in adoptable
        ]
        return rows

    async def _workers(self, context: Context, *, ask: bool = False) -> int:
        serving = await _serving_on_head(context)
        if serving is False:
            return WORKERS
        if serving and ask:
            text = "The head is serving a model. A download beside it takes memory and NVMe time from it. Go on?"
            if await context.ask(Question(STEP, "download.while_serving", text)) != "yes":
                raise StepFailed("not started: the head is serving", fix="sparktui stop, then download", node=HEAD)
        return WORKERS_BESIDE_SERVING

    async def _link(self, settings: Settings) -> AsyncIterator[Event]:
        link, target = Path(settings.common_model), Path(settings.model_dir)
        problem = await asyncio.to_thread(checkpoint_folder.point_link, link, target)
        if problem:
            yield Note(STEP, HEAD, f"COMMON_MODEL was left alone: {problem}", State.WARN)


def folder_name_problem(settings: Settings) -> StepFailed | None:
    """Every folder of this checkpoint ends in -1017, so that an older download is never taken for it."""
    if Path(settings.model_dir).name.endswith(FOLDER_SUFFIX):
        return None
    return StepFailed(
        f"MODEL_DIR {settings.model_dir} does not end in {FOLDER_SUFFIX}: an older checkpoint could be taken for it",
        fix=f"write MODEL_DIR={settings.model_dir.rstrip('/')}{FOLDER_SUFFIX}",
        node=HEAD,
    )


def hub_access(settings: Settings) -> HubAccess:
    return HubAccess(settings.hf_endpoint, settings.hf_token)


def _typed(settings: Settings, request: Mapping[str, object]) -> str:
    shown = dict(request)
    if shown.get("token"):
        shown["token"] = settings.mask(SecretStr(str(shown["token"])).get_secret_value())
    text = json.dumps({key: value for key, value in shown.items() if value != ""})
    return f"printf '%s\\n' {shlex.quote(text)} | python3 -m sparktui.remote.hub_child"


async def _serving_on_head(context: Context) -> bool | None:
    """Whether one of our engines runs on the head; None where Docker does not say."""
    from sparktui.remote.our_containers import find

    try:
        ours = await find(context.head)
    except (DockerUnavailable, DeadlineExceeded):
        return None
    return any(each.running and each.role not in ("nfs", "pack") for each in ours)


def _finding(check: str, state: State, what: str, *, cause: str = "", fix: str = "", **data: object) -> Finding:
    return Finding(STEP, check, HEAD, state, what, cause, fix, dict(data))


def _revision_finding(settings: Settings, listing: Listing, source: str) -> Finding:
    what = f"{settings.hf_revision} of {listing.repo} is {listing.revision} ({source})"
    data: dict[str, Any] = {
        "repo": listing.repo,
        "revision": listing.revision,
        "bytes": listing.total_bytes,
        "files": len(listing.files),
    }
    return _finding("download.revision", State.OK, what, **data)


def _checkpoint_finding(state: FolderState, reading: FolderReading) -> Finding:
    if state.complete:
        return _finding(
            "checkpoint", State.OK, f"{state.text}, {bytes_text(state.total_bytes)}", bytes=state.total_bytes
        )
    if reading.state == "absent":
        what = f"absent: {state.files_total} files, {bytes_text(state.total_bytes)} to fetch"
    else:
        what = f"{state.text}; {bytes_text(state.remaining_bytes)} to fetch"
    return _finding("checkpoint", State.WARN, what, remaining_bytes=state.remaining_bytes)
