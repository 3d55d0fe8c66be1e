"""FP8 layers with scales of 32x32 run on FlashInfer's b12x kernel of SM12x, or on the one that a setting names.

The engine prepares such a layer for FlashInfer's CUTLASS kernel: MXFP8 scales, one byte a row and 32 columns, in the
128x4 order that b12x reads as well. Only the kernel's name is changed, and what b12x cannot take (K no multiple of 128)
is padded with exact zeros when it is loaded: the shared expert's second product at TP 4 and 8.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from spark_overlay import checkpoint_config
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.switches import Values, Word

BACKEND = Word(
    "DSV41_MXFP8_BACKEND",
    "b12x",
    "FlashInfer's kernel for the FP8 layers: b12x, cudnn or cutlass; 0 leaves them to SGLang",
    "0|b12x|cudnn|cutlass",
    "b12x, cudnn or cutlass, or 0 for SGLang's own",
    "b12x",
)
ENGINES_OWN = "cutlass"
TILE = 128
"""b12x multiplies whole tiles of this many columns."""
PADDED_FROM = "spark_columns"
"""The attribute of a padded layer that holds how many columns it was loaded with."""
_LINEAR = "sglang.srt.layers.quantization.fp8_utils.flashinfer_mxfp8_blockscaled_linear"
_PREPARE = "sglang.srt.layers.quantization.fp8.Fp8LinearMethod._prepare_block_fp8_as_mxfp8"
_LOADED = "sglang.srt.model_executor.model_runner.ModelRunner.load_model"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def kernel_for(wanted: str, columns: int) -> str:
    """The kernel that a layer of so many columns takes when the setting says `wanted`."""
    return ENGINES_OWN if wanted == "b12x" and columns % TILE else wanted


class Inputs:
    """Activations beside zeros: `[rows, columns]` in buffers `[rows, padded columns]` that are kept for good.

    A captured graph has a buffer's address, so none is ever given back; a graph that meets no buffer of its size makes
    one of its own, whose zeros it then writes at each replay.
    """

    def __init__(self) -> None:
        self._buffers: defaultdict[tuple[Any, ...], list[Any]] = defaultdict(list)

    def padded(self, activations: Any, columns: int) -> Any:
        import torch

        rows, given = activations.shape
        stream, capturing = 0, False
        if activations.is_cuda:
            stream, capturing = torch.cuda.current_stream().cuda_stream, torch.cuda.is_current_stream_capturing()
        # One a stream: two streams may each be in a product of theirs.
        kept = self._buffers[activations.device, activations.dtype, given, columns, stream]
        if not kept or kept[-1].shape[0] < rows:
            if capturing:
                return torch.nn.functional.pad(activations, (0, columns - given))
            kept.append(activations.new_zeros(1 << max(0, rows - 1).bit_length(), columns))
        buffer = kept[-1][:rows]
        buffer[:, :given].copy_(activations)
        return buffer


def pad_columns(layer: Any) -> Callable[[], None]:
    """Zeros behind the layer's columns up to a whole tile, their block scales 1.0; how to take that back.

    `layer.weight` is [rows, K] in FP8, `layer.weight_scale_inv` [rows / 32, K / 32].
    """
    import torch

    weight, scale = layer.weight.data, layer.weight_scale_inv.data
    columns = weight.shape[1]
    more = -columns % TILE
    zeros = torch.zeros(weight.shape[0], more, dtype=torch.uint8, device=weight.device)
    joined = torch.cat([weight.view(torch.uint8), zeros], dim=1).view(weight.dtype)
    layer.weight.data = joined
    layer.weight_scale_inv.data = torch.nn.functional.pad(scale, (0, more * scale.shape[1] // columns), value=1.0)
    setattr(layer, PADDED_FROM, columns)

    def undo() -> None:
        layer.weight.data, layer.weight_scale_inv.data = weight, scale
        delattr(layer, PADDED_FROM)

    return undo


def _functions(values: Values) -> dict[str, Callable[..., Any]]:
    wanted = values[BACKEND.name]
    inputs = Inputs()

    def linear(
        original: Callable[..., Any],
        input: Any,
        weight: Any,
        weight_scale: Any,
        input_scale: Any = None,
        bias: Any = None,
        output_dtype: Any = None,
        backend: str = ENGINES_OWN,
        pin_tactic: bool = False,
    ) -> Any:
        if backend == ENGINES_OWN:
            backend = kernel_for(wanted, weight.shape[1])
        shape = input.shape
        if shape[-1] != weight.shape[1] and input_scale is None:
            input = inputs.padded(input.reshape(-1, shape[-1]), weight.shape[1])
        out = original(input, weight, weight_scale, input_scale, bias, output_dtype, backend, pin_tactic)
        return out.view(*shape[:-1], weight.shape[0])

    def prepare(original: Callable[..., Any], method: Any, layer: Any) -> None:
        columns = layer.weight.shape[1]
        plain = getattr(layer, "keep_plain_weight_layout", False)
        if wanted != "b12x" or plain or columns % TILE == 0 or columns % 32:
            return original(method, layer)
        undo = pad_columns(layer)
        original(method, layer)
        if not layer.block_fp8_mxfp8_ready:
            undo()  # on the engine's other kernel it keeps its own columns
        return None

    def loaded(result: None, runner: Any) -> None:
        from sglang.srt.runtime_context import get_platform

        if get_platform().is_sm120:
            for line in routes(runner.model, wanted):
                print(f"[spark] {line}", flush=True)

    return {_LINEAR: linear, _PREPARE: prepare, _LOADED: loaded}


def routes(model: Any, wanted: str) -> list[str]:
    """One line of which kernel the dense layers take, then one for each that takes Triton's."""
    from sglang.srt.layers.linear import LinearBase

    found: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, layer in model.named_modules():
        if isinstance(layer, LinearBase):
            found[_route(layer, wanted)][_NUMBER.sub("*", name)] += 1
    usual = {wanted, "bf16"}
    said = []
    for route, layers in sorted(found.items()):
        named = ", ".join(f"{name} x {count}" for name, count in sorted(layers.items()))
        said.append(f"{sum(layers.values())} {route}{'' if route in usual else f' ({named})'}")
    lines = [f"dense layers of {type(model).__name__}: {'; '.join(said)}"]
    lines += [
        f"WARNING {name} x {count} runs on Triton, several times slower: its block scales cannot be MXFP8's"
        for name, count in sorted(found["triton"].items())
    ]
    return lines


def _route(layer: Any, wanted: str) -> str:
    if getattr(layer, "keep_plain_weight_layout", False):
        return "in a kernel of the model's own"
    if not hasattr(layer, "block_fp8_mxfp8_ready"):
        return "bf16" if layer.weight.element_size() > 1 else "triton"
    if not layer.block_fp8_mxfp8_ready:
        return "triton"
    kernel = kernel_for(wanted, layer.weight.shape[1])
    if before := getattr(layer, PADDED_FROM, 0):
        return f"{kernel} with {before} columns padded to {layer.weight.shape[1]}"
    return kernel if kernel == wanted else f"{kernel}, since {wanted} takes no {layer.weight.shape[1]} columns"


def check(values: Values) -> None:
    """The engine looks its FlashInfer product up where the hook stands, and padding changes no number."""
    import torch
    from sglang.srt.layers.quantization import fp8_utils

    names = fp8_utils.dispatch_block_fp8_mxfp8_linear.__code__.co_names
    assert "flashinfer_mxfp8_blockscaled_linear" in names, "the engine's dispatch no longer takes this product"
    inputs = Inputs()
    first, second = (inputs.padded(torch.full((rows, 3), float(rows)), 8) for rows in (4, 2))
    assert first.data_ptr() == second.data_ptr(), "the buffer of padded activations moved"
    assert second.tolist() == [[2.0] * 3 + [0.0] * 5] * 2, "padding is not zero"


ADAPTER = Adapter(
    name="mxfp8_backend",
    problem="SGLang knows no b12x: it gives a Spark's FP8 layers of 32x32 scales to slower kernels.",
    settings=(BACKEND,),
    hooks=(
        HookPoint(
            _LINEAR,
            Kind.AROUND,
            "(input, weight, weight_scale, input_scale=None, bias=None, output_dtype=None, backend='cutlass', "
            "pin_tactic=False)",
            Process.SCHEDULER,
        ),
        HookPoint(_PREPARE, Kind.AROUND, "(self, layer)", Process.SCHEDULER),
        HookPoint(_LOADED, Kind.AFTER, "(self)", Process.SCHEDULER),
    ),
    engines=("0.5.23",),
    remove_when="SGLang takes b12x for MXFP8 on SM12x by itself, or FlashInfer's `auto` is reached.",
    off=lambda values: "" if values[BACKEND.name] not in (0, "0") else f"{BACKEND.name}=0",
    not_needed=checkpoint_config.not_for_this_model,
    functions=_functions,
    check=check,
)
