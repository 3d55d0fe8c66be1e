"""Real SGLang with the tiny model, one process of it, as a context: plain, or as the container starts it.

The `plugin` kind runs `spark_overlay.engine_process`, which arms the adapters in every process of the engine.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.engine import engine_env

MODEL = "tiny"
KEY = "sk-spark-table-7d1f"
SMALL_CAP = 12
"""Below the 16 and the 128 tokens that two routes give a request without a limit."""
BOOT_SECONDS = 600.0
OVERLAY = engine_env.FOLDER.parents[1] / "overlay"
MODULES = {"plain": "sglang.launch_server", "plugin": "spark_overlay.engine_process"}


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that answers.

    Attributes:
        client: for its HTTP routes, with the key where there is one.
        log: the file with everything that its processes print.
        pid: of its main process, which leads a group of its own.
    """

    client: httpx.Client
    log: Path
    pid: int

    @property
    def url(self) -> str:
        return str(self.client.base_url).rstrip("/")

    def text(self) -> str:
        return self.log.read_text(errors="replace")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def arguments(model: Path, port: int) -> list[str]:
    return [
        *("--model-path", str(model), "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--context-length", "8192", "--max-total-tokens", "16384", "--max-running-requests", "4"),
        *("--chunked-prefill-size", "768", "--mem-fraction-static", "0.1", "--random-seed", "0", "--enable-metrics"),
        *("--tool-call-parser", "deepseekv41", "--reasoning-parser", "deepseek-v41"),
        # Three of them share two cores.
        "--sleep-on-idle",
        # The model would fill the places between JSON's words with any number of blanks.
        "--constrained-json-disable-any-whitespace",
        *engine_env.sglang_arguments(),
    ]


def environment(ranks: int = 1, **settings: str) -> dict[str, str]:
    here = {name: value for name, value in os.environ.items() if not name.startswith(("DSV41_", "SPARK_"))}
    own = {"PYTHONPATH": str(OVERLAY), "PYTHONDONTWRITEBYTECODE": "1"}
    return here | engine_env.machine_environment(ranks, engine_env.engine_dir()) | own | settings


@contextmanager
def serving(
    kind: str,
    model: Path,
    folder: Path,
    *,
    key: str | None = None,
    ranks: int = 1,
    before: Sequence[str] = (),
    **settings: str,
) -> Iterator[Serving]:
    """`settings` are environment variables; `key` is written to a 0600 file, as the container gets it.

    `before` is an argv that executes the rest of its line.
    """
    port, log = free_port(), folder / f"{kind}.log"
    settings["MODEL_PATH"] = str(model)  # as in the container: it says which adapters the model needs
    if key:
        (folder / "key").touch(mode=0o600)
        (folder / "key").write_text(key)
        settings["API_KEY_FILE"] = str(folder / "key")
    if kind == "plain":
        settings["SGLANG_PLUGINS"] = "__none__"
    argv = [*before, str(engine_env.engine_python()), "-u", "-m", MODULES[kind], *arguments(model, port)]
    argv += ["--tp-size", str(ranks)]
    with log.open("wb") as out:
        env = environment(ranks, **settings)
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=out, start_new_session=True)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as client:
            deadline = time.monotonic() + BOOT_SECONDS
            while b"fired up" not in log.read_bytes():
                assert process.poll() is None, log.read_text(errors="replace")[-4000:]
                assert time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]
                time.sleep(0.5)
            yield Serving(client, log, process.pid)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
