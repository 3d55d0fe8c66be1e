"""What is an alarm, what is not, and that none flaps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from sparktui.readings.meminfo import Memory
from sparktui.telemetry.alarms import AlarmBook, Limits
from sparktui.telemetry.sample import (
    Alarm,
    ClusterSnapshot,
    EndpointState,
    Freshness,
    GpuReading,
    MemorySplit,
    NodeSample,
    PortReading,
    Serving,
)

GIB = 1024**3
PORTS = tuple(
    PortReading(device, cage=cage, active=True, state="ACTIVE", rate_gbit=200.0, errors=0)
    for device, cage in (("rocep1s0f0", "p0"), ("rocep1s0f1", "p1"), ("roceP2p1s0f0", "p0"), ("roceP2p1s0f1", "p1"))
)
CALM = NodeSample(
    "worker2",
    2,
    Freshness.LIVE,
    age_seconds=0.5,
    taken_at=0.0,
    split=MemorySplit(available_bytes=20 * GIB, free_bytes=10 * GIB, swap_used_bytes=0),
    stalled_percent=0.0,
    swapped_pages_per_second=0.0,
    ports=PORTS,
)


def memory(available_gib: float, free_gib: float = 10.0, **more: float) -> NodeSample:
    split = MemorySplit(available_bytes=int(available_gib * GIB), free_bytes=int(free_gib * GIB), swap_used_bytes=0)
    return replace(CALM, split=split, **more)  # type: ignore[arg-type]


def run(
    samples: Iterable[NodeSample], *, every: float = 1.0, serving: Serving | None = None
) -> list[tuple[Alarm, ...]]:
    """The alarms after each of the pictures."""
    book, found = AlarmBook(), []
    for number, sample in enumerate(samples):
        book = book.judged(ClusterSnapshot(number * every, (sample,), serving or Serving()))
        found.append(book.alarms)
    return found


def ids(found: Iterable[tuple[Alarm, ...]]) -> list[list[str]]:
    return [[alarm.id for alarm in each] for each in found]


def test_a_calm_node_has_none() -> None:
    assert ids(run([CALM] * 30)) == [[]] * 30


def test_a_head_that_serves_with_six_gib_is_as_it_should_be() -> None:
    assert ids(run([memory(6.0, 2.0)] * 5)) == [[]] * 5


def test_u58_free_memory_swings_and_the_alarm_does_not_flap() -> None:
    swing = [7.5, 5.0, 3.9, 4.1, 3.8, 4.2, 3.0, 4.3, 4.5, 4.7, *[7.5] * 9, 4.1, 7.5]
    found = run(memory(value) for value in swing)
    raised = [bool(each) for each in found]
    assert raised.index(True) == 2
    changes = sum(a != b for a, b in pairwise(raised))
    assert changes == 2, "raised once, ended once"
    assert not found[-1]
    alarm = found[6][0]
    assert (alarm.id, alarm.node, alarm.severe) == ("memory.available.worker2", "worker2", False)
    assert "all ranks stall if this reaches 0" in alarm.what
    assert "3.0 GiB available" in alarm.what and alarm.fix
    assert alarm.since == 2.0, "the same trouble since then"


def test_u58_below_two_gib_is_severe_and_the_bounds_can_be_chosen() -> None:
    assert run([memory(1.9)])[0][0].severe
    book = AlarmBook(Limits(available_warn_bytes=GIB)).judged(ClusterSnapshot(0.0, (memory(1.9),)))
    assert book.alarms == ()


def test_little_free_counts_only_while_something_waits_for_it() -> None:
    assert ids(run([memory(30.0, 0.5)])) == [[]]
    assert ids(run([memory(30.0, 0.5, stalled_percent=4.0)])) == [["memory.free.worker2"]]


def test_u62_swapping_names_the_stall() -> None:
    split = MemorySplit(available_bytes=9 * GIB, free_bytes=4 * GIB, swap_used_bytes=2 * GIB)
    node = replace(CALM, split=split, swapped_pages_per_second=900.0, stalled_percent=14.0)
    (found,) = run([node])
    by_id = {alarm.id: alarm for alarm in found}
    assert set(by_id) == {"swap.worker2", "memory.stall.worker2"}
    assert "stalled 14 %" in by_id["swap.worker2"].what and "2.0 GiB in use" in by_id["swap.worker2"].what


def test_swap_that_was_filled_long_ago_is_no_alarm() -> None:
    split = MemorySplit(available_bytes=20 * GIB, free_bytes=10 * GIB, swap_used_bytes=3 * GIB)
    assert ids(run([replace(CALM, split=split)])) == [[]]


def ports(*down: str, errors: int = 0, growing: tuple[str, ...] = ()) -> NodeSample:
    changed = tuple(replace(port, active=port.device not in down, errors=errors, growing=growing) for port in PORTS)
    return replace(CALM, ports=changed)


def test_a_link_that_goes_down_is_severe_until_it_is_back() -> None:
    both = ("rocep1s0f1", "roceP2p1s0f1")
    found = run([ports(), ports(*both), ports(*both), ports(*both), ports()])
    assert ids(found) == [[], ["link.worker2.p1"], ["link.worker2.p1"], ["link.worker2.p1"], []]
    assert found[1][0].severe and "port 1" in found[1][0].what


def test_u41_a_socket_that_never_had_a_cable_is_no_alarm() -> None:
    assert ids(run([ports("rocep1s0f1", "roceP2p1s0f1")] * 5)) == [[]] * 5


def test_a_planned_cable_that_never_had_a_link_warns() -> None:
    book = AlarmBook(planned=frozenset({("worker2", "p1")}))
    for number in range(8):
        book = book.judged(ClusterSnapshot(float(number), (ports("rocep1s0f1", "roceP2p1s0f1"),)))
    assert [(alarm.id, alarm.severe) for alarm in book.alarms] == [("nolink.worker2.p1", False)]
    assert "the plan has a cable here" in book.alarms[0].what


def test_half_a_cable_warns() -> None:
    found = run([ports("roceP2p1s0f0")] * 6)
    assert ids(found)[0] == []
    assert ids(found)[-1] == ["half.worker2.p0"]
    assert "roceP2p1s0f0 is down" in found[-1][0].what


def test_growing_errors_name_their_counters_and_stay_a_while() -> None:
    grown = ports(errors=4, growing=("symbol_error",))
    found = run([ports(), grown, *[grown] * 130])
    assert len(ids(found)[1]) == 4
    assert "symbol_error" in found[1][0].what
    assert ids(found)[60] == ids(found)[1], "it is not over with the next second"
    assert ids(found)[-1] == []


def test_a_late_node_keeps_its_alarms_and_a_gone_one_has_one() -> None:
    late = replace(memory(1.0), freshness=Freshness.STALE, age_seconds=5.0, problem="no sample for 5 s")
    gone = replace(late, freshness=Freshness.GONE, age_seconds=20.0)
    found = run([memory(1.0), late, memory(1.0), late, gone])
    assert ids(found) == [["memory.available.worker2"]] * 4 + [["gone.worker2"]]


def test_u52_a_node_that_was_short_of_memory_and_fell_silent_is_probably_wedged() -> None:
    short = replace(
        memory(1.2),
        memory=Memory(available_bytes=int(1.2 * GIB), free_bytes=GIB),
        freshness=Freshness.GONE,
        age_seconds=40.0,
        problem="the connection was lost",
    )
    (found,) = run([short])
    assert "1.2 GiB were left when it was last seen" in found[0].what
    assert "probably wedged" in found[0].what and "power" in found[0].fix
    (plain,) = run([replace(CALM, freshness=Freshness.GONE, age_seconds=40.0, problem="no route")])
    assert "wedged" not in plain[0].what and "no route" in plain[0].what


def gpu(**values: float | bool | None) -> NodeSample:
    reading = GpuReading(0.0, 96.0, 71.0, 80.0, 2400.0, None, False)
    return replace(CALM, gpu=replace(reading, **values))  # type: ignore[arg-type]


def test_heat_throttling_warns_and_power_capping_in_prefill_does_not_flicker() -> None:
    found = run([gpu(throttled=True)] * 8)
    assert ids(found)[0] == [] and ids(found)[-1] == ["gpu.throttled.worker2"]
    assert ids(run([gpu()] * 3)) == [[]] * 3
    # It ends half a minute after the last sign.
    found = run([*[gpu(throttled=True)] * 8, *[gpu()] * 40])
    assert ids(found)[20] == ["gpu.throttled.worker2"] and ids(found)[-1] == []


def test_u82_a_latched_clock_is_named_after_twenty_seconds() -> None:
    latched = gpu(clock_mhz=611.0, power_watts=14.0, temperature_celsius=48.0)
    found = run([latched] * 30)
    assert ids(found)[15] == [] and ids(found)[25] == ["gpu.latched.worker2"]
    assert "unplug its adapter" in found[-1][0].fix
    idle = gpu(utilization_percent=2.0, clock_mhz=208.0, power_watts=5.0, temperature_celsius=40.0)
    assert ids(run([idle] * 30))[-1] == []


def test_an_endpoint_that_answered_and_does_not_any_more() -> None:
    ready = Serving(EndpointState.READY, "http://h:8888", was_ready=True)
    down = Serving(EndpointState.DOWN, "http://h:8888", "nothing listens at http://h:8888", was_ready=True)
    book = AlarmBook()
    found = []
    for number, serving in enumerate([Serving(EndpointState.DOWN), ready, down, replace(down, was_ready=False)]):
        book = book.judged(ClusterSnapshot(float(number), (CALM,), serving))
        found.append(book.alarms)
    assert ids(found) == [[], [], ["endpoint.down"], []]
    assert found[2][0].severe and "nothing listens" in found[2][0].what


def test_an_endpoint_that_answers_although_a_node_has_gone_is_said() -> None:
    """A killed engine on a node that is there (U75): tests/telemetry/test_rank_lives.py."""
    ready = Serving(EndpointState.READY, was_ready=True)
    gone = replace(CALM, freshness=Freshness.GONE, age_seconds=16.0, problem="the connection was lost")
    (found,) = run([gone], serving=ready)
    by_id = {alarm.id: alarm for alarm in found}
    assert by_id["endpoint.ranks"].what == "worker2 is gone; the endpoint still answers, requests now hang"


def test_the_memory_guard_is_said_while_it_acts_and_for_five_minutes_after_also_when_it_was_brief() -> None:
    def ids_after(*states: tuple[float, bool | None, int | None]) -> list[list[str]]:
        book, found = AlarmBook(), []
        for at, low, trips in states:
            serving = Serving(EndpointState.READY, memory_guard_low=low, memory_guard_trips=trips)
            book = book.judged(ClusterSnapshot(at, (replace(CALM, node="head", rank=0),), serving))
            found.append(book.alarms)
        for alarm in (alarm for each in found for alarm in each):
            assert (alarm.node, alarm.severe) == ("head", True)
            assert "ended all requests" in alarm.what and alarm.fix
        return ids(found)

    on = ["memory.guard"]
    assert ids_after((0, False, 0), (3, True, 1), (60, True, 1), (63, False, 1), (350, False, 1), (361, False, 1)) == [
        [], on, on, on, on, [],
    ]  # fmt: skip
    assert ids_after((0, False, 4), (3, False, 5), (302, False, 5), (304, False, 5)) == [[], on, on, []]
    assert ids_after((0, False, 4), (3, False, 4), (6, None, None), (9, False, 0)) == [[]] * 4, "an engine made anew"


def test_severe_ones_come_first() -> None:
    node = replace(ports("roceP2p1s0f0"), split=MemorySplit(available_bytes=GIB, free_bytes=GIB))
    found = run([node] * 6)
    assert [alarm.severe for alarm in found[-1]] == [True, False]


def test_unknown_values_raise_nothing() -> None:
    assert ids(run([NodeSample("worker1", 1, Freshness.LIVE, age_seconds=0.0)] * 3)) == [[]] * 3
