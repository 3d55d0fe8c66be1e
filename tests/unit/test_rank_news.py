"""From which moment on a container's log is read."""

from __future__ import annotations

import pytest

from sparktui.engine.rank_news import _since


@pytest.mark.parametrize(
    ("started_at", "expected"),
    [
        ("2026-11-29T18:00:11.123456789Z", 1_795_975_210.0),
        ("2026-11-29T18:00:11Z", 1_795_975_210.0),
        ("0001-01-01T00:00:00Z", None),
        ("", None),
        ("soon", None),
    ],
)
def test_a_log_is_read_from_a_moment_before_the_start(started_at: str, expected: float | None) -> None:
    assert _since(started_at) == expected
