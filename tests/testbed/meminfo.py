"""/proc/meminfo of a GB10: one pool of 121.7 GiB, as text that a test can change while a node runs."""

from __future__ import annotations

GIB_KB = 1024 * 1024
TOTAL_KB = 127_600_748

_IDLE_KB: dict[str, int] = {
    "MemTotal": TOTAL_KB,
    "MemFree": 108_003_328,
    "MemAvailable": 119_537_664,
    "Buffers": 196_608,
    "Cached": 12_582_912,
    "SwapCached": 0,
    "Active": 5_242_880,
    "Inactive": 9_437_184,
    "Active(anon)": 1_048_576,
    "Inactive(anon)": 2_097_152,
    "Active(file)": 4_194_304,
    "Inactive(file)": 7_340_032,
    "Unevictable": 24_640,
    "Mlocked": 24_640,
    "SwapTotal": 16_777_212,
    "SwapFree": 16_777_212,
    "Dirty": 512,
    "Writeback": 0,
    "AnonPages": 3_145_728,
    "Mapped": 655_360,
    "Shmem": 163_840,
    "KReclaimable": 917_504,
    "Slab": 1_572_864,
    "SReclaimable": 917_504,
    "SUnreclaim": 655_360,
    "KernelStack": 17_920,
    "PageTables": 49_152,
    "CommitLimit": 80_577_586,
    "Committed_AS": 9_961_472,
    "VmallocTotal": 133_141_626_880,
    "VmallocUsed": 102_400,
    "Percpu": 27_648,
    "AnonHugePages": 0,
    "CmaTotal": 131_072,
    "CmaFree": 69_632,
    "HugePages_Total": 0,
    "HugePages_Free": 0,
    "Hugepagesize": 2_048,
    "Hugetlb": 0,
}


def meminfo_text(**changed_kb: int) -> str:
    """An idle node's file with some fields changed, in kB; a field that is not there is a mistake of the test.

    Raises:
        KeyError: no such field in a real file.
    """
    unknown = set(changed_kb) - set(_IDLE_KB)
    if unknown:
        raise KeyError(f"no such field in /proc/meminfo: {', '.join(sorted(unknown))}")
    lines = []
    for name, value in (_IDLE_KB | changed_kb).items():
        unit = "" if name.startswith("HugePages_") else " kB"
        lines.append(f"{name + ':':<16}{value:>8}{unit}\n")
    return "".join(lines)
