"""NCCL_IB_GID_INDEX as somebody wrote it: settings, doctor, serve and the launch spec read it by one rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparktui.cluster.gid import GidDecision, index_by_rank, parse_pin
from sparktui.engine.launch import launch_specs
from sparktui.errors import SettingsError
from sparktui.events import State
from sparktui.settings import parse_settings
from sparktui.steps import fabric_probe
from tests.unit.doctor_answers import fabric
from tests.unit.doctor_cluster import Cluster, settings_for


def refused(pin: str) -> bool:
    text = f"HEAD_IP=10.0.0.1\nWORKER_IPS='10.0.0.2 10.0.0.3'\nMODEL_DIR=/srv/m-1017\nNCCL_IB_GID_INDEX='{pin}'\n"
    try:
        parse_settings(text, env_path=Path("/srv/.env"), profile="three", environment={"HOME": "/home/user"})
    except SettingsError as error:
        assert "NCCL_IB_GID_INDEX" in str(error)
        return True
    return False


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="'\\\r\n\0$`", exclude_categories=("Cc", "Cs")), max_size=6)
)
@example("")
@example("-1")
@example("3")
@example(" 3 ")
@example("003")
@example("-2")
@example("1000")
@example("+3")
@example("3x")
@example("٣")
@example("³")
def test_what_the_settings_take_is_what_is_used(pin: str) -> None:
    """A pin that passes the settings is an index, -1 or nothing; every other text is refused by name."""
    assert refused(pin) == (parse_pin(pin) is None and bool(pin.strip()))


@pytest.mark.parametrize(
    ("pin", "indexes"),
    [("", [3, 5, 3]), ("-1", [-1, -1, -1]), (" -1 ", [-1, -1, -1]), ("3", [3, None, 3]), ("005", [None, 5, None])],
)
async def test_doctor_serve_and_the_containers_say_the_same_index(pin: str, indexes: list[int | None]) -> None:
    """Rank 1's table has the address at 5, the others' at 3: a pin is held against each table and never used unread."""
    cluster = Cluster(NCCL_IB_GID_INDEX=pin)
    moved = fabric(1, index=dict.fromkeys(("rocep1s0f0", "rocep1s0f1"), 5))
    cluster.says(cluster.links[1], fabric=moved)
    for link in cluster.links:
        link.answer(r"\Atab=", stdout=moved if link.node.rank == 1 else fabric(link.node.rank))
    rows = [await cluster.row("rdma.gid", link.node.name) for link in cluster.links]
    assert [row.data["index"] for row in rows] == indexes
    assert [row.state for row in rows] == [State.FAIL if index is None else State.OK for index in indexes]

    decisions = await fabric_probe.decide_gids(cluster.settings, tuple(cluster.links))
    decided = [each for each in decisions if isinstance(each, GidDecision)]
    assert [each.index for each in decided] == indexes
    assert [f"rank {each.rank}: {each.what}" for each in decided] == [row.what for row in rows]
    if None not in indexes:
        specs = launch_specs(cluster.settings, index_by_rank(decided))
        assert [each.container.environment["NCCL_IB_GID_INDEX"] for each in specs] == [str(each) for each in indexes]


def test_a_pin_is_not_used_on_a_rank_that_nobody_could_read() -> None:
    decision = fabric_probe.decide_for(settings_for(NCCL_IB_GID_INDEX="3"), settings_for().nodes[2], None)
    assert (decision.index, decision.state) == (None, State.UNKNOWN)
