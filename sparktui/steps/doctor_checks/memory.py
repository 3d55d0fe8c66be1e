"""The node's one pool of memory, which is the GPU's as well."""

from __future__ import annotations

from collections.abc import Iterator

from sparktui.events import Finding, State
from sparktui.readings.meminfo import Memory, parse_meminfo
from sparktui.readings.nvidia_smi import parse_compute_apps, used_bytes
from sparktui.steps.amounts import bytes_text
from sparktui.steps.doctor_checks.report import NodeReport

GIB = 1024**3
PAGE_CACHE_WARN_BYTES = 16 * GIB
DRIVER_WARN_BYTES = 8 * GIB
RESERVE_INFO_BYTES = GIB
HEADROOM_WARN_BYTES = 4 * GIB
HEADROOM_FAIL_BYTES = 2 * GIB


def check_memory(report: NodeReport) -> Iterator[Finding]:
    """memory, memory.cache, memory.driver, memory.reserve."""
    memory = parse_meminfo(report.probe.text("meminfo") or "")
    if memory is None or memory.total_bytes is None or memory.available_bytes is None:
        yield report.unknown("memory", "meminfo", "memory")
        return
    gpu = _gpu_bytes(report)
    split = _split(memory, gpu)
    serving = report.docker is not None and any(
        each.ours and each.role not in ("nfs", "pack") for each in report.docker.containers
    )
    text = f"{bytes_text(memory.available_bytes)} of {bytes_text(memory.total_bytes)} available"
    if split:
        text += ": " + ", ".join(f"{name} {bytes_text(amount)}" for name, amount in split.items())
    state = State.OK
    if memory.available_bytes < HEADROOM_FAIL_BYTES:
        state = State.FAIL
    elif memory.available_bytes < HEADROOM_WARN_BYTES:
        state = State.WARN
    fix = "" if state is State.OK else "close what else runs; all ranks stall if this reaches 0"
    yield report.finding("memory", state, text, fix=fix, total_bytes=memory.total_bytes, split=split)
    cache = memory.page_cache_bytes
    if cache is not None and cache > PAGE_CACHE_WARN_BYTES and not serving:
        yield report.finding(
            "memory.cache",
            State.WARN,
            f"page cache {bytes_text(cache)}",
            cause="files just read or copied compete with the model while it loads",
            fix="sync && echo 1 | sudo tee /proc/sys/vm/drop_caches",
            bytes=cache,
        )
    held = memory.driver_held_bytes(gpu)
    if held is not None and held > DRIVER_WARN_BYTES and gpu == 0 and report.is_arm:
        yield report.finding(
            "memory.driver",
            State.WARN,
            f"{bytes_text(held)} are still held by the GPU driver, and no process uses the GPU",
            fix="end what is left of the last container, or reboot the node",
            bytes=held,
        )
    yield from _reserve(report, memory)


def _reserve(report: NodeReport, memory: Memory) -> Iterator[Finding]:
    word = (report.probe.text("minfree") or "").strip()
    reserve = int(word) * 1024 if word.isdigit() else 0
    if reserve > RESERVE_INFO_BYTES:
        yield report.finding(
            "memory.reserve",
            State.INFO,
            f"vm.min_free_kbytes={word}: the reserve lowers MemAvailable by {bytes_text(reserve)}",
            bytes=reserve,
        )


def _gpu_bytes(report: NodeReport) -> int | None:
    if report.probe.status("gpu.apps") == 127 and not report.is_arm:
        return 0
    text = report.probe.text("gpu.apps")
    return None if text is None else used_bytes(parse_compute_apps(text))


def _split(memory: Memory, gpu: int | None) -> dict[str, int]:
    """Four parts that add up to MemTotal; empty where one of them is unknown."""
    cache, free, total = memory.page_cache_bytes, memory.free_bytes, memory.total_bytes
    if gpu is None or cache is None or free is None or total is None:
        return {}
    # nvidia-smi answers a moment later than the kernel: its figure may not push the sum over the total.
    gpu = min(gpu, max(total - cache - free, 0))
    return {"GPU processes": gpu, "page cache": cache, "other": max(total - gpu - cache - free, 0), "free": free}
