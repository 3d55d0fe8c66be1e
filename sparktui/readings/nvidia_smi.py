"""nvidia-smi's csv answers. What GB10 does not report (memory, power limit, fan) is None."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

GPU_FIELDS = (
    "name",
    "driver_version",
    "compute_cap",
    "temperature.gpu",
    "utilization.gpu",
    "power.draw",
    "clocks.sm",
    "clocks.max.sm",
    "clocks_event_reasons.hw_thermal_slowdown",
    "clocks_event_reasons.sw_thermal_slowdown",
)
"""What to ask with `--query-gpu=… --format=csv,noheader,nounits`, in this order."""
GPU_FIELDS_SHORT = ("temperature.gpu", "utilization.gpu", "power.draw", "clocks.sm")
"""When the long list is refused: one unknown name fails the whole query."""
APP_FIELDS = ("pid", "process_name", "used_memory")
"""What to ask with `--query-compute-apps=… --format=csv,noheader,nounits`."""

_UNKNOWN = {
    "",
    "[n/a]",
    "n/a",
    "[not supported]",
    "not supported",
    "[unknown error]",
    "unknown error",
    "[insufficient permissions]",
    "[gpu requires reset]",
    "[not found]",
    "not found",
}
_NUMBER = re.compile(r"(-?\d{1,15}(?:\.\d{1,9})?)(?:\s*(?:W|MHz|MiB|%|C))?")
_GPU_LINE = re.compile(r"GPU (\d+): (.+?)(?: \(UUID: ([^)]*)\))?\s*")
_TROUBLE = ("NVIDIA-SMI has failed", "is not a valid field to query", "No devices were found", "Unable to determine")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Percent, degrees Celsius, watts of the GPU part, MHz."""

    name: str | None = None
    driver_version: str | None = None
    compute_capability: str | None = None
    temperature_celsius: float | None = None
    utilization_percent: float | None = None
    power_watts: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    hardware_thermal_slowdown: bool | None = None
    software_thermal_slowdown: bool | None = None

    @property
    def is_gb10(self) -> bool | None:
        """A Spark is known by its GPU's name: makers and product names differ."""
        return None if self.name is None else "GB10" in self.name


@dataclass(frozen=True, slots=True)
class GpuProcess:
    pid: int
    name: str | None
    used_bytes: int | None


def text_or_none(cell: str) -> str | None:
    cell = cell.strip()
    return None if cell.lower() in _UNKNOWN else cell


def number_or_none(cell: str) -> float | None:
    """A number with or without its unit; None for every spelling of 'not available'."""
    match = _NUMBER.fullmatch(cell.strip())
    if not match:
        return None
    value = float(match[1])
    return value if math.isfinite(value) else None


def parse_rows(text: str, fields: tuple[str, ...]) -> tuple[dict[str, str], ...]:
    """csv without header -> one dict a row; rows of another width and nvidia-smi's error texts are no rows."""
    rows = []
    for line in text.split("\n"):
        if not line.strip() or line.startswith("#") or any(sign in line for sign in _TROUBLE):
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields):
            rows.append(dict(zip(fields, cells, strict=True)))
    return tuple(rows)


def _flag(cell: str | None) -> bool | None:
    return {"active": True, "not active": False}.get((cell or "").strip().lower())


def parse_gpus(text: str, fields: tuple[str, ...] = GPU_FIELDS) -> tuple[Gpu, ...]:
    """Empty when there is no readable row: ask `trouble()` why."""
    return tuple(
        Gpu(
            name=text_or_none(row.get("name", "")),
            driver_version=text_or_none(row.get("driver_version", "")),
            compute_capability=text_or_none(row.get("compute_cap", "")),
            temperature_celsius=number_or_none(row.get("temperature.gpu", "")),
            utilization_percent=number_or_none(row.get("utilization.gpu", "")),
            power_watts=number_or_none(row.get("power.draw", "")),
            sm_clock_mhz=number_or_none(row.get("clocks.sm", row.get("clocks.current.sm", ""))),
            sm_clock_max_mhz=number_or_none(row.get("clocks.max.sm", "")),
            hardware_thermal_slowdown=_flag(row.get("clocks_event_reasons.hw_thermal_slowdown")),
            software_thermal_slowdown=_flag(row.get("clocks_event_reasons.sw_thermal_slowdown")),
        )
        for row in parse_rows(text, fields)
    )


def parse_compute_apps(text: str) -> tuple[GpuProcess, ...] | None:
    """Processes with a compute context; () when nothing runs, None when the answer cannot be read."""
    processes = []
    for line in text.split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        # a process name may hold a comma: pid is the first cell and memory the last
        first, _, rest = line.partition(",")
        name, _, last = rest.rpartition(",")
        if not re.fullmatch(r"\d{1,10}", first.strip()):
            if line.strip().lower().startswith("no running processes"):
                continue
            return None
        mebibytes = number_or_none(last)
        used = None if mebibytes is None or mebibytes < 0 else int(mebibytes * 1024 * 1024)
        processes.append(GpuProcess(int(first), text_or_none(name), used))
    return tuple(processes)


def used_bytes(processes: tuple[GpuProcess, ...] | None) -> int | None:
    """Sum over the rows; None when a row or the whole answer is unknown (never too small a figure)."""
    if processes is None or any(each.used_bytes is None for each in processes):
        return None
    return sum(each.used_bytes or 0 for each in processes)


def parse_list(text: str) -> tuple[str, ...]:
    """Names from `nvidia-smi -L`."""
    return tuple(match[2] for line in text.split("\n") if (match := _GPU_LINE.fullmatch(line.strip())))


def trouble(text: str, exit_status: int) -> str | None:
    """Why nvidia-smi gave no answer, one sentence; None when it did."""
    if exit_status == 127 or "command not found" in text:
        return "nvidia-smi is not installed"
    if "couldn't communicate with the NVIDIA driver" in text:
        return "nvidia-smi cannot reach the NVIDIA driver"
    if "No devices were found" in text:
        return "the NVIDIA driver sees no GPU"
    if exit_status in (124, 137):
        return "nvidia-smi did not answer in time: the driver may be wedged"
    if exit_status != 0:
        return f"nvidia-smi failed with status {exit_status}: {(text.strip().splitlines() or ['no output'])[-1]}"
    return None
