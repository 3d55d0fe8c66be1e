"""What a node's checkpoint folder holds: one piece of a probe script, and how its answer is read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from sparktui.readings.checkpoint import INDEX_NAME, parse_sizes
from sparktui.readings.checkpoint_listing import (
    PARTIAL_FOLDER,
    PARTIAL_SUFFIX,
    RECORD_FILE,
    RECORD_FOLDER,
    Listing,
    parse_listing,
)

CHECKPOINT_SCRIPT = f"""\
echo @checkpoint.folder
if [ -d "$MODEL_DIR" ]; then echo present; elif [ -e "$MODEL_DIR" ]; then echo other; else echo absent; fi
if cd "$MODEL_DIR" 2>/dev/null; then
  echo @checkpoint.files
  find -L . -path ./{RECORD_FOLDER} -prune -o -path ./.cache -prune -o -type f -printf '%s\\t%P\\n' 2>/dev/null
  echo @checkpoint.parts
  [ -d {PARTIAL_FOLDER} ] && find {PARTIAL_FOLDER} -type f -printf '%s\\t%P\\n' 2>/dev/null
  echo @checkpoint.record
  [ -f {RECORD_FILE} ] && cat {RECORD_FILE}
  echo @checkpoint.index
  [ -f model.safetensors.index.json ] && grep -o '"[^"]*[.]safetensors"' model.safetensors.index.json | sort -u
fi
:
"""
"""Needs the shell variable MODEL_DIR. Sizes and names only: no file of the checkpoint but the index is read."""

IDENTITY_SCRIPT = """\
cd "$MODEL_DIR" 2>/dev/null || exit 0
sha256sum config.json model.safetensors.index.json 2>/dev/null
find -L . -maxdepth 1 -type f -name '*.safetensors' -printf '%s %T@ %f\\n' 2>/dev/null | LC_ALL=C sort
:"""
"""Needs MODEL_DIR. What tells one checkpoint from another without reading weights; a file that came anew counts."""


@dataclass(frozen=True, slots=True)
class FolderReading:
    """A node's folder. `state` is present, absent, other (not a folder), denied, or None for no answer."""

    state: str | None
    files: dict[str, int] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)
    record: Listing | None = None
    index_shards: tuple[str, ...] = ()


def read_folder(sections: dict[str, str]) -> FolderReading:
    """From `readings.sections.sections()` of the script's output."""
    state = sections.get("checkpoint.folder", "").strip() or None
    if state == "present" and "checkpoint.files" not in sections:
        state = "denied"
    parts = parse_sizes(sections.get("checkpoint.parts", ""))
    return FolderReading(
        state=state,
        files=parse_sizes(sections.get("checkpoint.files", "")),
        parts={name.removesuffix(PARTIAL_SUFFIX): size for name, size in parts.items()},
        record=parse_listing(sections.get("checkpoint.record", "")),
        index_shards=tuple(
            line.strip().strip('"') for line in sections.get("checkpoint.index", "").split("\n") if line
        ),
    )


def checkpoint_identity(text: str) -> str:
    """16 hex digits from IDENTITY_SCRIPT's output; empty where config.json or all weights are out of sight."""
    if "  config.json\n" not in text or ".safetensors" not in text.replace(INDEX_NAME, ""):
        return ""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]
