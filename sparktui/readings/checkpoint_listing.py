"""What the hub says a checkpoint consists of, and how far a folder has come. Pure.

Source: the hub's tree API (`path`, `size`, `lfs.oid`, `oid`, `xetHash`). Completeness is judged by the sizes of the
pinned revision's own tree and by the index file, never by a count of shards and never by a program's exit status.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from sparktui.readings.checkpoint import completeness

RECORD_FOLDER = ".sparktui"
"""Inside the checkpoint's folder: our record and the files that are still on their way; no loader looks there."""
RECORD_FILE = f"{RECORD_FOLDER}/revision.json"
PARTIAL_FOLDER = f"{RECORD_FOLDER}/partial"
PARTIAL_SUFFIX = ".partial"
FOLDER_SUFFIX = "-1017"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of the pinned revision; `sha256` only for large files, `git_sha1` (of the blob) for all that have it."""

    path: str
    size_bytes: int
    sha256: str | None = None
    git_sha1: str | None = None
    xet_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A revision's files.

    Attributes:
        asked: what the settings say (a prefix or a full hash); `revision` is the full hash that it named.
    """

    repo: str
    asked: str
    revision: str
    files: tuple[HubFile, ...]

    @property
    def total_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)

    def answers(self, repo: str, asked: str) -> bool:
        """Whether this listing is for what is asked now; a full hash never changes its files."""
        return self.repo == repo and bool(asked) and self.revision.startswith(asked.lower())

    def to_json(self) -> str:
        rows = [
            {
                "path": each.path,
                "size": each.size_bytes,
                **({"sha256": each.sha256} if each.sha256 else {}),
                **({"git_sha1": each.git_sha1} if each.git_sha1 else {}),
                **({"xet_hash": each.xet_hash} if each.xet_hash else {}),
            }
            for each in self.files
        ]
        plain = {"v": 1, "repo": self.repo, "asked": self.asked, "revision": self.revision, "files": rows}
        return json.dumps(plain, indent=1) + "\n"


def is_safe_path(path: str) -> bool:
    """Whether a hub's file name stays inside the folder it is written to, and outside our own record."""
    parts = PurePosixPath(path).parts
    return (
        bool(parts)
        and path.isprintable()
        and "\\" not in path
        and not path.startswith("/")
        and ".." not in parts
        and parts[0] != RECORD_FOLDER
        and str(PurePosixPath(path)) == path
    )


def parse_listing(text: str) -> Listing | None:
    """The record of an earlier resolve; None when it is absent, torn or of another version."""
    try:
        plain = json.loads(text)
        if plain["v"] != 1:
            return None
        files = tuple(
            HubFile(
                path=str(row["path"]),
                size_bytes=int(row["size"]),
                sha256=row.get("sha256"),
                git_sha1=row.get("git_sha1"),
                xet_hash=row.get("xet_hash"),
            )
            for row in plain["files"]
        )
        listing = Listing(str(plain["repo"]), str(plain["asked"]), str(plain["revision"]), files)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    good = len(listing.revision) == 40 and files and all(is_safe_path(f.path) and f.size_bytes >= 0 for f in files)
    return listing if good else None


@dataclass(frozen=True, slots=True)
class WrongSize:
    path: str
    have_bytes: int
    want_bytes: int


@dataclass(frozen=True, slots=True)
class FolderState:
    """How far a folder is; `present_bytes` counts finished files and the part files of unfinished ones."""

    total_bytes: int
    present_bytes: int
    files_total: int
    files_done: int
    missing: tuple[str, ...]
    wrong: tuple[WrongSize, ...]
    outside_index: tuple[str, ...] = ()
    """Shards that the index names and the revision does not have."""

    @property
    def complete(self) -> bool:
        return not self.missing and not self.wrong and not self.outside_index

    @property
    def remaining_bytes(self) -> int:
        return max(self.total_bytes - self.present_bytes, 0)

    @property
    def text(self) -> str:
        """`incomplete: 12 of 74 files missing` and the first names."""
        if self.complete:
            return f"complete: {self.files_total} files"
        parts = []
        if self.missing:
            parts.append(f"{len(self.missing)} of {self.files_total} files missing ({_few(self.missing)})")
        if self.wrong:
            sizes = [f"{each.path}: {each.have_bytes} bytes, should be {each.want_bytes}" for each in self.wrong]
            parts.append(f"{len(self.wrong)} of the wrong size ({_few(sizes)})")
        if self.outside_index:
            parts.append(f"the index names shards the revision does not have ({_few(self.outside_index)})")
        return "incomplete: " + "; ".join(parts)


def _few(names: Iterable[str]) -> str:
    rows = list(names)
    return ", ".join(rows[:3]) + (f", … {len(rows) - 3} more" if len(rows) > 3 else "")


def compare(
    listing: Listing,
    final_bytes: Mapping[str, int],
    partial_bytes: Mapping[str, int] | None = None,
    index_shards: Iterable[str] = (),
) -> FolderState:
    """Hold a folder's sizes against the revision's.

    Args:
        final_bytes: path -> size of files under their own name.
        partial_bytes: path -> size of what has come of files that are not under their own name yet.
        index_shards: the shard names of the folder's index file.
    """
    partial = partial_bytes or {}
    wanted = {each.path: each.size_bytes for each in listing.files}
    held = completeness(wanted, final_bytes)
    unfinished = {*held.missing, *held.short}
    coming = sum(min(partial.get(path, 0), wanted[path]) for path in unfinished)
    return FolderState(
        total_bytes=listing.total_bytes,
        present_bytes=held.have_bytes + coming,
        files_total=held.files,
        files_done=held.files - len(unfinished),
        missing=held.missing,
        wrong=tuple(WrongSize(path, final_bytes[path], wanted[path]) for path in held.short),
        outside_index=tuple(sorted(set(index_shards) - wanted.keys())),
    )
