"""Cables, links, subnets, MTU and GIDs, on dumps as a node gives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.cluster.fabric import (
    PORT_NAMES,
    Cable,
    End,
    FabricFinding,
    cages_of,
    check_cable_addresses,
    check_links,
    check_mtu,
    check_subnets,
    fabric_plan,
    seen_kind,
)
from sparktui.cluster.gid import decide_gid, index_by_rank
from sparktui.cluster.profile import FabricKind
from sparktui.events import State
from sparktui.readings.rdma import Gid, RdmaPort, parse_fabric

NAMES = ("head", "worker1", "worker2")
DEVICES = ("rocep1s0f0", "rocep1s0f1")
TRIANGLE = fabric_plan(FabricKind.TRIANGLE, NAMES, DEVICES)
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "spark" / "net"


def mapped(address: str) -> str:
    a, b, c, d = (int(part) for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def port(
    device: str, *, up: bool = True, address: str | None = None, index: int = 3, mtu: int = 9000, rate: float = 200.0
) -> RdmaPort:
    name = next(each for each in PORT_NAMES if each.device == device)
    gids = [Gid(1, "fe80:0000:0000:0000:0000:00ff:fe00:0102", "RoCE v2", name.netdev)]
    if address:
        gids += [
            Gid(index - 1, mapped(address), "IB/RoCE v1", name.netdev),
            Gid(index, mapped(address), "RoCE v2", name.netdev),
        ]
    return RdmaPort(
        device,
        name.netdev,
        "ACTIVE" if up else "DOWN",
        rate_gbit=rate if up else None,
        cage=name.cage,
        mtu=mtu,
        gids=tuple(gids),
    )


def node(left: str, right: str, **changes: RdmaPort) -> tuple[RdmaPort, ...]:
    """A node of the triangle: port 0 with `left`, port 1 with `right`, both halves up."""
    ports = {
        "rocep1s0f0": port("rocep1s0f0", address=left),
        "rocep1s0f1": port("rocep1s0f1", address=right),
        "roceP2p1s0f0": port("roceP2p1s0f0"),
        "roceP2p1s0f1": port("roceP2p1s0f1"),
    }
    return tuple((ports | changes).values())


def triangle() -> dict[int, tuple[RdmaPort, ...] | None]:
    return {
        0: node("10.0.22.1", "10.0.23.1"),
        1: node("10.0.33.2", "10.0.22.2"),
        2: node("10.0.23.3", "10.0.33.3"),
    }


def states(findings: list[FabricFinding], check: str) -> list[State]:
    return [finding.state for finding in findings if finding.check == check]


def test_three_sparks_are_a_circle_from_port_0_to_the_next_ones_port_1() -> None:
    assert TRIANGLE.cables == (
        Cable(End(0, "p0"), End(1, "p1")),
        Cable(End(1, "p0"), End(2, "p1")),
        Cable(End(2, "p0"), End(0, "p1")),
    )
    ring = fabric_plan(FabricKind.RING, ("head", "worker1", "worker2", "worker3"), DEVICES)
    assert len(ring.cables) == 4
    assert ring.cables[3] == Cable(End(3, "p0"), End(0, "p1"))


def test_a_switch_takes_the_socket_that_the_devices_name() -> None:
    plan = fabric_plan(FabricKind.SWITCH, ("head", "worker1"), ("rocep1s0f1", "roceP2p1s0f1"))
    assert plan.to_switch == (End(0, "p1"), End(1, "p1"))
    assert not plan.cables
    assert cages_of(("mlx5_0", "roceP2p1s0f0", "unheard-of")) == ("p0",)


def test_a_good_triangle_is_good() -> None:
    readings = triangle()
    assert states(check_links(TRIANGLE, readings), "link") == [State.OK] * 3
    assert check_subnets(TRIANGLE, readings) == []
    assert check_cable_addresses(TRIANGLE, readings) == []
    assert check_mtu(TRIANGLE, readings) == []


def test_u41_a_planned_port_without_link_on_both_ends_is_the_cable() -> None:
    readings = triangle()
    readings[1] = node("10.0.33.2", "10.0.22.2", **downs("p0"))
    readings[2] = node("10.0.23.3", "10.0.33.3", **downs("p1"))
    (failed,) = [each for each in check_links(TRIANGLE, readings) if each.state is State.FAIL]
    assert failed.what == "worker1 port 0 to worker2 port 1: no link on both ends (cable)"


def downs(cage: str) -> dict[str, RdmaPort]:
    return {name.device: port(name.device, up=False) for name in PORT_NAMES if name.cage == cage}


def test_u41_a_port_down_on_one_end_only_names_that_end() -> None:
    readings = triangle()
    readings[2] = node("10.0.23.3", "10.0.33.3", **downs("p1"))
    (failed,) = [each for each in check_links(TRIANGLE, readings) if each.state is State.FAIL]
    assert failed.rank == 2
    assert "one end only, at worker2 port 1 (port or netplan)" in failed.what


def test_u41_a_port_that_is_not_in_the_plan_is_only_information() -> None:
    plan = fabric_plan(FabricKind.SWITCH, NAMES, ("rocep1s0f0", "roceP2p1s0f0"))
    readings = {rank: node(f"10.0.22.{rank + 1}", "", **downs("p1")) for rank in range(3)}
    found = check_links(plan, readings)
    assert states(found, "unused") == [State.INFO] * 3
    assert {each.state for each in found} == {State.OK, State.INFO}
    assert "worker1 port 1: not used" in [each.what for each in found]


def test_a_node_that_cannot_be_read_is_unknown_and_not_a_missing_cable() -> None:
    readings = triangle()
    readings[1] = None
    found = check_links(TRIANGLE, readings)
    assert states(found, "link").count(State.UNKNOWN) == 2
    assert State.FAIL not in [each.state for each in found]


def test_a_card_that_is_absent_has_no_link() -> None:
    readings = triangle()
    readings[1] = ()
    assert states(check_links(TRIANGLE, readings), "link").count(State.FAIL) == 2


def test_one_half_down_and_a_slow_port_warn() -> None:
    readings = triangle()
    half = {"roceP2p1s0f0": port("roceP2p1s0f0", up=False), "rocep1s0f1": port("rocep1s0f1", rate=100.0)}
    readings[0] = node("10.0.22.1", "10.0.23.1", **half)
    found = check_links(TRIANGLE, readings)
    assert states(found, "halves") == [State.WARN]
    assert states(found, "rate") == [State.WARN]


def test_u33_twins_in_one_subnet_warn_and_two_cables_in_one_fail() -> None:
    twins, crossed = triangle(), triangle()
    twins[0] = node("10.0.22.1", "10.0.23.1", roceP2p1s0f0=port("roceP2p1s0f0", address="10.0.22.9"))
    crossed[0] = node("10.0.22.1", "10.0.22.9")
    (warned,) = check_subnets(TRIANGLE, twins)
    (failed,) = check_subnets(TRIANGLE, crossed)
    assert (warned.state, failed.state) == (State.WARN, State.FAIL)
    assert "ARP" in warned.fix
    assert "different cables" in failed.what


def test_crossed_ports_show_as_subnets_that_do_not_meet() -> None:
    readings = triangle()
    readings[1] = node("10.0.22.2", "10.0.33.2")
    found = check_cable_addresses(TRIANGLE, readings)
    assert [each.state for each in found] == [State.FAIL, State.FAIL]
    assert "different subnets" in found[0].what


def test_a_link_without_address_is_named() -> None:
    readings = triangle()
    readings[1] = node("", "10.0.22.2")
    found = check_cable_addresses(TRIANGLE, readings)
    assert [each.what for each in found] == ["worker1 port 0 has a link and no IPv4 address"]


def test_u30_a_low_mtu_warns_and_a_different_one_across_a_cable_fails_with_both_ends() -> None:
    readings = triangle()
    low = {name.device: port(name.device, mtu=1500, address="10.0.22.2") for name in PORT_NAMES if name.cage == "p1"}
    readings[1] = node("10.0.33.2", "10.0.22.2", **low)
    found = check_mtu(TRIANGLE, readings)
    (failed,) = [each for each in found if each.state is State.FAIL]
    assert "4096 at head port 0 and 1024 at worker1 port 1" in failed.what
    assert "ping -M do -s 8972" in failed.fix
    assert State.WARN in [each.state for each in found]


def test_u42_a_subnet_with_more_than_two_sparks_is_a_switch() -> None:
    switched = {rank: node(f"10.0.22.{rank + 1}", "", **downs("p1")) for rank in range(4)}
    ring = {rank: node(f"10.0.{rank}.1", f"10.0.{(rank - 1) % 4}.2") for rank in range(4)}
    assert seen_kind(switched) is FabricKind.SWITCH
    assert seen_kind(ring) is FabricKind.RING
    assert seen_kind(triangle()) is FabricKind.TRIANGLE
    assert seen_kind({**triangle(), 1: None}) is None
    assert seen_kind({rank: node("", "") for rank in range(3)}) is None


def test_a_pin_of_minus_one_leaves_the_choice_to_nccl() -> None:
    assert decide_gid(0, triangle()[0], DEVICES, pinned=-1).index == -1


def test_u23_a_pin_that_is_wrong_on_one_device_names_device_and_index() -> None:
    moved = node("10.0.22.1", "10.0.23.1", rocep1s0f1=port("rocep1s0f1", address="10.0.23.1", index=4))
    decision = decide_gid(0, moved, DEVICES, pinned=3)
    assert decision.state is State.FAIL and decision.index is None
    assert decision.what == "pin 3 is wrong on rocep1s0f1 (is 4)"
    assert decision.by_device == {"rocep1s0f0": (3,), "rocep1s0f1": (4,)}


def test_u23_tables_that_do_not_agree_give_no_index() -> None:
    moved = node("10.0.22.1", "10.0.23.1", rocep1s0f1=port("rocep1s0f1", address="10.0.23.1", index=4))
    decision = decide_gid(0, moved, DEVICES)
    assert decision.index is None and decision.state is State.FAIL
    assert "rocep1s0f0 3" in decision.what and "rocep1s0f1 4" in decision.what


def test_u25_each_rank_has_its_own_index() -> None:
    worker = node(
        "",
        "",
        rocep1s0f0=port("rocep1s0f0", address="10.0.33.2", index=5),
        rocep1s0f1=port("rocep1s0f1", address="10.0.22.2", index=5),
    )
    decisions = [decide_gid(0, triangle()[0], DEVICES), decide_gid(1, worker, DEVICES)]
    assert index_by_rank(decisions) == {0: 3, 1: 5}


def test_u38_an_address_without_gid_suggests_the_ones_that_have_one() -> None:
    decision = decide_gid(0, triangle()[0], DEVICES, wanted_address="192.168.1.5", wanted_name="HEAD_IP")
    assert decision.index is None and decision.state is State.FAIL
    assert decision.what == "no RoCE v2 GID for HEAD_IP (192.168.1.5); did you mean 10.0.22.1 or 10.0.23.1?"


@pytest.mark.parametrize(
    ("ports", "state"),
    [
        (lambda: None, State.UNKNOWN),
        (lambda: (), State.FAIL),
        (lambda: node("", ""), State.FAIL),
        (lambda: node("10.0.22.1", "10.0.23.1", **downs("p0"), **downs("p1")), State.FAIL),
    ],
)
def test_u38_there_is_never_a_silent_three(ports: Callable[[], tuple[RdmaPort, ...] | None], state: State) -> None:
    decision = decide_gid(0, ports(), DEVICES)
    assert decision.index is None
    assert decision.state is state


def test_a_device_that_is_listed_and_absent_is_named() -> None:
    decision = decide_gid(0, triangle()[0], ("rocep9s9",))
    assert decision.state is State.FAIL and "rocep9s9" in decision.what and "rocep1s0f0" in decision.fix


def test_a_v1_entry_of_the_address_is_not_taken() -> None:
    only_v1 = RdmaPort("rocep1s0f0", "x", "ACTIVE", cage="p0", gids=(Gid(2, mapped("10.0.22.1"), "IB/RoCE v1"),))
    assert decide_gid(0, (only_v1,), ("rocep1s0f0",)).index is None


@pytest.mark.skipif(not SHARED.is_dir(), reason="shared Spark data is not beside this checkout")
def test_a_real_looking_triangle_node_gives_index_3() -> None:
    fabric = parse_fabric((SHARED / "sysfs-tree.triangle-node1.constructed.tsv").read_text())
    assert [each.cage for each in fabric.ports] == ["p0", "p1", "p0", "p1"]
    assert decide_gid(0, fabric.ports, DEVICES).index == 3
    assert check_subnets(TRIANGLE, {0: fabric.ports}) == []


@pytest.mark.skipif(not SHARED.is_dir(), reason="shared Spark data is not beside this checkout")
def test_a_port_without_ipv4_has_no_index() -> None:
    fabric = parse_fabric((SHARED / "sysfs-tree.port0-x2-no-ipv4.constructed.tsv").read_text())
    decision = decide_gid(0, fabric.ports, DEVICES)
    assert decision.index is None and "no IPv4" in decision.what + decision.fix


PORTS = st.builds(
    RdmaPort,
    device=st.sampled_from([name.device for name in PORT_NAMES]),
    netdev=st.none() | st.text(max_size=4),
    state=st.sampled_from(["ACTIVE", "DOWN", None]),
    rate_gbit=st.none() | st.floats(0, 400),
    cage=st.sampled_from(["p0", "p1", None]),
    mtu=st.none() | st.integers(-5, 10_000),
    gids=st.lists(
        st.builds(Gid, st.integers(0, 9), st.just(mapped("10.0.22.1")), st.sampled_from(["RoCE v2", None])), max_size=3
    ).map(tuple),
)


@given(st.dictionaries(st.integers(0, 2), st.none() | st.lists(PORTS, max_size=4).map(tuple), min_size=3))
def test_any_readings_give_findings_and_decisions(readings: dict[int, tuple[RdmaPort, ...] | None]) -> None:
    for check in (check_links, check_subnets, check_cable_addresses, check_mtu):
        assert all(finding.what for finding in check(TRIANGLE, readings))
    for rank, ports in readings.items():
        decision = decide_gid(rank, ports, DEVICES)
        assert (decision.index is not None) == (decision.state is State.OK)
