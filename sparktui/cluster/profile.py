"""A profile: how many Sparks, how they are cabled, and which files belong to that cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FabricKind(StrEnum):
    """How the ConnectX ports are joined."""

    TRIANGLE = "triangle"
    SWITCH = "switch"
    RING = "ring"


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of cluster. Three and four are shipped; any other count is made by `profile_for`.

    Attributes:
        name: `three`, `four`, `four-ring`; `tp8` and so on for other counts.
        defaults: which column of defaults the settings take: `three`, `four` or `ring`.
        nnodes: Sparks, the head included.
        env_file, state_folder, logs_folder: names beside each other, so that one checkout drives several clusters.
        unattended_context_tokens: the window that is safe with nobody watching; None where memory does not limit it.
    """

    name: str
    defaults: str
    nnodes: int
    fabric: FabricKind
    env_file: str
    example_file: str
    state_folder: str
    logs_folder: str
    unattended_context_tokens: int | None = None

    @property
    def is_ring(self) -> bool:
        return self.fabric is FabricKind.RING


THREE = Profile(
    name="three",
    defaults="three",
    nnodes=3,
    fabric=FabricKind.TRIANGLE,
    env_file=".env",
    example_file=".env.example",
    state_folder="state",
    logs_folder="logs",
    unattended_context_tokens=32_768,
)
FOUR = Profile(
    name="four",
    defaults="four",
    nnodes=4,
    fabric=FabricKind.SWITCH,
    env_file=".env.tp4",
    example_file=".env.tp4.example",
    state_folder="state-tp4",
    logs_folder="logs-tp4",
)
FOUR_RING = Profile(
    name="four-ring",
    defaults="ring",
    nnodes=4,
    fabric=FabricKind.RING,
    env_file=".env.tp4",
    example_file=".env.tp4.ring.example",
    state_folder="state-tp4",
    logs_folder="logs-tp4",
)
PROFILES: dict[str, Profile] = {each.name: each for each in (THREE, FOUR, FOUR_RING)}


def profile_for(nnodes: int, *, ring: bool = False) -> Profile:
    """The profile of a cluster of `nnodes` Sparks; counts without one of their own take the four-Spark defaults.

    A ring of another count than four is returned as asked: the settings' rules refuse it with a reason.
    """
    if nnodes == 3 and not ring:
        return THREE
    if nnodes == 4:
        return FOUR_RING if ring else FOUR
    suffix = f"tp{nnodes}"
    return Profile(
        name=suffix + ("-ring" if ring else ""),
        defaults="ring" if ring else "four",
        nnodes=nnodes,
        fabric=FabricKind.RING if ring else FabricKind.SWITCH,
        env_file=f".env.{suffix}",
        example_file=FOUR_RING.example_file if ring else FOUR.example_file,
        state_folder=f"state-{suffix}",
        logs_folder=f"logs-{suffix}",
    )


def named_profile(name: str) -> Profile | None:
    """The profile of a name, `tp8` and the like included; None for a name that is none."""
    if name in PROFILES:
        return PROFILES[name]
    match = re.fullmatch(r"tp([1-9][0-9]{0,2})(-ring)?", name)
    return profile_for(int(match[1]), ring=bool(match[2])) if match else None


def infer_profile(values: Mapping[str, str]) -> Profile:
    """The profile that a file's own values describe: NNODES, else TP_SIZE, else the workers named, else three.

    Unreadable numbers count as absent here; the settings report them with their line.
    """
    nnodes = _whole(values.get("NNODES")) or _whole(values.get("TP_SIZE")) or _worker_count(values) + 1
    return profile_for(nnodes if nnodes > 1 else 3, ring=values.get("NCCL_SWITCHLESS_RING") == "1")


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 6 else None


def _worker_count(values: Mapping[str, str]) -> int:
    listed = (values.get("WORKER_IPS") or values.get("WORKER_HOSTS") or "").split()
    if listed:
        return len(listed)
    count = 0
    while values.get(f"WORKER{count + 1}_IP") or values.get(f"WORKER{count + 1}_HOST"):
        count += 1
    return count
