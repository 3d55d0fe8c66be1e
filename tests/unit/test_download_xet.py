"""The xet transport's seam: streams from an offset where the library can, HTTP where it cannot. The CAS itself is the
library's; only the real hub shows it (docs/unverified.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sparktui.readings.checkpoint_listing import PARTIAL_FOLDER, PARTIAL_SUFFIX
from sparktui.remote import checkpoint_folder, hub_child
from sparktui.remote.hub import HubAccess, fetch_request, list_revision
from tests.hub import Hub, make_repository

NAME = "model-00001-of-00001.safetensors"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(make_repository(tmp_path / "repository", shards=1)) as running:
        yield running


async def prepared(hub: Hub, model_dir: Path, have: int = 0) -> dict[str, Any]:
    """A folder whose record says that the shard is on xet, with `have` bytes of it there."""
    listing = await list_revision(HubAccess(hub.url), hub.repo, "1bae0e1")
    files = tuple(replace(each, xet_hash="ab" * 32) if each.path == NAME else each for each in listing.files)
    checkpoint_folder.write_record(model_dir, replace(listing, files=files))
    part = model_dir / PARTIAL_FOLDER / (NAME + PARTIAL_SUFFIX)
    part.parent.mkdir(parents=True)
    part.write_bytes(hub.files[NAME].read_bytes()[:have])
    return fetch_request(HubAccess(hub.url), model_dir, workers=1, xet=True, pause_seconds=0.01)


class Store:
    """Stands in for the library's session: ordered streams from an offset, breaking off `breaks` times."""

    def __init__(self, data: bytes, breaks: int = 0) -> None:
        self.data, self.breaks, self.starts = data, breaks, []  # type: ignore[var-annotated]

    def new_download_stream_group(self, **_: Any) -> Store:
        return self

    def download_stream(self, info: Any, start: int | None = None, end: int | None = None) -> Iterator[bytes]:
        self.starts.append(start or 0)
        rest = self.data[start or 0 :]
        for at in range(0, len(rest), 10_000):
            if self.breaks and at >= 50_000:
                self.breaks -= 1
                raise RuntimeError("the stream broke off")
            yield rest[at : at + 10_000]


def use(monkeypatch: pytest.MonkeyPatch, session: object) -> None:
    from huggingface_hub.utils import _xet

    library = ModuleType("hf_xet")
    library.XetFileInfo = lambda *given: given  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hf_xet", library)
    info = SimpleNamespace(endpoint="http://cas", access_token="t", expiration_unix_epoch=0)
    monkeypatch.setattr(_xet, "refresh_xet_connection_info", lambda **_: info)
    monkeypatch.setattr(_xet, "get_xet_session", lambda: session)


@pytest.mark.parametrize(("have", "breaks"), [(0, 0), (70_000, 0), (0, 3)])
async def test_the_stream_goes_on_from_the_byte_reached(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, have: int, breaks: int
) -> None:
    data = hub.files[NAME].read_bytes()
    store = Store(data, breaks)
    use(monkeypatch, store)
    hub_child.Fetch(await prepared(hub, tmp_path / "m-1017", have)).run()
    assert (tmp_path / "m-1017" / NAME).read_bytes() == data
    assert store.starts[0] == have
    assert store.starts == [have + 50_000 * step for step in range(breaks + 1)]
    assert not any(NAME in request for request in hub.requests), "the shard did not come over HTTP"


async def test_a_library_that_cannot_stream_falls_back_to_http(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, SimpleNamespace())
    hub_child.Fetch(await prepared(hub, tmp_path / "m-1017", 70_000)).run()
    assert (tmp_path / "m-1017" / NAME).read_bytes() == hub.files[NAME].read_bytes()
    assert "xet_off" in capsys.readouterr().out
    assert hub.served_bytes == hub.total_bytes - 70_000


def test_the_installed_library_has_what_the_seam_uses() -> None:
    import hf_xet
    from huggingface_hub.utils import _xet

    assert hasattr(hf_xet.XetSession, "new_download_stream_group")
    assert hasattr(hf_xet.XetDownloadStreamGroup, "download_stream")
    for name in ("xet_connection_info_refresh_url", "refresh_xet_connection_info", "get_xet_session", "XetFileData"):
        assert hasattr(_xet, name)
