"""The sampler's stream: lines of text -> one record a second.

Lines are `FILE:TEXT`, FILE as seen from /proc (`meminfo`, `../sys/class/infiniband/DEVICE/ports/1/state`), and marks:

    @devices           a new list of RDMA devices begins
    @device D NET CAGE one of them; `-` for what is unknown
    @listed            the list is complete
    @df                rows of `df -PB1` follow, up to the next mark
    @read              file lines follow
    @end               everything of this second has been printed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparktui.readings.df import distinct, parse_df
from sparktui.readings.meminfo import Memory, Pressure, parse_meminfo, parse_pressure
from sparktui.readings.rdma import COUNTER_WORD_BYTES

SECTOR_BYTES = 512
"""Of /sys/block/*/stat, whatever the disk's own sectors are."""
_MAX_DIGITS = 20
_MAX_DEVICES = 64
_MAX_LINES = 4000
_MAX_COUNTERS = 100
_INFINIBAND, _BLOCK, _NET = "../sys/class/infiniband/", "../sys/block/", "../sys/class/net/"


@dataclass(frozen=True, slots=True)
class PortRecord:
    """One RDMA device at one moment; counters are the card's own totals.

    Attributes:
        state: `ACTIVE`, `DOWN`, …
        rate_gbit: as last read (every few seconds); means something only while ACTIVE.
        errors: error counters by name, as last read.
    """

    device: str
    netdev: str | None = None
    cage: str | None = None
    state: str | None = None
    rate_gbit: float | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """What a node said in one second; None is what it did not say.

    Attributes:
        uptime_seconds: the node's own clock: rates are differences of this, however late the lines come.
        cpu_busy_ticks, cpu_all_ticks: since boot, all cores together.
        ports: None while the devices have not been listed, () when there are none.
        disk_read_bytes: of all NVMe disks since boot.
        free_bytes: the smallest free space among the watched file systems, as last read.
    """

    uptime_seconds: float | None = None
    memory: Memory | None = None
    pressure: Pressure = field(default_factory=Pressure)
    cpu_busy_ticks: int | None = None
    cpu_all_ticks: int | None = None
    swapped_in_pages: int | None = None
    swapped_out_pages: int | None = None
    ports: tuple[PortRecord, ...] | None = None
    disk_read_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(slots=True)
class _Device:
    """What is known of a device; rate and error counters are read every few seconds only."""

    netdev: str | None
    cage: str | None
    rate_gbit: float | None = None
    errors: dict[str, int] = field(default_factory=dict)

    def take(self, what: str, text: str) -> None:
        if what == "rate":
            self.rate_gbit = _decimal(text)
        elif (count := _number([text])) is not None and len(self.errors) < _MAX_COUNTERS:
            # A new dictionary: records that were handed out keep theirs.
            self.errors = {**self.errors, what.rpartition("/")[2]: count}


class SamplerStream:
    """Feed it lines; whatever they hold, it never raises and holds a bounded amount."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}
        self._listing: dict[str, _Device] | None = None
        self._listed = False
        self._df: list[str] | None = None
        self._free_bytes: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._proc: dict[str, list[str]] = {}
        self._now: dict[str, dict[str, str]] = {}
        self._disk_read: int | None = None
        self._kept = 0

    def feed(self, line: str) -> Record | None:
        """The record that this line completes, or None."""
        if line.startswith("@"):
            return self._mark(line)
        if self._df is not None:
            if len(self._df) < _MAX_DEVICES:
                self._df.append(line)
            return None
        name, colon, text = line.partition(":")
        self._kept += 1
        if not colon or self._kept > _MAX_LINES:
            return None
        if name[0:1] != ".":
            self._proc.setdefault(name, []).append(text)
        elif name.startswith(_INFINIBAND):
            self._device_line(name[len(_INFINIBAND) :], text)
        elif name.startswith(_BLOCK):
            read = _number(text.split()[2:3])
            if read is not None:
                self._disk_read = (self._disk_read or 0) + read * SECTOR_BYTES
        elif name.startswith(_NET):
            netdev, _, what = name[len(_NET) :].partition("/")
            for device in self._devices.values():
                if device.netdev == netdev:
                    device.take(what, text)
        return None

    def _device_line(self, rest: str, text: str) -> None:
        name, _, what = rest.partition("/ports/1/")
        device = self._devices.get(name)
        if device is None or not what:
            return
        if what in _FAST:
            self._now.setdefault(name, {})[what] = text
        else:
            device.take(what, text)

    def _mark(self, line: str) -> Record | None:
        self._take_df()
        word, *rest = line.split()
        if word == "@end":
            record = self._record()
            self._begin()
            return record
        if word == "@devices":
            self._listing = {}
        elif word == "@device" and len(rest) == 3 and self._listing is not None and len(self._listing) < _MAX_DEVICES:
            name, netdev, cage = rest
            known = self._devices.get(name) or _Device(None, None)
            self._listing[name] = _Device(_named(netdev), _named(cage), known.rate_gbit, known.errors)
        elif word == "@listed" and self._listing is not None:
            self._devices, self._listing, self._listed = self._listing, None, True
        elif word == "@df":
            self._df = []
        return None

    def _take_df(self) -> None:
        if self._df is None:
            return
        rows = distinct(parse_df("\n".join(self._df)))
        self._free_bytes = min((max(0, row.available_bytes) for row in rows), default=None)
        self._df = None

    def _record(self) -> Record:
        proc = self._proc
        busy, ticks = _cpu(proc.get("stat"))
        swapped = dict(text.split(None, 1) for text in proc.get("vmstat", ()) if len(text.split(None, 1)) == 2)
        return Record(
            uptime_seconds=_decimal((proc.get("uptime") or [""])[0]),
            memory=parse_meminfo("\n".join(proc.get("meminfo", ()))),
            pressure=parse_pressure("\n".join(proc.get("pressure/memory", ()))),
            cpu_busy_ticks=busy,
            cpu_all_ticks=ticks,
            swapped_in_pages=_number([swapped.get("pswpin", "")]),
            swapped_out_pages=_number([swapped.get("pswpout", "")]),
            ports=self._ports() if self._listed else None,
            disk_read_bytes=self._disk_read,
            free_bytes=self._free_bytes,
        )

    def _ports(self) -> tuple[PortRecord, ...]:
        return tuple(_port(name, device, self._now.get(name, {})) for name, device in sorted(self._devices.items()))


_FAST = ("state", "counters/port_xmit_data", "counters/port_rcv_data")


def _port(name: str, device: _Device, now: Mapping[str, str]) -> PortRecord:
    sent, received = (_number([now.get(what, "")]) for what in _FAST[1:])
    return PortRecord(
        device=name,
        netdev=device.netdev,
        cage=device.cage,
        state=now.get("state", "").partition(":")[2].strip() or None,
        rate_gbit=device.rate_gbit,
        sent_bytes=None if sent is None else sent * COUNTER_WORD_BYTES,
        received_bytes=None if received is None else received * COUNTER_WORD_BYTES,
        errors=device.errors,
    )


def _named(word: str) -> str | None:
    return None if word == "-" else word


def _number(words: list[str]) -> int | None:
    """The first word as a count; None for anything else."""
    text = words[0].strip() if words else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _decimal(text: str) -> float | None:
    """The number that the text begins with: `35.53 12.1` -> 35.53, `200 Gb/sec (4X HDR)` -> 200.0."""
    word = (text.split(None, 1) or [""])[0]
    whole, _, part = word.partition(".")
    good = whole.isascii() and whole.isdecimal() and (not part or (part.isascii() and part.isdecimal()))
    return float(word) if good and len(word) <= _MAX_DIGITS else None


def _cpu(lines: list[str] | None) -> tuple[int | None, int | None]:
    """Busy and all ticks of `cpu  user nice system idle iowait irq softirq steal …`; guest time is within user."""
    words = (lines or [""])[0].split()
    if len(words) < 6 or words[0] != "cpu":
        return None, None
    ticks = [_number([word]) for word in words[1:9]]
    if None in ticks:
        return None, None
    known = [tick or 0 for tick in ticks]
    return sum(known) - known[3] - known[4], sum(known)
