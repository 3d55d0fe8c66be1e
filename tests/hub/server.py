"""A small hub for tests: the routes of the Hugging Face API that a download uses, over a folder, with faults.

It speaks plain HTTP (no xet), serves ranges, and counts what it sent, so that a test can say how much came twice.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

DEFAULT_REPO = "deepseek-ai/DeepSeek-V4.1-Flash-1017"
DEFAULT_PREFIX = "1bae0e1"
PIECE_BYTES = 32 * 1024


@dataclass
class Faults:
    """What goes wrong, and how often; counters go down as faults happen.

    Attributes:
        cut_after_bytes: end the connection after so many bytes of a file's body, `cuts` times.
        stall_after_bytes: stop sending (connection open) once so many bytes were served in all, `stalls` times.
        rate_limited: so many file requests are answered with 429; `retry_after` is that header, None leaves it out.
        listing_rate_limited: the same for API requests.
        wrong_size: path -> bytes that the served file is longer (or shorter) than the listing says.
        spoiled: paths whose content is not what the listing's hash says.
        token: when set, requests without this bearer token get 401.
        bytes_per_second: speed of each response; None is no limit.
        no_ranges: Range is ignored, as some mirrors do.
    """

    cut_after_bytes: int | None = None
    cuts: int = 0
    stall_after_bytes: int | None = None
    stalls: int = 0
    rate_limited: int = 0
    listing_rate_limited: int = 0
    retry_after: str | None = "1"
    wrong_size: dict[str, int] = field(default_factory=dict)
    spoiled: set[str] = field(default_factory=set)
    token: str | None = None
    bytes_per_second: int | None = None
    no_ranges: bool = False


@dataclass
class Hub:
    """One repository at one revision, served from `folder`. `with Hub(folder) as hub: … hub.url`."""

    folder: Path
    repo: str = DEFAULT_REPO
    revision: str = ""
    other_commits: tuple[str, ...] = ()
    faults: Faults = field(default_factory=Faults)
    address: str = "127.0.0.1"
    port: int = 0
    served_bytes: int = 0
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files = {p.relative_to(self.folder).as_posix(): p for p in sorted(self.folder.rglob("*")) if p.is_file()}
        self.tree = [self._entry(path) for path in self.files]
        if not self.revision:
            self.revision = DEFAULT_PREFIX + hashlib.sha1(json.dumps(self.tree).encode()).hexdigest()[7:]
        self.lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    def _entry(self, path: str) -> dict[str, Any]:
        body = self.files[path].read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
        entry: dict[str, Any] = {"type": "file", "oid": blob, "size": len(body), "path": path}
        if path.endswith(".safetensors"):
            entry["lfs"] = {"oid": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 134}
        return entry

    @property
    def total_bytes(self) -> int:
        return sum(int(each["size"]) for each in self.tree)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://{self.address}:{self._server.server_address[1]}"

    def __enter__(self) -> Hub:
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self._server = ThreadingHTTPServer((self.address, self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server = None


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        hub, split = self.hub, urlsplit(self.path)
        path = unquote(split.path)
        with hub.lock:
            hub.requests.append(f"{self.command} {path}")
        if hub.faults.token and self.headers.get("Authorization") != f"Bearer {hub.faults.token}":
            self._error(401, "Access to model is restricted", "GatedRepo")
        elif path.startswith("/api/"):
            self._api(path, parse_qs(split.query))
        else:
            match = re.fullmatch(rf"/{re.escape(hub.repo)}/resolve/([^/]+)/(.+)", path)
            if match is None:
                self._error(404, "Repository not found", "RepoNotFound")
            elif match[1] not in (hub.revision, "main"):
                self._error(404, "Invalid rev id", "RevisionNotFound")
            elif match[2] not in hub.files:
                self._error(404, "Entry not found", "EntryNotFound")
            else:
                self._file(match[2], body)

    def _take(self, name: str) -> bool:
        with self.hub.lock:
            left = getattr(self.hub.faults, name)
            if left > 0:
                setattr(self.hub.faults, name, left - 1)
            return bool(left > 0)

    def _too_many(self) -> None:
        after = self.hub.faults.retry_after
        self._error(429, "Too many requests", "", {"Retry-After": after} if after else {})

    def _api(self, path: str, query: dict[str, list[str]]) -> None:
        hub = self.hub
        if self._take("listing_rate_limited"):
            return self._too_many()
        base = f"/api/models/{hub.repo}"
        if path != base and not path.startswith(base + "/"):
            return self._error(404, "Repository not found", "RepoNotFound")
        what, _, revision = path[len(base) :].strip("/").partition("/")
        if revision and revision not in (hub.revision, "main"):
            return self._error(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        if what in ("", "revision"):
            siblings = [{"rfilename": name} for name in hub.files]
            return self._json(
                {"id": hub.repo, "modelId": hub.repo, "sha": hub.revision, "siblings": siblings, "tags": []}
            )
        if what == "refs":
            main = {"name": "main", "ref": "refs/heads/main", "targetCommit": hub.revision}
            return self._json({"branches": [main], "converts": [], "tags": []})
        if what == "commits":
            ids = [hub.revision, *hub.other_commits]
            row = {"title": "", "message": "", "date": "2026-10-17T00:00:00.000Z", "authors": []}
            return self._json([{"id": each, **row} for each in ids] if query.get("p", ["0"]) == ["0"] else [])
        if what == "tree":
            return self._json(hub.tree)
        return self._error(404, "no such route", "EntryNotFound")

    def _file(self, name: str, body: bool) -> None:
        hub = self.hub
        if body and self._take("rate_limited"):
            return self._too_many()
        data = hub.files[name].read_bytes()
        change = hub.faults.wrong_size.get(name, 0)
        data = data + b"\0" * change if change >= 0 else data[:change]
        if name in hub.faults.spoiled:
            data = bytes(len(data))
        start, end, status = 0, len(data), 200
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted and not hub.faults.no_ranges:
            start, status = int(wanted[1]), 206
            end = min(int(wanted[2]) + 1, len(data)) if wanted[2] else len(data)
            if start >= len(data):
                return self._error(416, "range", "", {"Content-Range": f"bytes */{len(data)}"})
        entry = next(each for each in hub.tree if each["path"] == name)
        self.send_response(status)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{(entry.get("lfs") or entry)["oid"]}"')
        self.send_header("X-Repo-Commit", hub.revision)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.end_headers()
        if body:
            self._send(data[start:end])
        return None

    def _send(self, data: bytes) -> None:
        hub, faults, sent = self.hub, self.hub.faults, 0
        cutting = faults.cut_after_bytes is not None and self._take("cuts")
        while sent < len(data):
            piece = data[sent : sent + PIECE_BYTES]
            if cutting and faults.cut_after_bytes is not None:
                piece = piece[: max(faults.cut_after_bytes - sent, 0)]
                if not piece:
                    self.close_connection = True
                    self.connection.close()
                    return
            past = faults.stall_after_bytes is not None and hub.served_bytes >= faults.stall_after_bytes
            if past and self._take("stalls"):
                time.sleep(3600)
            try:
                self.wfile.write(piece)
            except OSError:
                self.close_connection = True
                return
            sent += len(piece)
            with hub.lock:
                hub.served_bytes += len(piece)
            if faults.bytes_per_second:
                time.sleep(len(piece) / faults.bytes_per_second)

    def _json(self, value: object) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _error(self, status: int, text: str, code: str, headers: dict[str, str] | None = None) -> None:
        body = json.dumps({"error": text}).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", text)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
