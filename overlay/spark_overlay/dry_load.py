"""One rank's load without weights: the engine's own model on the meta device, and its own `load_weights` over headers.

Nothing here knows which slice of which tensor a rank takes: the engine's loaders say it by what they copy. A copy's
source is followed back to the checkpoint's names through every operation between (a slice, a concatenation, the
padding, a dequantisation).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_overlay import checkpoint_config
from spark_overlay.checkpoint_headers import Fault, Header
from spark_overlay.tp_padding import Sizes

UNWRITTEN_BY_DESIGN = ("attn_mqa.k_scale", "attn_mqa.v_scale", "attn.k_scale", "attn.v_scale")
"""Parameters that no checkpoint has: the engine makes them up after the load."""
_OF_HEADS = re.compile(r"\.self_attn\.(?:attn_sink|(?:wq_b|wo_a|wo_b)\.)")
_MODELS = ("deepseek_v4", "deepseek_v4_dspark")
_NUMBER = re.compile(r"\d+")
_TORCH_TYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "I16": "int16", "F16": "float16", "BF16": "bfloat16", "I32": "int32", "F32": "float32",
    "I64": "int64", "F64": "float64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one rank's load said.

    Attributes:
        unconsumed: names from which this rank copied nothing.
        parameter_bytes: what this rank keeps without the Engram tables, by model (`target`, `draft`).
        pad_bytes: the part of them that is padding, spread evenly over the ranks.
    """

    faults: tuple[Fault, ...]
    unconsumed: frozenset[str]
    parameter_bytes: dict[str, int]
    pad_bytes: int
    padded: int
    seconds: float
    peak_bytes: int


def prepare_environment() -> None:
    """Before torch is imported: no GPU is touched, nothing is compiled, no other model is imported."""
    engine = importlib.util.find_spec("sglang")
    models = Path(*(engine.submodule_search_locations or [""])[:1], "srt", "models") if engine else Path()
    others = sorted({path.stem for path in models.glob("*.py")} - {"__init__", "registry", *_MODELS})
    os.environ.update(
        CUDA_VISIBLE_DEVICES="", SGLANG_OPT_USE_TILELANG_MHC_PRE="0", SGLANG_OPT_USE_TILELANG_MHC_POST="0",
        SGLANG_NCCL_SO_PATH="/nonexistent", TORCH_COMPILE_DISABLE="1", TORCHDYNAMO_DISABLE="1", OMP_NUM_THREADS="1",
        SGLANG_DISABLED_MODEL_ARCHS=",".join(others),
    )  # fmt: skip


def load(folder: Path, tensors: Sequence[Header], rank: int, tp: int, ep: int) -> Loaded:
    """Build target and draft for this rank and load them. `prepare_environment` has run; one rank a process.

    Raises whatever the engine raises while it is set up; what its loaders raise is a Fault.
    """
    began = time.monotonic()
    real = Sizes.of(checkpoint_config.fields(folder))
    wanted = real.padded(tp, ep)
    arguments = _join(folder, rank, tp, ep, wanted.overrides(real))
    faults: list[Fault] = []
    consumed: set[str] = set()
    sizes: dict[str, int] = {}
    pad_bytes = padded = 0
    for role in ("target", "draft"):
        if role == "draft" and not _bundles_draft(arguments):
            continue
        model = _build(arguments, draft=role == "draft")
        watch = _Copies(tensors)
        fault = watch.load(model)
        consumed |= watch.consumed
        if fault:  # what would have come after it is not known
            consumed |= {each.name for each in tensors if each.name.startswith("mtp.") is (role == "draft")}
        elif role == "draft":
            consumed |= _left_out_by_the_draft(model, tensors)
        faults += [fault] if fault else watch.unwritten(model)
        sizes[role], pads = watch.kept_bytes(model, real, wanted, draft=role == "draft")
        pad_bytes += pads
        padded += watch.padded
    unconsumed = frozenset(each.name for each in tensors if each.name not in consumed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Loaded(tuple(faults), unconsumed, sizes, pad_bytes, padded, time.monotonic() - began, peak)


def _join(folder: Path, rank: int, tp: int, ep: int, override: dict[str, int]) -> Any:
    """This process as one rank of `tp`, without the others."""
    import json

    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ.update(MODEL_PATH=str(folder), TP_SIZE=str(tp), EP_SIZE=str(ep))
    from sglang.srt.distributed import parallel_state
    from sglang.srt.distributed.device_communicators import shm_broadcast
    from sglang.srt.layers.dp_attention import initialize_dp_attention
    from sglang.srt.layers.moe.utils import initialize_moe_config
    from sglang.srt.runtime_context import SpawnRanks, publish, reset_context
    from sglang.srt.server_args import ServerArgs

    _arm()
    torch.set_num_threads(1)
    arguments = ServerArgs(
        model_path=str(folder), tp_size=tp, ep_size=ep, device="cpu", disable_custom_all_reduce=True,
        trust_remote_code=True, json_model_override_args=json.dumps(override),
    )  # fmt: skip
    reset_context()
    publish(arguments, role="test", ranks=SpawnRanks(rank, None))
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=tp)
    real_group: Callable[..., Any] = dist.new_group

    def fake_group(ranks: Any = None, *_: Any, **__: Any) -> Any:
        return real_group(ranks, backend="fake")

    dist.new_group = fake_group
    # It broadcasts over the group, and there is nobody.
    shm_broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)
    parallel_state.init_distributed_environment(tp, rank, local_rank=0, backend="gloo")
    parallel_state.initialize_model_parallel()
    initialize_dp_attention(arguments)
    initialize_moe_config()
    return arguments


def _arm() -> None:
    """The adapters that change the model or what it loads, as the engine's plugin arms them."""
    from spark_overlay.adapter import Process
    from spark_overlay.arming import arm, values_of
    from spark_overlay.ledger import LEDGER

    loading = [each for each in LEDGER if any(hook.target.startswith("sglang.srt.models.") for hook in each.hooks)]
    arm(loading, values_of(loading, os.environ), [Process.SCHEDULER], os.environ)


def _bundles_draft(arguments: Any) -> bool:
    return "dspark_block_size" in checkpoint_config.fields(Path(arguments.model_path))


def _build(arguments: Any, *, draft: bool) -> Any:
    import torch
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_loader import loader
    from sglang.srt.model_loader.utils import get_model_architecture
    from sglang.srt.models import deepseek_v4

    # It has no parameter, and its form for a CPU refuses this model.
    deepseek_v4.get_rope_wrapper = lambda **_: None
    config = ModelConfig.from_server_args(arguments, is_draft_model=draft)
    quantization = loader._get_quantization_config(config, LoadConfig())
    kind = get_model_architecture(config)[0]
    before = torch.get_default_dtype()
    torch.set_default_dtype(config.dtype)
    try:
        with torch.device("meta"), torch.no_grad():
            return kind(config=config.hf_config, quant_config=quantization)
    finally:
        torch.set_default_dtype(before)


def _left_out_by_the_draft(model: Any, tensors: Sequence[Header]) -> set[str]:
    """Names of its stages for which the draft's own map has no place: it means to leave them out."""
    return {
        each.name for each in tensors if each.name.startswith("mtp.") and not model._remap_dspark_weight_name(each.name)
    }


class _Copies:
    """Which names each parameter was copied from, and how much of it was written."""

    def __init__(self, tensors: Sequence[Header]) -> None:
        self._tensors = tensors
        self._names: dict[int, frozenset[str]] = {}  # by storage: the names that its numbers come from
        self._made: list[Any] = []
        self._held: list[Any] = []
        self._kept_bytes: defaultdict[int, int] = defaultdict(int)
        self._written: defaultdict[int, int] = defaultdict(int)
        self._sources: defaultdict[int, set[str]] = defaultdict(set)
        self._wrong: dict[str, str] = {}
        self._now = ""
        self.consumed: set[str] = set()
        self.padded = 0

    def load(self, model: Any) -> Fault | None:
        """Run the model's `load_weights`; what it raised."""
        import torch

        types = {word: getattr(torch, name) for word, name in _TORCH_TYPES.items()}
        # Held to the end: a storage that went could leave its key to another.
        self._made = [torch.empty(each.shape, dtype=types[each.dtype], device="meta") for each in self._tensors]
        self._names = {_key(made): frozenset({each.name}) for each, made in zip(self._tensors, self._made, strict=True)}
        try:
            with torch.no_grad(), _mode(self._saw):
                model.load_weights(self._weights())
        except Exception as error:
            return self._fault(error)
        return None

    def unwritten(self, model: Any) -> list[Fault]:
        """Parameters that nothing, or not all, was copied into, by the names that lack."""
        faults = [Fault("shape", name, text) for name, text in self._wrong.items()]
        kinds: defaultdict[str, set[str]] = defaultdict(set)
        for name, parameter in _parameters(model):
            for source in self._sources[_key(parameter)]:
                kinds[_NUMBER.sub("#", name, count=1)].add(_NUMBER.sub("#", source, count=1))
        for name, parameter in _parameters(model):
            key = _key(parameter)
            written, all_of_it = self._written[key], parameter.numel()
            if written >= all_of_it or name.endswith(UNWRITTEN_BY_DESIGN):
                continue
            layer = _NUMBER.search(name)
            expected = kinds[_NUMBER.sub("#", name, count=1)]
            # What the same parameter of the other layers is made from.
            made_from = {source.replace("#", layer[0], 1) for source in expected} if layer else set()
            lacking = sorted(made_from - self._sources[key])
            text = f"{written:,} of {all_of_it:,} numbers of the parameter {name} come from the checkpoint"
            kind = "partial" if written else "missing"
            if lacking:
                faults += [Fault("missing", each, f"the checkpoint lacks {each}: {text}") for each in lacking]
            else:
                faults.append(Fault(kind, name, text))
        return faults

    def kept_bytes(self, model: Any, real: Sizes, wanted: Sizes, *, draft: bool) -> tuple[int, int]:
        """Of the parameters, in the checkpoint's own types (the engine may unpack scales while it loads), without the
        Engram tables; and the part of it that is padding, spread evenly over the ranks.
        """
        total, padding = 0, 0.0
        for name, parameter in _parameters(model):
            if ".engram.embed." in name:
                continue
            kept = self._kept_bytes[_key(parameter)]
            total += kept
            if _OF_HEADS.search(name):
                padding += kept * (1 - real.heads / wanted.heads)
            elif draft and ".mlp.experts." in name:
                padding += kept * (1 - real.draft_experts / wanted.draft_experts)
        return total, round(padding)

    def _weights(self) -> Iterator[tuple[str, Any]]:
        for each, tensor in zip(self._tensors, self._made, strict=True):
            self._now = each.name
            yield each.name, tensor

    def _saw(self, operation: str, inputs: list[Any], outputs: list[Any]) -> None:
        if operation == "aten::copy_" and len(inputs) > 1:
            target, source = inputs[0], inputs[1]
            names = self._names.get(_key(source), frozenset())
            self._written[_key(target)] += target.numel()
            self._kept_bytes[_key(target)] += target.numel() * source.dtype.itemsize
            self._sources[_key(target)] |= names
            self.consumed |= names
            if names and source.dtype.itemsize > 1 and target.dtype.itemsize == 1:
                name = next(iter(names))
                self._wrong[name] = f"{name} is {source.dtype}, and the parameter that it fills is {target.dtype}"
            return
        if operation in ("aten::fill_", "aten::zero_"):
            self._written[_key(inputs[0])] += inputs[0].numel()  # the vocabulary's own padding
            return
        known = [self._names.get(_key(each), frozenset()) for each in inputs]
        names = frozenset().union(*known)
        if operation == "aten::cat" and names and not all(known):
            self.padded += 1  # joined with numbers that no file has
        for each in outputs:
            if names and _key(each) not in self._names:
                self._names[_key(each)] = names
                self._held.append(each)

    def _fault(self, error: Exception) -> Fault:
        from spark_overlay.tp_padding import PaddingError

        if isinstance(error, PaddingError):
            return Fault("shape", self._now, str(error))
        said = str(error).strip().splitlines()
        why = said[0] if said else f"it does not fit the model ({type(error).__name__})"
        shape = next((list(each.shape) for each in self._tensors if each.name == self._now), [])
        return Fault("shape", self._now, f"{self._now} of shape {shape} cannot be loaded: {why}")


def _parameters(model: Any) -> list[tuple[str, Any]]:
    """By the names of the model's own tree; the engine chains its layers a second time."""
    every = model.named_parameters(remove_duplicate=False)
    return [(name, parameter) for name, parameter in every if "._next_layer." not in name]


def _key(tensor: Any) -> int:
    return tensor.untyped_storage()._cdata


@contextlib.contextmanager
def _mode(saw: Callable[[str, list[Any], list[Any]], None]) -> Iterator[None]:
    """Every operation of torch in this thread, with its tensors."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    def tensors(values: Any) -> list[Any]:
        """Of an operation's arguments or result: tensors, or lists of them."""
        flat = [part for each in values for part in (each if isinstance(each, list | tuple) else (each,))]
        return [each for each in flat if isinstance(each, torch.Tensor)]

    class Watching(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # nothing is compiled here, and to say so at every operation costs as much as the operation

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if not func.is_view:  # a view has its tensor's storage
                saw(func._schema.name, tensors(args), tensors((out,)))
            return out

    with Watching():
        yield
