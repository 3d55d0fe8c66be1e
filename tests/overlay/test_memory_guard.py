"""When the guard says that memory is short, and when that it is over; what a reading that fails changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.adapters.memory_guard import ADAPTER, CALM_SECONDS, EASE, FLOOR, LOOK_SECONDS, Guard, available_bytes
from spark_overlay.switches import SwitchError

from sparktui.telemetry.alarms import Limits

MIB = 1024**2


class Machine:
    """A guard with a floor of 1000 bytes, and what it looks at."""

    def __init__(self) -> None:
        self.now, self.available = 0.0, 5000
        self.reads = 0
        self.guard = Guard(1000, self._read, lambda: self.now)

    def _read(self) -> int | None:
        self.reads += 1
        return None if self.available < 0 else self.available

    def after(self, seconds: float, available: int) -> bool:
        self.now, self.available = self.now + seconds, available
        self.guard.look()
        return self.guard.low


def test_it_is_short_below_the_floor_until_it_was_calm_above_its_ease() -> None:
    machine = Machine()
    steps = [(1, 5000), (1, 1000), (1, 999), (1, 1249), (9, 1249), (1, 1250), (3.9, 1250), (1, 1250)]
    assert [machine.after(*step) for step in steps] == [False, False, True, True, True, True, True, False]


def test_a_head_that_is_short_before_any_request_ends_none_until_it_had_enough() -> None:
    machine = Machine()
    steps = [(1, 500), (9, 1249), (9, 500)]
    assert [(machine.after(*step), machine.guard.begun) for step in steps] == [(False, False)] * 3
    assert not machine.after(1, 1250) and machine.guard.begun
    assert machine.after(1, 999)


def test_a_dip_during_the_calm_begins_it_anew() -> None:
    machine = Machine()
    machine.after(1, 5000)
    machine.after(1, 500)
    assert [machine.after(*step) for step in ((4, 2000), (3, 1100), (4, 2000), (2, 2000))] == [True, True, True, False]


def test_however_often_it_is_asked_the_kernel_is_not() -> None:
    machine = Machine()
    for _ in range(1000):
        machine.after(LOOK_SECONDS / 100, 5000)
    assert 9 <= machine.reads <= 12


@pytest.mark.parametrize("available", [500, 5000])
def test_a_reading_that_fails_changes_nothing_and_is_known(available: int) -> None:
    machine = Machine()
    machine.after(1, 5000)
    before = machine.after(1, available)
    assert machine.after(1, -1) is before
    assert machine.guard.blind and machine.guard.seen == available
    machine.after(1, available)
    assert not machine.guard.blind


@given(st.lists(st.tuples(st.floats(0.3, 20), st.integers(0, 3000)), max_size=60))
def test_it_changes_only_where_it_must(steps: list[tuple[float, int]]) -> None:
    machine, low, calm_since = Machine(), False, -float("inf")
    machine.after(1, 5000)
    for seconds, available in steps:
        found = machine.after(seconds, available)
        if available < 1000 * EASE:
            calm_since = machine.now
        if available < 1000:
            assert found
        elif found != low:
            assert not found and machine.now - calm_since >= CALM_SECONDS
        low = found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("MemTotal: 9 kB\nMemAvailable:   1234 kB\n", 1234 * 1024),
        ("MemFree: 1234 kB\n", None),
        ("MemAvailable: many kB\n", None),
        ("", None),
    ],
)
def test_what_the_kernel_says(text: str, found: int | None, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(text)
    assert available_bytes(tmp_path / "meminfo") == found
    assert available_bytes(tmp_path / "nothing") is None


def test_the_monitor_warns_before_the_guard_acts_and_0_switches_it_off() -> None:
    assert FLOOR.default * MIB < FLOOR.default * MIB * EASE < Limits().available_severe_bytes
    assert ADAPTER.off({FLOOR.name: 0}) == "DSV41_MEMGUARD_MIB=0"
    with pytest.raises(SwitchError, match="DSV41_MEMGUARD_MIB=100 is not 0 or from 256 to 65536"):
        FLOOR.read({FLOOR.name: "100"})
