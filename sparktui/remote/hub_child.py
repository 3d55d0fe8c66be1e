"""The process that talks to the hub: lists a revision, or fetches its files. One JSON request on stdin.

A process of its own, so that a hang or a kill is survivable and the token is in nobody's argv or environment. It ends
by itself when stdin closes (`end_with_stdin`), which is what its parent's death looks like. It answers in JSON lines.

Files arrive in `MODEL_DIR/.sparktui/partial/NAME.partial` and take their own name when their size and, where it could
be computed, their hash match. The library's own local-folder download begins a part file anew after a kill (it has a
random name since 2.x); with shards of 94.6 GiB that is half the work, so bytes are appended here instead: xet streams
from an offset, HTTP by Range.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sparktui.readings.checkpoint_listing import (
    PARTIAL_FOLDER,
    PARTIAL_SUFFIX,
    RECORD_FILE,
    RECORD_FOLDER,
    HubFile,
    parse_listing,
)
from sparktui.remote.hub_listing import list_revision
from sparktui.remote.hub_refusals import Refused, refusal

RANGE_BYTES = 4 * 1024**3
"""The most one HTTP request asks for: the hub's CDN does not serve a whole body over 50 GB, ranges it does."""
SYNC_BYTES = 256 * 1024**2
READ_TIMEOUT_SECONDS = 60.0
TRIES_WITHOUT_GAIN = 5
SMALL_BYTES = 16 * 1024**2


class Transient(Exception):
    """Worth another try from the byte reached."""


_emit_lock = threading.Lock()


def emit(event: str, **fields: Any) -> None:
    with _emit_lock:
        sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
        sys.stdout.flush()


class _Part:
    """A file on its way: bytes are appended, a running sha256 is kept while it began at byte 0 in this process."""

    def __init__(self, path: Path, file: HubFile) -> None:
        self.path = path
        self._out = path.open("ab", buffering=0)
        self.size_bytes = self._out.tell()
        self._unsynced = 0
        self.digest: Any = hashlib.sha256() if self.size_bytes == 0 else None
        if self.size_bytes > file.size_bytes:
            self.restart()

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = self._out.write(view) or 0
            if self.digest is not None:
                self.digest.update(view[:written])
            self.size_bytes += written
            self._unsynced += written
            view = view[written:]
        if self._unsynced >= SYNC_BYTES:
            self.sync()

    def restart(self) -> None:
        self._out.truncate(0)
        self.size_bytes = 0
        self.digest = hashlib.sha256()

    def sync(self) -> None:
        os.fdatasync(self._out.fileno())
        self._unsynced = 0

    def close(self) -> None:
        self._out.close()


class Fetch:
    """Brings the files that are missing or of the wrong size; stops all workers at the first refusal."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.folder = Path(request["model_dir"])
        try:
            listing = parse_listing((self.folder / RECORD_FILE).read_text(encoding="utf-8"))
        except OSError:
            listing = None
        if listing is None:
            raise Refused("other", f"{self.folder / RECORD_FILE} holds no listing of the revision")
        self.listing = listing
        self.workers = max(int(request.get("workers", 2)), 1)
        self.use_xet = bool(request.get("xet", True))
        self.pause_seconds = float(request.get("pause_seconds", 1.0))
        self.read_timeout = float(request.get("read_timeout_seconds", READ_TIMEOUT_SECONDS))
        self.endpoint = request.get("endpoint") or None
        self.token = request.get("token") or None
        self.stop = threading.Event()

    def run(self) -> None:
        import httpx
        from huggingface_hub.utils._headers import build_hf_headers

        self.headers = build_hf_headers(token=self.token, library_name="sparktui")
        pending = [each for each in self.listing.files if self._size(self.folder / each.path) != each.size_bytes]
        pending.sort(key=lambda each: (each.size_bytes > SMALL_BYTES, -each.size_bytes))
        timeout = httpx.Timeout(15.0, read=self.read_timeout)
        emit("begun", files=len(pending))
        with httpx.Client(timeout=timeout, follow_redirects=True) as client, ThreadPoolExecutor(self.workers) as pool:
            self.client = client
            futures = [pool.submit(self._bring, each) for each in pending]
            first: BaseException | None = None
            for future in futures:
                error = future.exception()
                if error is not None and first is None:
                    first = error
            if first is not None:
                raise first

    @staticmethod
    def _size(path: Path) -> int | None:
        try:
            return path.stat().st_size
        except OSError:
            return None

    def _bring(self, file: HubFile) -> None:
        if self.stop.is_set():
            return
        try:
            self._bring_with_tries(file)
        except Refused:
            self.stop.set()
            raise
        except OSError as error:
            self.stop.set()
            raise Refused("disk", f"cannot write {file.path}: {error.strerror or error}") from error

    def _bring_with_tries(self, file: HubFile) -> None:
        partial = self.folder / PARTIAL_FOLDER / (file.path + PARTIAL_SUFFIX)
        partial.parent.mkdir(parents=True, exist_ok=True)
        part = _Part(partial, file)
        tries, reached = 0, part.size_bytes
        try:
            while not self.stop.is_set():
                problem = "the connection ended early"
                try:
                    self._append(file, part)
                except Transient as error:
                    problem = str(error)
                part.sync()
                if part.size_bytes == file.size_bytes:
                    self._finish(file, part)
                    return
                tries = 0 if part.size_bytes > reached else tries + 1
                reached = max(reached, part.size_bytes)
                if tries >= TRIES_WITHOUT_GAIN:
                    raise Refused("unreachable", f"{file.path}: {problem} ({tries} tries without a byte)")
                if not self.stop.is_set():
                    emit("retry", path=file.path, at=part.size_bytes, why=problem)
                    self.stop.wait(self.pause_seconds * 2**tries)
        finally:
            part.close()

    def _append(self, file: HubFile, part: _Part) -> None:
        for data in self._bytes_from(file, part):
            if part.size_bytes + len(data) > file.size_bytes:
                raise Refused("size", f"{file.path} is longer than the {file.size_bytes} bytes that the hub lists")
            part.write(data)
            if self.stop.is_set():
                break

    def _bytes_from(self, file: HubFile, part: _Part) -> Iterator[bytes]:
        if part.size_bytes >= file.size_bytes:
            return
        if self.use_xet and file.xet_hash:
            stream = self._open_xet(file, part.size_bytes)
            if stream is not None:
                yield from stream
                return
        while part.size_bytes < file.size_bytes and not self.stop.is_set():
            before = part.size_bytes
            yield from self._http_range(file, part)
            if part.size_bytes <= before:
                return

    def _http_range(self, file: HubFile, part: _Part) -> Iterator[bytes]:
        import httpx
        from huggingface_hub import hf_hub_url

        start = part.size_bytes
        url = hf_hub_url(self.listing.repo, file.path, revision=self.listing.revision, endpoint=self.endpoint)
        end = min(start + RANGE_BYTES, file.size_bytes) - 1
        headers = {**self.headers, "Range": f"bytes={start}-{end}", "Accept-Encoding": "identity"}
        try:
            with self.client.stream("GET", url, headers=headers) as response:
                status = response.status_code
                if status == 416:
                    raise Refused("size", f"{file.path} is shorter than the {file.size_bytes} bytes that the hub lists")
                refused = refusal(status, file.path, response.headers.get("Retry-After"))
                if refused is not None:
                    raise refused
                if status not in (200, 206):
                    raise Transient(f"the hub answered {status}")
                self._check_total(file, response.headers, status)
                if status == 200 and start > 0:
                    emit("from_zero", path=file.path)
                    part.restart()
                yield from response.iter_raw()
        except httpx.HTTPError as error:
            raise Transient(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error

    @staticmethod
    def _check_total(file: HubFile, headers: Any, status: int) -> None:
        """The server's own idea of the whole size must be the listing's, or the wrong file would be joined together."""
        text = headers.get("Content-Range", "").rpartition("/")[2] if status == 206 else headers.get("Content-Length")
        if text and text.isdigit() and int(text) != file.size_bytes:
            what = f"{file.path} has {text} bytes on the hub now, the listing says {file.size_bytes}"
            raise Refused("size", what)

    def _open_xet(self, file: HubFile, start: int) -> Iterator[bytes] | None:
        """The xet transport from an offset; None where the installed library cannot do that (HTTP takes over)."""
        try:
            from hf_xet import XetFileInfo  # type: ignore[import-untyped]
            from huggingface_hub.utils import _xet

            url = _xet.xet_connection_info_refresh_url(
                token_type=_xet.XetTokenType.READ,
                repo_id=self.listing.repo,
                repo_type="model",
                revision=self.listing.revision,
                endpoint=self.endpoint,
            )
            data = _xet.XetFileData(file_hash=str(file.xet_hash), refresh_route=url)
            info = _xet.refresh_xet_connection_info(file_data=data, headers=self.headers)
            session: Any = _xet.get_xet_session()  # type: ignore[no-untyped-call]
            group = session.new_download_stream_group(
                endpoint=info.endpoint,
                token=info.access_token,
                token_expiry_unix_secs=info.expiration_unix_epoch,
                token_refresh_url=url,
                token_refresh_headers=self.headers,
                custom_headers=_xet.xet_headers_without_auth(self.headers),
            )
            stream: Iterator[bytes] = group.download_stream(
                XetFileInfo(file.xet_hash, file.size_bytes), start=start or None
            )
        except (ImportError, AttributeError, TypeError) as error:
            emit("xet_off", why=f"this version of the xet library cannot stream ({error})")
            self.use_xet = False
            return None
        except Exception as error:
            response = getattr(error, "response", None)
            refused = None
            if response is not None:
                refused = refusal(response.status_code, file.path, response.headers.get("Retry-After"))
            raise refused or Transient(f"xet: {error}") from error
        return self._xet_bytes(stream)

    @staticmethod
    def _xet_bytes(stream: Iterator[bytes]) -> Iterator[bytes]:
        try:
            yield from stream
        except Exception as error:
            raise Transient(f"xet: {error}") from error

    def _finish(self, file: HubFile, part: _Part) -> None:
        partial, digest, verified = part.path, part.digest, "size"
        if file.sha256 and digest is not None:
            self._expect(file, partial, digest.hexdigest(), file.sha256)
            verified = "sha256"
        elif file.git_sha1 and not file.sha256 and file.size_bytes <= SMALL_BYTES:
            body = partial.read_bytes()
            blob = hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False)
            self._expect(file, partial, blob.hexdigest(), file.git_sha1)
            verified = "git"
        final = self.folder / file.path
        final.parent.mkdir(parents=True, exist_ok=True)
        partial.replace(final)
        folder = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        emit("file", path=file.path, bytes=file.size_bytes, verified=verified)

    @staticmethod
    def _expect(file: HubFile, partial: Path, got: str, want: str) -> None:
        if got != want:
            partial.unlink()
            raise Refused("content", f"{file.path} arrived with other content than the hub lists; its part is deleted")


def _hold_lock(folder: Path, wait_seconds: float = 15.0) -> int:
    """One fetch per folder, whoever started it; a predecessor that lost its parent ends within moments."""
    (folder / RECORD_FOLDER).mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / RECORD_FOLDER / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(handle)
                raise Refused("locked", f"another download writes to {folder}") from None
            time.sleep(0.2)


def _end_with_parent() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdin.read()
    os._exit(75)


def main() -> int:
    request = json.loads(sys.stdin.readline())
    if request.get("end_with_stdin"):
        threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if request["do"] == "list":
            emit("listing", listing=json.loads(list_revision(request).to_json()))
        else:
            lock = _hold_lock(Path(request["model_dir"]))
            Fetch(request).run()
            os.close(lock)
    except Refused as error:
        emit("refused", kind=error.kind, what=error.what, retry_after=error.retry_after)
        return 1
    except Exception as error:  # the parent turns this into a sentence; a traceback helps nobody there
        emit("refused", kind="unreachable" if _is_network(error) else "other", what=f"{type(error).__name__}: {error}")
        return 1
    emit("done")
    return 0


def _is_network(error: BaseException) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(
        names & {"TransportError", "ConnectError", "TimeoutException", "OfflineModeIsEnabled", "ConnectionError"}
    )


if __name__ == "__main__":
    status = main()
    # Worker threads of a library must not hold the exit.
    sys.stdout.flush()
    os._exit(status)
