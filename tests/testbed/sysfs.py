"""The tree that a simulated Spark sees at /sys/class: its own netdevs with their cages, and four RDMA devices.

It lies in a folder on the host and is bind-mounted, so that a test changes a counter or pulls a cable by writing files.
Strings are those that real Sparks print.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.testbed.fabric import LAN_NETDEV, Port, mac

COUNTERS = (
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
    "VL15_dropped",
)
HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "resp_cqe_error",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "rp_cnp_handled",
    "rx_icrc_encapsulated",
    "rx_read_requests",
    "rx_write_requests",
)
EMPTY_GID = ":".join(["0000"] * 8)
# Live in the kernel's own directory of the veth, so carrier and traffic are true.
LIVE = (
    "address",
    "addr_len",
    "carrier",
    "carrier_changes",
    "flags",
    "ifindex",
    "iflink",
    "mtu",
    "operstate",
    "statistics",
    "tx_queue_len",
    "type",
)


def build_class_tree(root: Path, node: int, ports: Iterable[Port], real_class: Path = Path("/sys/class")) -> None:
    """Fill `root` (made new) as `/sys/class`; other classes are copied as the links that they are."""
    for entry in sorted(real_class.iterdir()):
        if entry.name in ("net", "infiniband") or not entry.is_dir():
            continue
        copied = root / entry.name
        copied.mkdir(parents=True)
        for link in entry.iterdir():
            if link.is_symlink():
                (copied / link.name).symlink_to(link.readlink())
    for name in ("net", "infiniband"):
        (root / name).mkdir(parents=True)
    for name in ("lo", LAN_NETDEV):
        (root / "net" / name).symlink_to(f"/sys/devices/virtual/net/{name}")
    for port in ports:
        _build_function(root, node, port)


def set_rdma_link(root: Path, port: Port, *, up: bool) -> None:
    """What the port's files say with or without a cable; the GIDs stay as they are."""
    device = rdma_dir(root, port.netdev.rdma) / "ports/1"
    _put(device / "state", "4: ACTIVE" if up else "1: DOWN")
    _put(device / "phys_state", "5: LinkUp" if up else "3: Disabled")
    _put(device / "rate", "200 Gb/sec (4X HDR)" if up else "40 Gb/sec (4X QDR)")
    _put(root / "net" / port.netdev.name / "speed", "200000" if up else "-1")


def set_gids(root: Path, port: Port, node: int, address: str | None, *, link_local: bool = True) -> None:
    """Fill the GID table: link-local v1 and v2 first (unless turned off), then the IPv4-mapped pair if addressed."""
    gids: list[tuple[str, str]] = []
    if link_local:
        hardware = mac(node, port.netdev.mac_offset).split(":")
        first = int(hardware[0], 16) ^ 2
        local = (
            f"fe80:0000:0000:0000:{first:02x}{hardware[1]}:{hardware[2]}ff:fe{hardware[3]}:{hardware[4]}{hardware[5]}"
        )
        gids += [(local, "IB/RoCE v1"), (local, "RoCE v2")]
    if address:
        octets = [int(part) for part in address.split(".")]
        mapped = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*octets)
        gids += [(mapped, "IB/RoCE v1"), (mapped, "RoCE v2")]
    folder = rdma_dir(root, port.netdev.rdma) / "ports/1"
    for index in range(8):
        known = index < len(gids)
        _put(folder / "gids" / str(index), gids[index][0] if known else EMPTY_GID)
        for attribute, text in (("types", gids[index][1] if known else ""), ("ndevs", port.netdev.name)):
            path = folder / "gid_attrs" / attribute / str(index)
            if known:
                _put(path, text)
            else:
                path.unlink(missing_ok=True)


def set_counter(root: Path, rdma: str, counter: str, value: int) -> None:
    folder = "hw_counters" if counter in HW_COUNTERS else "counters"
    _put(rdma_dir(root, rdma) / "ports/1" / folder / counter, str(value))


def rdma_dir(root: Path, rdma: str) -> Path:
    return root / "infiniband" / rdma


def _build_function(root: Path, node: int, port: Port) -> None:
    netdev = port.netdev
    pci = root / ".devices" / netdev.pci
    for name, text in (
        ("vendor", "0x15b3"),
        ("device", "0x1021"),
        ("current_link_speed", "32.0 GT/s PCIe"),
        ("max_link_speed", "32.0 GT/s PCIe"),
        ("current_link_width", "4"),
        ("max_link_width", "4"),
        ("numa_node", "0"),
    ):
        _put(pci / name, text)
    net = pci / "net" / netdev.name
    net.mkdir(parents=True)
    for name in LIVE:
        (net / name).symlink_to(f"/sys/devices/virtual/net/{netdev.name}/{name}")
    _put(net / "phys_port_name", netdev.cage)
    _put(net / "phys_switch_id", f"300000000003{node:04x}")
    _put(net / "duplex", "full")
    (net / "device").symlink_to("../..")
    (root / "net" / netdev.name).symlink_to(f"../.devices/{netdev.pci}/net/{netdev.name}")

    rdma = pci / "infiniband" / netdev.rdma
    (rdma).mkdir(parents=True)
    (root / "infiniband" / netdev.rdma).symlink_to(f"../.devices/{netdev.pci}/infiniband/{netdev.rdma}")
    (rdma / "device").symlink_to("../..")
    for name, text in (
        ("fw_ver", "28.45.4028"),
        ("hca_type", "MT4129"),
        ("board_id", "NVD0000000087"),
        ("node_type", "1: CA"),
        ("node_guid", f"aaaa:{node:04x}:0000:{0x30 + netdev.guid_offset:04x}"),
        ("sys_image_guid", f"aaaa:{node:04x}:0000:0030"),
        ("ports/1/link_layer", "Ethernet"),
        ("ports/1/lid", "0x0"),
        ("ports/1/hw_counters/lifespan", "10"),
    ):
        _put(rdma / name, text)
    for name in COUNTERS:
        _put(rdma / "ports/1/counters" / name, "0")
    for name in HW_COUNTERS:
        _put(rdma / "ports/1/hw_counters" / name, "0")
    set_rdma_link(root, port, up=port.cable is not None)
    set_gids(root, port, node, port.address)


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
