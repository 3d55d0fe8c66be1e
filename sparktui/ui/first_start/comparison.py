"""Three Sparks or four: the published figures beside the memory sheet's own. Values only; the page draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktui.cluster.profile import FOUR, THREE, Profile

if TYPE_CHECKING:
    from pathlib import Path

    from sparktui.cluster.plan import MemoryPlan

WHY_THREE = "Two cannot: each would hold 145 GiB of weights and has 121.7. Three hold about 101 GiB each."
WHY_FOUR = "A fourth leaves room: a window of 1M tokens, 16 requests."
ABOUT_SHEET = "Our sheet counts a full pool and the longest prompt."


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `sheet` is our own estimate where the sheet has one."""

    what: str
    three: str
    four: str
    sheet_three: str = ""
    sheet_four: str = ""


def comparison(sheets: Mapping[str, MemoryPlan] | None = None) -> tuple[Row, ...]:
    """Published figures, the lower first where two are published (run card and recipe page of October 2026)."""
    three, four = (sheets or {}).get(THREE.name), (sheets or {}).get(FOUR.name)
    return (
        Row("weights a rank", "101 GiB", "77 GiB", _item(three, "weights"), _item(four, "weights")),
        Row("free memory a rank", "about 6 GB", "about 40 GB", _free(three), _free(four)),
        Row("KV pool, tokens", "750,000", "8,000,000", _pool(three), _pool(four)),
        Row("window, tokens", "32K to rely on; 256K", "1M"),
        Row("requests at once", "4", "16"),
        Row("one request, tok/s", "37.9; also 51.0", "87.7"),
        Row("fabric", "3 cables, a triangle", "a RoCE switch, or a ring"),
    )


def _item(sheet: MemoryPlan | None, name: str) -> str:
    if sheet is None:
        return ""
    return f"{next(item.gib for item in sheet.ranks[0].items if item.name == name):.0f} GiB"


def _free(sheet: MemoryPlan | None) -> str:
    if sheet is None:
        return ""
    free = [rank.free_gib for rank in sheet.ranks]
    low, high = min(free), max(free)
    return f"{low:.1f} GiB" if high - low < 0.05 else f"{low:.1f}-{high:.1f} GiB"


def _pool(sheet: MemoryPlan | None) -> str:
    return "" if sheet is None else f"{sheet.pool_tokens:,}"


def sheets(env_file: Path) -> dict[str, MemoryPlan]:
    """The memory sheet of the shipped settings of three and of four. Imports pydantic: call it in a thread."""
    from sparktui.engine.fitting import memory_sheet
    from sparktui.settings import parse_settings

    def sheet(profile: Profile) -> MemoryPlan:
        workers = " ".join(f"10.255.255.{rank}" for rank in range(2, profile.nnodes + 1))
        text = f"HEAD_IP=10.255.255.1\nWORKER_IPS='{workers}'\n"
        return memory_sheet(parse_settings(text, env_path=env_file, profile=profile.name))

    return {profile.name: sheet(profile) for profile in (THREE, FOUR)}
