"""Failure texts as engine, driver, NCCL and Docker print them -> the cause a user reads first."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.engine.signature_table import SIGNATURES
from sparktui.engine.signatures import explain, first_cause, information

ROWS = "Engram rows: layer=1 rank=0 of 3 /engram/engram-l1-r0of3.bin: "
AT = "/engram/engram-l1-r0of3.bin at offset 40960 (page 9): "
BUSY = "the kernel refused to read /engram/engram-l1-r0of3.bin through io_uring: "
PAGE = ROWS + "offset 40960 (page 9): "
"""As overlay/row_store/store.cpp writes them; tests/overlay/test_row_store_last_words.py has it write them."""

CASES = [
    ("own", "[spark] ERROR the packed Engram rows are of rank 1", "of rank 1"),
    ("engram.drive", PAGE + "read failed twice: Input/output error (errno 5)", AT + "Input/output error (errno 5)"),
    ("engram.drive", PAGE + "read failed twice: No data available (errno 61)", AT + "No data available (errno 61)"),
    (
        "engram.read",
        PAGE + "read failed twice: Cannot allocate memory (errno 12)",
        "could not be read at offset 40960 (page 9): Cannot",
    ),
    ("engram.cut-short", PAGE + "read cut short twice: 512 of 4096 bytes (errno 0)", "a read gave 512 of 4096 bytes"),
    ("engram.damaged", PAGE + "wrong checksum, twice (errno 0)", "at offset 40960 (page 9): wrong checksum, twice"),
    (
        "engram.damaged",
        PAGE + "the page there is another page, twice (errno 0)",
        "at offset 40960 (page 9): the page there",
    ),
    (
        "engram.ring",
        ROWS + "io_uring failed: Device busy (errno 16) while reading from page 9 on",
        BUSY + "Device busy",
    ),
    ("engram.bad-id", ROWS + "id -1 at place 7 is outside the table of 384006168 rows", "id -1 at place 7 is outside"),
    ("engram.forked", ROWS + "opened by process 17, used in another", "by process 17"),
    (
        "driver.no-memory",
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from x",
        "driver is out of memory",
    ),
    (
        "kv.no-memory",
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.95. "
        "Raise --mem-fraction-static above 0.9503",
        "0.95",
    ),
    ("kv.no-room", "RuntimeError: no room for the pool within the available 0.17 GB", "0.17 GB"),
    (
        "memory.unbalanced",
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
        "less free memory",
    ),
    ("rdma.no-registration", "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "register"),
    ("cuda.no-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "ran out of memory"),
    (
        "spec.variable-verify",
        "AssertionError: engram target-verify expects one equal block per request, got 42 tokens for 8 requests of 6",
        "different lengths",
    ),
    ("logits.nan", "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0", "not numbers"),
    ("engram.wrong-shard", "RuntimeError: packed Engram file does not match this rank", "another rank"),
    ("engram.wrong-shard", "Engram retrieval failed", "damaged"),
    ("engram.not-warm", "RuntimeError: Engram staging buffer must be warmed before graph capture", "not ready"),
    ("tp.not-divisible", "AssertionError: 32768 is not divisible by 3", "32768 does not divide by 3"),
    (
        "gloo.no-address",
        "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:83] Unable to find address for: enp1s0f1np1",
        "enp1s0f1np1",
    ),
    ("rdma.peer", "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out errno 110", "over RDMA"),
    ("rdma.peer", "NCCL WARN Call to ibv_modify_qp failed with 61 No data available", "over RDMA"),
    ("nccl.system", "torch.distributed.DistBackendError: NCCL error: unhandled system error", "NCCL"),
    ("nccl.duplicate", "RuntimeError: Duplicate NCCL runtime found", "two NCCL"),
    (
        "rendezvous.missing",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "only 1 of 2",
    ),
    (
        "rendezvous.no-head",
        "The client socket has timed out after 600000ms while trying to connect to (10.0.0.1, 20000).",
        "10.0.0.1, 20000",
    ),
    (
        "port.in-use",
        "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8888): address already in use",
        "in use",
    ),
    ("image.architecture", "exec /usr/bin/python3: exec format error", "another processor"),
    (
        "docker.cdi",
        "nvidia-container-cli: invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus "
        "flag) is not supported. Please use the NVIDIA Container Runtime instead.",
        "CDI",
    ),
    ("docker.no-runtime", "docker: Error response from daemon: unknown or invalid runtime name: nvidia", "runtime"),
    (
        "docker.no-runtime",
        'could not select device driver "" with capabilities: [[gpu]]',
        "runtime",
    ),
    (
        "docker.no-infiniband",
        'error gathering device information while adding custom device "/dev/infiniband": no such file or directory',
        "/dev/infiniband",
    ),
    ("docker.no-image", "No such image: dsv41-3x-spark:local", "dsv41-3x-spark:local"),
    (
        "docker.name-taken",
        'Conflict. The container name "/dsv41-nfs" is already in use by container "abc"',
        "dsv41-nfs",
    ),
    ("docker.volume-busy", "remove dsv41-weights: volume is in use - [abc]", "in use"),
    (
        "nfs.mount",
        "error while mounting volume '/var/lib/docker/volumes/x': failed to mount local volume: no such device",
        "NFS",
    ),
    ("nfs.stale", "OSError: [Errno 116] Stale file handle: '/models/x'", "stale"),
    ("gpu.no-driver", "RuntimeError: No CUDA GPUs are available", "no usable GPU"),
    ("rust.build", "subprocess: cargo --version", "Rust"),
    (
        "engine.option",
        "launch_server.py: error: argument --attention-backend: invalid choice: 'dsv4'",
        "--attention-backend",
    ),
    (
        "checkpoint.unseen",
        "OSError: Can't load the configuration of '/models/DeepSeek-V4.1-Flash-1017'",
        "does not see the checkpoint",
    ),
    ("checkpoint.damaged", "safetensors_rust.SafetensorError: Error while deserializing header", "damaged"),
    ("disk.full", "OSError: [Errno 28] No space left on device", "full"),
    ("module.missing", "ModuleNotFoundError: No module named 'spark_overlay'", "spark_overlay"),
    (
        "library.missing",
        "ImportError: libnccl.so.2: cannot open shared object file: No such file or directory",
        "libnccl.so.2",
    ),
    (
        "memory.guard",
        "[spark] WARNING memory_guard: the head had 1201 MiB of memory left, DSV41_MEMGUARD_MIB is 1536: requests are "
        "ended and refused until it has 1920. Next: wait, then send a shorter prompt (2 running, 0 waiting)",
        "had 1201 MiB left, less than its floor of 1536",
    ),
    ("watchdog", "Watchdog timeout (self.watchdog_timeout=1800.0)", "watchdog"),
    (
        "peer.lost",
        "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.3]:4711",
        "another",
    ),
]


@pytest.mark.parametrize(("identity", "line", "words"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_each_known_failure_has_its_cause_and_a_next_step(identity: str, line: str, words: str) -> None:
    found = explain(["[2026-11-29 10:00:00 TP1] before", line, "after"], 1, False)
    assert found is not None
    assert found.id == identity
    assert words in found.cause
    assert found.fix
    assert found.line and "{" not in found.cause + found.fix


def test_the_overlays_own_error_brings_its_own_next_step() -> None:
    found = explain(["[spark] ERROR rank=1 /models/x holds no config.json. Next: share or mount it."], 2, False)
    assert found is not None
    assert (found.cause, found.fix) == ("/models/x holds no config.json", "share or mount it")


DAMAGE = ("engram.drive", "engram.cut-short", "engram.damaged")


@pytest.mark.parametrize("case", [each for each in CASES if each[1].startswith(ROWS)], ids=lambda case: case[1][58:])
def test_the_row_stores_last_words_explain_an_abort_and_name_the_file(case: tuple[str, str, str]) -> None:
    """Not `exit.134` and another rank. A file that is bad has to be moved: the pack step leaves it where it is."""
    found = explain([case[1], "Fatal Python error: Aborted", "Connection closed by peer [10.0.0.3]:4711"], 134, False)
    assert found is not None and not found.consequence
    assert found.id == case[0] and "/engram/engram-l1-r0of3.bin" in found.cause
    moved = "move /engram/engram-l1-r0of3.bin away" in found.fix and "then sparktui pack" in found.fix
    assert moved == (found.id in (*DAMAGE, "engram.read"))
    assert ("not at fault" in found.fix) == (found.id in ("engram.ring", "engram.bad-id", "engram.forked"))
    assert ("dmesg" in found.fix) == (found.id not in ("engram.cut-short", "engram.bad-id", "engram.forked"))


def test_what_the_row_store_says_while_it_works_is_no_failure() -> None:
    opened = (
        "rows=[0,128000880) backend=io_uring depth=96 cache_bytes=0 (0 slots, 4-way) crc32c=instruction packed=True"
    )
    counted = "lookups=120 ids=5760 owned=1920 hits=0 pages=1920 retries=1 errors=0 p50=1.2ms p99=3.0ms"
    for text in (opened, opened + "; page buffers not registered", counted):
        assert explain([f"Engram rows: layer=1 rank=0 of 3 {text}"], None, None) is None


def test_a_wrong_file_has_to_be_moved_before_it_is_packed_again() -> None:
    found = explain(["RuntimeError: packed Engram file does not match this rank"], 1, False)
    assert found is not None and "move it away" in found.fix and "makes them anew" not in found.fix


def test_every_signature_has_a_case() -> None:
    assert {signature.id for signature in SIGNATURES} - {case[0] for case in CASES} == {"nccl.no-interface"}


def test_nccl_without_an_interface() -> None:
    found = explain(["NCCL WARN Bootstrap : no socket interface found"], 1, False)
    assert found is not None and found.id == "nccl.no-interface"


def test_u25_unhandled_system_error_sends_to_the_gid_first() -> None:
    found = explain(["NCCL error: unhandled system error"], 1, False)
    assert found is not None
    assert found.fix.index("GID") < found.fix.index("MTU")


def test_u31_the_interface_is_named_before_the_lost_peers() -> None:
    found = explain(
        ["Unable to find address for: enp1s0f1np1", "Connection closed by peer", "RuntimeError: gloo"], 1, False
    )
    assert found is not None and found.id == "gloo.no-address"


def test_u37_registration_wins_over_the_system_error_that_follows() -> None:
    found = explain(["ibv_reg_mr_iova2 failed: Cannot allocate memory", "NCCL error: unhandled system error"], 1, False)
    assert found is not None and found.id == "rdma.no-registration"
    assert "7.0.0-1019" in found.fix


CAPTURE = [
    "Capturing batches (bs=3 avail_mem=7.79 GB):  50%|█████     | 2/4 [00:09<00:08,  4.12s/it]",
    "Traceback (most recent call last):",
    '  File "/opt/sglang/decode_cuda_graph_runner.py", line 10, in capture_one_batch_size',
    "RuntimeError: CUDA error: an illegal memory access was encountered",
]


def test_u78_a_crash_in_graph_capture_names_the_batch_and_the_order_of_remedies() -> None:
    found = explain(CAPTURE, 1, False)
    assert found is not None
    assert "crashed in graph capture (bs 3, 2 of 4 done)" in found.cause
    assert found.fix.rstrip(" .").endswith("speculation off (SPEC_ALGO=off) last")


def test_u78_a_stale_sps_table_is_named_first() -> None:
    found = explain(CAPTURE, 1, False, sps_table_present=True)
    assert found is not None
    assert found.fix.startswith("a stale SPS table is present; it is ignored on this model, remove it")


def test_u78_a_known_cause_inside_capture_is_still_the_cause() -> None:
    found = explain([*CAPTURE[:3], "torch.OutOfMemoryError: CUDA out of memory."], 1, False)
    assert found is not None and found.id == "cuda.no-memory"


def test_out_of_memory_kill_and_a_bare_137_differ() -> None:
    killed = explain(["Load weight begin."], 137, True)
    bare = explain(["Load weight begin."], 137, False)
    assert killed is not None and killed.id == "exit.oom"
    assert bare is not None and bare.id == "exit.137" and "or by hand" in bare.cause


def test_u20_docker_s_own_text_is_enough() -> None:
    found = explain(["exec /opt/x: exec format error"], None, None)
    assert found is not None and "processor" in found.cause


@pytest.mark.parametrize("code", [0, 1, 2, 125, 126, 127, 134, 139, 143])
def test_an_exit_without_a_word_still_has_a_sentence(code: int) -> None:
    found = explain([], code, False)
    assert found is not None and found.cause and found.fix


def test_an_unknown_traceback_ends_with_its_exception() -> None:
    found = explain(["Traceback (most recent call last):", '  File "x.py", line 1', "KeyError: 'abc'"], 1, False)
    assert found is not None and found.id == "traceback"
    assert found.cause == "the engine stopped with KeyError: 'abc'"


def test_a_running_container_with_a_harmless_traceback_is_not_explained_as_dead() -> None:
    assert explain(["[2026-11-29 17:29:33] KV Cache is allocated."], None, None) is None


def test_u71_u74_the_rank_that_only_lost_its_peers_is_not_blamed() -> None:
    head = explain(["Connection closed by peer"], 1, False)
    worker = explain(["torch.OutOfMemoryError: CUDA out of memory"], 1, False)
    assert first_cause([head, None, worker]) == 2
    assert first_cause([head, None, None]) == 0
    assert first_cause([None]) is None


def test_informational_lines_are_no_cause() -> None:
    line = "FlashInfer autotune: per-rank caches disagree, discarding them and tuning from scratch"
    assert explain([line], None, None) is None
    assert information(line)
    assert information("Load weight begin.") is None


LOGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "recipe" / "boot-logs"


@pytest.mark.skipif(not LOGS.is_dir(), reason="the shared boot logs are not beside this checkout")
@pytest.mark.parametrize("name", ["tp3-ep3-head-boot-20260911.log", "tp3-ep3-worker2-boot-20260911.log"])
def test_a_good_boot_has_no_known_failure_in_it(name: str) -> None:
    assert explain((LOGS / name).read_text().splitlines(), None, None) is None


@given(st.lists(st.text(max_size=200), max_size=8), st.none() | st.integers(-1, 300), st.none() | st.booleans())
def test_any_text_is_explained_or_not_but_never_raises(
    lines: list[str], exit_code: int | None, oom_killed: bool | None
) -> None:
    found = explain(lines, exit_code, oom_killed)
    if exit_code is not None:
        assert found is not None
    if found:
        assert found.cause and found.fix and "\n" not in found.cause


@given(st.sampled_from(CASES), st.text(max_size=50), st.integers(0, 300))
def test_a_failure_text_cut_short_never_raises(case: tuple[str, str, str], noise: str, length: int) -> None:
    explain([noise + case[1][:length]], 1, False)


def test_the_engines_list_of_its_options_is_no_failure() -> None:
    line = "[2026-11-29 17:29:03] server_args={'watchdog_timeout': 1800.0, 'x': 'Watchdog timeout, NV_ERR_NO_MEMORY'}"
    assert explain([line], None, None) is None


def test_a_harmless_traceback_of_a_container_that_runs_is_not_its_end() -> None:
    lines = [
        "Traceback (most recent call last):",
        "requests.exceptions.ConnectionError: refused",
        "Uvicorn running on x",
    ]
    assert explain(lines, None, None) is None
    assert explain(lines, 1, False) is not None


def test_a_traceback_from_before_the_server_was_up_is_not_why_it_ended() -> None:
    lines = [
        "requests.exceptions.ConnectionError: refused",
        "The server is fired up and ready to roll!",
        "Decode batch, x",
    ]
    found = explain(lines, 139, False)
    assert found is not None and found.id == "exit.139"
