"""Folders beside the one that is wanted: older checkpoints that are never reused, copies that could be adopted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparktui.readings.checkpoint_listing import FOLDER_SUFFIX, Listing, compare
from sparktui.remote import checkpoint_folder

if TYPE_CHECKING:
    from sparktui.settings import Settings


@dataclass(frozen=True, slots=True)
class OlderFolder:
    path: Path
    bytes: int


def older_folders(model_dir: Path) -> list[OlderFolder]:
    """The same name without -1017, beside MODEL_DIR, when it holds weights."""
    if not model_dir.name.endswith(FOLDER_SUFFIX):
        return []
    older = model_dir.with_name(model_dir.name.removesuffix(FOLDER_SUFFIX))
    sizes = checkpoint_folder.scan(older) if older.name and older.is_dir() else None
    if sizes is None or not any(name.endswith(".safetensors") for name in sizes.final_bytes):
        return []
    return [OlderFolder(older, sizes.total_bytes)]


def adoptable_folders(settings: Settings, listing: Listing) -> list[Path]:
    """Complete copies of exactly this revision's files elsewhere on this machine: only looked at, never changed."""
    own = Path(settings.model_dir).resolve()
    found: list[Path] = []
    for path in _candidates(settings, listing):
        if path.resolve() == own or not path.is_dir() or path in found:
            continue
        # Sizes agree for every file of the revision: 74 files of the same sizes are this revision.
        if compare(listing, checkpoint_folder.scan(path).final_bytes).complete:
            found.append(path)
    return found


def adoption_text(path: Path, settings: Settings) -> str:
    """What to do with a copy: point MODEL_DIR at it, or link a cache's files into MODEL_DIR (its name cannot serve)."""
    if path.name.endswith(FOLDER_SUFFIX):
        return f"write MODEL_DIR={path} into {settings.env_path.name} to use it instead of a download"
    line = shlex.join(["cp", "-RlL", str(path), settings.model_dir])
    return f"{line}  (hard links: no space on the same disk), then run download again"


def _candidates(settings: Settings, listing: Listing) -> Iterator[Path]:
    name = listing.repo.rpartition("/")[2]
    yield Path(settings.common_model).resolve()
    cache = settings.home / ".cache/huggingface/hub"
    yield cache / f"models--{listing.repo.replace('/', '--')}" / "snapshots" / listing.revision
    for parent in (
        settings.home,
        settings.home / "models",
        settings.home / "NewModels",
        Path("/models"),
        Path("/data"),
    ):
        yield parent / name
