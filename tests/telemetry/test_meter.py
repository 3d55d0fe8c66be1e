"""Rates, growth and the memory split of one node."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktui.cluster.node import Node
from sparktui.readings.meminfo import parse_meminfo
from sparktui.readings.sampler_stream import SamplerStream
from sparktui.telemetry.meter import Meter, split_of
from sparktui.telemetry.sample import MemorySplit, NodeSample
from tests.telemetry.records import GIB_KB, listing, record

GIB = 1024**3


class Metered:
    def __init__(self) -> None:
        self.stream, self.meter = SamplerStream(), Meter(Node("worker1", 1, "10.0.0.2"))
        for line in listing():
            self.stream.feed(line)

    def take(self, lines: list[str], at: float = 0.0) -> NodeSample:
        for line in lines:
            found = self.stream.feed(line)
            if found is not None:
                return self.meter.take(found, at)
        raise AssertionError("no record in these lines")


def port(sample: NodeSample, device: str = "rocep1s0f0"):  # type: ignore[no-untyped-def]
    return next(each for each in sample.ports or () if each.device == device)


def test_rates_follow_the_nodes_clock_however_late_the_lines_come() -> None:
    metered = Metered()
    first = metered.take(record(100.0, sent_words=0, sectors=0, cpu=(100, 900)), at=5.0)
    assert port(first).sent_bytes_per_second is None, "one record gives no rate"
    assert first.cpu_busy_percent is None
    # Two seconds of the node's, which come in one burst a minute later.
    late = metered.take(record(102.0, sent_words=1000, sectors=4096, cpu=(150, 950)), at=65.0)
    assert port(late).sent_bytes_per_second == 2000.0
    assert late.nvme_read_bytes_per_second == 1024 * 1024
    assert late.cpu_busy_percent == 50.0
    assert late.taken_at == 65.0


def test_a_counter_that_was_reset_gives_no_rate() -> None:
    metered = Metered()
    metered.take(record(100.0, sent_words=5000))
    assert port(metered.take(record(101.0, sent_words=10))).sent_bytes_per_second is None
    assert port(metered.take(record(102.0, sent_words=20))).sent_bytes_per_second == 40.0


def test_a_reboot_gives_no_rate_and_no_growth() -> None:
    metered = Metered()
    metered.take(record(5000.0, sent_words=100, errors={"counters/symbol_error": 3}))
    after = metered.take(record(20.0, sent_words=200, errors={"counters/symbol_error": 0}))
    assert port(after).sent_bytes_per_second is None
    assert port(after).errors == 0


def test_errors_are_the_growth_since_the_watch_began_not_those_of_cabling_day() -> None:
    metered = Metered()
    first = metered.take(record(1.0, errors={"counters/symbol_error": 900, "hw_counters/out_of_sequence": 4}))
    assert (port(first).errors, port(first).growing) == (0, ())
    then = metered.take(record(2.0, errors={"counters/symbol_error": 902, "hw_counters/out_of_sequence": 4}))
    assert (port(then).errors, port(then).growing) == (2, ("symbol_error",))
    # The driver was loaded anew: a new base, and the count goes on from there.
    again = metered.take(record(3.0, errors={"counters/symbol_error": 1, "hw_counters/out_of_sequence": 4}))
    assert port(again).errors == 2
    metered.meter.restarted()
    assert port(metered.take(record(9.0, errors={"counters/symbol_error": 4}))).errors == 5


def test_swapping_is_a_rate_that_stays_until_it_is_read_again() -> None:
    metered = Metered()
    assert metered.take(record(10.0, swapped=1000)).swapped_pages_per_second is None
    assert metered.take(record(15.0, swapped=1500)).swapped_pages_per_second == 100.0
    without = [line for line in record(16.0) if not line.startswith("vmstat")]
    assert metered.take(without).swapped_pages_per_second == 100.0
    assert metered.take(record(20.0, swapped=1500)).swapped_pages_per_second == 0.0


def test_a_rate_of_a_port_that_is_down_is_not_shown() -> None:
    found = port(Metered().take(record(1.0, down=["rocep1s0f0"])))
    assert (found.active, found.state, found.rate_gbit) == (False, "DOWN", None)


def split_sums(split: MemorySplit) -> int:
    parts = (split.held_bytes, split.processes_bytes, split.page_cache_bytes, split.free_bytes)
    assert None not in parts
    return sum(part or 0 for part in parts)


def test_u59_the_split_is_the_whole_pool_and_weights_show_as_held() -> None:
    idle = Metered().take(record(1.0)).split
    serving = Metered().take(record(1.0, MemFree=6 * GIB_KB, MemAvailable=7 * GIB_KB, Cached=2 * GIB_KB)).split
    for split in (idle, serving):
        assert split_sums(split) == split.total_bytes
    assert idle.held_bytes is not None and idle.held_bytes < 2 * GIB
    assert serving.held_bytes is not None and 105 * GIB < serving.held_bytes < 115 * GIB


def test_lines_that_were_not_read_at_one_instant_still_make_the_whole() -> None:
    split = split_of(parse_meminfo(_meminfo(total=1000, free=500, anon=300, cached=400)), None)
    assert (split.held_bytes, split_sums(split)) == (0, 1000 * 1024)


def _meminfo(*, total: int, free: int, anon: int, cached: int) -> str:
    rows = {"MemTotal": total, "MemFree": free, "AnonPages": anon, "Cached": cached, "Buffers": 0, "Shmem": 0}
    rows |= {"Slab": 0, "SReclaimable": 0, "SUnreclaim": 0}
    return "\n".join(f"{name}: {value} kB" for name, value in rows.items())


def test_an_unread_line_makes_its_part_unknown_never_zero() -> None:
    split = split_of(parse_meminfo("MemTotal: 100 kB\nMemFree: 10 kB\n"), 5)
    assert (split.total_bytes, split.free_bytes) == (102400, 10240)
    assert (split.held_bytes, split.processes_bytes, split.page_cache_bytes, split.available_bytes) == (None,) * 4
    assert split_of(None, 5) == MemorySplit(floor_bytes=5)


def test_memory_that_the_driver_kept_after_the_model_ended_is_shown_as_held(shared_data: Path) -> None:
    text = (shared_data / "spark/proc/meminfo.driver-retained.real-18-lines.txt").read_text()
    split = split_of(parse_meminfo(text), None)
    if split.held_bytes is None:
        pytest.fail(f"the capture has too few lines for a split: {split}")
    assert 75 * GIB < split.held_bytes < 85 * GIB
