from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.readings.rdma import Gid, parse_fabric

NET = Path(__file__).resolve().parents[3] / "shared" / "data" / "spark" / "net"
needs_data = pytest.mark.skipif(not NET.is_dir(), reason="shared Spark data is not beside this checkout")

DUMP = """\
/sys/class/infiniband/rocep1s0f0/fw_ver\t28.45.4028
/sys/class/infiniband/rocep1s0f0/sys_image_guid\taaaa:0300:0000:0030
/sys/class/infiniband/rocep1s0f0/device/net/enp1s0f0np0\t
/sys/class/infiniband/rocep1s0f0/ports/1/state\t4: ACTIVE
/sys/class/infiniband/rocep1s0f0/ports/1/phys_state\t5: LinkUp
/sys/class/infiniband/rocep1s0f0/ports/1/rate\t200 Gb/sec (4X HDR)
/sys/class/infiniband/rocep1s0f0/ports/1/gids/0\tfe80:0000:0000:0000:0000:00ff:fe00:0102
/sys/class/infiniband/rocep1s0f0/ports/1/gid_attrs/types/0\tIB/RoCE v1
/sys/class/infiniband/rocep1s0f0/ports/1/gids/2\t0000:0000:0000:0000:0000:ffff:0a00:1601
/sys/class/infiniband/rocep1s0f0/ports/1/gid_attrs/types/2\tIB/RoCE v1
/sys/class/infiniband/rocep1s0f0/ports/1/gids/5\t0000:0000:0000:0000:0000:ffff:0a00:1601
/sys/class/infiniband/rocep1s0f0/ports/1/gid_attrs/types/5\tRoCE v2
/sys/class/infiniband/rocep1s0f0/ports/1/gids/6\t0000:0000:0000:0000:0000:0000:0000:0000
/sys/class/infiniband/rocep1s0f0/ports/1/gid_attrs/types/6\t!EINVAL
/sys/class/infiniband/rocep1s0f0/ports/1/counters/port_xmit_data\t1000
/sys/class/infiniband/rocep1s0f0/ports/1/counters/port_rcv_data\t81250000000
/sys/class/infiniband/rocep1s0f0/ports/1/hw_counters/out_of_sequence\t3
/sys/class/net/enp1s0f0np0/mtu\t9000
/sys/class/net/enp1s0f0np0/phys_port_name\tp0
/sys/class/net/enp1s0f0np0/carrier\t1
/sys/class/net/enp1s0f0np0/speed\t200000
/sys/class/infiniband/rocep1s0f1/ports/1/state\t1: DOWN
/sys/class/infiniband/rocep1s0f1/ports/1/phys_state\t3: Disabled
/sys/class/infiniband/rocep1s0f1/ports/1/rate\t40 Gb/sec (4X QDR)
/sys/class/net/enp1s0f1np1/speed\t-1
/sys/class/net/enp1s0f1np1/carrier\t!EINVAL
/sys/class/net/enP7s7/mtu\t1500
"""


def test_a_port_and_its_network_device() -> None:
    port = parse_fabric(DUMP).ports[0]
    assert (port.device, port.netdev, port.cage) == ("rocep1s0f0", "enp1s0f0np0", "p0")
    assert (port.active, port.physical_state, port.rate_gbit) == (True, "LinkUp", 200.0)
    assert (port.mtu, port.active_mtu, port.carrier) == (9000, 4096, True)
    assert port.firmware == "28.45.4028"


def test_u25_the_gid_index_is_found_by_address_and_type() -> None:
    port = parse_fabric(DUMP).ports[0]
    assert port.gid_index("10.0.22.1") == 5
    assert port.gid_index("10.0.22.9") is None
    assert port.addresses == ("10.0.22.1",)
    assert [gid.index for gid in port.gids] == [0, 2, 5]


def test_u41_a_down_port_has_no_rate_although_it_prints_one() -> None:
    port = parse_fabric(DUMP).ports[1]
    assert (port.active, port.rate_gbit, port.netdev) == (False, None, None)


def test_u40_data_counters_are_words_of_four_bytes() -> None:
    port = parse_fabric(DUMP).ports[0]
    assert port.sent_bytes == 4000
    assert port.received_bytes == 325_000_000_000
    assert port.counters["out_of_sequence"] == 3
    assert parse_fabric(DUMP).ports[1].received_bytes is None


def test_interfaces_keep_unknown_apart_from_down() -> None:
    fabric = parse_fabric(DUMP)
    down, lan = fabric.netdev("enp1s0f1np1"), fabric.netdev("enP7s7")
    assert down is not None and (down.carrier, down.speed_mbit) == (None, None)
    assert lan is not None and (lan.mtu, lan.cage) == (1500, None)


def test_no_card_is_no_ports() -> None:
    assert parse_fabric("").ports == ()


def test_mlx5_names_are_tied_by_the_tree_and_not_by_their_name() -> None:
    text = (
        "/sys/devices/pci0000:00/0000:01:00.1/infiniband/mlx5_1/ports/1/state\t4: ACTIVE\n"
        "/sys/devices/pci0000:00/0000:01:00.1/net/enp1s0f1np1/phys_port_name\tp1\n"
    )
    (port,) = parse_fabric(text).ports
    assert (port.netdev, port.cage) == ("enp1s0f1np1", "p1")


@pytest.mark.parametrize(
    ("mtu", "rdma"), [(9000, 4096), (4200, 4096), (1500, 1024), (2200, 2048), (300, None), (314, 256)]
)
def test_rdma_mtu_follows_the_interface(mtu: int, rdma: int | None) -> None:
    device = "/sys/class/infiniband/a"
    text = f"{device}/device/net/e\t\n{device}/ports/1/state\t4: ACTIVE\n/sys/class/net/e/mtu\t{mtu}\n"
    (port,) = parse_fabric(text).ports
    assert port.active_mtu == rdma


def test_only_mapped_gids_have_an_address() -> None:
    assert Gid(0, "fe80:0000:0000:0000:0000:00ff:fe00:0102", "RoCE v2").address is None
    assert Gid(0, "0000:0000:0000:0000:0000:ffff:c0a8:0001", "RoCE v2").address == "192.168.0.1"


@needs_data
def test_a_whole_node_of_the_triangle() -> None:
    fabric = parse_fabric((NET / "sysfs-tree.triangle-node1.constructed.tsv").read_text())
    assert [port.device for port in fabric.ports] == ["roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f0", "rocep1s0f1"]
    assert all(port.active and port.netdev and port.card == "aaaa:0300:0000:0030" for port in fabric.ports)
    assert {port.cage for port in fabric.ports} == {"p0", "p1"}
    assert all(port.gid_index(port.addresses[0]) == 3 for port in fabric.ports)


@needs_data
def test_a_switch_at_100_gigabit() -> None:
    fabric = parse_fabric((NET / "sysfs-tree.switch-port1-100g.constructed.tsv").read_text())
    assert {port.rate_gbit for port in fabric.ports if port.active} == {100.0}
    assert {port.cage for port in fabric.ports if port.active} == {"p1"}


PATHS = st.sampled_from([line.split("\t")[0] for line in DUMP.splitlines()])
VALUES = st.text(max_size=12) | st.sampled_from(["!EINVAL", "-> x", "4: ACTIVE", "-7", "9" * 40, "ffff:" * 7 + "ffff"])


@given(st.lists(st.tuples(PATHS | st.text(max_size=30), VALUES), max_size=30))
def test_any_dump_gives_a_fabric(rows: list[tuple[str, str]]) -> None:
    fabric = parse_fabric("\n".join(f"{path}\t{value}" for path, value in rows))
    for port in fabric.ports:
        assert port.rate_gbit is None or port.active
        assert all(port.gid_index(address) is not None for address in port.addresses)
        assert all(count >= 0 for count in port.counters.values())
