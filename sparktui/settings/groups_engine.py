"""Settings of the engine: memory and batch, speculation, caps, boot."""

from __future__ import annotations

from sparktui.settings.fields import ApiKey, Arguments, Group, Number, Switch, VerifyCap, Whole, setting

API = "API"
MEMORY = "Memory and batch"
ENGRAM = "Engram rows"
SPECULATION = "Speculation"
CAPS = "Caps and loops"
BOOT = "Boot"
EXTRA = "Passed through"


class ApiSettings(Group):
    api_key: ApiKey = setting(
        API, "Clients must send it as a bearer token. Empty (or none, off, dummy, 0): no key.", "", secret=True
    )
    served_model_name: str = setting(
        API, "The model id that clients send; more with commas, the first is shown.", "deepseek-v4.1-flash"
    )
    sglang_dsv41_reasoning_effort: str = setting(
        API, "Thinking budget of a request that names none: 1 to 100, or low, high, max.", "75"
    )
    spark_enable_thinking_alias: Switch = setting(
        API, "1 reads chat_template_kwargs.enable_thinking where thinking is absent.", "1", in_examples=False
    )
    spark_integer_effort: Switch = setting(
        API, "1 takes a whole number from 1 to 100 as reasoning_effort.", "1", in_examples=False
    )
    spark_anthropic_thinking: Switch = setting(
        API, "1 takes Anthropic's thinking enabled without a budget.", "1", in_examples=False
    )
    spark_mask_server_info: Switch = setting(API, "1 masks the key in /server_info.", "1", in_examples=False)


class MemorySettings(Group):
    offload_mode: str = setting(
        MEMORY, "Where Engram rows live: nvme. ram would push the model out and is refused.", "nvme", in_examples=False
    )
    context_length: Whole = setting(
        MEMORY, "The window of one request.", "262144", four="1048576", unit="tokens", low=4096, high=1_048_576
    )
    max_total_tokens: Whole = setting(
        MEMORY,
        "The KV pool, pinned; rounded down to pages of 256. A pin above what fits is cut silently, so boot compares.",
        "750000",
        four="8000000",
        unit="tokens",
        low=4096,
        high=16_000_000,
    )
    max_running_requests: Whole = setting(
        MEMORY, "Requests at once; also the batch sizes of the CUDA graphs.", "4", four="16", low=1, high=256
    )
    mem_fraction_static: Number = setting(
        MEMORY,
        "Share of memory for weights and KV on workers. Lowering it on three Sparks only starves the KV pool.",
        "0.95",
        four="0.80",
        low=0.01,
        high=0.99,
    )
    head_mem_fraction_static: Number = setting(
        MEMORY, "The same on the head, which carries about 1.3 GiB more.", "0.95", four="0.80", low=0.01, high=0.99
    )
    chunked_prefill_size: Whole = setting(
        MEMORY,
        "Prompt tokens a prefill step. The head's free memory limits chunk times prompt on three Sparks.",
        "768",
        four="4096",
        unit="tokens",
        low=64,
        high=65_536,
    )
    prefill_empty_cache_tokens: Whole = setting(
        MEMORY,
        "Prompts read this far give unused memory back after each chunk, a moment each time; 0 is off.",
        "8192",
        unit="tokens",
        low=0,
        high=1_048_576,
        in_examples=False,
    )
    dsv41_indexer_score_budget_mib: Whole = setting(
        MEMORY,
        "Memory for a block of index scores while a long prompt is read, at least 16; 0 leaves the engine's own 2048.",
        "256",
        unit="MiB",
        low=0,
        high=2048,
        in_examples=False,
    )
    dsv41_memguard_mib: Whole = setting(
        MEMORY,
        "Below this much available memory on the head all requests are ended with an error, before the Spark stops "
        "answering; at least 256, 0 is off.",
        "1536",
        unit="MiB",
        low=0,
        high=65_536,
    )
    pytorch_cuda_alloc_conf: str = setting(
        MEMORY,
        "PyTorch's allocator. expandable_segments:True gives NaN on every prefill over 64 tokens and is refused.",
        "expandable_segments:False",
        in_examples=False,
    )
    dsv41_serial_weight_load: Switch = setting(
        MEMORY, "One loader thread instead of several.", "0", ring="1", in_examples=False
    )
    sglang_flashinfer_moe_fused_finalize: Switch = setting(
        MEMORY, "1 saves 0.3 ms a step and makes greedy answers differ between runs.", "0", in_examples=False
    )
    dsv41_mxfp8_backend: str = setting(
        MEMORY, "Kernels of the dense layers.", "b12x", choices=("b12x", "cudnn", "cutlass"), in_examples=False
    )
    spark_sm12x_paths: Switch = setting(
        MEMORY, "1 gives the indexer the schedule that its kernel on a Spark splits by.", "1", in_examples=False
    )


class EngramSettings(Group):
    dsv41_cache_gib: Number = setting(
        ENGRAM,
        "Memory for a cache of Engram rows; three Sparks have none to spare.",
        "0",
        four="4",
        ring="1",
        unit="GiB",
        low=0,
        high=64,
    )
    dsv41_cache_ways: Whole = setting(ENGRAM, "Ways of that cache.", "4", four="16", low=1, high=16, in_examples=False)
    dsv41_io_threads: Whole = setting(ENGRAM, "Row reads in flight at once.", "96", low=1, high=4096, in_examples=False)
    dsv41_stats_seconds: Whole = setting(
        ENGRAM,
        "How often the engine logs its row reads; 0 is never.",
        "60",
        unit="seconds",
        low=0,
        high=86_400,
        in_examples=False,
    )
    dsv41_engram_prefetch: Switch = setting(
        ENGRAM, "Rows are looked up early, on a stream of their own.", "1", in_examples=False
    )
    dsv41_engram_prefetch_check: Switch = setting(
        ENGRAM, "1 compares each early look-up with one that waits: slow, for a test.", "0", in_examples=False
    )
    spark_engram_rows: Switch = setting(
        ENGRAM, "0 loads the whole tables into memory, which a Spark does not have.", "1", in_examples=False
    )
    dsv41_engram_fallback: str = setting(
        ENGRAM,
        "Where a packed file is missing: nothing refuses to start, checkpoint reads the rows from it, slowly.",
        "",
        choices=("", "checkpoint"),
        in_examples=False,
    )


class SpeculationSettings(Group):
    spec_algo: str = setting(
        SPECULATION, "Draft model: DSPARK, or off.", "DSPARK", choices=("DSPARK", "off", "none", "0")
    )
    dspark_block_size: Whole = setting(SPECULATION, "Tokens drafted a step.", "5", unit="tokens", low=1, high=16)
    dsv41_verify_cap: VerifyCap = setting(
        SPECULATION,
        "conf:T: drafts that survive with less than T, by the draft's own confidence, read no experts and are not "
        "accepted; off verifies all.",
        "conf:0.1",
        in_examples=False,
    )
    dsv41_block_verify: Switch = setting(
        SPECULATION, "Drafts are accepted a block at a time, exact in distribution.", "1", in_examples=False
    )
    dspark_sps_table: str = setting(
        SPECULATION,
        "Ignored on this model: the table crashed CUDA-graph capture.",
        "/state/dspark_sps.json",
        in_examples=False,
    )
    dspark_sts_table: str = setting(
        SPECULATION,
        "Confidence table, used when the file exists on every rank.",
        "/state/dspark_sts.json",
        in_examples=False,
    )


class CapSettings(Group):
    dsv41_max_new_tokens: Whole = setting(
        CAPS, "Cap of a request that sends no max_tokens; 0 is off.", "32768", unit="tokens", low=0, high=1_048_576
    )
    dsv41_max_new_tokens_hard: Switch = setting(
        CAPS, "1 holds a request that sends a larger max_tokens to that cap as well.", "0", in_examples=False
    )
    dsv41_loop_abort: Switch = setting(CAPS, "1 ends a generation that repeats itself.", "1")
    dsv41_loop_named_exit: Switch = setting(
        CAPS, "1 ends it as an error named loop_abort; 0 as an ordinary stop, which agents took for an answer.", "1"
    )
    dsv41_loop_ngram: Whole = setting(
        CAPS,
        "Length of a repeated piece, at least 4; 0 looks for none.",
        "32",
        unit="tokens",
        low=0,
        high=256,
        in_examples=False,
    )
    dsv41_loop_repeats: Whole = setting(
        CAPS, "Copies of it in a row that end the request.", "4", low=2, high=64, in_examples=False
    )
    dsv41_loop_line_repeats: Whole = setting(
        CAPS,
        "Equal lines in a row that end it, at least 2; 0 looks for none.",
        "8",
        low=0,
        high=65_536,
        in_examples=False,
    )
    dsv41_loop_identical: Whole = setting(
        CAPS,
        "Equal tokens in a row that end it, at least 2; 0 looks for none.",
        "64",
        unit="tokens",
        low=0,
        high=65_536,
        in_examples=False,
    )


class BootSettings(Group):
    ready_timeout: Whole = setting(
        BOOT,
        "How often to look for the ready line, ten seconds apart, before giving up.",
        "360",
        unit="polls",
        low=1,
        high=8640,
    )
    ready_timeout_s: Whole = setting(
        BOOT, "The same limit inside the container.", "3600", unit="seconds", low=10, high=86_400, in_examples=False
    )
    warmup: Switch = setting(BOOT, "1 warms the engine up before it says it is ready.", "1", in_examples=False)
    smoke_quick: Switch = setting(
        BOOT,
        "1: a serve by itself ends with the arithmetic alone, 0: with all smoke checks. up asks all of them.",
        "1",
        in_examples=False,
    )
    skip_smoke: Switch = setting(
        BOOT, "1: serve and up end without a smoke; smoke by itself asks all the same.", "0", in_examples=False
    )
    force: Switch = setting(BOOT, "1 serves although another program uses a GPU.", "0", in_examples=False)
    doctor_strict: Switch = setting(BOOT, "1: a warning of doctor fails it as well.", "0", in_examples=False)


class ExtraSettings(Group):
    extra_sglang_args: Arguments = setting(
        EXTRA,
        "Options added to the engine's own; quote the whole.",
        "--fp8-gemm-backend flashinfer_cutlass --watchdog-timeout 1800 --sleep-on-idle",
        four="--fp8-gemm-backend flashinfer_cutlass --watchdog-timeout 1800 --sleep-on-idle "
        "--min-free-slots-delay 1 --enable-cache-report",
    )
    extra_container_env: Arguments = setting(
        EXTRA,
        "Variables of the engine's container as NAME=value; quote the whole. No secrets. The recipe's own for four "
        "Sparks are settings here or read by nothing: docs/launch.md lists them.",
        "",
    )
