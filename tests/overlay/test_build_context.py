"""What enters the image: locks, the Dockerfile, the size of the context, Python 3.11 syntax, nothing generated."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
import spark_overlay

from tests.overlay.conftest import OVERLAY

LOCKS = ("engine-aarch64.lock", "engine-x86_64.lock")


def entries(lock: str) -> dict[str, str]:
    """name==version -> the block with its hashes."""
    text = (OVERLAY / lock).read_text()
    return {block.split(" ", 1)[0]: block for block in re.split(r"\n(?=[a-z0-9])", text) if "==" in block}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_wheel_is_pinned_by_hash_and_no_index_is_named(lock: str) -> None:
    blocks = entries(lock)
    assert len(blocks) > 200
    assert all("--hash=sha256:" in block for block in blocks.values())
    assert "://" not in (OVERLAY / lock).read_text()
    assert {"sglang==0.5.23", "torch==2.14.1", "flashinfer-python==0.7.2"} <= set(blocks)


@pytest.mark.parametrize("lock", LOCKS)
def test_what_compiles_for_the_gpu_is_cuda_13_0_like_the_driver(lock: str) -> None:
    pinned = dict(name.split("==") for name in entries(lock))
    for part in ("cuda-nvcc", "cuda-crt", "nvvm", "nvjitlink", "cuda-nvrtc", "cuda-runtime"):
        assert pinned[f"nvidia-{part}"].startswith("13.0."), part


def test_the_locks_agree_on_the_engine() -> None:
    left, right = (dict(name.split("==") for name in entries(lock)) for lock in LOCKS)
    for name in ("sglang", "torch", "flashinfer-python", "sglang-kernel", "transformers", "nvidia-nccl-cu13", "triton"):
        assert left[name] == right[name], name


def test_the_context_is_small_and_holds_nothing_generated() -> None:
    files = [path for path in OVERLAY.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 2 << 20
    assert not [path for path in files if path.suffix in (".pyc", ".so", ".new", ".whl")]


def test_the_package_uses_only_the_standard_library_numpy_and_what_the_engine_brings() -> None:
    allowed = set(sys.stdlib_module_names) | {"spark_overlay", "numpy", "sglang", "torch", "safetensors"}
    for path in sorted((OVERLAY / "spark_overlay").glob("*.py")):
        tree = ast.parse(path.read_text(), feature_version=(3, 11))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path.name


def test_sglang_finds_the_plugin_and_its_version_is_the_packages() -> None:
    import spark_overlay

    distribution = PathDistribution(OVERLAY / "spark_overlay.dist-info")
    [point] = distribution.entry_points.select(group="sglang.srt.plugins")
    assert callable(point.load())
    assert distribution.version == spark_overlay.__version__


def test_the_overlay_is_the_last_layer_and_carries_our_labels() -> None:
    text = (OVERLAY / "Dockerfile").read_text()
    for label in ("sparktui.owner=sparktui", "sparktui.overlay=${OVERLAY_HASH}"):
        assert label in text
    assert f"org.opencontainers.image.version={spark_overlay.__version__} " in text
    # With BRING_TO_LOCK=never nobody knows the engine: no label says that it is the lock's.
    assert f"sparktui.engine.lock={spark_overlay.ENGINE_VERSION} " in text
    assert "sparktui.engine.bring_to_lock=${BRING_TO_LOCK} " in text
    assert "sparktui.engine=" not in text
    assert "org.opencontainers.image.licenses=" in text
    order = ("bring_to_lock.py", "install_nfs.sh", "install_row_store.sh", "COPY spark_overlay/", "ARG OVERLAY_HASH")
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "--interval=30s --timeout=30s --start-period=30m --retries=3" in text
    # Docker's classic builder knows neither.
    assert "--mount" not in text and "<<" not in text


def test_verify_runs_in_the_build_and_only_a_mounted_engine_may_lack() -> None:
    text = (OVERLAY / "Dockerfile").read_text()
    [line] = [line for line in text.splitlines() if "spark_overlay verify" in line]
    assert "--source-allowed ${may_lack}" in line
    assert text.index("COPY spark_overlay/") < text.index(line) < text.index("ARG OVERLAY_HASH")
    # -S: no site-packages, hence no engine, as in a bare base.
    verify = [sys.executable, "-S", "-m", "spark_overlay", "verify", "--source-allowed"]
    environment = {"PYTHONPATH": str(OVERLAY), "PYTHONDONTWRITEBYTECODE": "1"}
    for more, status, said in (
        ([], 1, "ERROR no engine is installed here"),
        (["--engine-may-lack"], 0, "nothing was compared, the engine comes at run time"),
    ):
        done = subprocess.run([*verify, *more], env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, said in done.stdout) == (status, True), done.stdout


def test_a_base_with_another_engine_and_no_fitting_lock_is_refused(tmp_path: Path) -> None:
    for name in ("bring_to_lock.py", *LOCKS):
        source = OVERLAY / ("build/" if name.endswith("py") else "") / name
        (tmp_path / name).write_bytes(source.read_bytes())
    for lock in LOCKS:
        text = (tmp_path / lock).read_text().replace("sglang==0.5.23", "sglang==9.9.9")
        (tmp_path / lock).write_text(text)
    never = subprocess.run(
        [sys.executable, str(tmp_path / "bring_to_lock.py"), "never"], capture_output=True, text=True, timeout=60
    )
    assert never.returncode == 0 and "lock 9.9.9" in never.stdout
    # -S: no site-packages, hence neither an engine nor pip, as in a bare base.
    auto = subprocess.run(
        [sys.executable, "-S", str(tmp_path / "bring_to_lock.py"), "auto"], capture_output=True, text=True, timeout=60
    )
    assert auto.returncode == 1 and re.search("no pip|is for Python", auto.stderr)
