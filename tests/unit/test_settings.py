"""Settings: defaults per profile, everything that is refused and why, names, secrets."""

from __future__ import annotations

import pytest

from sparktui.cluster.profile import FOUR, FOUR_RING, THREE
from sparktui.envfile import Severity
from sparktui.settings import (
    SETTINGS,
    Settings,
)
from sparktui.settings.names import NO_EFFECT
from tests.unit.settings_texts import ENV, FOUR_SPARKS, HOME, RING, THREE_SPARKS, read, refusal


def test_three_sparks_need_nothing_but_addresses() -> None:
    got = read(THREE_SPARKS)
    assert got.profile is THREE
    assert (got.nnodes, got.tp_size, got.ep_size, got.dsv41_tp_pad) == (3, 3, 1, True)
    assert (got.context_length, got.max_total_tokens, got.max_running_requests) == (262_144, 750_000, 4)
    assert (got.mem_fraction_static, got.chunked_prefill_size, got.dsv41_cache_gib) == (0.95, 768, 0)
    assert got.extra_sglang_args[:2] == ("--fp8-gemm-backend", "flashinfer_cutlass")
    assert got.model_dir == "/home/spark/NewModels/DeepSeek-V4.1-Flash-1017"
    assert (got.state_dir, got.logs_dir) == (ENV.parent / "state", ENV.parent / "logs")
    assert [(node.name, node.rank, node.address, node.ssh_host) for node in got.nodes] == [
        ("head", 0, "10.0.0.1", ""),
        ("worker1", 1, "10.0.0.2", "10.0.0.2"),
        ("worker2", 2, "10.0.0.3", "10.0.0.3"),
    ]


def test_four_sparks_take_their_own_defaults_files_and_one_expert_group_a_rank() -> None:
    got = read(FOUR_SPARKS)
    assert got.profile is FOUR
    assert (got.nnodes, got.tp_size, got.ep_size, got.dsv41_tp_pad) == (4, 4, 4, False)
    assert (got.context_length, got.max_total_tokens, got.max_running_requests) == (1_048_576, 8_000_000, 16)
    assert (got.mem_fraction_static, got.chunked_prefill_size) == (0.80, 4096)
    assert (got.state_dir.name, got.logs_dir.name) == ("state-tp4", "logs-tp4")
    assert "576" in SETTINGS["EP_SIZE"].meaning
    assert "published 1 for four" in SETTINGS["EP_SIZE"].meaning


def test_the_ring_is_four_sparks_with_its_own_values() -> None:
    got = read(RING)
    assert got.profile is FOUR_RING
    assert len(got.rdma_devices) == 4
    assert (got.nccl_max_nchannels, got.dsv41_cache_gib, got.dsv41_serial_weight_load) == (4, 1, True)
    assert got.nccl_host_dir == "/home/spark/nccl-2.30.7"
    assert read(RING, profile="four").profile is FOUR_RING, "the file of both says which it is"


@pytest.mark.parametrize(
    ("text", "says", "write"),
    [
        ("OFFLOAD_MODE=ram", "push the model out", "OFFLOAD_MODE=nvme"),
        (
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "NaN",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
        ),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,Expandable_Segments:true", "NaN", None),
        ("EXTRA_CONTAINER_ENV='X=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True'", "NaN", None),
        ("EXTRA_CONTAINER_ENV=OFFLOAD_MODE=ram", "nvme is the only one", None),
        ("EXTRA_CONTAINER_ENV=SGLANG_RAGGED_VERIFY_MODE=compact", "breaks the Engram row reads", None),
        ("EXTRA_CONTAINER_ENV=API_KEY=opensesame", "docker inspect", None),
        ("EXTRA_CONTAINER_ENV=CONTEXT_LENGTH=8192", "a setting of its own with another value", None),
        ("EXTRA_CONTAINER_ENV=nonsense", "is not NAME=value", None),
        ("EXTRA_SGLANG_ARGS='--api-key opensesame'", "process list", None),
        ("DSV41_TP_PAD=0", "do not divide by three", "DSV41_TP_PAD=1"),
        ("EP_SIZE=2", "does not divide TP_SIZE=3", "EP_SIZE=1"),
        ("EP_SIZE=4", "does not divide TP_SIZE=3", "EP_SIZE=1"),
        ("TP_SIZE=2\nNNODES=3", "a Spark has one GPU", "TP_SIZE=3"),
        ("NNODES=4", "the head and 2 workers are 3 Sparks", "NNODES=3"),
        ("DSV41_LOOP_NGRAM=3", "an ordinary answer would be a loop", None),
        ("DSV41_LOOP_LINE_REPEATS=1", "an ordinary answer would be a loop", None),
        ("DSV41_LOOP_IDENTICAL=1", "an ordinary answer would be a loop", None),
        ("DSV41_MXFP8_BACKEND=zzz", "DSV41_MXFP8_BACKEND=zzz is not one of: b12x, cudnn, cutlass", None),
        ("NCCL_PROTO=LL256", "LL256 is no list of LL, LL128 and Simple", "NCCL_PROTO=^LL128"),
        ("NCCL_PROTO=", "nothing is no list of LL, LL128 and Simple", "NCCL_PROTO=^LL128"),
        ("NCCL_DEBUG_SUBSYS=INIT,EVERYTHING", "EVERYTHING is no subject of NCCL's log", "NCCL_DEBUG_SUBSYS=INIT,ENV"),
        ("PYTORCH_CUDA_ALLOC_CONF=on", "no list of name:value", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"),
        ("DSV41_ENGRAM_FALLBACK=ram", "one of: nothing, checkpoint", None),
        ("SPEC_ALGO=EAGLE", "one of: DSPARK, off, none, 0", None),
        ("NCCL_NET=TCP", "one of: IB, Socket", None),
        ("DSV41_MEMGUARD_MIB=255", "0 is off, else 256 at least", None),
        ("DSV41_INDEXER_SCORE_BUDGET_MIB=15", "0 is the engine's own, else 16 at least", None),
        ("CONTEXT_LENGTH=2000000", "outside 4096 to 1048576 tokens", None),
        ("CONTEXT_LENGTH=1000000", "cannot fit a KV pool", None),
        ("MAX_RUNNING_REQUESTS=0", "outside 1 to 256", None),
        ("MEM_FRACTION_STATIC=1.5", "outside 0.01 to 0.99", None),
        ("PORT=70000", "outside 1 to 65535", None),
        ("DIST_PORT=8888", "the API and the ranks need one each", None),
        ("MAX_TOTAL_TOKENS=many", "whole number", None),
        ("NFS_SHARE=yes", "1 (on) or 0 (off)", None),
        ("BUILD_ON=everywhere", "one of: head, each", None),
        ("SHM_SIZE=lots", "a size such as 32g", None),
        ("HEAD_IP=127.0.0.1", "other nodes must be able to reach this address", None),
        ("WORKER_IPS='10.0.0.1 10.0.0.3'", "the head's address too", None),
        ("WORKER_IPS='10.0.0.2 127.0.0.2'", "other nodes must be able to reach this address", None),
        ("WORKER_IPS='10.0.0.2 10.0.0.2'", "one address twice", None),
        ("WORKER_IPS='10.0.0.2 spark3'", "spark3 is not an IP address", None),
        ("WORKER_HOSTS=spark2", "names 1 and WORKER_IPS 2", None),
        ("WORKER_HOSTS='spark2 spark3:2222'", "a port belongs in your ssh config", None),
        ("WORKER_HOSTS='spark2 -oProxyCommand=x'", "neither a host nor user@host", None),
        ("WORKER_HOSTS='spark2 @spark3'", "neither a host nor user@host", None),
        ("NFS_SERVER_IPS='10.0.22.1 10.0.23.1 10.0.24.1'", "write one, or one for each of the 2 workers", None),
        ("NFS_CLIENTS='10.0.0.2,*(rw)'", "neither an address nor a network", None),
        ("WORKER_FABRIC_IPS=10.0.22.2", "names 1 for 2 workers", None),
        ("NCCL_SWITCHLESS_RING=1", "a ring is four Sparks", "NCCL_SWITCHLESS_RING=0"),
        ("MODEL_DIR=models", "no absolute path", None),
        ("WORKER_DIR=/home/spark", "a folder of other things", None),
        ("ENGRAM_DIR=/data/a:b", "a mount cannot carry", None),
        ("IMAGE='x --privileged'", "no image's name", None),
        ("HF_REVISION=main", "no commit", "HF_REVISION=1bae0e1"),
        ("BASE_DIGEST=sha256:beef", "no digest", None),
        ("SGLANG_DSV41_REASONING_EFFORT=medium", "low, high or max", None),
        ("DSV41_VERIFY_CAP=banana", "off, or conf:T with T from 0.001 to 0.999", None),
        ("DSV41_VERIFY_CAP=conf:0.0", "off, or conf:T with T from 0.001 to 0.999", None),
        ("DSV41_VERIFY_CAP=conf:1", "off, or conf:T with T from 0.001 to 0.999", None),
    ],
)
def test_impossible_values_are_refused_with_line_and_reason(text: str, says: str, write: str | None) -> None:
    name = text.split("=")[0]
    base = "".join(f"{line}\n" for line in THREE_SPARKS.splitlines() if not line.startswith(f"{name}="))
    error = refusal(base + text + "\n")
    assert error.exit_status == 2
    assert says in str(error)
    told = next(each for each in error.problems if says in each.reason)
    assert told.line > base.count("\n")
    assert write is None or write in [each.fixed for each in error.problems]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (FOUR_SPARKS + "DSV41_TP_PAD=1\n", "nothing may be padded"),
        (FOUR_SPARKS + "EP_SIZE=1\n", "576 of an expert's 2304 columns"),
        (FOUR_SPARKS + "NNODES=4\nTP_SIZE=3\n", "a Spark has one GPU"),
        ("HEAD_IP=10.0.0.1\nWORKER_IPS=10.0.0.2\n", "need three Sparks"),
        (RING + "NCCL_NET=Socket\n", "the ring needs IB"),
        (RING + "NCCL_IB_DISABLE=1\n", "the ring needs RoCE"),
        (RING.replace("NCCL_HOST_DIR=~/nccl-2.30.7", ""), "every rank needs the patched NCCL"),
        ("", "HEAD_IP is not set"),
        ("", "WORKER_IPS is not set"),
    ],
)
def test_impossible_clusters_are_refused(text: str, says: str) -> None:
    assert says in str(refusal(text))


def test_four_sparks_may_have_two_expert_groups() -> None:
    assert read(FOUR_SPARKS + "EP_SIZE=2\n").ep_size == 2


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    error = refusal(
        "OFFLOAD_MODE=ram\nHEAD_IP=127.0.0.1\nPORT=x\nEXTRA_SGLANG_ARGS=--a 1\nWORKER_IPS='10.0.0.2 10.0.0.3'\n"
    )
    assert [(each.line, each.name) for each in error.problems] == [
        (1, "OFFLOAD_MODE"),
        (2, "HEAD_IP"),
        (3, "PORT"),
        (4, "EXTRA_SGLANG_ARGS"),
    ]
    assert "4 problems, nothing was started" in str(error)
    assert "write: EXTRA_SGLANG_ARGS='--a 1'" in str(error)
    assert error.fix


def test_a_caller_can_add_a_check_of_the_whole() -> None:
    from sparktui.envfile import Problem

    seen: list[Settings] = []

    def sheet(got: Settings) -> list[Problem]:
        seen.append(got)
        return [Problem(0, "the KV pin does not fit", name="MAX_TOTAL_TOKENS")]

    assert "the KV pin does not fit" in str(refusal(THREE_SPARKS, fit=sheet))
    assert "line 3: the KV pin" in str(refusal(THREE_SPARKS + "MAX_TOTAL_TOKENS=750000\n", fit=sheet))
    assert seen[0].max_total_tokens == 750_000
    refusal(THREE_SPARKS + "OFFLOAD_MODE=ram\n", fit=sheet)
    assert len(seen) == 2, "nothing impossible is put on the sheet"


def test_the_command_line_wins_over_the_file_and_the_file_over_the_environment() -> None:
    text = THREE_SPARKS + "PORT=9000\nCONTEXT_LENGTH=8192\n"
    got = read(
        text,
        cli_overrides={"PORT": "9001"},
        environment={**HOME, "PORT": "1", "CONTEXT_LENGTH": "1", "HF_TOKEN": "hf_env"},
    )
    assert (got.port, got.context_length) == (9001, 8192)
    assert got.hf_token is not None
    assert got.hf_token.get_secret_value() == "hf_env"
    assert got.origins["PORT"] == "command line"
    assert got.origins["CONTEXT_LENGTH"] == "line 4"
    assert got.origins["HF_TOKEN"] == "environment"
    assert got.origins["MAX_TOTAL_TOKENS"] == "profile three"
    own = read(text + "HF_TOKEN=hf_file\n", environment={**HOME, "HF_TOKEN": "hf_env"})
    assert own.hf_token is not None
    assert own.hf_token.get_secret_value() == "hf_file"


def test_an_unknown_name_warns_with_the_nearest_known_one() -> None:
    got = read(THREE_SPARKS + "CONTEXT_LENGHT=8192\nZZZ=1\nSGLANG_QQQQ=1\nBASE=/data\nMODEL_DIR=$BASE/m\nNODE_RANK=1\n")
    told = {each.name: each for each in got.notices if each.line}
    assert told["CONTEXT_LENGHT"].reason.endswith("did you mean CONTEXT_LENGTH?")
    assert told["ZZZ"].reason == "ZZZ is not a setting and has no effect"
    assert told["SGLANG_QQQQ"].reason.endswith("a variable for the engine goes into EXTRA_CONTAINER_ENV")
    assert "BASE" not in told, "a name that other lines use is there for a reason"
    assert "the order of WORKER_IPS is the rank" in told["NODE_RANK"].reason
    assert not [each for each in got.notices if each.severity is Severity.ERROR]
    assert "did you mean PORT?" in str(refusal(THREE_SPARKS, cli_overrides={"PROT": "1"}))


def test_what_the_recipe_reads_and_nothing_here_is_one_line_that_stops_nothing() -> None:
    text = (
        f"{THREE_SPARKS}DSV41_WO_A_W8=1\nREMOTE_TIMEOUT=60\nSKIP_VERIFY=1\n"
        "EXTRA_CONTAINER_ENV='DSV41_HC_FUSED=1 DSV41_WO_A_W8=1'\n"
    )
    (told,) = (each for each in read(text).notices if each.severity is Severity.INFO)
    assert told.reason == "known, no effect here: DSV41_WO_A_W8, REMOTE_TIMEOUT, SKIP_VERIFY, DSV41_HC_FUSED"
    assert told.line == 3
    others = [each.reason for each in read(text).notices if each.severity is not Severity.INFO]
    assert not any(name in reason for reason in others for name in NO_EFFECT)
    assert not NO_EFFECT & SETTINGS.keys(), "something acts on it: take it off the list"
    assert not any(each.severity is Severity.INFO for each in read(THREE_SPARKS).notices)


def test_u103_an_open_api_is_told_and_a_key_is_shown_as_dots_and_two_characters() -> None:
    assert any("open to the network" in each.reason for each in read(THREE_SPARKS).notices)
    assert not any("open" in each.reason for each in read(THREE_SPARKS + "HOST=127.0.0.1\n").notices)
    for none in ("", "none", "OFF", "Dummy", "0"):
        assert read(f"{THREE_SPARKS}API_KEY={none}\n").api_key is None
    got = read(THREE_SPARKS + "API_KEY='correct-horse'\nWORKER_PASS=\"it's me\"\nHF_TOKEN=hf_abcdefgh\n")
    assert got.mask("key=correct-horse token=hf_abcdefgh") == "key=••••••se token=••••••gh"
    assert "it" not in got.mask("it's me")
    assert "me" not in got.mask("sshpass -p 'it'\"'\"'s me'").replace("••••••me", "")
    nested = read(THREE_SPARKS + "API_KEY=opensesame\nHF_TOKEN=opensesame-too\n")
    assert nested.mask("opensesame-too opensesame") == "••••••oo ••••••me", "a secret inside another hides the whole"
    for text in (repr(got), str(got), got.model_dump_json(exclude={"profile"})):
        assert "correct-horse" not in text
        assert "hf_abcdefgh" not in text
    assert not any("•" in str(value) for value in got.model_dump().values() if isinstance(value, int))


@pytest.mark.parametrize(
    "line",
    [
        "API_KEY=correct horse battery",
        "API_KEY='correct",
        "API_KEY=$(correct)",
        "IMAGE=x API_KEY=correct",
        "API_KEY: correct",
        "API_KEY=correct1\nAPI_KEY=correct2",
        "API_KEY='correct horse'",
    ],
)
def test_u103_a_problem_with_a_key_does_not_show_it(line: str) -> None:
    error = refusal(THREE_SPARKS + line + "\n")
    assert "correct" not in str(error)
    assert "correct" not in repr(error.problems)


def test_u101_a_doubtful_file_is_read_and_told_or_refused() -> None:
    windows = read("\ufeff" + THREE_SPARKS.replace("\n", "\r\n"))
    assert windows.worker_ips == ("10.0.0.2", "10.0.0.3")
    assert any("Windows line end" in each.reason for each in windows.notices)
    assert any("byte-order mark" in each.reason for each in windows.notices)
    error = refusal(THREE_SPARKS + "PORT=1\nPORT=2\n")
    assert [each.line for each in error.problems] == [3]


def test_per_node_users_and_older_names() -> None:
    got = read(THREE_SPARKS + "WORKER_HOSTS='ada@spark2 spark3'\nWORKER_USER=bob\n")
    assert [(node.ssh_user, node.ssh_host) for node in got.nodes[1:]] == [("ada", "spark2"), ("bob", "spark3")]
    older = read(
        "HEAD_IP=10.0.0.1\nWORKER1_IP=10.0.0.2\nWORKER2_IP=10.0.0.3\nWORKER1_HOST=spark2\nWORKER2_HOST=spark3\n"
        "WORKER1_FABRIC_IP=10.0.22.2\nWORKER2_FABRIC_IP=10.0.23.3\nNFS_SERVER_IP_1=10.0.22.1\nNFS_SERVER_IP_2=10.0.23.1\n"
        "IB_HCA=rocep1s0f0\n"
    )
    assert [(node.ssh_host, node.address, node.fabric_address) for node in older.nodes[1:]] == [
        ("spark2", "10.0.0.2", "10.0.22.2"),
        ("spark3", "10.0.0.3", "10.0.23.3"),
    ]
    assert [older.nfs_server_address(node) for node in older.nodes] == [None, "10.0.22.1", "10.0.23.1"]
    assert older.rdma_devices == ("rocep1s0f0",)
    assert "without a gap" in str(refusal("HEAD_IP=10.0.0.1\nWORKER1_IP=10.0.0.2\nWORKER3_IP=10.0.0.4\n"))


def test_u81_nfs_addresses_are_one_or_one_a_worker() -> None:
    one = read(FOUR_SPARKS + "NFS_SERVER_IPS=10.0.22.1\n")
    assert [one.nfs_server_address(node) for node in one.nodes[1:]] == ["10.0.22.1"] * 3
    each = read(FOUR_SPARKS + "NFS_SERVER_IPS='10.0.22.1 10.0.23.1 10.0.24.1'\n")
    assert each.nfs_server_address(each.nodes[3]) == "10.0.24.1"
    assert "the 3 workers" in str(refusal(FOUR_SPARKS + "NFS_SERVER_IPS='10.0.22.1 10.0.23.1'\n"))
    assert read(FOUR_SPARKS).nfs_server_address(one.nodes[1]) is None
    assert read(FOUR_SPARKS).nfs_allowed == ("10.0.0.2", "10.0.0.3", "10.0.0.4")


def test_t1_a_guess_says_that_it_is_one() -> None:
    got = read(THREE_SPARKS + "WORKER_USER=bob\nMEM_FRACTION_STATIC=0.9\n")
    assert got.worker_dir == "/home/bob/dsv41-3x-spark"
    assert got.origins["WORKER_DIR"] == "guessed from WORKER_USER=bob"
    assert got.head_mem_fraction_static == 0.9
    assert got.origins["HEAD_MEM_FRACTION_STATIC"] == "the same as MEM_FRACTION_STATIC"


def test_u31_interface_names_of_the_example_are_told() -> None:
    told = {each.name for each in read(THREE_SPARKS).notices if "example value" in each.reason}
    assert told == {"FABRIC_IFACE", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}
    own = read(THREE_SPARKS + "FABRIC_IFACE=eth1\nNCCL_SOCKET_IFNAME=eth0\nGLOO_SOCKET_IFNAME=eth0\n")
    assert not [each for each in own.notices if "example value" in each.reason]


def test_sizes_times_and_lists_have_units() -> None:
    got = read(
        THREE_SPARKS
        + "SHM_SIZE=512m\nREADY_TIMEOUT=6\nSERVED_MODEL_NAME='a,b'\nSPEC_ALGO=off\n"
        + "EXTRA_CONTAINER_ENV=\"A=1 'B=x y'\"\n"
    )
    assert (got.shm_bytes, got.ready_seconds) == (512 * 1024**2, 60)
    assert (got.served_model, got.speculation) == ("a", False)
    assert got.container_environment == {"A": "1", "B": "x y"}
    assert read(THREE_SPARKS).shm_bytes == 32 * 1024**3
    assert read(THREE_SPARKS + "NFS_CLIENTS=10.0.0.2,10.0.22.0/24\n").nfs_allowed == ("10.0.0.2", "10.0.22.0/24")
