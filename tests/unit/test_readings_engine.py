"""What the engine says: log lines, metrics; and what a checkpoint holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.readings import checkpoint
from sparktui.readings.sglang_log import figure, parse_batch, pieces, split_prefix
from sparktui.readings.sglang_metrics import parse_metrics

SGLANG = Path(__file__).resolve().parents[3] / "shared" / "data" / "spark" / "sglang"
needs_data = pytest.mark.skipif(not SGLANG.is_dir(), reason="shared Spark data is not beside this checkout")

DECODE = (
    "[2026-08-23 09:05:37 TP0 EP0] Decode batch, #running-req: 1, #full token: 165376, full token usage: 0.02, "
    "#swa token: 768, swa token usage: 0.00, accept len: 5.30, accept rate: 0.86, cuda graph: True, "
    "gen throughput (token/s): 167.04, #queue-req: 0"
)
PREFILL = (
    "[2026-08-23 09:06:04 TP0 EP0] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 16, "
    "full token usage: 0.00, swa token usage: 0.01, #running-req: 0, #queue-req: 2, #pending-token: 157704, "
    "cuda graph: False, input throughput (token/s): 824.28"
)


def test_a_decode_line() -> None:
    batch = parse_batch(DECODE)
    assert batch is not None and batch.decode
    assert (batch.tokens, batch.pool_usage, batch.accept_length, batch.accept_rate) == (165_376, 0.02, 5.3, 0.86)
    assert (batch.tokens_per_second, batch.running, batch.queued, batch.cuda_graph) == (167.04, 1, 0, True)


def test_a_prefill_line() -> None:
    batch = parse_batch(PREFILL)
    assert batch is not None and not batch.decode
    assert (batch.tokens, batch.cached_tokens, batch.pending_tokens, batch.queued) == (8192, 16, 157_704, 2)
    assert batch.tokens_per_second == 824.28 and batch.accept_length is None


@pytest.mark.parametrize(
    "line",
    [
        "[2025-06-01 10:00:03 TP0] Decode batch. #running-req: 1, #token: 4137, token usage: 0.01, accept len: 2.31, "
        "cap len: 4.10, gen throughput (token/s): 48.12",
        "Decode batch [12], gen throughput (token/s): 48.12, #token: 4137, token usage: 0.01, #running-req: 1",
        "[2026-11-29 17:30:02] Decode batch, #running-req: 1, #token: 4137, token usage: 0.01, cpu graph: False, "
        "gen throughput (token/s): 48.12, #queue-req: 0",
    ],
)
def test_other_forms_and_orders_by_name(line: str) -> None:
    batch = parse_batch(line)
    assert batch is not None
    assert (batch.tokens, batch.pool_usage, batch.running, batch.tokens_per_second) == (4137, 0.01, 1, 48.12)


def test_other_lines_are_no_batch() -> None:
    assert (
        parse_batch('[2026-08-23 09:05:54] INFO:     192.0.2.10:57164 - "POST /v1/chat/completions HTTP/1.1" 200')
        is None
    )


def test_prefixes() -> None:
    line = split_prefix("[2026-09-11 23:44:34 TP2 EP2] Load weight begin.")
    assert (line.text, line.at, line.tp_rank) == ("Load weight begin.", "2026-09-11 23:44:34", 2)
    assert split_prefix("[2026-09-11 23:44:34] x").tp_rank is None
    assert split_prefix("plain").at is None
    assert split_prefix("[2026-09-11 23:44:34.123 TP11] x").tp_rank == 11


def test_a_bar_and_the_message_glued_to_it_are_two_lines() -> None:
    glued = "Multi-thread loading shards:   0% Completed | 0/4 [00:00<?, ?it/s][2026-11-29 17:29:32] Parameter x\r\n"
    assert pieces(glued)[1] == "[2026-11-29 17:29:32] Parameter x"
    assert pieces("a\rb\r\n") == ("a", "b")
    assert pieces("[1;33mwarning[0m".replace("[", "\x1b[")) == ("warning",)
    assert pieces("\n") == ()


def test_a_figure_that_was_cut_off_is_unknown() -> None:
    text = "elapsed=44.85 s, avail mem=39.38 GB, mem usage=3"
    assert figure(text, "elapsed", "s") == 44.85
    assert figure(text, "avail mem", "GB") == 39.38
    assert figure(text, "mem usage", "GB") is None
    assert figure("max_total_num_tokens=2999808, x=1", "max_total_num_tokens") == 2_999_808


@needs_data
def test_real_lines_are_all_read() -> None:
    for name, count in (("log.dense.real-lines.txt", 2), ("log.dspark.real-lines.txt", 4)):
        lines = (SGLANG / name).read_text().splitlines()
        batches = [batch for line in lines if (batch := parse_batch(line))]
        assert len(batches) == count
        assert all(batch.tokens_per_second is not None and batch.tokens is not None for batch in batches)


# metrics

METRICS = """\
# HELP sglang:gen_throughput The generation throughput (token/s).
# TYPE sglang:gen_throughput gauge
sglang:gen_throughput{model_name="m",tp_rank="0"} 51.03
sglang:gen_throughput{model_name="m",tp_rank="1"} 50.0
sglang:token_usage{tp_rank="0",dp_rank="0"} 0.25
sglang:token_usage{tp_rank="0",dp_rank="1"} 0.5
sglang:num_running_reqs{priority=""} 3
sglang:num_running_reqs{priority="1"} 2
sglang:fwd_occupancy{tp_rank="0"} NaN
sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 1000
sglang:realtime_tokens_total{mode="decode",tp_rank="1"} 1000
sglang:realtime_tokens_total{mode="prefill_compute",tp_rank="0"} 7
sglang:generation_tokens_total{is_streaming="true"} 10
sglang:generation_tokens_total{is_streaming="false"} 5
sglang_cache_hit_rate 0.5
sglang:odd{text="a, \\"b\\" {c}"} 1
process_start_time_seconds 1.7e9
sglang:num_queue_reqs 4"""


def test_gauges_take_the_largest_rank_and_sum_over_replicas() -> None:
    metrics = parse_metrics(METRICS)
    assert metrics.gauge("gen_throughput") == 51.03
    assert metrics.gauge("token_usage") == 0.75
    assert metrics.gauge("num_running_reqs") == 3
    assert metrics.gauge("cache_hit_rate") == 0.5


def test_counters_are_not_multiplied_by_the_ranks() -> None:
    metrics = parse_metrics(METRICS)
    assert metrics.counter("realtime_tokens_total", mode="decode") == 1000
    assert metrics.counter("generation_tokens_total") == 15
    assert metrics.process_start_time_seconds == 1.7e9


def test_nan_a_missing_metric_and_a_cut_last_line_are_unknown() -> None:
    metrics = parse_metrics(METRICS)
    assert metrics.gauge("fwd_occupancy") is None
    assert metrics.gauge("nothing") is None
    assert metrics.gauge("num_queue_reqs") is None
    assert parse_metrics("404 page not found\n").samples == ()


@needs_data
def test_per_rank_gauges_of_four_ranks() -> None:
    metrics = parse_metrics((SGLANG / "metrics.per-rank-gauges.constructed.prom").read_text())
    assert metrics.gauge("gen_throughput") == 51.0312
    assert metrics.gauge("spec_accept_length") == 3.021


# checkpoint


def index_of(files: dict[str, str]) -> str:
    return json.dumps({"metadata": {"total_size": 100}, "weight_map": files})


def test_an_index_names_its_files() -> None:
    index = checkpoint.parse_index(
        index_of({"a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors"})
    )
    assert index is not None
    assert index.files == ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    assert (index.total_bytes, index.tensors) == (100, 2)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"weight_map": {}}', '{"weight_map": {"a": "../x"}}', '{"weight_map": {"a": 1}}']
)
def test_what_is_no_index_is_none(text: str) -> None:
    assert checkpoint.parse_index(text) is None


def test_u65_a_short_file_keeps_it_incomplete_and_its_bytes_do_not_count() -> None:
    found = checkpoint.completeness({"a": 10, "b": 20, "c": 30}, {"a": 10, "b": 19, "d": 5})
    assert (found.missing, found.short, found.complete) == (("c",), ("b",), False)
    assert (found.have_bytes, found.want_bytes, found.remaining_bytes) == (10, 60, 50)


def test_complete_by_size() -> None:
    assert checkpoint.completeness({"a": 10}, {"a": 10}).complete
    assert not checkpoint.completeness({}, {}).complete
    assert not checkpoint.completeness({"a": None}, {"a": 0}).complete
    assert checkpoint.completeness({"a": None}, {"a": 5}).want_bytes is None


def test_shards_by_name_are_counted_once() -> None:
    names = ["model-00001-of-00048.safetensors", "model-00002-of-00048.safetensors", "x.safetensors", "config.json"]
    assert checkpoint.shard_count(names) == (2, 48)
    assert checkpoint.shard_count([]) == (0, None)


def test_sizes() -> None:
    assert checkpoint.parse_sizes("12\ta b.json\nx\ty\n7\tz\n") == {"a b.json": 12, "z": 7}


@given(st.text() | st.sampled_from([DECODE, PREFILL, METRICS]), st.integers(0, 400))
def test_any_text_is_read_or_unknown(text: str, length: int) -> None:
    cut = text[:length]
    for each in (text, cut):
        for piece in pieces(each):
            parse_batch(piece)
            figure(piece, "avail mem", "GB")
        for sample in parse_metrics(each).samples:
            assert sample.value == sample.value
        checkpoint.parse_index(each)
        checkpoint.parse_sizes(each)
