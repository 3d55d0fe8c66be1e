"""Rings: a gap is a gap, a dip stays visible, memory is bounded."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from sparktui.telemetry.history import COARSE_SLOTS, FINE_SLOTS, History, Quantity, Ring
from sparktui.telemetry.sample import ClusterSnapshot, EndpointState, Freshness, MemorySplit, NodeSample, Serving

GIB = 1024**3


def snapshot(at: float, available: int | None, *, state: Freshness = Freshness.LIVE) -> ClusterSnapshot:
    node = NodeSample("worker2", 2, state, split=MemorySplit(available_bytes=available))
    return ClusterSnapshot(at, (node,), Serving(EndpointState.READY, decode_tokens_per_second=50.0))


def test_u52_a_gap_is_a_gap_and_never_a_flat_line() -> None:
    history = History()
    for at in range(5):
        history.take(snapshot(100.0 + at, 7))
    for at in range(5, 8):
        history.take(snapshot(100.0 + at, 7, state=Freshness.STALE))
    history.take(snapshot(112.0, 3))  # the screen itself was asleep for a while
    found = history.values("worker2", Quantity.AVAILABLE_BYTES, seconds=13)
    assert found == [7.0] * 5 + [None] * 7 + [3.0]


def test_a_silent_present_is_a_gap_at_the_end() -> None:
    history = History()
    history.take(snapshot(100.0, 7))
    history.take(snapshot(104.0, None))
    assert history.values("worker2", Quantity.AVAILABLE_BYTES, seconds=5) == [7.0, None, None, None, None]


def test_a_dip_is_not_averaged_away() -> None:
    history = History()
    for at in range(600):
        history.take(snapshot(float(at), 2 if at == 301 else 100))
    assert min(filter(None, history.points("worker2", Quantity.AVAILABLE_BYTES, seconds=600, points=20))) == 2
    assert min(filter(None, history.values("worker2", Quantity.AVAILABLE_BYTES, seconds=3600))) == 2


def test_the_endpoints_numbers_stand_under_no_node() -> None:
    history = History()
    history.take(snapshot(1.0, 7))
    assert history.values("", Quantity.DECODE_TOKENS_PER_SECOND, seconds=1) == [50.0]
    assert history.values("worker2", Quantity.GPU_CELSIUS, seconds=3) == [None] * 3


def test_days_take_no_more_memory_than_an_hour() -> None:
    ring = Ring(FINE_SLOTS, 1.0)
    ring.put(0.0, 1.0)
    before = sys.getsizeof(ring._values)
    for at in range(0, 3 * 86400, 7):
        ring.put(float(at), 1.0)
    assert sys.getsizeof(ring._values) == before
    assert len(ring.values(10**6)) == FINE_SLOTS
    history = History()
    for at in range(0, 86400 * 2, 60):
        history.take(snapshot(float(at), at))
    assert len(history.values("worker2", Quantity.AVAILABLE_BYTES, seconds=10**7)) == COARSE_SLOTS


def test_a_clock_that_goes_back_or_jumps_far_ahead() -> None:
    ring = Ring(5, 1.0)
    ring.put(100.0, 1.0)
    ring.put(50.0, 9.0)
    assert ring.values(2) == [None, 1.0]
    ring.put(10**9, 2.0)
    assert ring.values(5) == [None] * 4 + [2.0]


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 6), st.one_of(st.none(), st.floats(-1e9, 1e9), st.just(float("nan"))))),
)
def test_a_ring_is_what_a_dictionary_of_slots_would_be(slots: int, steps: list[tuple[int, float | None]]) -> None:
    ring, plain, at = Ring(slots, 1.0, lowest=True), dict[int, float](), 0
    for step, value in steps:
        at += step
        ring.put(float(at), value)
        if value is not None and value == value:
            plain[at] = min(value, plain.get(at, value))
    expected = [plain.get(slot) for slot in range(at - slots + 1, at + 1)]
    assert ring.values(slots) == (expected if steps else [None] * slots)
