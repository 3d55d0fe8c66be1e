"""N forked ranks of SGLang on the CPU, over gloo: each publishes, joins, builds and loads as a scheduler does."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.engine.v41 import cpu_ops

REQUESTS = 8


@dataclass(frozen=True)
class Setup:
    """One way to run the model.

    Attributes:
        override: what `--json-model-override-args` changes.
        armed: names of the overlay's adapters; one that this number of ranks does not need stays off.
        settings: environment of the ranks, the overlay's switches among it.
        spark_classes: the model's classes and head width of a Spark; else those that SGLang takes on a CPU.
        padded_alone: pads with the overlay's generator for these sizes, on ranks that would need none.
    """

    name: str
    tp: int
    ep: int = 1
    override: dict[str, int] = field(default_factory=dict)
    armed: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    spark_classes: bool = True
    padded_alone: bool = False


@dataclass
class Models:
    target: Any
    draft: Any
    config: Any
    rank: int


def run(setup: Setup, checkpoint: Path, work: Callable[[Setup, Path, int], Any], seconds: int = 200) -> list[Any]:
    """What `work(setup, checkpoint, rank)` gives in each of `setup.tp` forked processes.

    Raises:
        RuntimeError: a rank ended with an exception; the text has each such rank's last lines.
    """
    _import_engine()
    folder = Path(tempfile.mkdtemp(prefix="v41-ranks-"))
    began = time.monotonic()
    try:
        children = [_fork(setup, checkpoint, work, rank, folder, seconds) for rank in range(setup.tp)]
        ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(ended):
            said = [(folder / f"{rank}.log").read_text(errors="replace")[-3000:] for rank in range(setup.tp)]
            lines = [f"rank {rank}: exit {ended[rank]}\n{said[rank]}" for rank in range(setup.tp) if ended[rank]]
            raise RuntimeError(f"{setup.name}: " + "\n".join(lines))
        print(*[(folder / f"{r}.log").read_text()[-3500:] for r in range(setup.tp)]) if os.environ.get(
            "V41_LOG"
        ) else None
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(setup.tp)]
    finally:
        print(f"{setup.name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        shutil.rmtree(folder)


def _import_engine() -> None:
    """Once, before the ranks are forked: it takes ten seconds."""
    import sglang.srt.configs.model_config
    import sglang.srt.model_loader.loader
    import sglang.srt.models.deepseek_v4_dspark
    import sglang.srt.server_args  # noqa: F401

    from tests.engine.v41 import forward  # noqa: F401


def _fork(setup: Setup, checkpoint: Path, work: Any, rank: int, folder: Path, seconds: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        import signal

        signal.alarm(seconds)  # a rank whose peer ended would wait for it
        with (folder / f"{rank}.log").open("wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.environ.update(setup.settings)
        cpu_ops.install(setup.spark_classes)
        join(setup, checkpoint, rank, folder)
        torch.save(work(setup, checkpoint, rank), folder / f"{rank}.pt")
        status = 0
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def join(setup: Setup, checkpoint: Path, rank: int, folder: Path) -> None:
    """Publish the configuration, arm the adapters, and build the process groups."""
    import json

    from sglang.srt.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
    from sglang.srt.layers.dp_attention import initialize_dp_attention
    from sglang.srt.layers.moe.utils import initialize_moe_config
    from sglang.srt.runtime_context import SpawnRanks, publish, reset_context
    from sglang.srt.server_args import ServerArgs

    torch.set_num_threads(1)
    arguments = ServerArgs(
        model_path=str(checkpoint), tp_size=setup.tp, ep_size=setup.ep, device="cpu", disable_custom_all_reduce=True,
        json_model_override_args=json.dumps(setup.override),
    )  # fmt: skip
    reset_context()
    publish(arguments, role="test", ranks=SpawnRanks(rank, None))
    arm(setup, checkpoint)
    init_distributed_environment(setup.tp, rank, f"file://{folder}/store", rank, backend="gloo")
    initialize_model_parallel()
    initialize_dp_attention(arguments)
    initialize_moe_config()


def arm(setup: Setup, checkpoint: Path) -> None:
    """The named adapters as the plugin arms them in a scheduler; raises what it raises."""
    from spark_overlay import arming
    from spark_overlay.adapter import Process
    from spark_overlay.ledger import LEDGER

    wanted = [adapter for adapter in LEDGER if adapter.name in setup.armed]
    assert len(wanted) == len(setup.armed), setup.armed
    environment = os.environ | {"MODEL_PATH": str(checkpoint), "TP_SIZE": str(setup.tp), "EP_SIZE": str(setup.ep)}
    values = arming.values_of(wanted, environment)
    for stated in arming.arm(wanted, values, [Process.SCHEDULER], environment):
        print(stated.line, flush=True)
    if setup.padded_alone:
        _pad_alone(setup)


def _pad_alone(setup: Setup) -> None:
    """Both `load_weights` take the tensors of `setup.override`'s sizes, whatever the number of ranks needs."""
    from sglang.srt.models.deepseek_v4 import DeepseekV4ForCausalLM
    from sglang.srt.models.deepseek_v4_dspark import DeepseekV4ForCausalLMDSpark
    from spark_overlay.tp_padding import Padded, Sizes, pad

    for model in (DeepseekV4ForCausalLM, DeepseekV4ForCausalLMDSpark):
        original = model.load_weights
        model.load_weights = lambda self, weights, original=original: original(
            self, pad(weights, Sizes(), Sizes.of(setup.override), Padded())
        )


def load(checkpoint: Path, rank: int, *, draft: bool = True) -> Models:
    """Target and draft through SGLang's own loader; bf16 parameters become fp32 afterwards."""
    from sglang.srt.configs.device_config import DeviceConfig
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_loader import get_model
    from sglang.srt.runtime_context import get_server_args

    arguments = get_server_args()
    made = []
    for is_draft in (False, True) if draft else (False,):
        config = ModelConfig.from_server_args(arguments, is_draft_model=is_draft)
        with torch.no_grad():
            model = get_model(model_config=config, load_config=LoadConfig(), device_config=DeviceConfig("cpu"))
        for each in model.parameters():
            each.requires_grad_(False)
            if each.dtype is torch.bfloat16:
                each.data = each.data.float()
        made.append((model, config.hf_config))
    target, config = made[0]
    target.model.engram_hasher.init_history(REQUESTS, "cpu")
    return Models(target, made[1][0] if draft else None, config, rank)
