"""The link pane: a word a cable, the bad end named, traffic at both ends, a drawing where there is room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparktui.cluster.fabric import FabricPlan
from sparktui.telemetry.sample import ClusterSnapshot
from sparktui.ui.glyphs import ASCII, UNICODE
from sparktui.ui.widgets.cable_readings import Link, cable_readings
from sparktui.ui.widgets.drawing import row_text, row_width
from sparktui.ui.widgets.link_pane import link_rows
from tests.ui import pane_values as values


def drawn(snapshot: ClusterSnapshot, plan: FabricPlan, width: int = 78, height: int = 16) -> str:
    cables = cable_readings(plan, snapshot.nodes)
    return "\n".join(map(row_text, link_rows(plan, cables, width, height, UNICODE)))


def with_ports(rank: int, **ports: object) -> ClusterSnapshot:
    snapshot = values.calm()
    nodes = list(snapshot.nodes)
    nodes[rank] = replace(nodes[rank], ports=values.ports(**ports))  # type: ignore[arg-type]
    return replace(snapshot, nodes=tuple(nodes))


def test_a_triangle_is_drawn_with_its_three_cables_and_both_directions() -> None:
    text = drawn(values.calm(), values.plan())
    for name in ("head", "worker1", "worker2"):
        assert f" {name} " in text
    assert text.count("up") == 3
    assert text.count("200 Gb/s") == 3
    assert text.count("↑ 12.3 ↓ 11.2") == 6


def test_the_end_without_a_link_is_named() -> None:
    snapshot = with_ports(1, up=("p0",))
    text = drawn(snapshot, values.plan())
    assert "✖ down" in text
    assert "no link at worker1 port 1" in text
    for width, height in ((34, 5), (38, 8), (78, 5)):
        assert "no link at worker1 port 1" in drawn(snapshot, values.plan(), width, height)


def test_both_ends_without_a_link_is_the_cable() -> None:
    snapshot = with_ports(1, up=("p0",))
    head = replace(snapshot.nodes[0], ports=values.ports(up=("p1",)))
    text = drawn(replace(snapshot, nodes=(head, *snapshot.nodes[1:])), values.plan())
    assert "no link at both ends" in text


def test_half_a_cage_is_half_and_names_the_device() -> None:
    (cable, *_) = cable_readings(values.plan(), with_ports(0, down_devices=("roceP2p1s0f0",)).nodes)
    assert cable.link is Link.HALF
    assert cable.why == "roceP2p1s0f0 is down at head port 0"


def test_a_slow_cable_is_slow() -> None:
    (cable, *_) = cable_readings(values.plan(), with_ports(0, rate=100.0).nodes)
    assert cable.link is Link.SLOW
    assert cable.why == "100 instead of 200 Gb/s at head port 0"


def test_growing_errors_are_said_with_their_end() -> None:
    snapshot = values.calm()
    bad = tuple(
        replace(port, errors=12, growing=("symbol_error",)) if port.cage == "p1" else port
        for port in snapshot.nodes[2].ports or ()
    )
    nodes = (*snapshot.nodes[:2], replace(snapshot.nodes[2], ports=bad))
    assert "errors grow at worker2 port 1: symbol_error" in drawn(replace(snapshot, nodes=nodes), values.plan())


def test_a_node_that_is_gone_or_waited_for_is_unknown_with_the_reason() -> None:
    text = drawn(values.failing(), values.plan())
    assert "unknown" in text
    assert "worker2 is gone" in text
    never = replace(values.failing().nodes[2], age_seconds=None)
    text = drawn(replace(values.failing(), nodes=(*values.failing().nodes[:2], never)), values.plan())
    assert "worker2 is not reached" in text, "gone is a word for what was there"
    nobody = values.calm().nodes[:2]
    assert "waiting for worker2" in drawn(replace(values.calm(), nodes=nobody), values.plan())


def test_a_card_that_cannot_be_read_is_no_link_that_is_down() -> None:
    snapshot = values.calm()
    nodes = (replace(snapshot.nodes[0], ports=None), *snapshot.nodes[1:])
    (cable, *_) = cable_readings(values.plan(), nodes)
    assert cable.link is Link.UNKNOWN
    assert cable.why == "the card of head cannot be read"


def changed(device: str, **fields: object) -> ClusterSnapshot:
    """One device of the head read differently."""
    snapshot = values.calm()
    ports = tuple(
        replace(port, **fields) if port.device == device else port  # type: ignore[arg-type]
        for port in snapshot.nodes[0].ports or ()
    )
    return replace(snapshot, nodes=(replace(snapshot.nodes[0], ports=ports), *snapshot.nodes[1:]))


def test_half_of_a_cage_s_traffic_is_not_shown_as_the_whole() -> None:
    snapshot = changed("roceP2p1s0f0", sent_bytes_per_second=None)
    (cable, *_) = cable_readings(values.plan(), snapshot.nodes)
    assert cable.link is Link.UP
    assert cable.a.sent_bytes_per_second is None
    assert cable.a.received_bytes_per_second is not None
    assert "↑    ? ↓ 11.2" in drawn(snapshot, values.plan())


def test_a_cage_of_which_half_was_read_is_not_up() -> None:
    snapshot = changed("roceP2p1s0f0", active=None)
    (cable, *_) = cable_readings(values.plan(), snapshot.nodes)
    assert (cable.link, cable.why) == (Link.UNKNOWN, "1 of 2 devices read at head port 0")
    ports = tuple(port for port in values.calm().nodes[0].ports or () if port.device != "roceP2p1s0f0")
    alone = replace(values.calm().nodes[0], ports=ports)
    (cable, *_) = cable_readings(values.plan(), (alone, *values.calm().nodes[1:]))
    assert (cable.link, cable.why) == (Link.UNKNOWN, "1 of 2 devices read at head port 0")
    assert cable.a.sent_bytes_per_second is None
    (cable, *_) = cable_readings(values.plan(), (replace(alone, ports=()), *values.calm().nodes[1:]))
    assert (cable.link, cable.why) == (Link.UNKNOWN, "no device of head port 0 is listed")


def test_a_half_that_is_down_is_said_before_the_other_that_is_unknown() -> None:
    snapshot = changed("roceP2p1s0f0", active=None)
    head = tuple(
        replace(port, active=False) if port.device == "rocep1s0f0" else port for port in snapshot.nodes[0].ports or ()
    )
    (cable, *_) = cable_readings(values.plan(), (replace(snapshot.nodes[0], ports=head), *snapshot.nodes[1:]))
    assert (cable.link, cable.why) == (Link.HALF, "rocep1s0f0 is down at head port 0")


@pytest.mark.parametrize(("width", "height"), [(40, 7), (38, 7)])
def test_the_list_says_each_cable_s_rate(width: int, height: int) -> None:
    text = drawn(values.calm(), values.plan(), width, height)
    assert text.count("200") == 3
    assert text.count("↑12.3 ↓11.2") == 3


def test_a_ring_of_four_is_drawn_with_four_cables() -> None:
    text = drawn(values.calm(4), values.plan(4))
    assert text.count("up") == 4
    assert " worker3 " in text


def test_a_switch_is_drawn_as_a_star_and_its_bad_port_named() -> None:
    snapshot = values.calm(4)
    nodes = (*snapshot.nodes[:3], replace(snapshot.nodes[3], ports=values.ports(up=("p1",))))
    text = drawn(replace(snapshot, nodes=nodes), values.plan(4, switch=True), width=118)
    assert "switch" in text
    assert text.count("● up") == 3
    assert "worker3 port 0 to the switch: no link" in text


def test_small_panes_list_the_cables_with_words_before_traffic() -> None:
    text = drawn(values.calm(), values.plan(), 34, 5)
    assert text.count("● up") == 3
    assert "worker1:0━worker2:1" in text


def test_a_cable_without_traffic_is_zero_and_an_unread_one_a_question_mark() -> None:
    text = drawn(values.failing(), values.plan())
    assert "↑    0 ↓    0" in text
    assert "↑    ? ↓    ?" in text


@pytest.mark.parametrize("width", [34, 38, 58, 66, 78, 118, 198])
@pytest.mark.parametrize("height", [3, 5, 8, 12, 14, 20])
def test_rows_fit_any_pane_and_ascii_is_ascii(width: int, height: int) -> None:
    for count, switch in ((3, False), (4, False), (4, True)):
        for snapshot in (values.calm(count), values.failing(count)):
            plan = values.plan(count, switch=switch)
            rows = link_rows(plan, cable_readings(plan, snapshot.nodes), width, height, ASCII)
            assert len(rows) <= max(height, 2)
            assert all(row_text(row).isascii() for row in rows)
            if width >= 38:
                assert all(row_width(row) <= width for row in rows)


def test_more_cables_than_rows_keeps_the_bad_ones() -> None:
    text = drawn(with_ports(2, up=("p1",)), values.plan(), 78, 2)
    assert "no link at worker2 port 0" in text
    assert "and 2 more" in text


@pytest.mark.parametrize(("gbit", "shown"), [(12.3, "↑12.3 ↓11.2"), (187.6, "↑ 187 ↓ 170"), (0.0, "↑   0 ↓   0")])
def test_four_on_a_switch_at_80_columns_keep_their_figures_inside_their_boxes(gbit: float, shown: str) -> None:
    calm = values.calm(4)
    nodes = tuple(replace(node, ports=values.ports(gbit=gbit)) for node in calm.nodes)
    lines = drawn(replace(calm, nodes=nodes), values.plan(4, switch=True)).splitlines()
    edges = [index for index, line in enumerate(lines) if "╭─ head" in line]
    top, figures = lines[edges[0]], lines[edges[0] + 1]
    corners = {column for column, letter in enumerate(top) if letter in "╭╮"}
    assert {column for column, letter in enumerate(figures) if letter == "│"} == corners
    assert figures.count(shown) == 4
