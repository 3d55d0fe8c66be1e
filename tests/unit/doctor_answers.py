"""What a healthy Spark answers to doctor's probe, part by part; a test changes the parts that it is about."""

from __future__ import annotations

GIB = 1024**3
DEVICES = {
    "rocep1s0f0": ("enp1s0f0np0", "p0"),
    "rocep1s0f1": ("enp1s0f1np1", "p1"),
    "roceP2p1s0f0": ("enP2p1s0f0np0", "p0"),
    "roceP2p1s0f1": ("enP2p1s0f1np1", "p1"),
}
FABRIC_ADDRESS = {
    (0, "p0"): "192.168.0.1", (1, "p1"): "192.168.0.2",
    (1, "p0"): "192.168.1.1", (2, "p1"): "192.168.1.2",
    (2, "p0"): "192.168.2.1", (0, "p1"): "192.168.2.2",
}  # fmt: skip
"""Triangle: port 0 of each Spark to port 1 of the next."""
MEMINFO = {
    "MemTotal": 127_600_748, "MemFree": 110_000_000, "MemAvailable": 116_000_000, "Buffers": 200_000,
    "Cached": 6_000_000, "SwapTotal": 0, "SwapFree": 0, "AnonPages": 3_000_000, "Mapped": 500_000,
    "Shmem": 100_000, "KReclaimable": 400_000, "Slab": 900_000, "SReclaimable": 400_000, "SUnreclaim": 500_000,
    "KernelStack": 20_000, "PageTables": 60_000, "Percpu": 30_000, "CmaTotal": 65_536, "CmaFree": 60_000,
}  # fmt: skip


def meminfo(**changed: int) -> str:
    """/proc/meminfo; values in kB."""
    return "".join(f"{name}: {value} kB\n" for name, value in (MEMINFO | changed).items())


def mapped_gid(address: str) -> str:
    a, b, c, d = (int(part) for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def fabric(
    rank: int,
    *,
    down: tuple[str, ...] = (),
    index: dict[str, int] | None = None,
    without_address: tuple[str, ...] = (),
    rate: str = "200 Gb/sec (4X HDR)",
) -> str:
    """The sysfs dump of a node; `index` is where a device's IPv4 RoCE v2 entry is (3 unless said)."""
    lines = []
    for device, (netdev, cage) in DEVICES.items():
        port = f"/sys/class/infiniband/{device}/ports/1"
        up = device not in down
        lines += [
            f"/sys/class/infiniband/{device}/device/net/{netdev}\t-",
            f"{port}/state\t{'4: ACTIVE' if up else '1: DOWN'}",
            f"{port}/phys_state\t{'5: LinkUp' if up else '3: Disabled'}",
            f"{port}/rate\t{rate if up else '40 Gb/sec (4X QDR)'}",
            f"/sys/class/net/{netdev}/mtu\t9000",
            f"/sys/class/net/{netdev}/carrier\t{int(up)}",
            f"/sys/class/net/{netdev}/phys_port_name\t{cage}",
        ]
        if device not in without_address:
            address = FABRIC_ADDRESS[rank, cage]
            if device.startswith("roceP2"):
                first, _, last = address.rpartition(".")
                address = f"{first}.{int(last) + 100}"
            slot = (index or {}).get(device, 3)
            lines += [
                f"{port}/gids/{slot}\t{mapped_gid(address)}",
                f"{port}/gid_attrs/types/{slot}\tRoCE v2",
                f"{port}/gid_attrs/ndevs/{slot}\t{netdev}",
            ]
    return "\n".join(lines) + "\n"


def addresses(rank: int, **extra: str) -> str:
    held = {"lo": "127.0.0.1", "enP7s7": f"10.0.0.{rank + 1}"}
    held |= {"enp1s0f0np0": FABRIC_ADDRESS[rank, "p0"], "enp1s0f1np1": FABRIC_ADDRESS[rank, "p1"]} | extra
    rows = enumerate(((name, each) for name, each in held.items() if each), start=1)
    return "".join(
        f"{n}: {name}    inet {each}/24 scope global {name}\\  valid_lft forever\n" for n, (name, each) in rows
    )


def df(available_bytes: int, *, source: str = "/dev/nvme0n1p2", mount: str = "/") -> str:
    return (
        "Filesystem 1-blocks Used Available Capacity Mounted on\n"
        f"{source} 4000000000000 {4000000000000 - available_bytes} {available_bytes} 50% {mount}\n"
    )


def healthy(rank: int) -> dict[str, str]:
    """Part -> output; a part's `.exit` is 0 unless a test says otherwise."""
    return {
        "uname": f"Linux spark-{rank} 6.17.0-1014-nvidia aarch64\n",
        "release": 'DGX_NAME="DGX Spark"\nDGX_OTA_VERSION="7.4.0"\n',
        "id": "uid=1000(user) gid=1000(user) groups=1000(user),998(docker)\n",
        "gpu": "NVIDIA GB10, 580.142, 12.1, 41, 0, 4.52, 208, 3003, Not Active, Not Active\n",
        "gpu.short": "41, 0, 4.52, 208\n",
        "gpu.apps": "",
        "docker.choice": "DOCKER_HOST\t\nDOCKER_CONTEXT\t\nconfig\t\n",
        "cdi": 'mode = "auto"\n',
        "fabric": fabric(rank),
        "addresses": addresses(rank),
        "meminfo": meminfo(),
        "minfree": "67584\n",
        "caches": "",
        "df.model": df(2000 * GIB),
        "df.engram": df(2000 * GIB),
        "df.docker": df(2000 * GIB),
        "engram": "",
        "checkpoint": "@checkpoint.folder\nabsent\n",
    }


def probe_text(rank: int, exits: dict[str, int] | None = None, **parts: str | None) -> str:
    """The probe's answer. A part's name is written with `_` for `.`; None leaves it out, as if never reached."""
    given = healthy(rank) | {name.replace("_", "."): text for name, text in parts.items()}  # type: ignore[dict-item]
    text = ""
    for name, body in given.items():
        if body is not None:
            text += f"@{name}\n{body}\n@{name}.exit\n{(exits or {}).get(name, 0)}\n"
    return text
