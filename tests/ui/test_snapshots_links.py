"""Pictures of the links of four Sparks, in a ring of cables and on a switch, with a cable out in each.

After a change that is meant: `pytest tests/ui/test_snapshots_links.py --snapshot-update`, then look at each picture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparktui.ui.widgets.link_pane import LinkPane
from tests.ui import pane_values as values
from tests.ui.pane_app import PaneApp

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["ring", "switch"])
def test_links_of_four(snap_compare: Callable[..., bool], kind: str, size: str) -> None:
    calm = values.calm(4)
    cage = "p1" if kind == "ring" else "p0"
    out = replace(calm.nodes[2], ports=values.ports(up=tuple({"p0", "p1"} - {cage})))
    pane = LinkPane(classes="pane")

    async def before(pilot: Any) -> None:
        pane.show(values.plan(4, switch=kind == "switch"), (*calm.nodes[:2], out, calm.nodes[3]))
        await pilot.pause()

    assert snap_compare(PaneApp([pane]), terminal_size=SIZES[size], run_before=before)
