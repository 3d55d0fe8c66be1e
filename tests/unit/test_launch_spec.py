"""The engine's containers: golden commands, and what must never be in them.

After a wanted change: `SPARKTUI_UPDATE_GOLDEN=1 python -m pytest tests/unit/test_launch_spec.py`, then read the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sparktui.cluster.container import OWNER_LABEL, SPEC_LABEL
from sparktui.engine.environment import extra_environment
from sparktui.engine.launch import engine_spec, launch_specs, must_exist, packer_spec, spec_hash
from sparktui.errors import SettingsError, StepFailed
from sparktui.settings import Settings, parse_settings

GOLDEN = Path(__file__).parent.parent / "golden"
THREE = """
HEAD_IP=10.0.0.1
WORKER_IPS="10.0.0.2 10.0.0.3"
WORKER_HOSTS="spark2 spark3"
WORKER_FABRIC_IPS="10.0.22.2 10.0.23.3"
NFS_SERVER_IPS="10.0.22.1 10.0.23.1"
API_KEY=topsecretkey
"""
FOUR = """
HEAD_IP=10.0.0.1
WORKER_IPS="10.0.0.2 10.0.0.3 10.0.0.4"
WORKER_FABRIC_IPS="10.0.22.2 10.0.22.3 10.0.22.4"
NFS_SERVER_IPS=10.0.22.1
EXTRA_CONTAINER_ENV="SGLANG_ROCE_ALLREDUCE=1 B12X_ROCE_CACHE_DIR=/state/b12x-roce"
"""
RING = FOUR + "NCCL_SWITCHLESS_RING=1\nNCCL_HOST_DIR=/srv/nccl-ring\n"
CASES = {"three": (THREE, "three"), "four": (FOUR, "four"), "four-ring": (RING, "four-ring")}
GIDS = {0: 3, 1: 5, 2: 3, 3: 3}


def settings_of(text: str, profile: str, **overrides: str) -> Settings:
    return parse_settings(
        text,
        env_path=Path("/srv/sparktui/.env"),
        profile=profile,
        cli_overrides=overrides,
        environment={"HOME": "/home/spark"},
    )


REVISION = "1bae0e1" + "0" * 33


def rows(settings: Settings) -> list[dict[str, Any]]:
    return [
        {
            "node": each.node.name,
            "argv": each.container.run_argv(),
            "environment": each.container.environment,
            "body": each.container.create_body(),
        }
        for each in launch_specs(settings, GIDS, revision=REVISION)
    ]


@pytest.mark.parametrize("name", CASES)
def test_the_launch_spec_is_the_golden_one(name: str) -> None:
    text, profile = CASES[name]
    path = GOLDEN / f"launch-{name}.json"
    now = rows(settings_of(text, profile))
    if os.environ.get("SPARKTUI_UPDATE_GOLDEN") == "1":
        path.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    assert now == json.loads(path.read_text())


def test_three_sparks_do_not_change_when_the_four_profile_does() -> None:
    before = rows(settings_of(THREE, "three"))
    four = settings_of(FOUR, "four", CHUNKED_PREFILL_SIZE="2048", MAX_RUNNING_REQUESTS="8", DSV41_CACHE_GIB="1")
    assert {each.node.name for each in launch_specs(four, GIDS)} >= {"worker3"}
    assert rows(settings_of(THREE, "three")) == before == json.loads((GOLDEN / "launch-three.json").read_text())
    for name in ("CHUNKED_PREFILL_SIZE", "MAX_TOTAL_TOKENS", "MEM_FRACTION_STATIC", "DSV41_CACHE_GIB", "DSV41_TP_PAD"):
        assert before[1]["environment"][name] != rows(four)[1]["environment"][name], name


def test_no_secret_is_in_any_container_and_only_the_head_gets_the_key_file() -> None:
    settings = settings_of(THREE, "three", HF_TOKEN="hf_secretsecret", WORKER_PASS="hunter22hunter")
    head, *workers = launch_specs(settings, GIDS)
    for each in (head, *workers):
        shown = json.dumps([each.container.run_argv(), each.container.create_body()])
        assert not any(secret in shown for secret in ("topsecretkey", "hf_secretsecret", "hunter22hunter"))
    assert head.container.environment["API_KEY_FILE"] == "/run/secrets/sparktui-api-key"
    assert any(mount.target == "/run/secrets/sparktui-api-key" and mount.read_only for mount in head.container.mounts)
    for worker in workers:
        assert "API_KEY_FILE" not in worker.container.environment
        assert not any("api-key" in mount.source for mount in worker.container.mounts)


@pytest.mark.parametrize("key", ["", "none", "Off", "dummy", "0"])
def test_without_a_key_no_key_file_is_mounted(key: str) -> None:
    head = launch_specs(settings_of(THREE, "three", API_KEY=key), GIDS)[0].container
    assert "API_KEY_FILE" not in head.environment
    assert not any("api-key" in mount.source for mount in head.mounts)


def test_u25_each_rank_has_its_own_gid_index() -> None:
    specs = launch_specs(settings_of(THREE, "three"), GIDS)
    assert [each.container.environment["NCCL_IB_GID_INDEX"] for each in specs] == ["3", "5", "3"]


def test_u38_an_unknown_gid_is_refused_with_the_node_and_never_replaced_by_three() -> None:
    with pytest.raises(StepFailed) as refused:
        launch_specs(settings_of(THREE, "three"), {0: 3, 2: 3})
    assert refused.value.node == "worker1"
    assert refused.value.fix


def test_without_roce_no_gid_and_no_device_is_asked_for() -> None:
    specs = launch_specs(settings_of(THREE, "three", NCCL_IB_DISABLE="1"), {})
    for each in specs:
        assert "NCCL_IB_GID_INDEX" not in each.container.environment
        assert each.container.devices == ()


def test_each_rank_meets_at_the_head_and_names_itself() -> None:
    for each in launch_specs(settings_of(THREE, "three"), GIDS):
        environment = each.container.environment
        assert environment["DIST_INIT_ADDR"] == "10.0.0.1:20000"
        assert environment["HOST_IP"] == environment["SGLANG_HOST_IP"] == each.node.address
        assert environment["NODE_RANK"] == str(each.node.rank)
        assert each.container.labels[OWNER_LABEL] == "sparktui"


def test_workers_mount_the_volume_or_with_local_weights_their_own_folder() -> None:
    shared = launch_specs(settings_of(THREE, "three"), GIDS)[1].container.mounts[0]
    own = launch_specs(settings_of(THREE, "three", NFS_SHARE="0", WORKER_MODEL_DIR="/data/m-1017"), GIDS)
    assert shared.text == "dsv41-weights:/models/DeepSeek-V4.1-Flash-1017:ro"
    assert own[1].container.mounts[0].text == "/data/m-1017:/models/DeepSeek-V4.1-Flash-1017:ro"
    assert own[0].container.mounts[0].source.endswith("DeepSeek-V4.1-Flash-1017")


def test_caches_are_on_the_node_itself() -> None:
    for each in launch_specs(settings_of(THREE, "three"), GIDS):
        cache = next(mount for mount in each.container.mounts if mount.target == "/root/.cache")
        assert cache.source.startswith("/") and not cache.read_only


def test_only_the_ring_has_the_ring_variables_and_the_patched_library() -> None:
    ring = launch_specs(settings_of(RING, "four-ring"), GIDS)
    switch = launch_specs(settings_of(FOUR, "four", NCCL_HOST_DIR="/srv/nccl"), GIDS)
    for each in ring:
        assert each.container.environment["NCCL_SWITCHLESS_RING_ONLY"] == "1"
        assert "LD_LIBRARY_PATH" not in each.container.environment
        assert any(
            mount.source == "/srv/nccl-ring/libnccl.so.2" and mount.target.endswith("/nccl/lib/libnccl.so.2")
            for mount in each.container.mounts
        )
    for each in switch:
        assert "NCCL_SWITCHLESS_RING_ONLY" not in each.container.environment
        assert each.container.environment["LD_LIBRARY_PATH"] == "/nccl"


def test_extra_sglang_arguments_arrive_as_one_shell_text_that_splits_the_same() -> None:
    import shlex

    settings = settings_of(THREE, "three", EXTRA_SGLANG_ARGS="--a '{\"x\": 1}' --b 2")
    text = launch_specs(settings, GIDS)[2].container.environment["EXTRA_SGLANG_ARGS"]
    assert shlex.split(text) == ["--a", '{"x": 1}', "--b", "2"]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ("API_KEY=abc", "secret"),
        ("HF_TOKEN=abc", "secret"),
        ("NODE_RANK=2", "setting of its own"),
        ("9X=1", "NAME=value"),
        ("JUSTANAME", "NAME=value"),
        ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "NaN"),
        ("SGLANG_RAGGED_VERIFY_MODE=compact", "graph capture"),
    ],
)
def test_extra_container_env_refuses_with_the_reason(pair: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as refused:
        extra_environment(("GOOD=1", pair))
    assert "abc" not in str(refused.value)


def test_extra_container_env_keeps_equals_signs_and_spaces_of_values() -> None:
    assert extra_environment(("A=b=c", "B=x y")) == {"A": "b=c", "B": "x y"}


def test_the_spec_label_follows_the_options_and_not_itself() -> None:
    one = launch_specs(settings_of(THREE, "three"), GIDS)[1].container
    same = launch_specs(settings_of(THREE, "three"), GIDS)[1].container
    other = launch_specs(settings_of(THREE, "three", MAX_RUNNING_REQUESTS="3"), GIDS)[1].container
    assert one.labels[SPEC_LABEL] == same.labels[SPEC_LABEL] == spec_hash(one)
    assert one.labels[SPEC_LABEL] != other.labels[SPEC_LABEL]


def test_an_image_given_by_its_id_is_the_one_that_starts() -> None:
    settings = settings_of(THREE, "three")
    assert engine_spec(settings, settings.nodes[0], 3, "sha256:abcd").image == "sha256:abcd"


def test_the_packer_reads_the_checkpoint_and_has_neither_gpu_nor_network() -> None:
    settings = settings_of(THREE, "three")
    spec = packer_spec(settings, settings.nodes[2], revision="1bae0e1" + "0" * 33)
    argv = spec.run_argv()
    assert argv[argv.index("--entrypoint") + 1] == "python3"
    assert argv[-6:] == ["--rank", "2", "--tp", "3", "--revision", "1bae0e1" + "0" * 33]
    assert not spec.gpus_all and not spec.privileged and spec.network == "none"
    assert spec.mounts[0].read_only


def test_files_that_docker_would_otherwise_make_as_folders_are_listed() -> None:
    head, worker, *_ = launch_specs(settings_of(RING, "four-ring", API_KEY="topsecretkey"), GIDS)
    assert "/srv/nccl-ring/libnccl.so.2" in must_exist(worker.container)
    assert "/srv/sparktui/state-tp4/api-key" in must_exist(head.container)
    assert "dsv41-weights" not in must_exist(worker.container)


def test_every_rank_is_told_the_full_commit_that_the_download_recorded() -> None:
    settings = settings_of(THREE, "three", HF_REVISION="1bae0e1")
    told = [each.container.environment["HF_REVISION"] for each in launch_specs(settings, GIDS, revision=REVISION)]
    assert told == [REVISION] * 3
    assert "HF_REVISION" not in launch_specs(settings, GIDS)[0].container.environment, "unknown is not the prefix"
    with pytest.raises(SettingsError, match="HF_REVISION has a setting of its own"):
        launch_specs(settings_of(THREE, "three").model_copy(update={"extra_container_env": ("HF_REVISION=x",)}), GIDS)
