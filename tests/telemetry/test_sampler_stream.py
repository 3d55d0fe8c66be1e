"""The sampler's text: what is said is read exactly, what is not said is None, and nothing makes it raise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktui.readings.sampler_stream import Record, SamplerStream
from tests.telemetry.records import listing, record

DF = [
    "Filesystem 1-blocks Used Available Capacity Mounted on",
    "/dev/nvme0n1p2 4000000000000 1000000000000 2900000000000 26% /",
    "Filesystem 1-blocks Used Available Capacity Mounted on",
    "/dev/nvme1n1 900000000000 1000 700000000000 1% /data",
]


def read(lines: list[str], stream: SamplerStream | None = None) -> list[Record]:
    stream = stream or SamplerStream()
    return [found for line in lines if (found := stream.feed(line)) is not None]


def test_a_record_has_everything_that_was_said() -> None:
    (found,) = read([*listing(df=DF), *record(35.5, sent_words=10, sectors=8, cpu=(30, 70), full=12.5, MemFree=2048)])
    assert found.uptime_seconds == 35.5
    assert found.memory is not None and found.memory.free_bytes == 2048 * 1024
    assert found.pressure.full_avg10 == 12.5
    assert (found.cpu_busy_ticks, found.cpu_all_ticks) == (30, 100)
    assert found.disk_read_bytes == 8 * 512
    assert found.free_bytes == 700000000000
    assert found.ports is not None and len(found.ports) == 4
    port = found.ports[0]
    assert (port.device, port.netdev, port.cage, port.state) == ("roceP2p1s0f0", "enP2p1s0f0np0", "p0", "ACTIVE")
    assert (port.rate_gbit, port.errors) == (200.0, {"symbol_error": 0})


def test_u40_counters_are_words_of_four_bytes() -> None:
    (found,) = read([*listing(), *record(1, sent_words=1000, received_words=3)])
    assert found.ports is not None
    assert {(port.sent_bytes, port.received_bytes) for port in found.ports} == {(4000, 12)}


def test_what_was_not_said_is_unknown() -> None:
    (found,) = read(["@end"])
    assert found == Record()
    (found,) = read(["uptime:x", "stat:cpu  1 2", "vmstat:pswpin", "meminfo:nothing", "@end"])
    assert found == Record()


def test_a_card_that_is_absent_is_no_unread_card() -> None:
    stream = SamplerStream()
    assert read(["@end"], stream)[0].ports is None
    assert read(["@devices", "@end"], stream)[0].ports is None
    assert read(["@listed", "@end"], stream)[0].ports == ()


def test_slow_values_stay_until_they_are_read_again_and_a_device_may_go() -> None:
    stream = SamplerStream()
    read([*listing(), *record(1, errors={"counters/symbol_error": 7})], stream)
    (found,) = read(record(2, slow=False), stream)
    assert found.ports is not None
    assert {(port.rate_gbit, port.errors["symbol_error"]) for port in found.ports} == {(200.0, 7)}
    (found,) = read([*listing(devices=2), *record(3, slow=False)], stream)
    assert found.ports is not None and [port.device for port in found.ports] == ["rocep1s0f0", "rocep1s0f1"]
    assert found.ports[0].errors == {"symbol_error": 7}


def test_a_device_that_says_nothing_has_no_state() -> None:
    (found,) = read([*listing(devices=1), "@end"])
    assert found.ports is not None
    assert (found.ports[0].state, found.ports[0].sent_bytes) == (None, None)


def test_a_dead_mount_makes_free_space_unknown() -> None:
    stream = SamplerStream()
    read([*listing(df=DF), "@end"], stream)
    (found,) = read(["@devices", "@listed", "@df", "@read", "@end"], stream)
    assert found.free_bytes is None


FILES = st.sampled_from(
    [
        "meminfo",
        "uptime",
        "stat",
        "vmstat",
        "pressure/memory",
        "../sys/class/infiniband/d/ports/1/state",
        "../sys/class/infiniband/d/ports/1/counters/port_xmit_data",
        "../sys/class/infiniband/d/ports/1/rate",
        "../sys/class/net/n/carrier_changes",
        "../sys/block/nvme0n1/stat",
    ]
)
TEXTS = st.one_of(st.text(max_size=60), st.from_regex(r"[0-9. :kBa-z]{0,40}", fullmatch=True))
LINES = st.one_of(
    st.builds(lambda name, text: f"{name}:{text}", FILES, TEXTS),
    st.sampled_from(["@end", "@devices", "@device d n p0", "@device d", "@listed", "@df", "@read", "@", "@ ", ""]),
    st.text(max_size=80),
)


@given(st.lists(LINES, max_size=60))
def test_no_line_makes_it_raise_and_every_end_gives_a_record(lines: list[str]) -> None:
    found = read(lines)
    assert len(found) == sum(line.split()[:1] == ["@end"] for line in lines if line.startswith("@"))
    for each in found:
        for value in (each.uptime_seconds, each.disk_read_bytes, each.cpu_all_ticks, each.free_bytes):
            assert value is None or value >= 0


@given(st.lists(st.sampled_from(listing() + record(1.0, slow=True)), max_size=200))
def test_lines_in_any_order_leave_a_stream_that_reads_the_next_record(lines: list[str]) -> None:
    stream = SamplerStream()
    read([*lines, "@end"], stream)
    (found,) = read([*listing(), *record(9.0, sent_words=5)], stream)
    assert found.uptime_seconds == 9.0
    assert found.ports is not None and found.ports[0].sent_bytes == 20
