"""The engine's argument list: golden lists for three and four Sparks, merging, refusals."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.launch_args import LaunchError, build

TP3 = {
    "MODEL_PATH": "/models/DeepSeek-V4.1-Flash-1017",
    "SERVED_MODEL_NAME": "deepseek-v4.1-flash",
    "TP_SIZE": "3",
    "EP_SIZE": "1",
    "NNODES": "3",
    "NODE_RANK": "0",
    "DIST_INIT_ADDR": "10.0.0.1:20000",
    "CONTEXT_LENGTH": "262144",
    "MAX_TOTAL_TOKENS": "750000",
    "MAX_RUNNING_REQUESTS": "4",
    "CUDA_GRAPH_MAX_BS_DECODE": "4",
    "MEM_FRACTION_STATIC": "0.95",
    "CHUNKED_PREFILL_SIZE": "768",
    "DSV41_TP_PAD": "1",
    "DSV41_BLOCK_VERIFY": "1",
    "SPEC_ALGO": "DSPARK",
    "DSPARK_BLOCK_SIZE": "5",
    "OFFLOAD_MODE": "nvme",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
}
TP4 = TP3 | {
    "TP_SIZE": "4",
    "EP_SIZE": "4",
    "NNODES": "4",
    "NODE_RANK": "3",
    "CONTEXT_LENGTH": "1048576",
    "MAX_TOTAL_TOKENS": "8000000",
    "MAX_RUNNING_REQUESTS": "16",
    "CUDA_GRAPH_MAX_BS_DECODE": "16",
    "MEM_FRACTION_STATIC": "0.80",
    "CHUNKED_PREFILL_SIZE": "4096",
    "DSV41_TP_PAD": "0",
}
DEEPSEEK = {"model_type": "deepseek_v41", "text_config": {"num_attention_heads": 64}}
GOLDEN_TP3 = """\
--model-path /models/DeepSeek-V4.1-Flash-1017 --served-model-name deepseek-v4.1-flash --trust-remote-code
--load-format safetensors --tp-size 3 --ep-size 1 --attention-backend dsv4 --moe-runner-backend flashinfer_mxfp4
--fp8-gemm-backend flashinfer_cutlass --mem-fraction-static 0.95 --chunked-prefill-size 768 --context-length 262144
--max-running-requests 4 --cuda-graph-max-bs-decode 4 --max-total-tokens 750000 --random-seed 0
--enable-decoder-swa-bounded-replay --enable-cache-report --enable-metrics --watchdog-timeout 1800 --sleep-on-idle
--tool-call-parser deepseekv41 --reasoning-parser deepseek-v41 --host 0.0.0.0 --port 8888
--speculative-algorithm DSPARK --speculative-dspark-block-size 5 --speculative-use-block-verification
--json-model-override-args {"num_attention_heads":96,"o_groups":12}
--nnodes 3 --node-rank 0 --dist-init-addr 10.0.0.1:20000"""
GOLDEN_TP4 = """\
--model-path /models/DeepSeek-V4.1-Flash-1017 --served-model-name deepseek-v4.1-flash --trust-remote-code
--load-format safetensors --tp-size 4 --ep-size 4 --attention-backend dsv4 --moe-runner-backend flashinfer_mxfp4
--fp8-gemm-backend flashinfer_cutlass --mem-fraction-static 0.80 --chunked-prefill-size 4096 --context-length 1048576
--max-running-requests 16 --cuda-graph-max-bs-decode 16 --max-total-tokens 8000000 --random-seed 0
--enable-decoder-swa-bounded-replay --enable-cache-report --enable-metrics --watchdog-timeout 1800 --sleep-on-idle
--tool-call-parser deepseekv41 --reasoning-parser deepseek-v41 --host 0.0.0.0 --port 8888
--speculative-algorithm DSPARK --speculative-dspark-block-size 5 --speculative-use-block-verification
--nnodes 4 --node-rank 3 --dist-init-addr 10.0.0.1:20000"""


def argv(environment: dict[str, str], **changed: str) -> list[str]:
    return list(build(environment | changed, DEEPSEEK).argv)


def value(words: list[str], flag: str) -> str:
    assert words.count(flag) == 1, f"{flag} stands {words.count(flag)} times"
    return words[words.index(flag) + 1]


def problems(environment: dict[str, str], **changed: str) -> str:
    with pytest.raises(LaunchError) as caught:
        build(environment | changed, DEEPSEEK)
    return "\n".join(f"{problem.what} -> {problem.fix}" for problem in caught.value.problems)


def test_golden_three_sparks() -> None:
    assert argv(TP3) == GOLDEN_TP3.split()


def test_golden_four_sparks() -> None:
    assert argv(TP4) == GOLDEN_TP4.split()


def test_draft_experts_are_padded_only_when_expert_parallelism_does_not_divide_them() -> None:
    assert '"dspark_n_routed_experts":129' in value(argv(TP3, EP_SIZE="3"), "--json-model-override-args")
    assert "dspark" not in value(argv(TP3, EP_SIZE="1"), "--json-model-override-args")


def test_our_fp8_backend_survives_other_extra_arguments() -> None:
    words = argv(TP3, EXTRA_SGLANG_ARGS="--min-free-slots-delay 1")
    assert value(words, "--fp8-gemm-backend") == "flashinfer_cutlass"
    assert words[-2:] == ["--min-free-slots-delay", "1"]


@pytest.mark.parametrize("extra", ["--fp8-gemm-backend triton", "--fp8-gemm-backend=triton"])
def test_a_flag_given_replaces_ours(extra: str) -> None:
    assert value(argv(TP3, EXTRA_SGLANG_ARGS=extra), "--fp8-gemm-backend") == "triton"


def test_a_default_can_be_removed() -> None:
    words = argv(TP3, EXTRA_SGLANG_ARGS="--no-sleep-on-idle --no-moe-runner-backend")
    assert not {"--sleep-on-idle", "--no-sleep-on-idle", "--moe-runner-backend", "flashinfer_mxfp4"} & set(words)


def test_bounded_replay_is_switched_off_with_the_engines_own_flag() -> None:
    words = argv(TP3, EXTRA_SGLANG_ARGS="--no-enable-decoder-swa-bounded-replay")
    assert "--enable-decoder-swa-bounded-replay" not in words
    assert words[-1] == "--no-enable-decoder-swa-bounded-replay"


def test_padding_survives_a_json_override() -> None:
    words = argv(TP3, EXTRA_SGLANG_ARGS="""--json-model-override-args '{"o_groups":12,"x":1}'""")
    assert value(words, "--json-model-override-args") == '{"num_attention_heads":96,"o_groups":12,"x":1}'


@pytest.mark.parametrize("name", ["num_attention_heads", "o_groups", "dspark_n_routed_experts"])
@pytest.mark.parametrize("base", [TP3, TP4], ids=["three ranks", "four ranks"])
def test_a_model_of_other_sizes_than_the_padded_tensors_is_refused_by_name(base: dict[str, str], name: str) -> None:
    extra = f"--json-model-override-args '{json.dumps({name: 99})}'"
    assert f"builds the model with {name}=99" in problems(base, EXTRA_SGLANG_ARGS=extra)


def test_another_model_is_never_padded() -> None:
    words = list(build(TP3, {"model_type": "llama", "num_attention_heads": 12}).argv)
    assert "--json-model-override-args" not in words


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:1, expandable_segments : True"}, "expandable_segments:True"),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, "expandable_segments:True"),
        ({"SGLANG_RAGGED_VERIFY_MODE": "compact"}, "compact"),
        ({"OFFLOAD_MODE": "ram"}, "OFFLOAD_MODE=ram"),
        ({"CONTEXT_LENGTH": "4095"}, "4096"),
        ({"CONTEXT_LENGTH": "1048577"}, "1048576"),
        ({"API_KEY": "secret-value"}, "API_KEY_FILE"),
        ({"EXTRA_SGLANG_ARGS": "--api-key secret-value"}, "process list"),
        ({"EXTRA_SGLANG_ARGS": "--api-k secret-value"}, "process list"),
        ({"EXTRA_SGLANG_ARGS": "--port 9"}, "PORT"),
        ({"EXTRA_SGLANG_ARGS": "--tp 2"}, "TP_SIZE"),
        ({"EXTRA_SGLANG_ARGS": "--tokenizer-worker-num 2"}, "load no plugin"),
        ({"EXTRA_SGLANG_ARGS": "--tokenizer-worker-num=4"}, "load no plugin"),
        ({"EXTRA_SGLANG_ARGS": "--tokenizer-w 2"}, "load no plugin"),
        ({"EXTRA_SGLANG_ARGS": "--config /state/x.yaml"}, "--config: flags from a file would not be merged"),
        ({"EXTRA_SGLANG_ARGS": "--config=/state/x.yaml"}, "remove --config"),
        ({"EXTRA_SGLANG_ARGS": "--use-ray"}, "load no plugin"),
        ({"EXTRA_SGLANG_ARGS": "--encoder-only"}, "past the HTTP routes"),
        ({"EXTRA_SGLANG_ARGS": "--grpc-mode"}, "past the HTTP routes"),
        ({"EXTRA_SGLANG_ARGS": "--smg-grpc-mode"}, "past the HTTP routes"),
        ({"EXTRA_SGLANG_ARGS": "--grpc-port 9"}, "past the HTTP routes"),
        ({"SGLANG_RUST_SERVER": "1"}, "SGLANG_RUST_SERVER=1: it serves past"),
        ({"SGLANG_RUST_SERVER": "Yes"}, "remove SGLANG_RUST_SERVER"),
        ({"SGLANG_GRPC_PORT": "9"}, "SGLANG_GRPC_PORT=9: it serves past"),
        ({"EXTRA_SGLANG_ARGS": "stray"}, "before any flag"),
        ({"EXTRA_SGLANG_ARGS": "--x 'open"}, "quot"),
        ({"DSV41_TP_PAD": "0"}, "64 heads"),
        ({"SGLANG_OPT_DSV41_BLOCKWISE_REJECTION": "1"}, "exclude each other"),
        ({"DIST_INIT_ADDR": ""}, "DIST_INIT_ADDR"),
        ({"SPEC_ALGO": "EAGLE"}, "DSPARK"),
        ({"MEM_FRACTION_STATIC": "95"}, "fraction"),
    ],
)
def test_refused_with_the_reason_and_without_the_secret(changed: dict[str, str], said: str) -> None:
    text = problems(TP3, **changed)
    assert said.lower() in text.lower()
    assert "secret-value" not in text


def test_one_tokenizer_worker_and_a_rust_server_that_is_off_are_what_starts_anyway() -> None:
    extra = "--tokenizer-worker-num 1 --tokenizer-mode auto --grpc-worker-threads 2"
    words = argv(TP3, EXTRA_SGLANG_ARGS=extra, SGLANG_RUST_SERVER="false", SGLANG_GRPC_PORT="")
    assert words == [*GOLDEN_TP3.split(), *extra.split()]


@pytest.mark.parametrize(
    ("tp", "ep", "padded"), [("1", "1", 0), ("2", "1", 0), ("3", "1", 1), ("4", "4", 0), ("8", "8", 0)]
)
def test_expert_groups_and_padding_follow_the_ranks_where_nobody_names_them(tp: str, ep: str, padded: int) -> None:
    bare = {"TP_SIZE": tp, "CONTEXT_LENGTH": "8192", "MODEL_PATH": "/models/x"}
    for config in (None, DEEPSEEK):
        words = list(build(bare, config).argv)
        assert value(words, "--ep-size") == ep
        assert words.count("--json-model-override-args") == padded


def test_an_expert_slice_that_no_kernel_runs_is_refused_for_this_model_only() -> None:
    said = (
        "EP_SIZE=1 gives a rank 576 of an expert's 2304 columns: the kernels need a multiple of 128 -> write EP_SIZE=4"
    )
    assert problems(TP4, EP_SIZE="1") == said
    assert value(argv(TP4, EP_SIZE="2"), "--ep-size") == "2"
    assert "does not divide" in problems(TP4, EP_SIZE="3")
    other = build(TP4 | {"EP_SIZE": "1"}, {"model_type": "llama"}).argv
    assert value(list(other), "--ep-size") == "1"


@pytest.mark.parametrize(("tp", "ep"), [("5", "5"), ("5", "1"), ("7", "7"), ("10", "2")])
def test_a_number_of_ranks_that_no_expert_group_fits_is_refused(tp: str, ep: str) -> None:
    assert f"EP_SIZE={ep} gives a rank" in problems(TP3, TP_SIZE=tp, EP_SIZE=ep)
    assert "write TP_SIZE=3 or 4" in problems(TP3, TP_SIZE=tp, EP_SIZE=ep)


def test_six_ranks_are_padded_by_the_same_rule() -> None:
    words = argv(TP3, TP_SIZE="6", NNODES="6")
    assert value(words, "--json-model-override-args") == '{"num_attention_heads":96,"o_groups":12}'


def test_padding_for_nothing_is_refused() -> None:
    assert "DSV41_TP_PAD=0" in problems(TP4, DSV41_TP_PAD="1")


def test_everything_wrong_is_said_at_once_and_once() -> None:
    lines = problems(TP3, OFFLOAD_MODE="ram", CONTEXT_LENGTH="1", TP_SIZE="x").splitlines()
    assert len(lines) == len(set(lines)) == 3


def test_a_present_sps_table_is_dropped_with_a_warning_and_an_sts_table_is_used() -> None:
    tables = {"DSPARK_SPS_TABLE": "/state/sps.json", "DSPARK_STS_TABLE": "/state/sts.json"}
    launch = build(TP3 | tables | {"EXTRA_SGLANG_ARGS": "--speculative-dspark-sps-table-path /x"}, None, lambda _: True)
    assert not any("sps" in word for word in launch.argv)
    assert "/state/sts.json" in launch.argv
    assert len(launch.warnings) == 2
    assert not build(TP3 | tables, None, lambda _: False).warnings


def test_speculation_off_leaves_no_flag_of_it() -> None:
    assert not any("speculative" in word for word in argv(TP3, SPEC_ALGO="off"))


@given(
    st.lists(
        st.from_regex(r"--z[a-z-]{1,12}", fullmatch=True).flatmap(
            lambda flag: st.lists(st.from_regex(r"[a-z0-9][a-z0-9.:/-]{0,8}", fullmatch=True), max_size=2).map(
                lambda values: [flag, *values]
            )
        ),
        max_size=4,
    )
)
def test_foreign_flags_are_appended_as_given_and_change_nothing_of_ours(flags: list[list[str]]) -> None:
    words = [word for flag in flags for word in flag]
    assert argv(TP3, EXTRA_SGLANG_ARGS=" ".join(words)) == [*GOLDEN_TP3.split(), *words]
