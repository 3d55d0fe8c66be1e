"""Reads and names that fail around a packing: said with file, place and reason, and nothing good is lost."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_overlay import engram, engram_check, engram_pack, node_view
from spark_overlay.engram_file import FileError
from spark_overlay.safetensors_source import read_exactly

from tests.overlay.checkpoints import write_checkpoint
from tests.overlay.packing import REVISION, jobs, pack_argv, pack_here, run_all


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_checkpoint(folder, vocab=1409, layers=(1,))
    return folder


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    [path] = pack_here(model, tmp_path_factory.mktemp("whole"), 0, 1)
    return path.read_bytes()


def broken(monkeypatch: pytest.MonkeyPatch, call: str, path: Path, beyond: int = 0) -> None:
    """os.pread or os.preadv fails with EIO in `path` from byte `beyond` on."""
    real = getattr(os, call)

    def failing(handle: int, what: Any, offset: int) -> Any:
        if os.path.samestat(os.fstat(handle), path.stat()) and offset >= beyond:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(handle, what, offset)

    monkeypatch.setattr(os, call, failing)


@pytest.mark.parametrize(("beyond", "byte"), [(0, 0), (4096 * 40, None)])
def test_a_packed_file_that_cannot_be_read_is_named_with_place_and_next_step(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beyond: int, byte: int | None
) -> None:
    [path] = pack_here(model, tmp_path, 0, 1)
    [job] = jobs(model, tmp_path, 0, 1)
    broken(monkeypatch, "pread", path, beyond)
    with pytest.raises(FileError, match=rf"{path}: read at byte \d+ failed: Input/output error \(errno 5\)") as caught:
        engram_pack.is_done(job)
    assert byte is None or f"at byte {byte} " in caught.value.what
    assert "dmesg" in caught.value.fix and f"moving {path} away" in caught.value.fix
    [row] = node_view.engram_view(model, tmp_path, 0, 1, REVISION)["files"]
    assert (row["error"], row["fix"], row["done"]) == (caught.value.what, caught.value.fix, False)
    if beyond == 0:
        with pytest.raises(FileError, match=rf"{path}: read at byte 0 failed"):
            engram_check.describe(path)


def test_a_packed_file_that_may_not_be_opened_is_named_with_a_next_step(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [path] = pack_here(model, tmp_path, 0, 1)
    real = os.open

    def refused(place: Any, *more: Any, **options: Any) -> int:
        if Path(place) == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        return real(place, *more, **options)

    monkeypatch.setattr(os, "open", refused)
    [row] = node_view.engram_view(model, tmp_path, 0, 1, REVISION)["files"]
    assert row["error"] == f"{path} cannot be opened: Permission denied (errno 13)" and "owner" in row["fix"]


@pytest.mark.parametrize("call", ["ftruncate", "fsync"])
def test_a_call_that_knows_no_name_is_reported_with_the_file(
    model: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    [job] = jobs(model, tmp_path, 0, 1)
    job.partial.write_bytes(whole[:10_000])

    def failing(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(FileError, match=rf"^{job.partial}: Input/output error \(errno 5\)$") as caught:
            engram_pack.pack(job, lambda _: None)
    assert "dmesg" in caught.value.fix
    if call == "ftruncate":
        assert job.partial.read_bytes() == whole[:10_000]


def test_a_check_that_cannot_read_says_to_move_the_file(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing would not go on there: it leaves a file alone that is in place."""
    [path] = pack_here(model, tmp_path, 0, 1)
    broken(monkeypatch, "preadv", path, 4096 * 40)
    with pytest.raises(FileError, match=rf"{path}: read at byte \d+ failed") as caught:
        engram_check.check(path, pages=400)
    assert f"move {path} away" in caught.value.fix and "goes on" not in caught.value.fix


def test_a_checkpoint_that_cannot_be_read_is_named_by_the_packer_and_the_look(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = next(model.glob("*.safetensors"))
    broken(monkeypatch, "pread", shard)
    assert engram.main(pack_argv(model, tmp_path, 0, 1)[3:]) == 1
    error = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert error["event"] == "error" and error["fix"]
    assert error["what"].startswith(f"{shard}: read at byte ") and "(errno 5)" in error["what"]
    assert node_view.engram_view(model, tmp_path, 0, 1, REVISION)["error"] == error["what"]


def test_a_file_that_ends_too_early_is_named(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(100))
    with path.open("rb") as file, pytest.raises(FileError, match=rf"^{path} ends at byte 100, 20 more were expected$"):
        read_exactly(file.fileno(), 90, 30, path)


def test_a_read_of_the_partial_file_that_fails_once_costs_no_work(
    model: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only another beginning is a reason to begin anew; of a failed read nobody knows what was there."""
    [job] = jobs(model, tmp_path, 0, 1)
    kept = len(whole) // 2 // 4096 * 4096
    job.partial.write_bytes(whole[:kept])
    with monkeypatch.context() as patch:
        broken(patch, "preadv", job.partial)
        with pytest.raises(FileError, match=rf"{job.partial}: read at byte 0 failed: .*\(errno 5\)") as caught:
            engram_pack.pack(job, lambda _: None)
    assert f"remove {job.partial}" in caught.value.fix, "what is never read again would stop every packing"
    assert job.partial.read_bytes() == whole[:kept]
    told: list[dict[str, Any]] = []
    engram_pack.pack(job, told.append)
    assert told[0]["done_bytes"] == kept and job.path.read_bytes() == whole


@pytest.mark.parametrize("links", [None, errno.EPERM, errno.EOPNOTSUPP], ids=["links", "EPERM", "EOPNOTSUPP"])
def test_a_file_that_comes_while_the_rows_are_packed_is_not_replaced(
    model: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: int | None
) -> None:
    [job] = jobs(model, tmp_path, 0, 1)
    without_links(monkeypatch, links)

    def comes(event: dict[str, Any]) -> None:
        if event["done_bytes"] == len(whole):
            job.path.write_bytes(b"somebody's")

    with pytest.raises(FileError, match="came there while") as caught:
        engram_pack.pack(job, comes)
    assert str(job.path) in caught.value.what and f"move {job.path} away" in caught.value.fix
    assert job.path.read_bytes() == b"somebody's" and job.partial.read_bytes() == whole
    job.path.rename(tmp_path / "elsewhere")
    engram_pack.pack(job, lambda _: None)
    assert job.path.read_bytes() == whole and not job.partial.exists()


def without_links(monkeypatch: pytest.MonkeyPatch, answer: int | None) -> None:
    def refused(*_: Any, **__: Any) -> None:
        assert answer is not None
        raise OSError(answer, os.strerror(answer))

    if answer is not None:
        monkeypatch.setattr(os, "link", refused)


def stops_before_the_partial_name_goes(job: engram_pack.Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power loss between the two names leaves: one file under both."""

    def lost(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lost)
        with pytest.raises(KeyboardInterrupt):
            engram_pack.pack(job, lambda _: None)
    assert job.partial.samefile(job.path)


def test_a_finished_file_that_kept_its_partial_name_loses_it(
    model: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job] = jobs(model, tmp_path, 0, 1)
    stops_before_the_partial_name_goes(job, monkeypatch)
    status, events = run_all(pack_argv(model, tmp_path, 0, 1))
    assert (status, [each["event"] for each in events if each.get("state") == "warn"]) == (0, [])
    assert job.path.read_bytes() == whole and not job.partial.exists()


def test_a_file_that_was_moved_away_is_not_written_to_by_its_second_name(
    model: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job] = jobs(model, tmp_path, 0, 1)
    stops_before_the_partial_name_goes(job, monkeypatch)
    damaged = flipped(whole, 4096 * 30 + 5)
    job.path.write_bytes(damaged)
    away = job.path.rename(tmp_path / "away")
    engram_pack.pack(job, lambda _: None)
    assert (job.path.read_bytes() == whole, away.read_bytes() == damaged) == (True, True)


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


OPENERS: list[Callable[[Path], object]] = [engram_check.describe, engram_check.check]


@pytest.mark.parametrize("look", OPENERS, ids=["info", "check"])
def test_a_file_that_ends_in_its_header_is_named(look: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "engram-l1-r0of1.bin"
    path.write_bytes(b"SPKENG02" + bytes(50))
    with pytest.raises(FileError, match=f"{path} ends inside its header"):
        look(path)
