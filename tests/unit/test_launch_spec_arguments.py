"""From settings to the engine's own command line: our environment, read by the entry point that is in the image.

After a wanted change: `SPARKTUI_UPDATE_GOLDEN=1 python -m pytest tests/unit/test_launch_spec_arguments.py`, then read
the diff.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparktui.engine.launch import launch_specs
from sparktui.settings import parse_settings

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
GIDS = {rank: 3 for rank in range(4)}
THREE = 'HEAD_IP=10.0.0.1\nWORKER_IPS="10.0.0.2 10.0.0.3"\nAPI_KEY=topsecretkey\n'
FOUR = 'HEAD_IP=10.0.0.1\nWORKER_IPS="10.0.0.2 10.0.0.3 10.0.0.4"\n'
RING = FOUR + "NCCL_SWITCHLESS_RING=1\nNCCL_HOST_DIR=/srv/nccl-ring\n"
CASES = {"three": THREE, "four": FOUR, "four-ring": RING}


def engine_arguments(text: str, profile: str, **overrides: str) -> list[list[str]]:
    """What each rank's entry point hands to the engine, in rank order."""
    settings = parse_settings(
        text,
        env_path=Path("/srv/sparktui/.env"),
        profile=profile,
        cli_overrides=overrides,
        environment={"HOME": "/home/spark"},
    )
    found = []
    for each in launch_specs(settings, GIDS):
        environment = {**each.container.environment, "PYTHONPATH": str(ROOT / "overlay"), "PATH": os.defpath}
        ended = subprocess.run(
            [sys.executable, "-S", "-m", "spark_overlay.entry", "args", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        found.append(json.loads(ended.stdout))
    return found


def value(arguments: list[str], name: str) -> str:
    return arguments[len(arguments) - 1 - arguments[::-1].index(name) + 1]


@pytest.mark.parametrize("profile", CASES)
def test_the_engine_arguments_are_the_golden_ones(profile: str) -> None:
    path = GOLDEN / f"arguments-{profile}.json"
    now = engine_arguments(CASES[profile], profile)
    if os.environ.get("SPARKTUI_UPDATE_GOLDEN") == "1":
        path.write_text(json.dumps(now, indent=1) + "\n")
    assert now == json.loads(path.read_text())


def test_what_this_model_needs_is_there_on_three_and_four() -> None:
    for profile, expert_groups, cap in (("three", "1", "262144"), ("four", "4", "1048576")):
        for rank, arguments in enumerate(engine_arguments(CASES[profile], profile)):
            assert value(arguments, "--attention-backend") == "dsv4"
            assert value(arguments, "--moe-runner-backend") == "flashinfer_mxfp4"
            assert value(arguments, "--tool-call-parser") == "deepseekv41"
            assert value(arguments, "--reasoning-parser") == "deepseek-v41"
            assert "--enable-decoder-swa-bounded-replay" in arguments
            assert value(arguments, "--ep-size") == expert_groups
            assert value(arguments, "--context-length") == cap
            assert value(arguments, "--node-rank") == str(rank)
            assert "topsecretkey" not in " ".join(arguments)


def test_a_users_own_arguments_do_not_lose_the_fp8_backend() -> None:
    for arguments in engine_arguments(THREE, "three", EXTRA_SGLANG_ARGS="--sleep-on-idle"):
        assert value(arguments, "--fp8-gemm-backend") == "flashinfer_cutlass"
        assert "--sleep-on-idle" in arguments
    (head, *_) = engine_arguments(THREE, "three", EXTRA_SGLANG_ARGS="--fp8-gemm-backend triton")
    assert value(head, "--fp8-gemm-backend") == "triton"


def test_speculation_off_leaves_its_arguments_out() -> None:
    for arguments in engine_arguments(THREE, "three", SPEC_ALGO="off"):
        assert not any(argument.startswith("--speculative") for argument in arguments)
