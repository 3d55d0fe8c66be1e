"""A boot that is looked at late keeps the times at which it happened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktui.telemetry.log_clock import LogClock

STARTED = "2026-11-29T18:00:00.123456789Z"
WALL = 1795975200.0
"""2026-11-29 18:00:00 UTC."""


def test_lines_that_are_read_late_get_the_time_at_which_they_were_said() -> None:
    clock = LogClock(STARTED, now=5000.0, wall=WALL + 480.0)
    assert clock.began == 4520.0
    assert clock.at("[2026-11-29 18:01:40 TP0] Load weight begin.", 5000.0) == 4620.0
    assert clock.at("[spark] READY rank=0", 5000.0) == 5000.0, "no stamp: when it was read"


def test_another_time_zone_or_a_broken_stamp_is_no_time() -> None:
    clock = LogClock(STARTED, now=5000.0, wall=WALL + 480.0)
    for stamp in ("2026-11-29 19:01:40", "2026-11-29 17:01:40", "2026-99-29 18:01:40"):
        assert clock.at(f"[{stamp} TP0] text", 5000.0) == 5000.0
    assert LogClock("", now=7.0, wall=WALL).began == 7.0


@given(st.floats(-100, 10_000), st.integers(0, 10_000))
def test_no_line_is_said_before_the_start_or_after_now(late: float, second: int) -> None:
    clock = LogClock(STARTED, now=20_000.0, wall=WALL + late)
    stamp = f"2026-11-29 {18 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    said = clock.at(f"[{stamp}] x", 20_000.0)
    assert clock.began <= said <= 20_000.0
