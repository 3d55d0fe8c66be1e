"""nvidia-smi's stream: a part of its own with a slower interval, since its cost on a Spark is unknown here.

One resident nvidia-smi prints a row each GPU_SECONDS (a start of it each time would load the driver's library anew);
a second, short one lists the compute processes each APPS_SECONDS. A node without it gives no reading.
"""

from __future__ import annotations

from sparktui.readings.nvidia_smi import GpuProcess, number_or_none, parse_compute_apps, parse_rows, used_bytes
from sparktui.telemetry.sample import GpuReading

GPU_SECONDS = 5
APPS_SECONDS = 30
ANSWER_SECONDS = 5
"""nvidia-smi hangs when the driver is wedged: the short call is killed after this long."""
ABSENT = "@absent"
_SHORT = ("temperature.gpu", "utilization.gpu", "power.draw", "clocks.sm")
_REASONS = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
FIELDS = (*_SHORT, *(f"clocks_event_reasons.{reason}" for reason in _REASONS))

# The long list is refused whole where one name is unknown; then the short one. Both are started again if they end.
_SCRIPT = r"""
command -v nvidia-smi >/dev/null 2>&1 || { echo @absent; exit 0; }
while :; do
  nvidia-smi --query-gpu=@FIELDS@ --format=csv,noheader,nounits -l @SECONDS@ ||
    nvidia-smi --query-gpu=@SHORT@ --format=csv,noheader,nounits -l @SECONDS@
  sleep @SECONDS@
done &
while :; do
  found=$(timeout -s KILL @ANSWER@ nvidia-smi --query-compute-apps=pid,process_name,used_memory \
    --format=csv,noheader,nounits 2>&1)
  printf '@apps %s\n%s\n@end\n' "$?" "$found"
  sleep @APPS@
done
"""


def gpu_argv() -> tuple[str, ...]:
    """What `NodeLink.lines` is given; its output is for `GpuStream`."""
    text = (
        _SCRIPT.replace("@FIELDS@", ",".join(FIELDS))
        .replace("@SHORT@", ",".join(_SHORT))
        .replace("@SECONDS@", str(GPU_SECONDS))
        .replace("@ANSWER@", str(ANSWER_SECONDS))
        .replace("@APPS@", str(APPS_SECONDS))
    )
    return ("/bin/sh", "-c", text, "sparktui-gpu")


class GpuStream:
    """Lines of the stream -> readings. It never raises, whatever they hold."""

    def __init__(self) -> None:
        self._apps: list[str] | None = None
        self._status = ""
        self._process_bytes: int | None = None
        self.absent = False

    def feed(self, line: str, at: float) -> GpuReading | None:
        """A reading when this line is a row of the GPU."""
        if line == ABSENT:
            self.absent = True
        elif line.startswith("@apps "):
            self._apps, self._status = [], line.removeprefix("@apps ")
        elif line == "@end":
            self._process_bytes = used_bytes(self._processes())
            self._apps = None
        elif (reading := self._row(line, at)) is not None:
            return reading
        elif self._apps is not None and len(self._apps) < 1000:
            self._apps.append(line)
        return None

    def _processes(self) -> tuple[GpuProcess, ...] | None:
        return parse_compute_apps("\n".join(self._apps)) if self._apps is not None and self._status == "0" else None

    def _row(self, line: str, at: float) -> GpuReading | None:
        # Rows of the GPU may come between those of its processes: they are told apart by their width.
        for fields in (FIELDS, _SHORT):
            for row in parse_rows(line, fields):
                return _reading(row, at, self._process_bytes)
        return None


def _reading(row: dict[str, str], at: float, process_bytes: int | None) -> GpuReading | None:
    temperature, busy, watts, clock = (number_or_none(row[name]) for name in _SHORT)
    if temperature is None and busy is None and watts is None and clock is None:
        return None
    reasons = [row.get(f"clocks_event_reasons.{reason}", "").lower() for reason in _REASONS]
    throttled = True if "active" in reasons else False if "not active" in reasons else None
    return GpuReading(
        taken_at=at,
        utilization_percent=busy,
        temperature_celsius=temperature,
        power_watts=watts,
        clock_mhz=clock,
        process_bytes=process_bytes,
        throttled=throttled,
    )
