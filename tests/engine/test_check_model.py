"""`check-model` on the real engine: a checkpoint that every rank loads, and each fault by its tensor's name."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.engine import engine_env

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
MAX_RESIDENT_BYTES = 1.5 * 1024**3


def engine_python(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "LD_LIBRARY_PATH": engine_env.library_path(),
        "PYTHONPATH": f"{ROOT / 'overlay'}:{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [str(engine_env.engine_python()), *words], env=environment, capture_output=True, text=True, timeout=800
    )


def checked(folder: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    done = engine_python("-m", "spark_overlay", "check-model", "--model-path", str(folder), *words)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, done.stderr[-3000:]
    assert lines[-1]["event"] == "checked"
    return done.returncode, lines


def faults(lines: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["kind"], each["tensor"]) for each in lines if each["event"] == "fault"}


def text_of(lines: list[dict[str, Any]], tensor: str) -> str:
    return next(str(each["text"]) for each in lines if each["event"] == "fault" and each["tensor"] == tensor)


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny DeepSeek-V4.1; `tiny_model` has made sure of the engine."""
    folder = tmp_path_factory.mktemp("v41")
    done = engine_python("-m", "tests.engine.v41.checkpoint", str(folder))
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def planted(checkpoint: Path, folder: Path, change: str) -> Path:
    """The checkpoint with `change`: statements on `tensors`, a dict of changed tensors by name (None leaves out)."""
    code = f"""
from pathlib import Path
import torch
from tests.engine.v41.checkpoint import tensor, write
from tests.engine.v41.layout import tensors as table
entries = table()
made = lambda name: tensor(name, entries[name])
tensors = {{}}
{change}
write(Path({str(folder)!r}), changed=tensors)
"""
    done = engine_python("-c", code)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_three_ranks_load_the_checkpoint_padded(checkpoint: Path) -> None:
    status, lines = checked(checkpoint, "--tp-size", "3")
    ranks = [each for each in lines if each["event"] == "rank"]
    assert status == 0
    assert lines[-1]["ok"] is True
    assert faults(lines) == set()
    assert [(each["rank"], each["ok"]) for each in ranks] == [(0, True), (1, True), (2, True)]
    assert all(each["padded"] > 0 and each["pad_bytes"] > 0 for each in ranks)


def test_every_fault_is_named_and_the_others_are_found_all_the_same(checkpoint: Path, tmp_path: Path) -> None:
    folder = planted(
        checkpoint,
        tmp_path / "faulty",
        """
tensors["layers.3.attn.wq_b.weight"] = made("layers.3.attn.wq_b.weight")[:-32]
tensors["mtp.1.ffn.experts.100.w1.weight"] = None
tensors["layers.2.attn.surplus.weight"] = torch.zeros(4)
""",
    )
    cut = folder / "model-00001-of-00005.safetensors"
    os.truncate(cut, cut.stat().st_size - 8)
    index = folder / "model.safetensors.index.json"
    plain = json.loads(index.read_text())
    plain["weight_map"]["layers.9.nowhere.weight"] = cut.name
    index.write_text(json.dumps(plain))
    status, lines = checked(folder, "--tp-size", "3", "--ep-size", "3", "--rank", "2")
    assert status == 1
    assert lines[-1]["ok"] is False
    assert faults(lines) >= {
        ("shape", "layers.3.attn.wq_b.weight"),
        ("missing", "mtp.1.ffn.experts.100.w1.weight"),
        ("file", cut.name),
        ("file", "layers.9.nowhere.weight"),
    }
    assert "of the parameter stages.1.mlp.experts.w13_weight" in text_of(lines, "mtp.1.ffn.experts.100.w1.weight")
    assert "not 64 equal parts" in text_of(lines, "layers.3.attn.wq_b.weight")


def test_a_missing_target_tensor_and_one_that_nobody_wants(checkpoint: Path, tmp_path: Path) -> None:
    folder = planted(
        checkpoint,
        tmp_path / "faulty",
        """
tensors["layers.4.attn.kv_norm.weight"] = None
tensors["layers.2.attn.surplus.weight"] = torch.zeros(4)
tensors["mtp.2.attn.wo_b.scale"] = made("mtp.2.attn.wo_b.scale")[:-1]
""",
    )
    status, lines = checked(folder, "--tp-size", "1")
    assert status == 1
    found = faults(lines)
    assert found >= {("missing", "layers.4.attn.kv_norm.weight"), ("shape", "mtp.2.attn.wo_b.scale")}
    assert ("unused", "layers.2.attn.surplus.weight") in found
    assert not {tensor for kind, tensor in found if kind == "missing"} - {"layers.4.attn.kv_norm.weight"}


def test_headers_of_the_real_sizes_load_on_the_rank_that_holds_only_padding(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = engine_python("-m", "tests.engine.v41.headers", str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    status, lines = checked(tmp_path, "--tp-size", "3", "--rank", "2")
    assert faults(lines) == set()
    assert status == 0
    rank = lines[-2]
    assert rank["tensors"] == int(done.stdout)
    assert rank["peak_bytes"] <= MAX_RESIDENT_BYTES
    with capsys.disabled():
        print(f"\nreal sizes, rank 2 of 3: {rank['seconds']} s, {rank['peak_bytes'] / 1024**3:.2f} GiB resident")


def test_another_model_is_left_alone(tiny_model: Path) -> None:
    status, lines = checked(tiny_model, "--tp-size", "3")
    assert status == 0
    assert [each["event"] for each in lines] == ["checked"]
    assert lines[0]["skipped"] == "the model is a llama"
