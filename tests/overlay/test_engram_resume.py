"""A packing that is killed, or finds the disk full: no wrong row, no good file lost, no work done twice."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_overlay import engram_check, engram_copy, engram_pack
from spark_overlay.engram_file import HEADER_BYTES, PAGE_BYTES, FileError

from tests.overlay.checkpoints import write_checkpoint
from tests.overlay.packing import COMMAND, ENVIRONMENT, jobs, pack_argv, pack_here, run, run_all

SEED = 20261130
KILLS = 50


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer of about 9 MB."""
    folder = tmp_path_factory.mktemp("model")
    write_checkpoint(folder, vocab=1409, layers=(1,))
    return folder


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    [path] = pack_here(model, tmp_path_factory.mktemp("whole"), 0, 1)
    return path.read_bytes()


def packer(job: engram_pack.Job, most_bytes: int | None) -> int:
    """A packer in a process of its own; with `most_bytes` the kernel ends it at the first byte beyond."""
    child = os.fork()
    if child:
        return child
    try:
        if most_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        engram_pack.pack(job, lambda _: None)
        os._exit(0)
    finally:
        os._exit(9)


def test_killed_at_fifty_random_points_no_row_is_wrong_and_no_work_is_lost(
    model: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them end at one certain byte of the file, wherever it lies in page, header or block; the others after a
    random time, which also meets reading, syncing and renaming.
    """
    monkeypatch.setattr(engram_copy, "BLOCK_PAGES", 96)
    monkeypatch.setattr(engram_copy, "SYNC_BYTES", 1 << 20)
    dice = random.Random(SEED)
    [job] = jobs(model, tmp_path, 0, 1)
    kills = rounds = 0
    while kills < KILLS:
        kept = job.partial.stat().st_size if job.partial.exists() else 0
        at = dice.choice((None, dice.randrange(kept + 1, min(kept + len(whole) // 6, len(whole)) + 1)))
        child = packer(job, at)
        if at is None:
            time.sleep(dice.uniform(0, 0.04))
            os.kill(child, signal.SIGKILL)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in (0, -signal.SIGKILL, -signal.SIGXFSZ)
        if job.path.exists():
            assert job.path.read_bytes() == whole, "a file under the final name is whole"
            if ended:
                kills += 1
            else:
                rounds += 1
            job.path.unlink()
            assert not job.partial.exists()
            continue
        kills += 1
        left = job.partial.read_bytes() if job.partial.exists() else b""
        assert whole.startswith(left), "what is there is a beginning of the right file"
        assert len(left) >= kept // PAGE_BYTES * PAGE_BYTES, "what was there is still there"
        if at is not None:
            assert len(left) == at
        told: list[dict[str, Any]] = []
        with pytest.raises(StopAsyncIteration):
            engram_pack.pack(job, lambda event, told=told: stop_after_the_first(event, told))  # type: ignore[misc]
        pages = max(0, len(left) - HEADER_BYTES) // PAGE_BYTES
        assert told[0]["done_bytes"] == HEADER_BYTES + pages * PAGE_BYTES, "every whole page is kept"
    engram_pack.pack(job, lambda _: None)
    assert job.path.read_bytes() == whole
    assert engram_check.check(job.path, model)["first_bad"] is None


def stop_after_the_first(event: dict[str, Any], told: list[dict[str, Any]]) -> None:
    told.append(event)
    raise StopAsyncIteration


def test_the_command_is_killed_in_the_middle_and_goes_on_where_it_was(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model", vocab=10007, layers=(1,))  # 64 MB
    argv = pack_argv(tmp_path / "model", tmp_path / "out", 0, 1)
    partial = tmp_path / "out/engram-l1-r0of1.bin.partial"
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as first:
        while not partial.exists() or partial.stat().st_size < 16 << 20:
            assert first.poll() is None, "the packer ended before it could be killed"
        os.kill(first.pid, signal.SIGKILL)
    assert not partial.with_suffix("").exists()
    kept = partial.stat().st_size
    status, events = run(argv)
    assert status == 0
    assert kept - 4096 <= events[0]["done_bytes"] <= kept, "whole pages that were written are not written again"
    argv = [*COMMAND, "check", str(partial.with_suffix("")), "--source", str(tmp_path / "model"), "--rows", "300"]
    status, [told] = run(argv)
    assert (status, told["bad_pages"], told["bad_rows"], told["rows"]) == (0, 0, 0, 300)
    assert told["pages"] == partial.with_suffix("").stat().st_size // 4096 - 1


def test_damage_at_the_end_of_a_partial_file_is_written_anew(model: Path, whole: bytes, tmp_path: Path) -> None:
    [job] = jobs(model, tmp_path, 0, 1)
    # As after a power loss: the length is there, the last pages are zeros, one page is torn.
    job.partial.write_bytes(whole[: 4096 * 20] + bytes(4096 * 7) + whole[:100])
    told: list[dict[str, Any]] = []
    engram_pack.pack(job, told.append)
    assert told[0]["done_bytes"] == 4096 * 20
    assert job.path.read_bytes() == whole


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"revision": "fb2764a"}, "checkpoint revision fb2764a, wanted 1bae0e1"),
        ({"seed": 2}, "checkpoint contents"),
        ({"bytes": b"DSV1EN41" + bytes(9000)}, "it is an old file (magic DSV1EN41)"),
    ],
)
def test_another_packings_partial_file_is_named_and_written_anew(
    model: Path, whole: bytes, tmp_path: Path, other: dict[str, Any], said: str
) -> None:
    place = tmp_path / "engram-l1-r0of1.bin.partial"
    if "bytes" in other:
        place.write_bytes(other["bytes"])
    else:
        source = model
        if "seed" in other:
            source = tmp_path / "other"
            write_checkpoint(source, vocab=1409, layers=(1,), seed=2)
        pack_here(source, tmp_path, 0, 1, other.get("revision", "1bae0e1"))[0].rename(place)
    status, events = run_all(pack_argv(model, tmp_path, 0, 1))
    assert status == 0
    [warned] = [event["text"] for event in events if event.get("state") == "warn"]
    assert warned.startswith(f"{place} is written anew: ") and said in warned
    assert place.with_suffix("").read_bytes() == whole


def test_a_second_packer_is_refused_while_the_first_works(model: Path, whole: bytes, tmp_path: Path) -> None:
    [job] = jobs(model, tmp_path, 0, 1)
    refusals: list[str] = []

    def meanwhile(_: dict[str, Any]) -> None:
        with pytest.raises(FileError, match="is being written by another packer") as caught:
            engram_pack.pack(job, lambda _: None)
        refusals.append(caught.value.fix)

    engram_pack.pack(job, meanwhile)
    assert refusals and job.path.read_bytes() == whole


def test_a_packer_that_waited_at_the_lock_does_not_touch_the_finished_file(
    model: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has opened the partial file when the first packer renames it: what it then locks is the finished file."""
    [job] = jobs(model, tmp_path, 0, 1)
    [late] = jobs(model, tmp_path, 0, 1, "fb2764a")  # another revision would begin anew
    flock = engram_pack.fcntl.flock
    turns = iter([True])

    def finish_first(handle: int, kind: int) -> None:
        if next(turns, False):
            job.partial.unlink()
            pack_here(model, tmp_path / "elsewhere", 0, 1)[0].rename(job.path)
        flock(handle, kind)

    monkeypatch.setattr(engram_pack.fcntl, "flock", finish_first)
    with pytest.raises(FileError, match="is another file: checkpoint revision 1bae0e1, wanted fb2764a"):
        engram_pack.pack(late, lambda _: None)
    assert job.path.read_bytes() == whole
    engram_pack.pack(job, lambda _: None)
    assert job.path.read_bytes() == whole and not job.partial.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MB in memory."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "packer-test", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_disk_that_fills_up_in_the_middle_is_named_and_packing_goes_on_later(
    model: Path, whole: bytes, small_disk: Path
) -> None:
    [job] = jobs(model, small_disk, 0, 1)
    with pytest.raises(FileError, match=r"the disk is full at byte \d+: .*\(errno 28\)") as caught:
        engram_pack.pack(job, lambda _: None)
    assert str(job.partial) in caught.value.what and "goes on where it stopped" in caught.value.fix
    kept = job.partial.stat().st_size
    assert 2 << 20 < kept <= 3 << 20 and not job.path.exists()
    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)
    told: list[dict[str, Any]] = []
    engram_pack.pack(job, told.append)
    assert told[0]["done_bytes"] == kept // PAGE_BYTES * PAGE_BYTES
    assert job.path.read_bytes() == whole


@pytest.mark.parametrize("call", ["preadv", "pwritev", "fdatasync"])
def test_a_failed_transfer_ends_with_file_and_errno_and_packing_goes_on_later(
    model: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(engram_copy, "BLOCK_PAGES", 96)
    monkeypatch.setattr(engram_copy, "SYNC_BYTES", 1 << 20)
    [job] = jobs(model, tmp_path, 0, 1)
    real = getattr(os, call)
    left = iter(range(1))  # the second sync always comes, a third only where the first two were quick

    def failing(*arguments: Any) -> Any:
        if next(left, None) is None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(FileError, match=r"at byte \d+ failed: .*\(errno 5\)") as caught:
            engram_pack.pack(job, lambda _: None)
    place = job.source.weight.path if call == "preadv" else job.partial
    assert str(place) in caught.value.what and not job.path.exists()
    engram_pack.pack(job, lambda _: None)
    assert job.path.read_bytes() == whole


def test_short_transfers_are_continued(
    model: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(SEED)
    read, write = os.preadv, os.pwritev

    def short_read(handle: int, buffers: list[Any], offset: int) -> int:
        count = dice.randrange(1, len(buffers[0]) + 1)
        return read(handle, [buffers[0][:count] if dice.random() < 0.5 else buffers[0]], offset)

    def short_write(handle: int, parts: list[Any], offset: int) -> int:
        count = dice.randrange(1, len(parts) + 1)
        last = parts[count - 1]
        return write(handle, [*parts[: count - 1], last[: dice.randrange(1, len(last) + 1)]], offset)

    monkeypatch.setattr(engram_copy, "BLOCK_PAGES", 96)
    monkeypatch.setattr(os, "preadv", short_read)
    monkeypatch.setattr(os, "pwritev", short_write)
    [path] = pack_here(model, tmp_path, 0, 1)
    assert path.read_bytes() == whole


def test_a_shard_that_is_cut_while_it_is_read_is_named(model: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model", vocab=1409, layers=(1,))
    [job] = jobs(tmp_path / "model", tmp_path, 0, 1)
    os.truncate(job.source.weight.path, 5_000_000)
    with pytest.raises(FileError, match=r"ends at byte 5000000, \d+ more were expected"):
        engram_pack.pack(job, lambda _: None)
    assert not job.path.exists()
