"""The endpoint's words in the top line: green only where every rank is known to run."""

from __future__ import annotations

from sparktui.telemetry.alarms import NO_CONTAINER, RANKS, UNSEEN, overruled
from sparktui.telemetry.sample import Alarm, EndpointState, Serving
from sparktui.ui.endpoint_words import endpoint_words

READY = Serving(state=EndpointState.READY, url="http://192.0.2.1:8888")


def shown(alarm_id: str) -> str:
    what = "worker2: its Docker Engine did not answer"
    return endpoint_words(overruled(READY, [Alarm(alarm_id, "worker2", True, what)])).plain


def test_a_rank_that_nobody_can_ask_is_said_whatever_the_alarms_sentence_is() -> None:
    assert endpoint_words(READY).plain == "endpoint ready"
    assert shown(UNSEEN) == "endpoint answers, a rank is unknown"
    assert shown(RANKS) == shown(NO_CONTAINER) == "endpoint hangs"
    assert shown("head.swap") == "endpoint ready"
