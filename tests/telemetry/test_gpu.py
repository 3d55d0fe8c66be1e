"""nvidia-smi's stream: unknown is None, processes and rows may interleave."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktui.telemetry.gpu import ABSENT, GpuStream
from sparktui.telemetry.sample import GpuReading

ROW = "61, 96, 74.20, 2405, Not Active, Not Active, Not Active"


def read(*lines: str) -> list[GpuReading]:
    stream = GpuStream()
    return [found for line in lines if (found := stream.feed(line, 5.0)) is not None]


def test_a_row() -> None:
    assert read(ROW) == [GpuReading(5.0, 96.0, 61.0, 74.2, 2405.0, None, False)]


def test_the_short_row_knows_nothing_of_throttling() -> None:
    assert read("61, 96, 74.20, 2405")[0].throttled is None


def test_what_a_gb10_does_not_report_is_unknown() -> None:
    assert read("61, [N/A], [Not Supported], 2405, [N/A], [N/A], [N/A]") == [GpuReading(5.0, None, 61.0, None, 2405.0)]
    assert read("[N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]") == []


def test_processes_are_summed_and_a_row_may_come_in_between() -> None:
    found = read("@apps 0", "1, sglang::scheduler, 1024", ROW, "2, python, 512", "@end", ROW)
    assert [each.process_bytes for each in found] == [None, 1536 * 1024**2]


def test_no_process_is_zero_and_an_unread_one_is_unknown() -> None:
    assert read("@apps 0", "", "@end", ROW)[0].process_bytes == 0
    assert read("@apps 0", "1, python, [N/A]", "@end", ROW)[0].process_bytes is None
    assert read("@apps 137", "", "@end", ROW)[0].process_bytes is None
    assert read("@apps 9", "NVIDIA-SMI has failed because it", "@end", ROW)[0].process_bytes is None


def test_absent() -> None:
    stream = GpuStream()
    stream.feed(ABSENT, 0.0)
    assert stream.absent


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from([ROW, "@apps 0", "@apps ", "@end", ABSENT]))))
def test_nothing_makes_it_raise(lines: list[str]) -> None:
    assert len(read(*lines)) >= lines.count(ROW)
