"""The boot ladder on real boots (where the shared logs are) and on lines of our own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.engine.ladder import Boot, Figures, KvPool, RankBoot, kv_pool, tokens_text
from sparktui.engine.phases import Phase, ReadyLine, parse_ready, phase_of

LOGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "recipe" / "boot-logs"
needs_logs = pytest.mark.skipif(not LOGS.is_dir(), reason="the shared boot logs are not beside this checkout")

HEAD_0_5_23 = """\
[spark] overlay 1 armed
[2026-11-29 17:29:03] server_args={'model_path': '/models/x', 'tp_size': 3}
[2026-11-29 17:29:29 TP0] Init parallel begin.
[2026-11-29 17:29:30 TP0] sglang is using nccl==2.30.7
[2026-11-29 17:29:31 TP0] Init parallel ends. elapsed=2.06 s
[2026-11-29 17:29:31 TP0] Memory baseline taken. mem usage=0.10 GB
[2026-11-29 17:29:32 TP0] Load weight begin. avail mem=111.40 GB
Multi-thread loading shards:   0% Completed | 0/48 [00:00<?, ?it/s][2026-11-29 17:29:32 TP0] Parameter x not found
Multi-thread loading shards:  50% Completed | 24/48 [00:36<00:29,  1.22s/it]\rMulti-thread loading shards: 100% \
Completed | 48/48 [00:56<00:00,  1.18s/it]
[2026-11-29 17:38:32 TP0] Load weight end. elapsed=540.10 s, type=DeepseekV4ForCausalLM, quant=fp8, \
avail mem=10.30 GB, mem usage=101.10 GB.
[2026-11-29 17:38:40 TP0] Load weight begin. avail mem=10.20 GB
Multi-thread loading shards:  35% Completed | 17/48 [00:31<02:16,  4.39s/it]
[2026-11-29 17:39:40 TP0] Load weight end. elapsed=60.00 s, type=DeepseekV4ForCausalLMDSpark, quant=fp8, \
avail mem=7.40 GB, mem usage=2.80 GB.
[2026-11-29 17:39:45 TP0] DSV4 memory calculation: unified=False, bytes_per_full_token=1670.75, \
available_bytes=1.34 GB, swa_fixed=0.30 GB, full_token=600000
[2026-11-29 17:39:46 TP0] Memory pool end. avail mem=6.20 GB
[2026-11-29 17:39:50 TP0] Running FlashInfer autotune with cache: /root/.cache/x.json
[2026-11-29 17:40:00 TP0] Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=6, bs=[1, 2, 3, 4]
Capturing batches (bs=3 avail_mem=7.79 GB):  50%|█████     | 2/4 [00:09<00:08,  4.12s/it]
[2026-11-29 17:40:14 TP0] Capture target verify CUDA graph end. elapsed=13.48 s, mem usage=0.58 GB, avail mem=5.6 GB.
[2026-11-29 17:40:20 TP0] max_total_num_tokens=599808, chunked_prefill_size=768, max_prefill_tokens=16384, \
max_running_requests=4, context_len=262144, available_gpu_mem=5.60 GB
[2026-11-29 17:40:21] Engine startup timings (s): load_weight=600.10, scheduler_e2e=650.30, tokenizer_e2e=655.76
[2026-11-29 17:40:22] INFO:     Started server process [83]
[2026-11-29 17:40:40] The server is fired up and ready to roll!
[spark] READY rank=0 port=8888 model=deepseek-v4.1-flash max_total_num_tokens=599808 warmup_batch=4 boot_seconds=812.3
"""


def boot_of(text: str, rank: int = 0, node: str = "head") -> RankBoot:
    boot = RankBoot(rank, node).container_started(0.0)
    for second, line in enumerate(text.splitlines()):
        boot = boot.feed(line, float(second))
    return boot


def climbed(boot: RankBoot) -> list[Phase]:
    return [change.phase for change in boot.changes]


def test_a_boot_of_the_pinned_engine_climbs_every_rung_and_each_cites_its_line() -> None:
    boot = boot_of(HEAD_0_5_23)
    assert climbed(boot) == [phase for phase in Phase if phase is not Phase.NOTHING]
    cited = {change.phase: change.line for change in boot.changes}
    assert "Init parallel begin." in cited[Phase.RENDEZVOUS]
    assert "nccl==2.30.7" in cited[Phase.NCCL]
    assert "avail mem=10.20 GB" in cited[Phase.DRAFT]
    assert cited[Phase.READY].startswith("[spark] READY")
    assert boot.up
    assert boot.seconds_in(Phase.WEIGHTS) == 548.0


def test_its_figures_are_read_and_the_engines_gb_stay_gib() -> None:
    figures = boot_of(HEAD_0_5_23).figures
    assert figures.nccl_version == "2.30.7"
    assert (figures.target.shards_done, figures.target.shards_total) == (48, 48)
    assert (figures.target.used_gib, figures.target.seconds) == (101.10, 540.10)
    assert (figures.draft.shards_done, figures.draft.used_gib) == (17, 2.80)
    assert (figures.bytes_per_token, figures.unpinned_tokens, figures.pool_tokens) == (1670.75, 600_000, 599_808)
    assert (figures.graph_batch, figures.graphs_total, figures.graph_seconds) == (3, 4, 13.48)
    assert figures.engine_seconds == 655.76


def test_u56_a_pool_smaller_than_the_pin_is_said_in_words() -> None:
    pool = kv_pool(boot_of(HEAD_0_5_23).figures, 750_000)
    assert pool is not None and pool.clamped
    assert pool.text == "KV pool: asked 750k, got 600k (clamped)"


def test_u56_the_calculation_line_alone_already_tells() -> None:
    text = HEAD_0_5_23.split("[2026-11-29 17:39:46")[0]
    pool = kv_pool(boot_of(text).figures, 750_000)
    assert pool == KvPool(750_000, 600_000)
    assert kv_pool(Figures(), 750_000) is None


def test_u56_a_pin_rounded_to_pages_is_as_asked() -> None:
    assert not KvPool(750_000, 749_824).clamped
    assert KvPool(750_000, 749_568).clamped


def test_two_cycles_of_shards_are_told_apart() -> None:
    text = HEAD_0_5_23.split("[2026-11-29 17:38:40")[0]
    assert boot_of(text).figures.draft.shards_done is None
    assert boot_of(text).phase is Phase.WEIGHTS


def test_a_worker_is_up_with_its_stand_in_server_and_the_head_is_not() -> None:
    line = "[2026-11-29 17:40:51] Dummy health check server started in background thread at 0.0.0.0:8888"
    assert boot_of(line, 2, "worker2").up
    assert not boot_of(line, 0).up


def test_the_cpu_engine_climbs_without_nccl_draft_and_graphs() -> None:
    boot = boot_of(
        "[2026-11-29 17:29:29] Init parallel begin.\n"
        "[2026-11-29 17:29:29] Init parallel ends. elapsed=0.06 s\n"
        "[2026-11-29 17:29:32] Load weight begin. avail mem=20.92 GB\n"
        "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:00<00:00, 383.63it/s]\n"
        "[2026-11-29 17:29:32] Load weight end. elapsed=0.10 s, type=LlamaForCausalLM, avail mem=20.92 GB, "
        "mem usage=0.00 GB.\n"
        "[2026-11-29 17:29:33] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 16384, K size: 0.01 GB\n"
        "[2026-11-29 17:29:33] max_total_num_tokens=16384, chunked_prefill_size=768, max_running_requests=4, "
        "context_len=8192, available_cpu_mem=20.91 GB\n"
        "[2026-11-29 17:29:33] The server is fired up and ready to roll!\n"
    )
    assert boot.phase is Phase.WARM_UP
    assert boot.figures.pool_tokens == 16384
    assert boot.figures.free_gib == 20.91
    assert boot.figures.target.shards_total == 4


def test_the_ladder_is_not_climbed_down() -> None:
    boot = boot_of(HEAD_0_5_23).feed("[2026-11-29 18:00:00 TP0] Init parallel begin.", 99.0)
    assert boot.phase is Phase.READY


def test_a_new_container_starts_at_the_bottom() -> None:
    boot = boot_of(HEAD_0_5_23).container_started(500.0)
    assert climbed(boot) == [Phase.CONTAINER] and boot.ready is None


def test_ready_line_with_keys_left_out() -> None:
    assert parse_ready("x [spark] READY rank=0 port=8888 model=m") == ReadyLine(0, 8888, "m", None, None, None)
    assert parse_ready("[spark] READY rank=zero boot_seconds=nan") == ReadyLine(None, None, None, None, None, None)
    assert parse_ready("nothing of that kind") is None


def test_tokens_in_words() -> None:
    assert [tokens_text(each) for each in (750_000, 749_824, 7_474_432, 8_000_000, 900)] == [
        "750k",
        "750k",
        "7.47M",
        "8M",
        "900",
    ]


# several ranks


def three(*texts: str) -> Boot:
    boot = Boot.of(("head", "worker1", "worker2"))
    for rank, text in enumerate(texts):
        boot = boot.with_rank(boot_of(text, rank, boot.ranks[rank].node))
    return boot


BEGIN = "[2026-11-29 17:29:29 TP0] Init parallel begin."
IMPORTING = "[2026-11-29 17:29:20] No HuggingFace chat template found"


def test_u70_a_rank_without_rendezvous_a_minute_after_the_others_is_late_with_its_last_line() -> None:
    boot = three(BEGIN, BEGIN, IMPORTING)
    assert boot.troubles(59.0) == ()
    (trouble,) = boot.troubles(61.0)
    assert (trouble.kind, trouble.rank, trouble.node) == ("late", 2, "worker2")
    assert "rank 2 is late" in trouble.text and "61 s" in trouble.text
    assert trouble.line == IMPORTING


def test_u70_nobody_is_late_while_nobody_is_there() -> None:
    assert three(IMPORTING, IMPORTING, IMPORTING).troubles(1000.0) == ()


def test_u73_all_ranks_silent_at_the_process_group_are_stuck() -> None:
    boot = three(BEGIN, BEGIN, BEGIN)
    assert boot.troubles(119.0) == ()
    (trouble,) = boot.troubles(121.0)
    assert trouble.kind == "stuck"
    order = [trouble.fix.index(word) for word in ("GID", "MTU", "link test", "NCCL version", "NCCL_DEBUG=INFO")]
    assert order == sorted(order)


def test_u73_a_busy_or_growing_rank_is_not_stuck() -> None:
    boot = three(BEGIN, BEGIN, BEGIN)
    assert boot.troubles(121.0, cpu_percent={1: 80.0}) == ()
    assert boot.troubles(121.0, memory_flat={2: False}) == ()
    assert boot.troubles(121.0, cpu_percent={0: 1.0, 1: 1.0, 2: 2.0}, memory_flat={0: True}) != ()


def test_u71_u74_a_rank_that_ends_fails_the_boot_at_once() -> None:
    boot = three(BEGIN, BEGIN, BEGIN)
    boot = boot.with_rank(boot.ranks[1].container_exited(3.0, 1, False))
    (trouble,) = boot.troubles(3.0)
    assert boot.failed and not boot.ready
    assert (trouble.kind, trouble.node) == ("exited", "worker1")
    assert "exit status 1" in trouble.text and "rendezvous" in trouble.text


def test_an_out_of_memory_exit_says_so() -> None:
    boot = three(BEGIN, BEGIN, BEGIN)
    boot = boot.with_rank(boot.ranks[0].container_exited(3.0, 137, True))
    assert "out of memory" in boot.troubles(3.0)[0].text


def test_u75_a_ready_cluster_is_ready_until_a_rank_goes() -> None:
    boot = three(HEAD_0_5_23, "Dummy health check server started", "Dummy health check server started")
    assert boot.ready
    assert not boot.with_rank(boot.ranks[2].container_exited(900.0, 137, False)).ready


# real logs


def lines(name: str) -> str:
    return (LOGS / name).read_text()


@needs_logs
def test_the_real_three_spark_head() -> None:
    boot = boot_of(lines("tp3-ep3-head-boot-20260911.log"))
    assert climbed(boot) == [each for each in Phase if Phase.CONTAINER <= each <= Phase.WARM_UP]
    figures = boot.figures
    assert (figures.target.used_gib, figures.draft.used_gib) == (94.00, 2.80)
    assert (figures.pool_tokens, figures.unpinned_tokens) == (2_999_808, 5_491_200)
    assert figures.graph_seconds == pytest.approx(13.48 + 4.26)
    assert figures.engine_seconds == 766.76
    assert boot.seconds_in(Phase.WEIGHTS) == 625.0
    assert kv_pool(figures, 3_000_000) == KvPool(3_000_000, 2_999_808)


@needs_logs
def test_the_real_worker_whose_log_begins_in_the_middle() -> None:
    boot = boot_of(lines("tp3-ep3-worker2-boot-20260911.log"), 2, "worker2")
    assert boot.up
    assert boot.figures.target.used_gib == 95.20
    assert boot.figures.draft.seconds == 88.40


@needs_logs
def test_the_real_four_spark_head_and_a_log_with_cut_lines() -> None:
    observe = boot_of(lines("control-boot-observe.txt"))
    assert observe.figures.pool_tokens == 7_474_432
    pool = kv_pool(observe.figures, 8_000_000)
    assert pool is not None and pool.text == "KV pool: asked 8M, got 7.47M (clamped)"
    cut = boot_of("[2026-09-17 22:54:59 TP1 EP0] Load weight end. elapsed=44.85 s, type=X, quant=fp8, avail mem=3")
    assert cut.figures.target.seconds == 44.85
    assert cut.figures.target.available_after_gib is None


@given(st.lists(st.text(), max_size=20))
def test_any_lines_leave_a_ladder(texts: list[str]) -> None:
    boot = RankBoot(0, "head").container_started(0.0)
    for text in texts:
        boot = boot.feed(text, 1.0)
    assert list(climbed(boot)) == sorted(climbed(boot))
    assert len(boot.lines) <= 40


@given(st.text(), st.sampled_from(HEAD_0_5_23.splitlines()), st.integers(0, 200))
def test_a_line_cut_anywhere_with_noise_before_it_is_harmless(noise: str, line: str, length: int) -> None:
    boot = RankBoot(1, "worker1").feed(noise + line[:length], 1.0)
    assert boot.phase in Phase
    phase_of(noise + line[:length])
    parse_ready(noise + line[:length])
