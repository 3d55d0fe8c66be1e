"""FP8 weights of 32x32 scales on a GPU: re-encoded for MXFP8, padded to whole tiles, and in a captured graph.

    python3 benchmarks/gpu/mxfp8_product.py [--json RESULT.json]

Under a minute on one NVIDIA GPU; needs torch for CUDA, no SGLang or FlashInfer: b12x itself runs on SM12x only. What
is compared: the dequantised product with float32 and float64, padded with unpadded, and graph replays whose activations
change. Exit 0 if every part held.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "overlay"))
import torch
from spark_overlay.adapters.mxfp8_backend import Inputs, pad_columns

SHAPES = {"wq_b TP3": (16384, 1280), "wo_b TP3": (5120, 4096), "down TP4": (5120, 576), "down TP8": (5120, 288)}
"""Rows and columns on a rank: [N, K]."""


def layer(rows: int, columns: int, dice: torch.Generator) -> Any:
    weight = (torch.randn(rows, columns, generator=dice, device="cuda") * 60).to(torch.float8_e4m3fn)
    exponents = torch.randint(-12, -6, (rows // 32, columns // 32), generator=dice, device="cuda")
    return SimpleNamespace(
        weight=torch.nn.Parameter(weight, requires_grad=False),
        weight_scale_inv=torch.nn.Parameter(torch.exp2(exponents.float()), requires_grad=False),
    )


def blockwise(made: Any, dtype: torch.dtype) -> torch.Tensor:
    """Dequantised as the checkpoint means it: one scale for 32 x 32."""
    scale = made.weight_scale_inv.data.to(dtype)
    return made.weight.data.to(dtype) * scale.repeat_interleave(32, 0).repeat_interleave(32, 1)


def encoded(made: Any, dtype: torch.dtype) -> torch.Tensor:
    """Dequantised as MXFP8: one e8m0 byte for a row's 32 columns."""
    bits = made.weight_scale_inv.data.contiguous().view(torch.int32)
    e8m0 = (bits >> 23).to(torch.uint8).repeat_interleave(32, dim=0)
    scale = torch.exp2(e8m0.to(dtype) - 127)
    return made.weight.data.to(dtype) * scale.repeat_interleave(32, 1)


def difference(found: torch.Tensor, right: torch.Tensor) -> float:
    return ((found.double() - right).norm() / right.norm()).item()


def one(name: str, rows: int, columns: int) -> dict[str, Any]:
    dice = torch.Generator("cuda").manual_seed(len(name))
    made = layer(rows, columns, dice)
    same = torch.equal(blockwise(made, torch.float64), encoded(made, torch.float64))
    activations = torch.randn(96, columns, generator=dice, device="cuda", dtype=torch.bfloat16)
    right = activations.double() @ blockwise(made, torch.float64).t()
    plain = activations.float() @ encoded(made, torch.float32).t()
    bf16 = activations @ encoded(made, torch.bfloat16).t()
    exact = activations.double() @ encoded(made, torch.float64).t()
    if columns % 128:
        pad_columns(made)
    wide = made.weight.shape[1]
    inputs = Inputs()
    weight32, weight64 = encoded(made, torch.float32), encoded(made, torch.float64)
    beside = inputs.padded(activations, wide) if wide != columns else activations
    padded64 = beside.double() @ weight64.t()
    padded32 = beside.float() @ weight32.t()
    zeros = bool((made.weight.data[:, columns:].float() == 0).all())
    replays = captured(inputs, weight32, columns, dice) if wide != columns else 0
    found = {
        "columns": columns, "stored": wide, "re-encoded weights bit-equal": same, "zeros": zeros,
        "fp32 against float64": difference(plain, right), "bf16 against float64": difference(bf16, right),
        "padded fp32 against float64": difference(padded32, right),
        "padded and plain in float64, largest": (padded64 - exact).abs().max().item(), "graph replays": replays,
    }  # fmt: skip
    assert same and zeros, found
    assert found["fp32 against float64"] < 1e-5 and found["padded fp32 against float64"] < 1e-5, found
    assert found["padded and plain in float64, largest"] <= 1e-9, found
    return found


def captured(inputs: Inputs, weight: torch.Tensor, columns: int, dice: torch.Generator) -> int:
    """Replays with new activations, another size between them; each equals the eager product bitwise."""
    wide, given = weight.shape[1], torch.zeros(6, columns, device="cuda", dtype=torch.bfloat16)

    def product() -> torch.Tensor:
        return inputs.padded(given, wide).float() @ weight.t()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        product()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out = product()
    torch.cuda.synchronize()
    replays = 24
    for number in range(replays):
        given.copy_(torch.randn(6, columns, generator=dice, device="cuda", dtype=torch.bfloat16))
        if number % 3 == 0:  # a prefill of another size in between, on the graph's stream
            with torch.cuda.stream(stream):
                inputs.padded(torch.full((700, columns), 9.0, device="cuda", dtype=torch.bfloat16), wide)
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        right = torch.nn.functional.pad(given, (0, wide - columns)).float() @ weight.t()
        assert torch.equal(out, right), f"replay {number} differs"
    return replays


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, Any] = {
        "at": datetime.date.today().isoformat(), "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
        "shapes": {name: one(name, *shape) for name, shape in SHAPES.items()},
    }  # fmt: skip
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
