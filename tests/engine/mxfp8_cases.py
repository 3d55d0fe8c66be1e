"""Run by test_mxfp8_backend.py with the engine's Python: SGLang's own FP8 layers under a simulated SM121.

The kernel is a recorder that computes as FlashInfer's own torch reference does (`_mm_mxfp8_reference`), and scales are
in the order of FlashInfer's own torch form. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

seen: list[tuple[str, int]] = []


def quantized(activations: torch.Tensor, is_sf_swizzled_layout: bool = True, alignment: int = 32) -> Any:
    """MXFP8 of a matrix: e4m3 numbers, and one power of two for 32 of them in FlashInfer's 128x4 order."""
    from flashinfer.diffusion_ops.minimax_h3_fc1_swiglu import _swizzle_sf_128x4

    blocks = activations.float().view(activations.shape[0], -1, 32)
    peak = blocks.abs().amax(dim=-1).clamp(min=2.0**-120)
    exponent = torch.ceil(torch.log2(peak / 448)).clamp(-127, 127)
    numbers = (blocks / exponent.exp2().unsqueeze(-1)).view_as(activations).to(torch.float8_e4m3fn)
    return numbers, _swizzle_sf_128x4((exponent + 127).to(torch.uint8))


def product(a: torch.Tensor, b: torch.Tensor, a_scale: Any, b_scale: Any, *, backend: str, **_: Any) -> torch.Tensor:
    """In float32, so that zeros behind the columns cannot show."""
    from flashinfer.trace.templates.gemm import _e8m0_to_float, _unswizzle_sf_128x4

    seen.append((backend, a.shape[1]))
    assert backend != "b12x" or a.shape[1] % 128 == 0, "b12x takes whole tiles only"
    assert a_scale.ndim == b_scale.ndim == 1, "b12x takes scales in 128x4 order only"
    wide = []
    for numbers, scale in ((a, a_scale), (b.t(), b_scale)):
        scale = _e8m0_to_float(_unswizzle_sf_128x4(scale, numbers.shape[0], numbers.shape[1] // 32))
        wide.append(numbers.double() * scale.double().repeat_interleave(32, dim=1))
    return (wide[0] @ wide[1].t()).float()


def simulated_sm121() -> None:
    import flashinfer
    import flashinfer.autotuner
    from flashinfer.diffusion_ops.minimax_h3_fc1_swiglu import _swizzle_sf_128x4
    from sglang.srt.layers.quantization import fp8, fp8_utils
    from sglang.srt.runtime_context import override_platform

    override_platform(is_sm120=True, is_blackwell=True).install()
    for module in (fp8, fp8_utils):
        module._is_cuda = True
    fp8_utils.is_flashinfer_available = lambda: True
    fp8_utils.FP8_GEMM_RUNNER_BACKEND = fp8_utils.Fp8GemmRunnerBackend("flashinfer_cutlass")
    fp8_utils.flashinfer_mm_mxfp8, fp8_utils.flashinfer_mxfp8_quantize = product, quantized
    flashinfer.block_scale_interleave = _swizzle_sf_128x4


def layer(rows: int, columns: int, seed: int, bad_scale: bool = False) -> Any:
    """A linear of SGLang's with random FP8 weights and power-of-two block scales, processed as after a load."""
    from sglang.srt.layers.linear import ReplicatedLinear
    from sglang.srt.layers.quantization import fp8

    config = fp8.Fp8Config(
        is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[32, 32], scale_fmt="ue8m0"
    )
    made = ReplicatedLinear(columns, rows, bias=False, quant_config=config, params_dtype=torch.bfloat16)
    dice = torch.Generator().manual_seed(seed)
    made.weight.data = (torch.randn(rows, columns, generator=dice) * 60).to(torch.float8_e4m3fn)
    exponents = torch.randint(-9, -5, (-(-rows // 32), columns // 32), generator=dice)
    made.weight_scale_inv.data = torch.exp2(exponents.float())
    if bad_scale:
        made.weight_scale_inv.data[0, 0] = 0.0
    made.exact = made.weight.data.double() * (
        made.weight_scale_inv.data.double().repeat_interleave(32, 0)[:rows].repeat_interleave(32, 1)
    )
    made.quant_method._prepare_block_fp8_as_mxfp8(made)
    return made


def compared(made: Any, columns: int, rows: int) -> dict[str, Any]:
    """Largest difference to float64 over the activations as they were quantised, relative; and the kernel taken."""
    from flashinfer.trace.templates.gemm import _e8m0_to_float, _unswizzle_sf_128x4

    activations = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
    numbers, scale = quantized(activations)
    scale = _e8m0_to_float(_unswizzle_sf_128x4(scale, rows, columns // 32)).double().repeat_interleave(32, dim=1)
    right = (numbers.double() * scale) @ made.exact.t()
    seen.clear()
    method = made.quant_method
    out = method.w8a8_mxfp8_linear(input=activations, weight=made.weight, weight_scale=made.weight_scale_inv_swizzled)
    return {
        "kernel": seen[0][0], "columns": seen[0][1], "shape": list(out.shape),
        "difference": float((out.double() - right).abs().max() / right.abs().max()), "sum": out.double().sum().item(),
        "out": out.flatten()[:64].tolist(),
    }  # fmt: skip


def main() -> None:
    from spark_overlay import arming
    from spark_overlay.adapter import Process
    from spark_overlay.adapters import mxfp8_backend

    simulated_sm121()
    shapes = {"wq_b": (512, 1280), "down TP3": (320, 768), "down TP4": (320, 576), "down TP8": (320, 288)}
    found: dict[str, Any] = {"plain": {}, "armed": {}}
    for name, (rows, columns) in shapes.items():
        found["plain"][name] = compared(layer(rows, columns, 7), columns, 5)
    backend = sys.argv[1]
    ledger = (mxfp8_backend.ADAPTER,)
    arming.arm(ledger, arming.values_of(ledger, {"DSV41_MXFP8_BACKEND": backend}), [Process.SCHEDULER])
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList()
    for name, (rows, columns) in shapes.items():
        made = layer(rows, columns, 7)
        found["armed"][name] = compared(made, columns, 5)
        zeros = made.weight.data[:, columns:].float()
        scales = made.weight_scale_inv.data[:, columns // 32 :]
        found["armed"][name] |= {
            "stored": made.weight.shape[1], "zeros": bool((zeros == 0).all()), "ones": bool((scales == 1).all()),
            "again": compared(made, columns, 5)["out"] == found["armed"][name]["out"],
            "more rows": compared(made, columns, 40)["difference"],
        }  # fmt: skip
        model.layers.append(made)
    broken = layer(320, 576, 7, bad_scale=True)
    found["bad scale"] = [broken.weight.shape[1], broken.block_fp8_mxfp8_ready]
    model.layers.append(broken)
    found["routes"] = mxfp8_backend.routes(model, backend)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
