"""Where the cached engine and the tiny model lie, and what makes real SGLang run without a GPU: all of it as data.

Three parts, so that the product's launch spec stays as it is:

- `env_file()`: settings for the testbed's .env;
- `machine_environment(ranks)`: variables that the node's container runtime adds: a machine without a GPU;
- `binds()`: mounts that the node's container runtime adds.

As a program (standard library only): `engine_env.py model-dir` and `engine_env.py library-path` print one line.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

VERSION = "0.5.23"
FOLDER = Path(__file__).resolve().parent
SMOKE = FOLDER.parents[1] / "assets" / "smoke.json"
IN_CONTAINER = Path("/opt/sglang")
STUB = Path("lib/sparktui-stub")
MAKERS = ("tiny_checkpoint.py", "tiny_model.py", "tiny_samples.py")


def cache_dir() -> Path:
    return Path(os.environ.get("SPARKTUI_CACHE") or "/var/cache/sparktui")


def engine_dir() -> Path:
    return cache_dir() / f"engine-{VERSION}"


def engine_python() -> Path:
    return engine_dir() / "bin" / "python3"


def tiny_model_dir() -> Path:
    """The cached checkpoint folder; its name changes with anything that decides its content."""
    digest = hashlib.sha256(VERSION.encode())
    for path in (*(FOLDER / name for name in MAKERS), SMOKE):
        digest.update(path.read_bytes())
    return cache_dir() / f"tiny-model-{digest.hexdigest()[:12]}"


def _site_packages() -> Path:
    return next((engine_dir() / "lib").glob("python3.*/site-packages"))


def library_path(prefix: Path | None = None) -> str:
    """LD_LIBRARY_PATH: the stub of libcuda.so.1 and the CUDA libraries that the wheels brought, below `prefix`."""
    root = prefix or engine_dir()
    inside = [STUB, *sorted(path.relative_to(engine_dir()) for path in _site_packages().glob("nvidia/*/lib"))]
    return ":".join(str(root / path) for path in inside)


def binds() -> list[dict[str, object]]:
    """For SimulatedSpark.set_runtime: the engine at /opt/sglang."""
    return [{"source": str(engine_dir()), "target": str(IN_CONTAINER), "read_only": True}]


def machine_environment(ranks: int, prefix: Path = IN_CONTAINER) -> dict[str, str]:
    """For SimulatedSpark.set_runtime: variables of a machine with no GPU and two cores for all ranks."""
    models = sorted(path.stem for path in (_site_packages() / "sglang/srt/models").glob("*.py"))
    return {
        "LD_LIBRARY_PATH": library_path(prefix),
        "SGLANG_USE_CPU_ENGINE": "1",
        # One entry a rank is counted, the first one is used; without it every rank wants a NUMA node of its own.
        "SGLANG_CPU_OMP_THREADS_BIND": "|".join(["0"] * ranks),
        # PyNccl would be tried on the CPU device and end the rank.
        "SGLANG_NCCL_SO_PATH": "/nonexistent",
        # Two spinning threads a rank on two cores make a token ten times as slow.
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        # Compiling one pointwise kernel takes longer than all it saves, and needs a C++ compiler in the image.
        "TORCH_COMPILE_DISABLE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "SGLANG_RUST_BUILD_MODE": "never",
        "HF_HUB_OFFLINE": "1",
        # The registry imports every model it has: three seconds of a core in each rank.
        "SGLANG_DISABLED_MODEL_ARCHS": ",".join(
            name for name in models if name not in ("__init__", "llama", "registry")
        ),
    }


def sglang_arguments() -> list[str]:
    """What EXTRA_SGLANG_ARGS changes of the product's own list: a GPU's kernels for the CPU's, this model's sizes."""
    return [
        *("--device", "cpu"),
        *("--attention-backend", "torch_native"),
        *("--moe-runner-backend", "auto"),
        *("--fp8-gemm-backend", "auto"),
        "--no-enable-decoder-swa-bounded-replay",
        "--disable-overlap-schedule",
        "--disable-custom-all-reduce",
    ]


def env_file() -> dict[str, str]:
    """Settings for the testbed's .env, unquoted: write them with `sparktui.envfile.quoted`."""
    return {
        "EXTRA_SGLANG_ARGS": shlex.join(sglang_arguments()),
        "SPEC_ALGO": "off",
        "CONTEXT_LENGTH": "4096",
        "MAX_TOTAL_TOKENS": "16384",
        "MAX_RUNNING_REQUESTS": "4",
        "EXPECTED_SHARDS": "4",
        # An own NCCL would set LD_LIBRARY_PATH, which here has to hold the CUDA libraries of the wheels.
        "NCCL_HOST_DIR": "",
    }


if __name__ == "__main__":
    print({"model-dir": tiny_model_dir, "library-path": library_path}[sys.argv[1]]())
