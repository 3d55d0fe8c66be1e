"""Lines as the sampler prints them, for nodes that say what a test wants."""

from __future__ import annotations

from collections.abc import Sequence

from sparktui.cluster.fabric import PORT_NAMES
from tests.testbed.meminfo import meminfo_text

GIB_KB = 1024 * 1024


def listing(devices: int = 4, df: Sequence[str] = ()) -> list[str]:
    lines = ["@devices"]
    lines += [f"@device {port.device} {port.netdev} {port.cage}" for port in PORT_NAMES[:devices]]
    lines.append("@listed")
    return [*lines, "@df", *df, "@read"] if df else lines


def record(
    uptime: float,
    *,
    sent_words: int = 0,
    received_words: int = 0,
    down: Sequence[str] = (),
    errors: dict[str, int] | None = None,
    sectors: int = 0,
    cpu: tuple[int, int] = (0, 0),
    full: float = 0.0,
    swapped: int = 0,
    slow: bool = True,
    devices: int = 4,
    **kb: int,
) -> list[str]:
    """One second. `cpu` is busy and idle ticks, `errors` counters of every device, `kb` fields of meminfo."""
    lines = [f"uptime:{uptime:.2f} 1.00"]
    lines += [f"meminfo:{line}" for line in meminfo_text(**kb).splitlines()]
    lines += [f"pressure/memory:{kind} avg10={full:.2f} avg60=0.00 avg300=0.00 total=9" for kind in ("some", "full")]
    lines += [f"stat:cpu  {cpu[0]} 0 0 {cpu[1]} 0 0 0 0 0 0", f"vmstat:pswpin {swapped}", "vmstat:pswpout 0"]
    for port in PORT_NAMES[:devices]:
        where = f"../sys/class/infiniband/{port.device}/ports/1"
        lines.append(f"{where}/state:{'1: DOWN' if port.device in down else '4: ACTIVE'}")
        lines += [f"{where}/counters/port_xmit_data:{sent_words}", f"{where}/counters/port_rcv_data:{received_words}"]
        if slow:
            rate = "40 Gb/sec (4X QDR)" if port.device in down else "200 Gb/sec (4X HDR)"
            lines.append(f"{where}/rate:{rate}")
            lines += [f"{where}/{name}:{value}" for name, value in (errors or {"counters/symbol_error": 0}).items()]
    lines.append(f"../sys/block/nvme0n1/stat:     100        0 {sectors}   50   0 0 0 0 0 0 0 0 0 0 0 0 0")
    return [*lines, "@end"]
